package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// launch is a service with one quota in force and an event ×3 from from to
// until.
func launch(t *testing.T, multiply float64, from, until time.Time) *world {
	w := one(t, 130, wave(100))
	w.repo.commit(now.Add(-time.Hour), event(multiply, from, until))
	return w
}

func event(multiply float64, from, until time.Time) rlc.Files {
	return service("geo", fmt.Sprintf("events: [{name: launch, from: %s, until: %s, multiply: %g}]\n", from.Format(time.RFC3339), until.Format(time.RFC3339), multiply), "  - {name: all}\n")
}

// Scenarios 12 and 28: an event next week is reviewed when it is declared,
// multiplied whatever the steps say, and nothing is to merge when it comes, nor
// when it is over; its traffic is no history.
func TestAnEventIsAWindowReviewedWhenItIsDeclared(t *testing.T) {
	from, until := now.Add(7*day), now.Add(9*day)
	w := launch(t, 3, from, until)
	w.cron()
	c := w.all()
	want := []rlc.QuotaWindow{{From: from, Until: until, Limit: rlc.Limit{Rate: 390, Burst: 780}}}
	if !slices.Equal(c.NewTimed.Windows, want) || c.New.Rate != 130 || !c.Moves() || !strings.Contains(c.Look, "event's limit is new") {
		t.Fatalf("windows %+v, new %v, look %q; want %+v", c.NewTimed.Windows, c.New, c.Look, want)
	}
	if p := w.openProposal("geo"); p == nil || len(p.Changes) != 1 {
		t.Fatalf("proposal %+v", p)
	}
	w.accept("geo")

	// The event's own traffic, three times the usual, on its day and after it.
	w.history.series["geo all"] = times(wave(100), 3, from, until)
	for _, at := range []time.Time{now.Add(day), from.Add(-time.Minute), from.Add(6 * time.Hour), from.Add(30 * time.Hour), until.Add(time.Hour), until.Add(5 * day)} {
		w.clock = at
		run := w.cron()
		c := w.all()
		if run.Changed != 0 || c.New == nil || c.New.Rate != 130 || !slices.Equal(c.NewTimed.Windows, want) || len(w.pub.commits) != 1 {
			t.Errorf("at %s: changed %d, %v, windows %+v\n%s", at, run.Changed, c.New, c.NewTimed.Windows, policies.Explain(c).Text())
		}
	}
	// The event is shown as a band with its peak, kept beside its window.
	c = w.all()
	if len(c.Flags) != 1 || c.Flags[0].Rule != "excluded" || c.Flags[0].Reason != "event launch" || c.Flags[0].Peak < 299 {
		t.Errorf("flags %+v", c.Flags)
	}
	// Its line in the policy goes: so does the window.
	w.repo.commit(w.clock, policy("geo", "  - {name: all}\n"))
	w.clock = w.clock.Add(time.Hour)
	w.cron()
	if c := w.all(); len(c.NewTimed.Windows) != 0 || !c.Moves() {
		t.Errorf("undeclared: %+v", c.NewTimed)
	}
}

// A public holiday last week was low: nothing shrinks.
// Scenario 28: an event inside a merge freeze is merged when it is declared, before
// the freeze; in it enforcers switch its window on and off at the hour, no step guard
// is in the way, and there is nothing to merge.
func TestAnEventInsideAMergeFreezeHasNothingToMergeThatDay(t *testing.T) {
	from, until := now.Add(7*day), now.Add(8*day)
	w := launch(t, 3, from, until)
	head := event(3, from, until)
	for path, text := range head {
		head[path] = []byte(strings.Replace(string(text), "events:", "auto_merge: {max_change: 0.2}\nfreeze: [{cron: \"0 0 23 3 *\", for: 7d}]\nevents:", 1))
	}
	w.repo.commit(now.Add(-time.Minute), head)
	w.cron()
	w.accept("geo")

	config := func() *quotafile.Config {
		_, files, err := w.repo.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return quotafile.Parse(files, policies.Builtin().Check)
	}
	svc := config().Service("geo")
	w.history.series["geo all"] = times(wave(100), 3, from, until)
	usual, tripled := rlc.Limit{Rate: 130, Burst: 260}, rlc.Limit{Rate: 390, Burst: 780}
	for _, x := range []struct {
		at   time.Time
		want rlc.Limit
	}{
		{from.Add(-time.Second), usual},
		{from, tripled}, // × 3 at once, more than the +100 % of a day
		{from.Add(12 * time.Hour), tripled},
		{until.Add(-time.Second), tripled},
		{until, usual}, // and −67 % at once
		{until.Add(12 * time.Hour), usual},
	} {
		at, want := x.at, x.want
		w.clock = at
		if run := w.cron(); run.Changed != 0 || w.openProposal("geo") != nil || len(w.pub.commits) != 1 {
			t.Errorf("at %s something is to merge: %+v", at, run)
		}
		if _, frozen := policies.FrozenAt(svc, at); !frozen {
			t.Errorf("at %s merging is not frozen", at)
		}
		if q := config().Quotas["geo"][0]; q.At(at) != want {
			t.Errorf("at %s enforcers hold %v, want %v", at, q.At(at), want)
		}
	}
}

