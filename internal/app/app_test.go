package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/porttest"
	"github.com/openrlc/rlc/internal/promserver"
)

var dana = gitsync.Person{Name: "Dana", Email: "dana@example.com"}

// policy is a service's whole policy: one quota per caller.
func policy(service string, extra string) []byte {
	return []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: " + service + "\nowners: [team-a]\n" + extra + "buckets:\n  - {name: callers, each: [caller]}\n")
}

func twoServices() rlc.Files {
	return rlc.Files{
		"services/checkout/policy.yaml": policy("checkout", ""),
		"services/search/policy.yaml":   policy("search", ""),
	}
}

// daily is a caller's rate: a day's wave that peaks at noon.
func daily(peak float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		h := float64(t.UTC().Hour()) + float64(t.UTC().Minute())/60
		return peak * (0.55 - 0.45*math.Cos(2*math.Pi*h/24))
	}
}

// open builds a server on dir with weeks of history for (service, caller) and
// runs it until the test ends.
func open(t *testing.T, dir string, files rlc.Files, set func(*config.Server)) *app.App {
	t.Helper()
	c := config.Server{Listen: "127.0.0.1:0", Data: dir, Poll: 50 * time.Millisecond, Scrape: time.Second}
	if set != nil {
		set(&c)
	}
	a, err := app.Open(t.Context(), c, app.Options{Files: files, Author: dana})
	if err != nil {
		t.Fatal(err)
	}
	if a.Store != nil {
		backfill(t, a.Store, time.Now().UTC().Truncate(time.Minute))
	}
	t.Cleanup(carry(t, a))
	eventually(t, "ready", func() bool { return len(a.Ready()) == 0 })
	return a
}

// carry runs a until the function that it returns is called for the first time.
func carry(t *testing.T, a *app.App) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func backfill(t *testing.T, s *promserver.Server, now time.Time) {
	t.Helper()
	backfillFrom(t, s, now.Add(-28*24*time.Hour), now)
}

// backfillFrom is backfill with the minutes from from until now.
func backfillFrom(t *testing.T, s *promserver.Server, from, now time.Time) {
	t.Helper()
	var in []promserver.LabelledSeries
	for service, callers := range map[string]map[string]float64{
		"checkout": {"web": 200, "mobile": 500},
		"search":   {"web": 40},
	} {
		for caller, peak := range callers {
			rate := daily(peak)
			in = append(in, promserver.LabelledSeries{
				Labels: map[string]string{"__name__": "rlc:enforcer_requests:rate1m", "service": service, "caller": caller, "procedure": "Get"},
				Samples: func(yield func(int64, float64) bool) {
					for at := from; at.Before(now); at = at.Add(time.Minute) {
						if !yield(at.UnixMilli(), rate(at)) {
							return
						}
					}
				},
			})
		}
	}
	if err := s.Backfill(t.Context(), in, nil); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never came: %s", what)
		case <-tick.C:
		}
	}
}

func openProposals(t *testing.T, a *app.App, service string) []rlc.Proposal {
	t.Helper()
	ps, _, err := a.Records.Proposals(t.Context(), rlc.Open, service, rlc.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// acceptAll merges what is open and waits until it is live.
func acceptAll(t *testing.T, a *app.App) {
	t.Helper()
	for _, p := range openProposals(t, a, "") {
		if err := a.Accept(t.Context(), p.ID, "", "dana"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the merged head is live", func() bool {
		head, _, err := a.Repo.Head(t.Context())
		v, live := a.Live()
		return err == nil && live != nil && v == head.Version
	})
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GIT_AUTHOR_NAME=Sam", "GIT_AUTHOR_EMAIL=sam@example.com", "GIT_COMMITTER_NAME=Sam", "GIT_COMMITTER_EMAIL=sam@example.com", "GIT_CONFIG_GLOBAL=/dev/null")
	if who := os.Getenv("GIT_TEST_COMMITTER"); who != "" {
		cmd.Env = append(cmd.Env, "GIT_COMMITTER_NAME="+who, "GIT_COMMITTER_EMAIL="+who+"@localhost")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// checkout is a person's clone of a server's config repository.
func checkout(t *testing.T, data string) string {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, t.TempDir(), "clone", "-q", filepath.Join(data, "config.git"), clone)
	return clone
}

// handWritten is a policy of n buckets with limits of a person's own.
func handWritten(n int) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\nbuckets:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: b%d, match: {caller: c%d}, limit: {rate: 10, burst: 20}}\n", i, i)
	}
	return []byte(b.String())
}

