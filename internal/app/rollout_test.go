package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/notify"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/rollout"
)

// owner receives webhooks as a team would.
type owner struct {
	mu   sync.Mutex
	got  []rlc.Notice
	bad  int // with a signature that is not right
	URL  string
	sign string
}

func receive(t *testing.T) *owner {
	t.Helper()
	o := &owner{sign: "a secret of both"}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct{ Notices []rlc.Notice }
		o.mu.Lock()
		defer o.mu.Unlock()
		if r.Header.Get("X-RLC-Signature") != notify.Signature(o.sign, r.Header.Get("X-RLC-Timestamp"), body) || json.Unmarshal(body, &m) != nil {
			o.bad++
		}
		o.got = append(o.got, m.Notices...)
	}))
	t.Cleanup(s.Close)
	o.URL = s.URL
	return o
}

func (o *owner) of(kind string) (out []rlc.Notice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.got {
		if n.Kind == kind {
			out = append(out, n)
		}
	}
	return out
}

// staged is a server whose rollouts are quick and whose owner is told.
func staged(t *testing.T, o *owner, soak time.Duration) *app.App {
	return stagedWith(t, o, soak, twoServices())
}

func stagedWith(t *testing.T, o *owner, soak time.Duration, files rlc.Files) *app.App {
	t.Helper()
	a := telling(t, o, soak, files)
	for _, slot := range []string{"one", "two"} { // the second replays what the first put in force
		if _, err := a.Compute(t.Context(), planner.Ask{Slot: slot, Now: time.Now().UTC().Truncate(time.Second), Actor: "dana"}); err != nil {
			t.Fatal(err)
		}
		acceptAll(t, a)
	}
	return a
}

