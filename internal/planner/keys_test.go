package planner_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// until is traffic that ends at a time; after is traffic that begins there.
func until(rate func(time.Time) float64, at time.Time) func(time.Time) float64 {
	return times(rate, 0, at, now.Add(100*day))
}

func after(rate func(time.Time) float64, at time.Time) func(time.Time) float64 {
	return times(rate, math.NaN(), now.Add(-100*day), at) // its series does not exist before
}

func held(callers map[string]rlc.Rate) rlc.Files {
	var all []rlc.Quota
	for c, rate := range callers {
		all = append(all, rlc.Quota{Bucket: "callers", Key: caller(c), Limit: rlc.Limit{Rate: rate, Burst: rlc.Burst(2 * rate)}, Why: "before"})
	}
	return quotas("shop", all...)
}

// Scenario 4: foo became foo-v2 two days ago, within the hour.
func TestARenamedCallerInheritsItsQuotaAndAnAliasIsProposed(t *testing.T) {
	w := newWorld(t, files(policy("shop", callers), held(map[string]rlc.Rate{"foo": 400, "web": 1300})))
	at := now.Add(-2 * day)
	w.history.series["shop callers caller=foo"] = until(wave(200), at)
	w.history.series["shop callers caller=foo-v2"] = after(wave(200), at)
	w.history.series["shop callers caller=web"] = wave(1000)
	w.cron()
	c := w.change("shop", "callers", caller("foo-v2"))
	// Its own would be 200 × 1.3 × 1.43 = 372 in shadow.
	if c.New == nil || *c.New != (rlc.Limit{Rate: 400, Burst: 800}) || c.NewMode != "" || c.Why != "inherits 400/s of foo" {
		t.Errorf("%+v, mode %q, why %q", c.New, c.NewMode, c.Why)
	}
	if want := "foo fell silent as foo-v2 began at 2026-03-16 10:00 UTC: if it was renamed, declare aliases: [{caller: foo-v2, was: foo}]"; !strings.Contains(c.Look, want) {
		t.Errorf("look %q", c.Look)
	}
	if old := w.change("shop", "callers", caller("foo")); old.Moves() || old.New == nil || old.New.Rate != 400 {
		t.Errorf("the old one: %+v", old.New)
	}
	w.accept("shop")

	// Declared, nothing more is said. After 13 days the old one is still there,
	// after 14 its removal is proposed, in a review of its own.
	w.repo.commit(now.Add(time.Hour), service("shop", "aliases: [{caller: foo-v2, was: foo}]\n", callers))
	w.clock = at.Add(13 * day)
	w.cron()
	if old := w.change("shop", "callers", caller("foo")); old.Moves() {
		t.Errorf("after 13 days: %+v", old)
	}
	if c := w.change("shop", "callers", caller("foo-v2")); c.New == nil || c.New.Rate != 400 || c.Look != "" {
		t.Errorf("after 13 days: %+v, held %s, look %q", c.New, c.Held, c.Look)
	}
	w.clock = at.Add(14*day + time.Hour) // a Monday: the new one's quota falls towards 260 as well
	w.cron()
	if old := w.change("shop", "callers", caller("foo")); !old.Remove || !old.Moves() || !strings.Contains(old.Look, "its caller goes on under another name") {
		t.Errorf("after 14 days: remove %v, look %q, held %s", old.Remove, old.Look, old.Held)
	}
}

func TestAnAliasIsInheritedBeforeTheFirstRequest(t *testing.T) {
	w := newWorld(t, files(service("shop", "aliases: [{caller: foo-v2, was: foo}]\n", callers), held(map[string]rlc.Rate{"foo": 260})))
	w.history.series["shop callers caller=foo"] = wave(200)
	run := w.cron()
	c := w.change("shop", "callers", caller("foo-v2"))
	if run.Changed != 1 || c.New == nil || *c.New != (rlc.Limit{Rate: 260, Burst: 520}) || c.Held != "" || c.Look != "" {
		t.Errorf("%+v: %+v, held %q, look %q", run, c.New, c.Held, c.Look)
	}
	w.accept("shop")
	w.clock = now.Add(time.Hour)
	if run := w.cron(); run.Changed != 0 {
		t.Errorf("the next run changes %d", run.Changed)
	}
}

// Scenario 5: a caller that is gone keeps its quota; after 28 days its removal
// is proposed, never a 0, when nothing else is to be reviewed.
func TestAVanishedCallersQuotaIsKeptThenItsRemovalProposed(t *testing.T) {
	w := newWorld(t, files(policy("shop", callers), held(map[string]rlc.Rate{"gone": 130, "web": 65})))
	w.history.series["shop callers caller=gone"] = until(wave(100), now)
	w.history.series["shop callers caller=web"] = wave(50)
	for _, days := range []int{1, 7, 20, 27} {
		w.clock = now.Add(time.Duration(days)*day + time.Hour)
		w.cron()
		if c := w.change("shop", "callers", caller("gone")); c.Moves() || c.New == nil || c.New.Rate != 130 {
			t.Fatalf("after %d days: %+v, held %q, want kept", days, c.New, c.Held)
		}
	}
	w.clock = now.Add(28*day + time.Hour)
	w.history.series["shop callers caller=web"] = wave(100) // it is to be raised
	w.cron()
	c := w.change("shop", "callers", caller("gone"))
	if last := c.Reasons[len(c.Reasons)-1]; c.Moves() || last.Rule != "vanished" || !strings.Contains(last.Detail, "waits for a review of its own") {
		t.Errorf("beside another change: %+v, %+v", c.Remove, last)
	}
	w.accept("shop")
	w.clock = now.Add(29*day + time.Hour)
	w.cron()
	c = w.change("shop", "callers", caller("gone"))
	p := w.openProposal("shop")
	if !c.Remove || c.New == nil || c.New.Rate != 130 || c.Held != "" || !strings.Contains(c.Look, "no request in 28 days") || p == nil || len(p.Changes) != 1 {
		t.Errorf("alone: remove %v, %+v, look %q, proposal %+v", c.Remove, c.New, c.Look, p)
	}
	// It comes back: the review is closed.
	w.history.series["shop callers caller=gone"] = after(wave(100), now.Add(29*day+2*time.Hour))
	w.clock = now.Add(30*day + 12*time.Hour)
	w.cron()
	if c := w.change("shop", "callers", caller("gone")); c.Remove || c.New == nil || c.New.Rate != 130 {
		t.Errorf("back again: %+v", c)
	}
}

func TestNoCallerVanishesWithTheWholeMetric(t *testing.T) {
	w := newWorld(t, files(policy("shop", callers), held(map[string]rlc.Rate{"gone": 130, "web": 65})))
	w.cron()
	for _, name := range []string{"gone", "web"} {
		if c := w.change("shop", "callers", caller(name)); c.Moves() || c.New.Rate == 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	// A quota that is younger than 28 days waits for its caller.
	w = newWorld(t, files(policy("shop", callers), held(map[string]rlc.Rate{"web": 65})))
	w.repo.commit(now.Add(-20*day), held(map[string]rlc.Rate{"web": 65, "soon": 500}))
	w.history.series["shop callers caller=web"] = wave(50)
	w.cron()
	if c := w.change("shop", "callers", caller("soon")); c.Moves() || c.Held != "no_data" {
		t.Errorf("not there yet: %+v", c)
	}
}