// The whole loop: history becomes a proposal, a person accepts it, the
// enforcer counts what it would drop, and a second run has nothing to say.
func TestHistoryBecomesReviewedQuotasThatEnforcersCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, twoServices(), nil)
	now := time.Now().UTC().Truncate(time.Second)

	run, err := a.Compute(t.Context(), planner.Ask{Slot: "one", Now: now, Actor: "dana"})
	if err != nil {
		t.Fatal(err)
	}
	if run.Result != rlc.ResultOK || run.Changed != 3 {
		t.Fatalf("first run: %+v", run)
	}
	if got := openProposals(t, a, ""); len(got) != 2 || got[0].Changes[0].Backtest.New == nil {
		t.Fatalf("proposals: %+v", got)
	}
	acceptAll(t, a)

	// 200/s at noon × 1.30 headroom, rounded up to three digits.
	_, c := a.Desired()
	q := c.Quota("checkout", "callers", rlc.Key{"caller": "web"})
	if q == nil || q.Rate < 255 || q.Rate > 262 || !strings.Contains(q.Why, "1.30 headroom") {
		t.Fatalf("quota: %+v", q)
	}
	log := git(t, filepath.Join(dir, "config.git"), "log", "--format=%B", "main")
	if !strings.Contains(log, "RLC-Run: ") || !strings.Contains(log, "RLC-Epoch: ") || !strings.Contains(log, "RLC-Actor: dana") {
		t.Errorf("trailers are missing:\n%s", log)
	}

	// In shadow 2,000 requests at once pass and those beyond the burst are virtual drops.
	virtual := 0
	for range 2000 {
		d := a.Enforcer.Decide(enforcer.Request{Service: "checkout", Attributes: rlc.Attributes{"caller": "web", "procedure": "Get"}, Cost: 1})
		if d.Outcome == enforcer.Drop {
			t.Fatal("a shadow bucket dropped")
		}
		if d.Outcome == enforcer.VirtualDrop {
			virtual++
		}
	}
	if virtual < 1000 {
		t.Errorf("virtual drops: %d of 2000 with a burst of %d", virtual, q.Burst)
	}

	before := git(t, filepath.Join(dir, "config.git"), "rev-parse", "main")
	again, err := a.Compute(t.Context(), planner.Ask{Slot: "two", Now: now, Actor: "dana"})
	if err != nil {
		t.Fatal(err)
	}
	if again.Changed != 0 || len(openProposals(t, a, "")) != 0 {
		t.Errorf("second run: %+v", again)
	}
	if after := git(t, filepath.Join(dir, "config.git"), "rev-parse", "main"); after != before {
		t.Error("a run without changes moved the base branch")
	}
	if branches := git(t, filepath.Join(dir, "config.git"), "branch", "--list", "rlc/*"); branches != "" {
		t.Errorf("branches are left: %s", branches)
	}
}

// The same now and the same head give the same bytes, from two servers that
// share nothing.
func TestEqualInputsGiveEqualBytes(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Minute)
	var trees [2]string
	for i := range trees {
		dir := t.TempDir()
		a := open(t, dir, twoServices(), nil)
		if _, err := a.Compute(t.Context(), planner.Ask{Slot: "same", Now: now}); err != nil {
			t.Fatal(err)
		}
		trees[i] = git(t, filepath.Join(dir, "config.git"), "show", "rlc/checkout:services/checkout/quotas.yaml")
	}
	if trees[0] != trees[1] {
		t.Errorf("two computations differ:\n%s\n%s", trees[0], trees[1])
	}
}

