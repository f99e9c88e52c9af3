package app_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/internal/planner"
)

// With reviews grouped by team, the services of one team have one review, which
// counts once against the bound; each is accepted alone on RLC's page, the review
// then says what is left, and the forge merges only what all of it may.
func TestATeamsServicesShareAReviewOnTheForge(t *testing.T) {
	t.Parallel()
	const branch = "rlc/_team/team-a"
	a, s, push := onForge(t, "gitea", "team")
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	var up []rlc.Proposal
	eventually(t, "both are up at one commit", func() bool {
		up = openProposals(t, a, "")
		return len(up) == 2 && up[0].State == rlc.Open && up[1].State == rlc.Open && up[0].Branch == branch && up[1].Branch == branch &&
			up[0].Commit == up[1].Commit && up[0].URL == up[1].URL
	})
	v, _ := s.Review(branch)
	if v.State != forge.Open || v.Commit != up[0].Commit || v.Title != "rlc(team team-a): 2 services" {
		t.Errorf("the review is %s at %s, %q; want it open at %s", v.State, v.Commit, v.Title, up[0].Commit)
	}
	for _, want := range []string{"## rlc(checkout): 2 quotas", "## rlc(search): 1 quota", "Does not merge by itself now, because frozen until ", "platform/checkout.yaml: burst"} {
		if !strings.Contains(v.Body, want) {
			t.Errorf("the review's text lacks %q:\n%s", want, v.Body)
		}
	}

	// One accepted on the page leaves the other in the review.
	first, rest := up[0], up[1]
	if err := a.Accept(t.Context(), first.ID, "", "dana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the review holds the other one alone", func() bool {
		v, _ = s.Review(branch)
		return v.State == forge.Open && v.Title == "rlc(team team-a): 1 service" && !strings.Contains(v.Body, "## rlc("+first.Service+")")
	})
	eventually(t, "its proposal is where the branch is", func() bool {
		p, err := a.Records.ProposalByID(t.Context(), rest.ID)
		return err == nil && p.State == rlc.Open && p.Commit != rest.Commit
	})

	// Nothing holds it any more: the forge merges it.
	push("defaults.yaml", strings.Replace(frozenDefaults, "freeze", "# freeze", 1))
	eventually(t, "the forge merged it", func() bool { return accepted(t, a, rest.Service).ID == rest.ID })
	v, _ = s.Review(branch)
	if v.State != forge.Merged || v.By != "rlc-bot" {
		t.Errorf("the review is %s by %s, want it merged by rlc-bot", v.State, v.By)
	}
	eventually(t, "both are live", func() bool {
		_, c := a.Live()
		return c != nil && len(c.Quotas["checkout"]) == 2 && len(c.Quotas["search"]) == 1
	})
	if refs := git(t, s.Bare(), "for-each-ref", "--format=%(refname)", "refs/heads/rlc", "refs/rlc/proposed"); refs != "" {
		t.Errorf("left behind: %s", refs)
	}
}
