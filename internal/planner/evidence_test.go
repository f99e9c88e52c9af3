package planner_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
)

// Steps are wide here, so that what a policy estimated before shows. The
// quota in force is 200, traffic fell from 150/s, which asked for 195, to 100/s,
// which asks for 130. The highest estimate of the week is within the deadband
// of 200; under another policy it says nothing.
func TestEstimatesOfAnotherPolicyDoNotHoldADecreaseUp(t *testing.T) {
	bucket := func(headroom string) rlc.Files {
		return policy("geo", "  - {name: all, policy: {kind: historical, headroom: "+headroom+"}, guards: {step_down: 0.9, week_down: 0.9}}\n")
	}
	for before, want := range map[string]rlc.Rate{"0.3": 200, "0.4": 130} {
		w := one(t, 200, wave(150))
		w.repo.commit(now.Add(-20*day), bucket(before))
		w.cron()
		w.history.series["geo all"] = wave(100)
		w.clock = now.Add(2 * day)
		w.repo.commit(w.clock, bucket("0.3"))
		w.cron()
		if c := w.all(); c.New.Rate != want {
			t.Errorf("after headroom %s: %v, want %v; %+v", before, c.New, want, c.Reasons)
		}
	}
}

// Raised 23 hours ago, lowered two hours ago to more than a day ago: the step
// would allow another decrease, a day may have only one.
func TestASecondDecreaseWithinADayIsHeld(t *testing.T) {
	w := one(t, 100, wave(100))
	lowered := rlc.Change{Service: "geo", Bucket: "all", Old: &rlc.Limit{Rate: 200, Burst: 400}, New: &rlc.Limit{Rate: 180, Burst: 360}}
	raised := rlc.Change{Service: "geo", Bucket: "all", Old: &rlc.Limit{Rate: 100, Burst: 200}, New: &rlc.Limit{Rate: 200, Burst: 400}}
	for at, c := range map[time.Duration]rlc.Change{23 * time.Hour: raised, 2 * time.Hour: lowered} {
		w.merged(now.Add(-at), c)
	}
	w.repo.commit(now.Add(-23*time.Hour), quotas("geo", rlc.Quota{Bucket: "all", Limit: *raised.New, Why: "x"}))
	w.repo.commit(now.Add(-2*time.Hour), quotas("geo", rlc.Quota{Bucket: "all", Limit: *lowered.New, Why: "x"}))
	w.cron()
	if c := w.all(); c.Held != "lowered_today" || c.New.Rate != 180 {
		t.Errorf("%+v, want held: lowered today", c)
	}
}

// merged records a proposal that was accepted then.
func (w *world) merged(at time.Time, c rlc.Change) {
	w.t.Helper()
	run := rlc.Run{ID: "before-" + at.Format("150405"), Trigger: rlc.ByPerson, Now: at, Started: at}
	p := rlc.Proposal{ID: run.ID + "-geo", RunID: run.ID, Service: c.Service, Created: at, Changes: []rlc.Change{c}}
	if _, _, err := w.db.BeginRun(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
	if err := w.db.StoreRun(w.t.Context(), run, nil, []rlc.Proposal{p}); err != nil {
		w.t.Fatal(err)
	}
	p.State, p.Decided = rlc.Accepted, at
	if err := w.db.SetProposal(w.t.Context(), p, nil); err != nil {
		w.t.Fatal(err)
	}
	if err := w.db.FinishRun(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
}

func TestAQuotasFileThatWasInvalidADayAgoMeasuresNothing(t *testing.T) {
	w := one(t, 100, wave(1000))
	w.repo.commit(now.Add(-10*day), rlc.Files{"services/geo/quotas.yaml": []byte("nonsense")})
	w.repo.commit(now.Add(-time.Hour), quotas("geo", rlc.Quota{Bucket: "all", Limit: rlc.Limit{Rate: 150, Burst: 300}, Why: "x"}))
	w.cron()
	if c := w.all(); c.New.Rate != 300 {
		t.Errorf("%v, want twice what is in force", c.New)
	}
}

// Two of twenty series ended 100 minutes ago. Over 24 hours that is nothing;
// since the run two hours ago it is half of their data.
func TestTheFleetBreakerLooksAtWhatWasLostSinceTheLastRun(t *testing.T) {
	w := newWorld(t, policy("shop", callers))
	gone := func(t time.Time) float64 {
		if t.Before(now.Add(-100 * time.Minute)) {
			return wave(10)(t)
		}
		return math.NaN()
	}
	for _, c := range []string{"a", "b"} {
		w.history.series["shop callers caller="+c] = gone
	}
	for _, c := range []string{"c", "d", "e", "f"} {
		w.history.series["shop callers caller="+c] = wave(10)
	}
	w.clock = now.Add(-2 * time.Hour)
	if run := w.cron(); run.Result != rlc.ResultOK {
		t.Fatalf("before: %+v", run)
	}
	w.clock = now
	if run := w.cron(); run.Result != rlc.ResultRefused || !strings.Contains(run.Detail, "2 of 6 series") {
		t.Errorf("run %+v, want refused: 2 of 6 series", run)
	}
}

func TestARunThatLowersTooMuchAsksForALook(t *testing.T) {
	w := one(t, 200, wave(100))
	w.cron()
	if c := w.openProposal("geo").Changes[0]; c.New.Rate >= 200 || !strings.Contains(c.Look, "1 of 1 quota lowered") {
		t.Errorf("%v, look %q; want lowered with the blast gate's reason", c.New, c.Look)
	}
}

func TestANewLeaderCarriesOnUnderItsOwnEpoch(t *testing.T) {
	w := shop(t)
	lead := func(holder string, least, want uint64) {
		t.Helper()
		if err := w.db.Resign(t.Context(), "scheduler", "first"); err != nil {
			t.Fatal(err)
		}
		epoch, leads, err := w.db.Lead(t.Context(), "scheduler", holder, time.Hour, least)
		if err != nil || !leads || epoch != want {
			t.Fatalf("epoch %d, leads %t, %v", epoch, leads, err)
		}
		w.epoch = epoch
	}
	lead("first", 0, 1)
	w.records = &dying{Records: w.records, at: "after claim"}
	w.restart()
	func() {
		defer func() { _ = recover() }()
		w.cron()
	}()
	lead("second", 8, 9)
	w.restart()
	if err := w.planner.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	run, err := w.db.RunByID(t.Context(), planner.RunID(planner.Ask{Trigger: rlc.ByCron, Slot: "recompute " + now.Format(time.RFC3339)}))
	if err != nil || run.Result != rlc.ResultOK || run.Epoch != 9 {
		t.Errorf("%+v (%v), want ok under epoch 9", run, err)
	}
}

// Rejected at 130. 115/s asks for 150, 15 % further: within twice the deadband.
func TestARejectedProposalStaysAwayWithinTwiceTheDeadband(t *testing.T) {
	w := one(t, 80, wave(100))
	w.cron()
	w.reject("geo", "")
	w.history.series["geo all"] = wave(115)
	w.clock = now.Add(day)
	w.cron()
	if c := w.all(); c.Held != "rejected" {
		t.Errorf("%+v, want held", c)
	}
}