// A person's push of a policy recomputes that service at once, and only that.
func TestPushOfAPolicyRecomputesThatService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	acceptAll(t, a)

	clone := checkout(t, dir)
	write(t, filepath.Join(clone, "services/checkout/policy.yaml"), policy("checkout", "defaults: {policy: {kind: historical, headroom: 0.8}}\n"))
	git(t, clone, "commit", "-qam", "More headroom for checkout")
	git(t, clone, "push", "-q", "origin", "main")

	eventually(t, "a proposal for checkout", func() bool { return len(openProposals(t, a, "checkout")) == 1 })
	if got := openProposals(t, a, "search"); len(got) != 0 {
		t.Errorf("search was recomputed: %+v", got)
	}
	runs, _, err := a.Records.Runs(t.Context(), rlc.Page{Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	byConfig := 0
	for _, r := range runs {
		if r.Trigger == rlc.ByConfig {
			byConfig++
		}
	}
	if byConfig != 1 {
		t.Errorf("%d runs by config, want 1: own commits fire nothing", byConfig)
	}
}

// An unreachable history holds every quota, says so, and nothing is lowered.
func TestUnreachableHistoryHoldsAndSaysSo(t *testing.T) {
	t.Parallel()
	closed := "http://" + porttest.Free(t)
	files := twoServices()
	files["services/checkout/quotas.yaml"] = []byte("# Written by rlc from policy.yaml and traffic history. People edit policy.yaml.\napiVersion: rlc/v1\nkind: ServiceQuotas\nservice: checkout\nquotas:\n  - bucket: callers\n    key: {caller: web}\n    rate: 260\n    burst: 520\n    why: \"weekly peak 200/s × 1.30 headroom\"\n")
	a := open(t, t.TempDir(), files, func(c *config.Server) { c.Prometheus.URL = closed })
	run, err := a.Compute(t.Context(), planner.Ask{Slot: "one"})
	if err == nil && run.Result == rlc.ResultOK {
		t.Fatalf("a run without history is ok: %+v", run)
	}
	if len(openProposals(t, a, "")) != 0 {
		t.Error("something was proposed without history")
	}
	changes, err := a.Records.LatestChanges(t.Context(), "checkout")
	if err != nil || len(changes) != 1 || changes[0].Held == "" || *changes[0].New != *changes[0].Old {
		t.Errorf("changes: %+v, %v", changes, err)
	}
	eventually(t, "a banner that says history is unreachable", func() bool {
		for _, b := range a.Banners() {
			if strings.Contains(b.Text, "unreachable") {
				return true
			}
		}
		return false
	})
	if page := get(t, a.URL+"/"); !strings.Contains(page, "unreachable") {
		t.Error("the overview does not say that history is unreachable")
	}
}

// A policy that does not parse fails alone and visibly.
func TestBrokenPolicyFailsAlone(t *testing.T) {
	t.Parallel()
	files := twoServices()
	files["services/search/policy.yaml"] = []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: search\nbuckets:\n  - {name: callers, each: [caller], polcy: {kind: historical}}\n")
	a := open(t, t.TempDir(), files, nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	if got := openProposals(t, a, ""); len(got) != 1 || got[0].Service != "checkout" {
		t.Errorf("proposals: %+v", got)
	}
	if page := get(t, a.URL+"/services"); !strings.Contains(page, "polcy") {
		t.Error("the list of services does not name the key that does not parse")
	}
	// The other service goes on; the broken one is not distributed.
	eventually(t, "checkout is live", func() bool { _, live := a.Live(); return live != nil })
	if _, live := a.Live(); live.Service("checkout") == nil || live.Service("search") != nil {
		t.Errorf("live: %+v", live.Services)
	}
}

// A broken push of one team keeps that team's last good quotas and stops
// nobody else's.
func TestABrokenPushKeepsThatServicesLastGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	acceptAll(t, a)
	clone := checkout(t, dir)
	write(t, filepath.Join(clone, "services/search/policy.yaml"), []byte("apiVersion: rlc/v1\n  broken\n"))
	write(t, filepath.Join(clone, "services/checkout/policy.yaml"), policy("checkout", "defaults: {mode: enforce}\n"))
	git(t, clone, "commit", "-qam", "One good, one bad")
	git(t, clone, "push", "-q", "origin", "main")
	eventually(t, "checkout enforces", func() bool {
		_, live := a.Live()
		return live.Service("checkout").Buckets[0].Mode == rlc.Enforce
	})
	_, live := a.Live()
	if live.Service("search") == nil || live.Quota("search", "callers", rlc.Key{"caller": "web"}) == nil {
		t.Error("search lost its last good quotas")
	}
	eventually(t, "a banner that names the file", func() bool {
		for _, b := range a.Banners() {
			if strings.Contains(b.Text, "search keeps the last good quotas") && strings.Contains(b.Detail, "services/search/policy.yaml:") {
				return true
			}
		}
		return false
	})
}

// Accepting needs an open proposal; a second answer is a conflict, and both
// acts are in the audit.
func TestAProposalIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	ps := openProposals(t, a, "")
	// The follower may see the branch go before the decision is on record.
	seen := ps[0]
	seen.State = rlc.Rejected
	if p, err := a.FoundWhileDeciding(t.Context(), seen); err != nil || p.State != rlc.Open {
		t.Errorf("found while dana decides: %s, %v; want open", p.State, err)
	}
	if err := a.Reject(t.Context(), ps[0].ID, "dana", "not this week"); err != nil {
		t.Fatal(err)
	}
	if err := a.Accept(t.Context(), ps[0].ID, "", "dana"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("accept after reject: %v", err)
	}
	entries, _, err := a.Records.Audit(t.Context(), rlc.Page{})
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, e := range entries {
		found += fmt.Sprintln(e.Actor, e.Action, e.Object, e.Detail)
	}
	if !strings.Contains(found, "dana proposal.rejected "+ps[0].ID+" not this week") {
		t.Errorf("audit:\n%s", found)
	}
	// A rejected proposal does not come back with the same numbers.
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "two"}); err != nil {
		t.Fatal(err)
	}
	if got := openProposals(t, a, ps[0].Service); len(got) != 0 {
		t.Errorf("a rejected proposal came back: %+v", got)
	}
}

