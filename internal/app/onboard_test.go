package app_test

import (
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/app"
)

// submit sends a form as whoever has the server's token and returns where the
// answer leads.
func submit(t *testing.T, a *app.App, path string, form url.Values) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", a.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	token, err := a.Config.Token.Read()
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusSeeOther {
		t.Fatalf("POST %s: %s", path, res.Status)
	}
	return res.Header.Get("Location")
}

// audited are the rows of one act, each as "actor object: detail".
func audited(t *testing.T, a *app.App, action string) (out []string) {
	t.Helper()
	rows, _, err := a.Records.AuditLog(t.Context(), rlc.AuditFilter{Action: action}, rlc.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range rows {
		out = append(out, e.Actor+" "+e.Object+": "+e.Detail)
	}
	return out
}

// firstLimit is what a look suggests for search, the only service without a
// policy.
func firstLimit(t *testing.T, a *app.App) rlc.Limit {
	t.Helper()
	// web peaks at 40/s each noon; its limit is the peak × 1.30 headroom = 52/s.
	seen, err := a.Look(t.Context(), "search")
	if err != nil {
		t.Fatal(err)
	}
	if seen.Profile != "rlc" || seen.Each != "caller" || len(seen.Limits) != 1 || seen.More != 0 {
		t.Fatalf("the look: %+v", seen)
	}
	first := seen.Limits[0]
	if first.Key.String() != "caller=web" || first.Peak < 39 || first.Peak > 40 || first.Days < 28 || first.Coverage < 0.99 || first.Limit == nil || first.Limit.Rate < 51 || first.Limit.Rate > 52.5 {
		t.Fatalf("the first limit: %+v %+v", first, first.Limit)
	}
	for name, want := range map[string]error{"nosuch": rlc.ErrNotFound, "checkout": rlc.ErrConflict} {
		if _, err := a.Look(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("a look at %s: %v, want %v", name, err, want)
		}
	}
	return *first.Limit
}

// Traffic without a policy becomes a policy in shadow, and a review of its
// first limits, through the pages of a real server.
func TestTrafficWithoutAPolicyIsOnboardedAndItsLimitsAreProposed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, rlc.Files{"services/checkout/policy.yaml": policy("checkout", "")}, nil)
	eventually(t, "search is seen without a policy", func() bool {
		names, _, err := a.Unmanaged()
		return err == nil && len(names) == 1 && names[0] == "search"
	})
	if page := get(t, a.URL+"/services?show=unmanaged"); !strings.Contains(page, "1 service has traffic and no policy") || !strings.Contains(page, `href="/services/search/onboard"`) {
		t.Errorf("the list of unmanaged services:\n%s", page)
	}

	first := firstLimit(t, a)
	if page := get(t, a.URL+"/services/search/onboard"); !strings.Contains(page, "One quota for each caller") || !strings.Contains(page, "1 of them with high confidence") {
		t.Errorf("the page that onboards:\n%s", page)
	}
	if _, err := a.Repo.PublishFirst(t.Context(), gitsync.Person{Name: "ann", Email: "ann@example.com"}, "First policies", rlc.Files{"services/search/policy.yaml": policy("search", "")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its first policy waits", func() bool { begun, _ := a.Begun(); return slices.Equal(begun, []string{"search"}) })
	if err := a.Onboard(t.Context(), "search", nil, "ana"); !errors.Is(err, rlc.ErrConflict) || !strings.Contains(err.Error(), "rlc/_init") {
		t.Errorf("onboarded beside a first policy that waits: %v", err)
	}
	git(t, filepath.Join(dir, "config.git"), "update-ref", "-d", "refs/heads/rlc/_init")
	if to := submit(t, a, "/services/search/onboard", url.Values{"owners": {"team-search, team-web"}}); to != "/proposals?service=search&done=onboarded" {
		t.Errorf("onboarding leads to %s", to)
	}
	_, files, err := a.Repo.Head(t.Context())
	want := "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: search\nowners: [team-search, team-web]\nprofile: rlc\nbuckets:\n  - {name: callers, each: [caller]}\n"
	if got := string(files["services/search/policy.yaml"]); err != nil || got != want {
		t.Errorf("policy.yaml (%v):\n%s", err, got)
	}
	message := git(t, filepath.Join(dir, "config.git"), "log", "-1", "--format=%an%n%B", "main")
	if !strings.Contains(message, "Onboard search, all in shadow") || !strings.Contains(message, "RLC-Actor: token") {
		t.Errorf("the commit:\n%s", message)
	}
	if rows := audited(t, a, "service.onboard"); len(rows) != 1 || !strings.HasPrefix(rows[0], "token search: policy.yaml at ") {
		t.Errorf("audit %q", rows)
	}

	var proposed rlc.Proposal
	eventually(t, "the limits are proposed", func() bool {
		p := openProposals(t, a, "search")
		if len(p) == 1 {
			proposed = p[0]
		}
		return len(p) == 1 && p[0].State == rlc.Open
	})
	if len(proposed.Changes) != 1 || proposed.Changes[0].New == nil || *proposed.Changes[0].New != first {
		t.Errorf("proposed %+v, the look had suggested %+v", proposed.Changes, first)
	}
	_, desired := a.Desired()
	if mode := desired.Service("search").Buckets[0].Mode; mode != rlc.Shadow {
		t.Errorf("onboarded in %s", mode)
	}
	if names, _, _ := a.Unmanaged(); len(names) != 0 {
		t.Errorf("still without a policy: %v", names)
	}
	if err := a.Onboard(t.Context(), "search", nil, "ana"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("onboarded twice: %v", err)
	}
	acceptAll(t, a)
	if _, live := a.Live(); live.Quota("search", "callers", rlc.Key{"caller": "web"}) == nil {
		t.Error("what was accepted is not live")
	}
}

// Who needs a higher limit asks for it: owners are told, it is on the overview
// until it is answered, and no limit moves.
func TestAskingForMoreTellsOwnersAndStandsUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	o := receive(t)
	a := stagedWith(t, o, time.Hour, twoServices())
	before, _ := a.Live()
	why := "/why?service=checkout&caller=web"
	if to := submit(t, a, "/why", url.Values{"service": {"checkout"}, "bucket": {"callers"}, "key": {"caller=web"}, "rate": {"900"}, "reason": {"launch on Friday"}, "back": {why}}); !strings.HasPrefix(to, why) {
		t.Errorf("asking leads to %s", to)
	}
	eventually(t, "the owners are told", func() bool { return len(o.of("ask")) == 1 })
	if n := o.of("ask")[0]; n.Service != "checkout" || strings.Join(n.Owners, ",") != "team-a" || n.URL != a.URL+"/services/checkout#asked" || n.Text != "token asks for 900 req/s on callers/caller=web: launch on Friday" {
		t.Errorf("told %+v", n)
	}
	if page := get(t, a.URL+"/"); !strings.Contains(page, "token asks for 900 req/s on callers / web: launch on Friday") {
		t.Errorf("it is not in the queue of the overview:\n%s", page)
	}
	rows, _, err := a.Records.AuditLog(t.Context(), rlc.AuditFilter{Action: "quota.ask"}, rlc.Page{Size: 10})
	if err != nil || len(rows) != 1 {
		t.Fatalf("audit %+v: %v", rows, err)
	}
	submit(t, a, "/services/checkout/asks/"+rows[0].ID+"/answer", url.Values{"reason": {"from Monday on"}})
	if page := get(t, a.URL+"/"); strings.Contains(page, "launch on Friday") {
		t.Error("answered, and still in the queue")
	}
	if got := audited(t, a, "quota.answer"); len(got) != 1 || !strings.HasSuffix(got[0], ": checkout, token had asked: from Monday on") {
		t.Errorf("audit %q", got)
	}
	if after, _ := a.Live(); after != before {
		t.Errorf("an ask moved the base branch from %s to %s", before, after)
	}
}
