package app_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/planner"
)

const frozenDefaults = "apiVersion: rlc/v1\nkind: Defaults\nauto_merge: {max_change: 0.2}\nfreeze: [{cron: \"* * * * *\", for: 1h}]\n"

// forges are the kinds of forge as the configuration names them.
var forges = map[string]forgetest.Kind{"github": forgetest.GitHub, "gitlab": forgetest.GitLab, "gitea": forgetest.Gitea}

// onForge runs a server whose reviews are on a fake forge, one open at most, over
// two services that merge by themselves and are frozen.
func onForge(t *testing.T, kind, groupBy string) (a *app.App, s *forgetest.Server, push func(file, text string)) {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "acme", "config.git")
	if err := os.MkdirAll(filepath.Dir(bare), 0o755); err != nil {
		t.Fatal(err)
	}
	files := twoServices()
	files["defaults.yaml"] = []byte(frozenDefaults)
	files["services/checkout/policy.yaml"] = policy("checkout", "targets: [{kind: envoy-ratelimit, path: platform/checkout.yaml}]\n")
	if err := gitsync.Init(t.Context(), bare, "main", files, dana, "First configuration"); err != nil {
		t.Fatal(err)
	}
	s = forgetest.NewServer(t, forges[kind], bare, "canary-token")
	hookSecret := filepath.Join(t.TempDir(), "hook")
	write(t, hookSecret, []byte("canary-hook\n"))
	a = open(t, t.TempDir(), nil, func(c *config.Server) {
		c.Repository.URL, c.Repository.User, c.Repository.TokenFile, c.Repository.CAFile = s.GitURL(), "rlc", s.TokenFile(), s.CAFile()
		c.Forge.Kind, c.Forge.URL, c.Forge.Repository = kind, s.URL, forgetest.Repo
		c.Forge.WebhookSecretFile = hookSecret
		c.Reviews.MaxOpen, c.Reviews.GroupBy = 1, groupBy
	})
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, bare, "clone", "-q", bare, clone)
	return a, s, func(file, text string) {
		t.Helper()
		git(t, clone, "pull", "-q", "--ff-only")
		write(t, filepath.Join(clone, file), []byte(text))
		git(t, clone, "add", file)
		git(t, clone, "commit", "-qm", "By hand: "+file)
		git(t, clone, "push", "-q", "origin", "main")
	}
}

// The forge merges what needs no person: not during a freeze, not while a
// person's label holds it, exactly the commit that was judged, and one review at
// a time. What it merged counts for the next one's turn as RLC's own merge.
func TestTheForgeMergesWhatNeedsNoPerson(t *testing.T) {
	t.Parallel()
	for kind := range forges {
		t.Run(kind, func(t *testing.T) { forgeMerges(t, kind) })
	}
}