// telling is a server that has computed nothing and whose owner is told.
func telling(t *testing.T, o *owner, soak time.Duration, files rlc.Files) *app.App {
	t.Helper()
	secrets := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(secrets, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	opened := time.Now().UTC().Truncate(time.Minute)
	a := open(t, t.TempDir(), files, func(c *config.Server) {
		c.Schedule = "0 0 29 2 *" // no run but those that are asked for
		c.Rollout = config.Rollout{MinShadow: time.Second, Soak: soak}
		c.Notify = config.Notify{WebhookFile: file("url", o.URL), SecretFile: file("secret", o.sign), Digest: time.Second}
	})
	// Nothing is lowered by samples that are older than two steps, however long it
	// takes to come to it.
	backfillFrom(t, a.Store, opened.Add(time.Minute), opened.Add(time.Hour))
	return a
}

// elsewhere is what enforcers of other machines count.
type elsewhere struct{ requests *prometheus.CounterVec }

// join has the history scrape a elsewhere.
func join(t *testing.T, a *app.App) elsewhere {
	t.Helper()
	f := elsewhere{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rlc_enforcer_requests_total"}, []string{"service", "bucket", "caller", "procedure", "outcome"})}
	r := prometheus.NewRegistry()
	r.MustRegister(f.requests)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Store.Scrape(ctx, r, 200*time.Millisecond, map[string]string{"job": "rlc-enforcer", "instance": "elsewhere"})
	}()
	t.Cleanup(func() { cancel(); <-done })
	f.count("admit", 0)
	f.count("drop", 0)
	return f
}

func (f elsewhere) count(outcome string, n float64) { f.countOf("web", outcome, n) }

func (f elsewhere) countOf(caller, outcome string, n float64) {
	f.requests.WithLabelValues("checkout", "callers", caller, "", outcome).Add(n)
}

func policyAt(t *testing.T, a *app.App) (string, string) {
	t.Helper()
	head, files, err := a.Repo.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head.Hash, string(files["services/checkout/policy.yaml"])
}

// gateOpens waits until only time and counters were missing.
func gateOpens(t *testing.T, a *app.App) {
	t.Helper()
	var last []rollout.Check
	defer func() {
		if t.Failed() {
			t.Logf("checklist: %+v", last)
		}
	}()
	eventually(t, "the gate opens", func() bool {
		checks, err := a.Checklist(t.Context(), "checkout", "callers", "ada")
		last = checks
		return err == nil && rollout.Open(checks)
	})
}

func state(t *testing.T, a *app.App) rollout.Promotion {
	t.Helper()
	all, err := a.Promotions(t.Context(), "checkout")
	if err != nil || len(all) == 0 {
		t.Fatalf("promotions: %v %v", all, err)
	}
	return all[0]
}

func TestAPromotionWithABadLimitHaltsRollsBackAndTellsTheOwner(t *testing.T) {
	t.Parallel()
	o := receive(t)
	a := staged(t, o, 6*time.Second)
	f := join(t, a)
	if _, err := a.Promote(t.Context(), "checkout", "callers", []string{"eu-1", "eu-2"}, true, "ada"); !errors.Is(err, rlc.ErrRefused) || !strings.Contains(err.Error(), "counted requests have a quota") {
		t.Fatalf("before anything was counted: %v", err)
	}
	f.count("admit", 1000)
	gateOpens(t, a)
	eventually(t, "the queue offers the bucket", func() bool {
		s, err := a.Records.Summary(t.Context(), "checkout")
		return err == nil && len(s.Ready) == 1 && s.Ready[0].Bucket == "callers" && !s.Ready[0].Since.IsZero() && s.Unjudged == 0
	})
	if checks, err := a.Checklist(t.Context(), "checkout", "callers", ""); err != nil || rollout.Open(checks) {
		t.Errorf("nobody's word opens the gate: %+v %v", checks, err)
	}
	p, err := a.Promote(t.Context(), "checkout", "callers", []string{"eu-1", "eu-2"}, true, "ada")
	if err != nil || p.State != rollout.Growing {
		t.Fatalf("%+v: %v", p, err)
	}
	if _, text := policyAt(t, a); !strings.Contains(text, `rollout: {zones: ["eu-1"]}`) || !strings.Contains(text, "mode: enforce") {
		t.Fatalf("policy:\n%s", text)
	}
	if _, err := a.Promote(t.Context(), "checkout", "callers", nil, true, "ada"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("a second promotion at once: %v", err)
	}
	f.count("admit", 1000)
	eventually(t, "the second zone", func() bool { f.count("admit", 10); return state(t, a).Reached == 2 || state(t, a).Over() })
	if s := state(t, a); s.State != rollout.Growing {
		t.Fatalf("%+v", s)
	}
	grown, text := policyAt(t, a)
	if !strings.Contains(text, `rollout: {zones: ["eu-1", "eu-2"]}`) {
		t.Fatalf("policy:\n%s", text)
	}
	before, _ := a.Live()
	f.count("drop", 500) // the bad limit: half of what comes
	f.count("admit", 500)
	eventually(t, "back in shadow", func() bool { return state(t, a).State == rollout.RolledBack })
	eventually(t, "the owner was told", func() bool { return len(o.of("rollback")) == 1 })
	eventually(t, "a new version is live", func() bool { v, _ := a.Live(); return v.Compare(before) > 0 })
	back, text := policyAt(t, a)
	if back == grown || strings.Contains(text, "rollout") || !strings.Contains(text, "mode: shadow") {
		t.Errorf("policy:\n%s", text)
	}
	told := o.of("rollback")[0]
	if !told.Urgent || strings.Join(told.Owners, ",") != "team-a" || !strings.Contains(told.Text, "500 drops") {
		t.Errorf("told %+v", told)
	}
	if o.bad != 0 {
		t.Errorf("%d messages were not signed", o.bad)
	}
	log := git(t, filepath.Join(a.Config.Data, "config.git"), "log", "-1", "--format=%an%n%B", "main")
	if !strings.HasPrefix(log, "ada\nBack to shadow: callers") || !strings.Contains(log, "RLC-Actor: ada") {
		t.Errorf("commit:\n%s", log)
	}
}

func TestWithoutACountAPromotionStopsWhereItIs(t *testing.T) {
	t.Parallel()
	o := receive(t)
	a := staged(t, o, time.Second)
	f := join(t, a)
	f.count("admit", 1000)
	gateOpens(t, a)
	if _, err := a.Promote(t.Context(), "checkout", "callers", []string{"eu-1", "eu-2"}, false, "ada"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "halted", func() bool { return state(t, a).State == rollout.Halted })
	eventually(t, "the owner was told", func() bool { return len(o.of("halt")) == 1 })
	if _, text := policyAt(t, a); !strings.Contains(text, `rollout: {zones: ["eu-1"]}`) {
		t.Errorf("policy:\n%s", text)
	}
}

func TestARollbackIsANewVersionAndItsNumbersArePinned(t *testing.T) {
	t.Parallel()
	o := receive(t)
	a := staged(t, o, time.Minute)
	_, c := a.Desired()
	good := c.Quota("checkout", "callers", rlc.Key{"caller": "web"}).Limit
	_, first := policyAt(t, a)

	// A person raises the floor, and the next run proposes ten times as much.
	text := strings.Replace(first, "{name: callers, each: [caller]}", "{name: callers, each: [caller], guards: {floor: 3000}}", 1)
	if _, err := a.Repo.Edit(t.Context(), gitsync.Person{Name: "sam"}, "A floor", rlc.Files{"services/checkout/policy.yaml": []byte(text)}); err != nil {
		t.Fatal(err)
	}
	a.Nudge()
	eventually(t, "a proposal", func() bool { p := openProposals(t, a, "checkout"); return len(p) == 1 && p[0].State == rlc.Open })
	acceptAll(t, a)
	_, c = a.Desired()
	bad := c.Quota("checkout", "callers", rlc.Key{"caller": "web"}).Limit
	if bad == good {
		t.Fatalf("nothing moved: %+v", bad)
	}
	version, _ := a.Live()
	commit, err := a.Rollback(t.Context(), "checkout", "", "ada", "too high")
	if err != nil || commit.Version.Compare(version) <= 0 {
		t.Fatalf("%+v: %v", commit, err)
	}
	eventually(t, "the old numbers are desired", func() bool {
		_, c := a.Desired()
		return c.Quota("checkout", "callers", rlc.Key{"caller": "web"}).Limit == good
	})
	pins, err := a.Pins(t.Context(), "checkout")
	if err != nil || len(pins) != 2 || pins[0].Actor != "ada" || pins[0].Reason != "too high" {
		t.Fatalf("pins %+v: %v", pins, err)
	}
	for _, slot := range []string{"three", "four"} {
		if _, err := a.Compute(t.Context(), planner.Ask{Slot: slot, Service: "checkout", Now: time.Now().UTC().Truncate(time.Second), Actor: "dana"}); err != nil {
			t.Fatal(err)
		}
		open := openProposals(t, a, "checkout")
		if slot == "three" && len(open) != 0 {
			t.Fatalf("the pinned number came back: %+v", open[0].Changes)
		}
		if slot == "four" && len(open) != 1 {
			t.Fatalf("%d proposals after the pins were lifted", len(open))
		}
		for _, p := range pins {
			if err := a.LiftPin(t.Context(), "checkout", p.ID, "ada"); slot == "three" && err != nil {
				t.Fatal(err)
			}
		}
	}
}