// A server that is stopped and started on the same data knows what it knew.
func TestARestartGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var version rlc.Version
	t.Run("first", func(t *testing.T) {
		a := open(t, dir, twoServices(), nil)
		if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
			t.Fatal(err)
		}
		acceptAll(t, a)
		version, _ = a.Live()
	})
	t.Run("second", func(t *testing.T) {
		c := config.Server{Listen: "127.0.0.1:0", Data: dir, Poll: 50 * time.Millisecond}
		a, err := app.Open(t.Context(), c, app.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if _, err := app.Open(t.Context(), c, app.Options{}); err == nil || !strings.Contains(err.Error(), "another rlc runs on "+dir) {
			t.Errorf("a second server on the same data: %v", err)
		}
		// Before anything ran, the enforcer serves its last good snapshot.
		if got := a.Enforcer.Version(); got != version {
			t.Errorf("last good is %s, want %s", got, version)
		}
	})
}

func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %v\n%s", url, res.Status, err, b)
	}
	return string(b)
}

// A person may remove many buckets at once, and is named; the enforcers follow.
func TestAPersonsRemovalReachesTheEnforcers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, rlc.Files{"services/checkout/policy.yaml": handWritten(40)}, nil)
	eventually(t, "forty buckets are live", func() bool { _, live := a.Live(); return live != nil })
	clone := checkout(t, dir)
	write(t, filepath.Join(clone, "services/checkout/policy.yaml"), handWritten(6))
	git(t, clone, "commit", "-qam", "Fewer buckets")
	git(t, clone, "push", "-q", "origin", "main")
	eventually(t, "six buckets are live", func() bool {
		_, live := a.Live()
		return len(live.Service("checkout").Buckets) == 6
	})
	if s := a.Enforcer.Snapshot(); s.RemovedBy != "Sam" {
		t.Errorf("removed by %q, want Sam", s.RemovedBy)
	}
}