func forgeMerges(t *testing.T, kind string) {
	a, s, push := onForge(t, kind, "service")
	push("CODEOWNERS", "services/checkout/ @bob @acme/payments\n")
	push("services/search/policy.yaml", strings.Replace(string(policy("search", "")), "team-a", "\"@ann\"", 1))
	head, _, err := a.Repo.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owners are read", func() bool { now, _ := a.Desired(); return now.Hash == head.Hash })
	if run, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil || run.Result != rlc.ResultOK {
		t.Fatalf("a run of which one review waits for its turn: %+v, %v", run, err)
	}
	up, queued := upAndQueued(t, a)
	if page := get(t, a.URL+"/proposals/"+queued.ID); !strings.Contains(page, "It waits for its turn: no more than 1 may be open (reviews.max_open).") || strings.Contains(page, "Publishing failed") {
		t.Errorf("the page of the one that waits does not say so:\n%s", page)
	}
	if ok, because := a.Mergeable(t.Context(), up); ok || !strings.HasPrefix(because, "frozen until ") {
		t.Errorf("%s merges %v, because %q", up.Service, ok, because)
	}
	s.SetLabels(up.Branch, "rlc/hold")
	push("defaults.yaml", strings.Replace(frozenDefaults, "freeze", "# freeze", 1))
	eventually(t, "the label holds it", func() bool {
		up, queued = upAndQueued(t, a)
		ok, because := a.Mergeable(t.Context(), up)
		return !ok && because == "its review is labelled rlc/hold"
	})
	if v, _ := s.Review(up.Branch); v.State != forge.Open || v.Commit != up.Commit {
		t.Fatalf("the held review is %s at %s, want it open at %s", v.State, v.Commit, up.Commit)
	}

	s.SetLabels(up.Branch)
	tell(t, a, kind, `{"action":"unlabeled"}`)
	var first rlc.Proposal
	eventually(t, "the forge merged it", func() bool { first = accepted(t, a, up.Service); return first.ID != "" })
	if v, _ := s.Review(up.Branch); v.State != forge.Merged || v.By != "rlc-bot" || v.Commit != up.Commit || first.Content != up.Content {
		t.Errorf("the review is %+v, want %s merged by rlc-bot", v, up.Commit)
	}
	eventually(t, "the queued one is put up and merged", func() bool { return accepted(t, a, queued.Service).ID != "" })
	eventually(t, "it is live", func() bool {
		head, _, err := a.Repo.Head(t.Context())
		v, c := a.Live()
		return err == nil && c != nil && v == head.Version && len(c.Quotas["checkout"]) == 2 && len(c.Quotas["search"]) == 1
	})
	if v, _ := s.Review("rlc/checkout"); !strings.Contains(v.Body, "### What the rendered files cannot say") || !strings.Contains(v.Body, "platform/checkout.yaml: burst") {
		t.Errorf("the review does not say what is lost in the rendered file:\n%s", v.Body)
	}

	team := " payments"
	if kind == "gitlab" {
		team = "" // its API asks people only
	}
	if got, want := fmt.Sprint(s.Reviewers("rlc/checkout"), s.Reviewers("rlc/search")), "[bob"+team+"] [ann]"; got != want {
		t.Errorf("asked %s, want %s: CODEOWNERS', else the policy's owners", got, want)
	}
	asks, _, err := a.Records.AuditLog(t.Context(), rlc.AuditFilter{Actor: "rlc auto-merge"}, rlc.Page{Size: 100})
	if err != nil || len(asks) != 2 || asks[1].Action != "proposal.auto_merge" || asks[1].Object != first.ID ||
		!strings.HasPrefix(asks[1].Detail, up.Service+": no quota moves by more than") || !strings.HasSuffix(asks[1].Detail, "; content "+first.Content) {
		t.Errorf("audit: %+v, %v", asks, err)
	}
	next := first
	next.State = rlc.Open
	if ok, because := a.Mergeable(t.Context(), next); ok || !strings.HasPrefix(because, "the last one merged by itself at ") {
		t.Errorf("it merges again at once: %v, because %q", ok, because)
	}
	// 1.45 of the first number, then 1.6: within max_change, beyond the month's +50 %.
	step := first.Changes[0]
	was := *step.New
	at := func(f float64) *rlc.Limit {
		return &rlc.Limit{Rate: rlc.Rate(float64(was.Rate) * f), Burst: rlc.Burst(float64(was.Burst) * f)}
	}
	step.Old, step.OldMode, step.New = at(1.45), step.NewMode, at(1.6)
	next.Changes = []rlc.Change{step}
	if ok, because := a.Mergeable(t.Context(), next); ok || !strings.HasSuffix(because, " 30 days ago, more than +50 %") {
		t.Errorf("it climbs beyond its month's budget: %v, because %q", ok, because)
	}
}

// upAndQueued are the one proposal that is up and the one that waits its turn.
func upAndQueued(t *testing.T, a *app.App) (up, queued rlc.Proposal) {
	t.Helper()
	eventually(t, "one is up, one waits", func() bool {
		up, queued = rlc.Proposal{}, rlc.Proposal{}
		for _, p := range openProposals(t, a, "") {
			if p.State == rlc.Open {
				up = p
			} else {
				queued = p
			}
		}
		rows, err := a.Records.Outbox(t.Context())
		return err == nil && up.ID != "" && len(rows) == 1 && rows[0].Attempts == 0 && queued.ID == rows[0].ProposalID && queued.Error == "" && strings.HasPrefix(queued.Reason, "waits for its turn")
	})
	return up, queued
}

// accepted is the newest accepted proposal of a service; the zero one before.
func accepted(t *testing.T, a *app.App, service string) rlc.Proposal {
	t.Helper()
	all, _, err := a.Records.Proposals(t.Context(), rlc.Accepted, service, rlc.Page{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return rlc.Proposal{}
	}
	return all[0]
}

// tell sends the message of a fake forge, with its proof.
func tell(t *testing.T, a *app.App, kind, message string) {
	t.Helper()
	const secret = "canary-hook"
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(message))
	proof := hex.EncodeToString(sum.Sum(nil))
	header := map[string][2]string{
		"github": {"X-Hub-Signature-256", "sha256=" + proof}, "gitea": {"X-Gitea-Signature", proof}, "gitlab": {"X-Gitlab-Token", secret},
	}[kind]
	r, err := http.NewRequestWithContext(t.Context(), "POST", a.URL+"/hooks/forge", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(header[0], header[1])
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("the webhook answers %s", resp.Status)
	}
}