func TestALowHolidayShrinksNothing(t *testing.T) {
	w := one(t, 130, times(wave(100), 0.1, now.Add(-6*day), now.Add(-5*day)))
	if run := w.cron(); run.Changed != 0 || w.all().New.Rate != 130 {
		t.Errorf("%+v: %v", run, w.all().New)
	}
}

func TestAnEventsWindowFollowsWhatIsDeclaredUntilItBegins(t *testing.T) {
	from, until := now.Add(7*day), now.Add(9*day)
	w := launch(t, 3, from, until)
	w.cron()
	w.accept("geo")
	w.repo.commit(now.Add(time.Hour), event(5, from, until))
	w.clock = now.Add(2 * time.Hour)
	w.cron()
	if c := w.all(); c.NewTimed.Windows[0].Rate != 650 || !c.Moves() {
		t.Errorf("multiplied by 5 now: %+v", c.NewTimed.Windows)
	}
	w.accept("geo")
	w.repo.commit(from.Add(time.Hour), event(0.5, from, until))
	w.clock = from.Add(2 * time.Hour)
	w.cron()
	if c := w.all(); c.NewTimed.Windows[0].Rate != 650 || c.Moves() {
		t.Errorf("changed while it is on: %+v", c.NewTimed.Windows)
	}
}

func TestAnEventAsksForNoMoreThanTheCapacity(t *testing.T) {
	from, until := now.Add(7*day), now.Add(9*day)
	w := launch(t, 3, from, until)
	f := event(3, from, until)
	for path, text := range f {
		f[path] = []byte(strings.Replace(string(text), "buckets:", "capacity: {rate: 300, reserve: 0.1}\nbuckets:", 1))
	}
	w.repo.commit(now.Add(-time.Minute), f)
	w.cron()
	if c := w.all(); len(c.NewTimed.Windows) != 1 || c.NewTimed.Windows[0].Limit != (rlc.Limit{Rate: 270, Burst: 540}) {
		t.Errorf("windows %+v, want 270/s", c.NewTimed.Windows)
	}
}

// A quiet event goes no lower than what is promised, and than the floor.
func TestAWindowKeepsTheContractAndTheFloor(t *testing.T) {
	from, until := now.Add(7*day), now.Add(9*day)
	w := newWorld(t, files(service("geo", fmt.Sprintf("events: [{name: holiday, from: %s, until: %s, multiply: 0.01}]\n", from.Format(time.RFC3339), until.Format(time.RFC3339)), callers),
		contract("acme", "acme", "rate: 200\nburst: 900\n"),
		contract("next", "next", fmt.Sprintf("rate: 80\nburst: 90\nfrom: %s\n", until.Add(-time.Hour).Format(time.RFC3339)))))
	for _, name := range []string{"acme", "next", "web"} {
		w.history.series["geo callers caller="+name] = wave(50) // 65/s, burst 130
	}
	w.cron()
	for name, want := range map[string]rlc.Limit{"acme": {Rate: 200, Burst: 900}, "next": {Rate: 80, Burst: 90}, "web": {Rate: 1, Burst: 2}} {
		c := w.change("geo", "callers", caller(name))
		if len(c.NewTimed.Windows) != 1 || c.NewTimed.Windows[0].Limit != want {
			t.Errorf("%s: %+v, want %+v", name, c.NewTimed.Windows, want)
		}
	}
}

// Ten callers of 65/s fit a capacity of 1000; three times as much in an event,
// 1950, does not: each is cut to 100, a person is told, and the next run moves
// nothing.
func TestTheWindowsOfAnEventFitTheCapacityTogether(t *testing.T) {
	from, until := now.Add(7*day), now.Add(9*day)
	w := newWorld(t, service("geo", fmt.Sprintf("capacity: {rate: 1000}\nevents: [{name: launch, from: %s, until: %s, multiply: 3}]\n", from.Format(time.RFC3339), until.Format(time.RFC3339)), callers))
	for i := range 10 {
		w.history.series[fmt.Sprint("geo callers caller=c", i)] = wave(50)
	}
	w.cron()
	for i := range 10 {
		c := w.change("geo", "callers", caller(fmt.Sprint("c", i)))
		if len(c.NewTimed.Windows) != 1 || c.NewTimed.Windows[0].Limit != (rlc.Limit{Rate: 100, Burst: 200}) || c.New.Rate != 65 ||
			!strings.Contains(c.Look, "in the event from 2026-03-") || !strings.Contains(c.Look, "quotas of 1,950/s in all × 1.00 that peak together exceed the capacity of 1,000/s: cut from 195/s, burst 390 to 100/s, burst 200") {
			t.Fatalf("%s: %+v, %v, look %q", c.ID(), c.NewTimed.Windows, c.New, c.Look)
		}
	}
	w.accept("geo")
	for _, at := range []time.Time{now.Add(day), from.Add(time.Hour)} {
		w.clock = at
		if run := w.cron(); run.Changed != 0 {
			t.Errorf("at %s %d change", at, run.Changed)
		}
	}
}

