package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
)

// A service that allows it merges what needs no person, with an audit row that
// says why; one that is frozen, and one that allows nothing, wait and say so.
func TestWhatNeedsNoPersonMergesByItself(t *testing.T) {
	t.Parallel()
	files := rlc.Files{
		"services/checkout/policy.yaml": policy("checkout", "auto_merge: {max_change: 0.2}\n"),
		"services/search/policy.yaml":   policy("search", "auto_merge: {max_change: 0.2}\nfreeze: [{cron: \"* * * * *\", for: 1h}]\n"),
	}
	a := open(t, t.TempDir(), files, nil)
	if _, err := a.Compute(t.Context(), planner.Ask{}); err != nil {
		t.Fatal(err)
	}
	var merged []rlc.Proposal
	eventually(t, "a merge without a person", func() bool {
		merged, _, _ = a.Records.Proposals(t.Context(), rlc.Accepted, "", rlc.Page{})
		return len(merged) > 0
	})
	if len(merged) != 1 || merged[0].Service != "checkout" || merged[0].Actor != "rlc auto-merge" {
		t.Fatalf("merged: %+v", merged)
	}
	if msg := git(t, a.Config.Repository.URL, "log", "-1", "--format=%B", "main"); !strings.Contains(msg, "RLC-Actor: rlc auto-merge") {
		t.Errorf("the commit does not say who merged:\n%s", msg)
	}
	rows, _, err := a.Records.Audit(t.Context(), rlc.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, e := range rows {
		if e.Actor == "rlc auto-merge" {
			found = e.Action == "proposal.accepted" && e.Object == merged[0].ID && strings.Contains(e.Detail, "20 % are allowed") && strings.Contains(e.Detail, "content "+merged[0].Content)
		}
	}
	if !found {
		t.Errorf("no audit row names the conditions: %+v", rows)
	}
	waits := openProposals(t, a, "search")
	if len(waits) != 1 {
		t.Fatalf("%d proposals of search are open, want 1", len(waits))
	}
	if ok, because := a.Mergeable(t.Context(), waits[0]); ok || !strings.HasPrefix(because, "frozen until ") {
		t.Errorf("search merges %v, because %q", ok, because)
	}
	if page := get(t, a.URL+"/proposals/"+waits[0].ID); !strings.Contains(page, "Does not merge by itself now, because frozen until ") {
		t.Error("the page does not say why it waits")
	}
	// Soon after one merge the next one of the service waits its turn.
	again := merged[0]
	again.State, again.Created = rlc.Open, time.Now()
	if ok, because := a.Mergeable(t.Context(), again); ok || !strings.HasPrefix(because, "the last one merged by itself at ") {
		t.Errorf("checkout merges again: %v, because %q", ok, because)
	}
	again.Human = true
	if ok, because := a.Mergeable(t.Context(), again); ok || because != "a person committed to its branch" {
		t.Errorf("a branch with a person's commit merges: %v, because %q", ok, because)
	}
}