// A base branch whose history was rewritten halts everything until a person
// lets RLC follow it.
func TestRewrittenHistoryHaltsUntilAPersonSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	acceptAll(t, a)
	before, _ := a.Live()
	clone := checkout(t, dir)
	git(t, clone, "reset", "-q", "--hard", "HEAD~1")
	git(t, clone, "commit", "-q", "--allow-empty", "-m", "Another past")
	git(t, clone, "push", "-qf", "origin", "main")
	rewritten := func() bool {
		for _, b := range a.Banners() {
			if strings.Contains(b.Text, "rewritten") {
				return true
			}
		}
		return false
	}
	eventually(t, "a banner that history was rewritten", rewritten)
	if v, _ := a.Live(); v != before {
		t.Errorf("a rewritten branch was distributed: %s after %s", v, before)
	}
	if _, err := a.Run(t.Context(), planner.Ask{}); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("a run while history is rewritten: %v", err)
	}
	// Of two who say so at once, one has done it; what is desired is the new history
	// when the act returns.
	said := make(chan error, 2)
	for range 2 {
		go func() { said <- a.FollowRewritten(t.Context(), "dana") }()
	}
	first, second := <-said, <-said
	if first == nil {
		first, second = second, first
	}
	if second != nil || !errors.Is(first, rlc.ErrConflict) {
		t.Fatalf("two who follow at once: %v, %v; want one conflict", first, second)
	}
	if desired, _ := a.Desired(); strings.TrimSpace(git(t, filepath.Join(dir, "config.git"), "log", "-1", "--format=%s", desired.Hash)) != "Follow the rewritten history" {
		t.Errorf("the act returned before its commit was desired: %s", desired.Hash)
	}
	if acts := audited(t, a, "history.follow"); len(acts) != 1 {
		t.Errorf("acts %q; want one", acts)
	}
	eventually(t, "the banner is gone", func() bool { return !rewritten() })
	// What the new history holds reaches the enforcers as a newer version,
	// although it has fewer commits.
	eventually(t, "the new history is live", func() bool {
		head, _, err := a.Repo.Head(t.Context())
		v, _ := a.Live()
		s := a.Enforcer.Snapshot()
		return err == nil && v == head.Version && s.Commit == head.Hash && v.Compare(before) > 0
	})
}

// A snapshot that lost many buckets and names nobody is not distributed, and
// the page goes on saying so while enforcers confirm the one before.
func TestAnUndistributedSnapshotStaysSaid(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, rlc.Files{"services/checkout/policy.yaml": handWritten(40)}, nil)
	eventually(t, "forty buckets are live", func() bool { _, live := a.Live(); return live != nil })
	before, _ := a.Live()
	clone := checkout(t, dir)
	write(t, filepath.Join(clone, "services/checkout/policy.yaml"), handWritten(6))
	// As if RLC itself had done it: no person is named.
	t.Setenv("GIT_TEST_COMMITTER", "rlc")
	git(t, clone, "commit", "-qam", "Lost\n\nRLC-Run: lost\nRLC-Service: checkout\nRLC-Epoch: 1", "--author=rlc <rlc@localhost>")
	git(t, clone, "push", "-q", "origin", "main")
	said := func() bool {
		for _, b := range a.Banners() {
			if strings.Contains(b.Text, "was not distributed") {
				return true
			}
		}
		return false
	}
	eventually(t, "a banner that the snapshot was not distributed", said)
	when := time.Now()
	eventually(t, "an enforcer confirms what it has", func() bool {
		acks := a.Acks()
		return len(acks) == 1 && acks[0].At.After(when) && acks[0].Version == before
	})
	if !said() {
		t.Error("an acknowledgement of the old snapshot took the banner away")
	}
}