// An event takes nothing from an ordinary day: the large quota keeps its own
// rate although all others ask for their share.
func TestAWindowIsNotCutBelowTheQuotaItself(t *testing.T) {
	from, until := now.Add(7*day), now.Add(9*day)
	w := newWorld(t, service("geo", fmt.Sprintf("capacity: {rate: 1000}\nevents: [{name: launch, from: %s, until: %s, multiply: 3}]\n", from.Format(time.RFC3339), until.Format(time.RFC3339)), callers))
	w.history.series["geo callers caller=large"] = wave(500) // 650/s
	for i := range 4 {
		w.history.series[fmt.Sprint("geo callers caller=c", i)] = wave(50) // 65/s, 195 in the event
	}
	w.cron()
	// 1000 − 650 leave 87.5 to each of the four.
	for name, want := range map[string]rlc.Rate{"large": 650, "c0": 87.5, "c3": 87.5} {
		if c := w.change("geo", "callers", caller(name)); len(c.NewTimed.Windows) != 1 || c.NewTimed.Windows[0].Rate != want {
			t.Errorf("%s: %+v, want %v", name, c.NewTimed.Windows, want)
		}
	}
}

func TestAHeldQuotaStillGetsItsEvent(t *testing.T) {
	w := launch(t, 2, now.Add(7*day), now.Add(9*day))
	delete(w.history.series, "geo all")
	w.cron()
	if c := w.all(); c.Held != "no_data" || c.New.Rate != 130 || len(c.NewTimed.Windows) != 1 || c.NewTimed.Windows[0].Rate != 260 {
		t.Errorf("no data: held %q, %+v", c.Held, c.NewTimed)
	}
	w.repo.edited["geo"] = map[string]string{"all": "ada"}
	w.clock = now.Add(time.Hour)
	w.cron()
	if c := w.all(); c.Held != "human_edit" || c.Moves() {
		t.Errorf("a person's edit: held %q, %+v", c.Held, c.NewTimed)
	}
}

// A predictive policy by the hour: its quota carries hours below its rate at
// night, and the next run leaves them alone.
func TestAnHourlyScheduleIsPublishedWithItsQuota(t *testing.T) {
	w := newWorld(t, policy("geo", "  - {name: all, policy: {kind: predictive, schedule: hourly}}\n"))
	w.history.series["geo all"] = wave(100)
	w.cron()
	c := w.all()
	h := c.NewTimed.Hours
	if h == nil || !h.From.Equal(now) || len(h.Rates) != 168 {
		t.Fatalf("hours %+v\n%s", h, policies.Explain(c).Text())
	}
	// At midnight traffic is a fifth of its peak.
	if night, day := h.Rates[14], h.Rates[2]; night >= c.New.Rate/2 || day > c.New.Rate || slices.Max(h.Rates) > c.New.Rate || slices.Min(h.Rates) < 1 {
		t.Errorf("%v at midnight, %v at noon, quota %v", night, day, c.New)
	}
	if c.Backtest.New == nil || c.Backtest.New.Share > 0.001 {
		t.Errorf("backtest %+v", c.Backtest.New)
	}
	w.accept("geo")
	w.clock = now.Add(day)
	if run := w.cron(); run.Changed != 0 {
		t.Errorf("a day later %d change: %+v", run.Changed, w.all().NewTimed)
	}
	w.repo.commit(w.clock, policy("geo", "  - {name: all, policy: {kind: predictive}}\n"))
	w.clock = now.Add(day + time.Hour)
	w.cron()
	if c := w.all(); c.NewTimed.Hours != nil || !c.Moves() {
		t.Errorf("static again: %+v", c.NewTimed.Hours)
	}
}

func TestARecentPolicyWantsRunsOfItsOwn(t *testing.T) {
	w := newWorld(t, files(policy("geo", "  - {name: all, policy: {kind: recent}}\n"), policy("shop", callers), policy("broken", "  - {name: all, polcy: x}\n")))
	often, err := w.planner.Often(t.Context())
	if err != nil || len(often) != 1 || often["geo"] != time.Hour {
		t.Errorf("%v (%v), want geo every hour", often, err)
	}
	w.repo.err = errors.New("disk")
	if _, err := w.planner.Often(t.Context()); err == nil {
		t.Error("the repository cannot be read: no error")
	}
}
