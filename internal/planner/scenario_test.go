package planner_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/quotafile"
)

// one is a service with a single bucket whose quota has been in force for
// weeks, with this traffic.
func one(t *testing.T, rate rlc.Rate, traffic func(time.Time) float64) *world {
	w := newWorld(t, files(policy("geo", "  - {name: all}\n"),
		quotas("geo", rlc.Quota{Bucket: "all", Limit: rlc.Limit{Rate: rate, Burst: rlc.Burst(2 * rate)}, Why: "by hand of history"})))
	w.history.series["geo all"] = traffic
	return w
}

func (w *world) all() rlc.Change { return w.change("geo", "all", nil) }

// Scenario 6: the metric of every service goes to zero, or the job is
// relabelled and the series end.
func TestADeadMetricPublishesNothing(t *testing.T) {
	for name, traffic := range map[string]func(float64) func(time.Time) float64{
		"zero": func(peak float64) func(time.Time) float64 { return times(wave(peak), 0, now.Add(-3*time.Hour), now) },
		"gone": func(peak float64) func(time.Time) float64 {
			return times(wave(peak), math.NaN(), now.Add(-20*time.Hour), now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := shop(t)
			// Something would move, were it not for the breaker: a service that
			// is new and in good health.
			w.repo.commit(now.Add(-50*day), policy("fresh", "  - {name: all}\n"))
			w.history.series["fresh all"] = wave(5)
			for _, c := range []string{"search", "web"} {
				w.history.series["shop callers caller="+c] = traffic(300)
			}
			run := w.cron()
			if run.Result != rlc.ResultRefused || !strings.HasPrefix(run.Detail, "refused: ") || run.Changed != 0 || len(w.pub.commits) != 0 {
				t.Errorf("run %+v, commits %v; want refused and nothing published", run, w.pub.commits)
			}
			if c := w.change("fresh", "all", nil); c.Held != "fleet_breaker" || c.New != nil || c.Estimate == nil {
				t.Errorf("the healthy one: %+v, want held by the fleet breaker with its estimate", c)
			}
		})
	}
}

// Scenario 7: a retry storm ×3 at the daily peak, 40 minutes, ten days ago.
func TestAStormIsLeftOutUntilAPersonCountsIt(t *testing.T) {
	from := now.Add(-10*day + 2*time.Hour)
	storm := times(wave(100), 3, from, from.Add(40*time.Minute))
	w := one(t, 130, storm)
	if run := w.cron(); run.Result != rlc.ResultOK || run.Changed != 0 {
		t.Errorf("run %+v, want ok and no change", run)
	}
	c := w.all()
	if len(c.Flags) == 0 || !c.Flags[0].Contains(from) || c.Flags[0].With <= 130 {
		t.Fatalf("flags %+v, want the storm with the quota that it would have led to", c.Flags)
	}
	if b := c.Backtest.Old; b == nil || len(b.Episodes) != 1 || !b.Episodes[0].From.Equal(from) || b.Drops == 0 {
		t.Errorf("backtest %+v, want one episode at the storm", b)
	}
	verdict := rlc.Verdict{Service: "geo", Bucket: "all", Window: rlc.Window{From: c.Flags[0].From, Until: c.Flags[0].Until, Reason: "a launch"}, Count: true, Actor: "ada", At: now}
	if err := w.db.SetVerdict(t.Context(), verdict, rlc.AuditEntry{At: now, Actor: "ada", Action: "verdict.set"}); err != nil {
		t.Fatal(err)
	}
	w.clock = now.Add(time.Hour)
	w.cron()
	if c := w.all(); c.New == nil || c.New.Rate <= 130 {
		t.Errorf("counted, the quota is %v, want above 130", c.New)
	}
}

func TestAPersonsVerdictCanLeaveTrafficOut(t *testing.T) {
	from := now.Add(-10 * day).Truncate(day)
	w := one(t, 130, times(wave(100), 1.5, from, from.Add(day)))
	w.cron()
	counted := w.all().Estimate
	verdict := rlc.Verdict{Service: "geo", Bucket: "all", Window: rlc.Window{From: from, Until: from.Add(day)}, Actor: "ada", At: now}
	other := rlc.Verdict{Service: "geo", Bucket: "another", Window: rlc.Window{From: now.Add(-40 * day), Until: now}, Actor: "ada", At: now}
	for _, v := range []rlc.Verdict{verdict, other} {
		if err := w.db.SetVerdict(t.Context(), v, rlc.AuditEntry{At: now, Actor: "ada", Action: "verdict.set"}); err != nil {
			t.Fatal(err)
		}
	}
	w.clock = now.Add(time.Hour)
	w.cron()
	if got := w.all().Estimate; got == nil || got.Rate >= counted.Rate {
		t.Errorf("estimate %v with the day left out, %v with it", got, counted)
	}
}

// Scenario 8: a legitimate ×2.5 shift three days ago is reached within two runs.
func TestALevelShiftIsReachedWithinTwoRuns(t *testing.T) {
	w := one(t, 130, times(wave(100), 2.5, now.Add(-3*day), now.Add(100*day)))
	// 250/s × 1.3 = 325: the first day goes to 130 + 100 % at most.
	w.cron()
	if c := w.all(); c.New == nil || c.New.Rate != 260 {
		t.Fatalf("first run: %+v, want 260", c.New)
	}
	w.accept("geo")
	w.clock = now.Add(day + time.Hour)
	w.cron()
	if c := w.all(); c.New == nil || c.New.Rate < 320 || c.New.Rate > 330 {
		t.Errorf("second run: %+v, want 325 or so", c.New)
	}
}

// Scenarios 9 and 10: the same shift, or a ×3 storm that is still on, hours old.
func TestAYoungShiftIsRaisedByAQuarterAndAsksForALook(t *testing.T) {
	for factor, age := range map[float64]time.Duration{2.5: 6 * time.Hour, 3: 8 * time.Hour} {
		t.Run(fmt.Sprint(factor), func(t *testing.T) {
			w := one(t, 130, times(wave(100), factor, now.Add(-age), now))
			w.cron()
			c := w.all()
			if c.New == nil || c.New.Rate <= 130 || c.New.Rate > 130*1.25 || c.Look == "" {
				t.Errorf("%v, look %q; want above 130 and at most 162.5, with a look", c.New, c.Look)
			}
		})
	}
}

// Scenario 17.
func TestAWarningHoldsItsSeriesAndDegradesTheRun(t *testing.T) {
	w := shop(t)
	w.history.problem["shop callers caller=web"] = rlc.HistoryProblem{Rule: "warning", Detail: "PromQL: store gateway unavailable"}
	run := w.cron()
	if run.Result != rlc.ResultDegraded || run.Held != 1 || run.Changed != 1 || !strings.Contains(run.Detail, "store gateway unavailable") {
		t.Errorf("run %+v, want degraded, one held, one changed", run)
	}
	if c := w.change("shop", "callers", caller("web")); c.Held != "warning" || !c.Failed || c.New != nil {
		t.Errorf("%+v, want held", c)
	}
	if p := w.openProposal("shop"); p == nil || len(p.Changes) != 1 || p.Changes[0].Key["caller"] != "search" {
		t.Errorf("proposal %+v, want the other caller", p)
	}
}

// Scenario 23: quotas.yaml is refused whole; the service is held and its file
// is not written from nothing.
func TestAnInvalidQuotasFileIsNotWrittenOver(t *testing.T) {
	w := shop(t)
	w.repo.commit(now.Add(-50*day), files(policy("geo", "  - {name: all}\n"), rlc.Files{
		quotafile.QuotasPath("geo"): []byte("apiVersion: rlc/v1\nkind: ServiceQuotas\nservice: geo\nquotas:\n  - bucket: all\n    rate: .nan\n    burst: 5\n    why: x\n"),
	}))
	w.history.series["geo all"] = wave(50)
	run := w.cron()
	if run.Result != rlc.ResultDegraded || !strings.Contains(run.Detail, "services/geo/quotas.yaml:6:") {
		t.Errorf("run %+v, want degraded with the place", run)
	}
	if w.openProposal("geo") != nil || w.openProposal("shop") == nil {
		t.Error("want a proposal of shop, none of geo")
	}
}

func TestAPolicyThatDoesNotParseFailsAloneAndVisibly(t *testing.T) {
	w := one(t, 130, wave(50))
	w.repo.commit(now.Add(-time.Hour), files(policy("geo", "  - {name: all, polcy: {kind: historical}}\n"), policy("fresh", "  - {name: all}\n")))
	w.history.series["fresh all"] = wave(5)
	run := w.cron()
	if run.Result != rlc.ResultDegraded || !strings.Contains(run.Detail, "services/geo/policy.yaml:5:") || run.Total != 2 || run.Held != 1 || run.Changed != 1 {
		t.Errorf("run %+v, want degraded, 1 held of 2", run)
	}
	c := w.all()
	if c.Held != "policy_invalid" || !c.Failed || !strings.Contains(c.HeldWhy, "polcy") || c.Moves() || c.New.Rate != 130 {
		t.Errorf("%+v, want held at 130", c)
	}
	if w.openProposal("fresh") == nil || w.openProposal("geo") != nil {
		t.Error("want a proposal of fresh only")
	}
}

func TestAnUnreachableHistoryHoldsEverything(t *testing.T) {
	w := one(t, 130, wave(50))
	w.history.err["geo"] = errors.New("dial tcp 127.0.0.1:9090: connection refused")
	run := w.cron()
	if run.Result != rlc.ResultDegraded || run.Held != 1 || run.Total != 1 || run.Changed != 0 || !strings.Contains(run.Detail, "connection refused") {
		t.Errorf("run %+v, want degraded with everything held", run)
	}
	if c := w.all(); c.Held != "failed" || !c.Failed || c.New.Rate != 130 || c.Backtest.Old != nil {
		t.Errorf("%+v, want held at 130, nothing replayed", c)
	}
}

func TestABlackHoleIsCutByTheDeadline(t *testing.T) {
	w := one(t, 130, wave(50))
	w.history.block = true
	p, err := planner.New(w.config(func(c *planner.Config) { c.Deadline = 20 * time.Millisecond }))
	if err != nil {
		t.Fatal(err)
	}
	run, err := p.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now})
	if err != nil || run.Result != rlc.ResultDegraded || !strings.Contains(run.Detail, "the run's deadline of 20ms has passed") {
		t.Errorf("run %+v (%v), want degraded by the deadline", run, err)
	}
}

func TestAQuotaWithoutTrafficIsKept(t *testing.T) {
	w := one(t, 130, wave(50))
	delete(w.history.series, "geo all")
	run := w.cron()
	if run.Result != rlc.ResultOK || run.Held != 1 {
		t.Errorf("run %+v, want ok: no data is no failure", run)
	}
	if c := w.all(); c.Held != "no_data" || c.Failed || c.New.Rate != 130 {
		t.Errorf("%+v, want held at 130", c)
	}
}

// Scenario 27: ten policy commits in an hour, each accepted. Traffic asks for
// 1300; the quota moves to twice its value of a day ago and no further.
func TestManyRunsAreNoWayAroundTheStep(t *testing.T) {
	w := one(t, 100, wave(1000))
	for i := range 10 {
		w.clock = now.Add(time.Duration(6*i) * time.Minute)
		w.repo.commit(w.clock, policy("geo", fmt.Sprintf("  - {name: all, policy: {kind: historical, headroom: 0.3%d}}\n", i)))
		if _, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByConfig, Slot: fmt.Sprint("c", i), Service: "geo", Now: w.clock}); err != nil {
			t.Fatal(err)
		}
		if w.openProposal("geo") != nil {
			w.accept("geo")
		}
		if c := w.all(); c.New.Rate > 200 {
			t.Fatalf("run %d: %+v, more than twice the 100 of a day ago", i, c.New)
		}
	}
	if c := w.all(); c.New.Rate != 200 {
		t.Errorf("ended at %v, want 200", c.New)
	}
}

// The same for a quota that did not exist a day ago: its first value is the
// measure.
func TestANewQuotaIsMeasuredAgainstItsFirstValue(t *testing.T) {
	w := newWorld(t, policy("geo", "  - {name: all}\n"))
	peak := 100.0
	w.history.series["geo all"] = func(t time.Time) float64 { return wave(peak)(t) }
	w.cron()
	first := w.all().New.Rate
	w.accept("geo")
	peak = 1000
	for i := range 4 {
		w.clock = now.Add(time.Duration(i+1) * time.Hour)
		w.cron()
		if w.openProposal("geo") != nil {
			w.accept("geo")
		}
	}
	if c := w.all(); c.New.Rate != 2*first {
		t.Errorf("from %v to %v within hours, want at most twice", first, c.New.Rate)
	}
}

func TestAPersonsEditIsHeldAndTheRestGoesOn(t *testing.T) {
	w := shop(t)
	w.repo.commit(now.Add(-20*day), quotas("shop", rlc.Quota{Bucket: "callers", Key: caller("web"), Limit: rlc.Limit{Rate: 7, Burst: 14}, Why: "mine"}))
	w.repo.edited["shop"] = map[string]string{"callers/caller=web": "ada <ada@example.com>"}
	if run := w.cron(); run.Result != rlc.ResultOK || run.Held != 1 || run.Changed != 1 {
		t.Errorf("run %+v", run)
	}
	if c := w.change("shop", "callers", caller("web")); c.Held != "human_edit" || !strings.Contains(c.HeldWhy, "ada") || c.New.Rate != 7 {
		t.Errorf("%+v, want held at 7", c)
	}
}

func TestARejectedProposalStaysAway(t *testing.T) {
	w := one(t, 80, wave(100))
	w.cron() // 130
	w.reject("geo", "we shed above 100")
	w.clock = now.Add(day)
	run := w.cron()
	if c := w.all(); c.Held != "rejected" || c.New.Rate != 80 || !strings.Contains(c.HeldWhy, "ada rejected this on 2026-03-18 (we shed above 100)") {
		t.Errorf("the next day: %+v, want held", c)
	}
	if run.Result != rlc.ResultOK || run.Changed != 0 || len(w.pub.commits) != 1 {
		t.Errorf("run %+v, commits %v", run, w.pub.commits)
	}
	// 150 × 1.3 = 195 differs from 130 by half, more than 2 × 10 %.
	w.history.series["geo all"] = times(wave(100), 1.5, now.Add(-12*day), now.Add(100*day))
	w.clock = now.Add(2 * day)
	w.cron()
	if p := w.openProposal("geo"); p == nil || p.Changes[0].New.Rate < 156 {
		t.Errorf("with other traffic: %+v, want it put up", w.all())
	}
}

func TestARejectedProposalComesBackAfterThirtyDays(t *testing.T) {
	w := one(t, 80, wave(100))
	w.cron()
	w.reject("geo", "")
	w.clock = now.Add(30*day - time.Minute)
	w.cron()
	if w.openProposal("geo") != nil {
		t.Error("put up again before 30 days have passed")
	}
	w.clock = now.Add(30 * day)
	w.cron()
	if w.openProposal("geo") == nil {
		t.Errorf("not put up again after 30 days: %+v", w.all())
	}
}

func TestAPersonsReviewIsLeftAlone(t *testing.T) {
	w := one(t, 80, wave(100))
	w.cron()
	p := w.openProposal("geo")
	p.Human = true
	if err := w.db.SetProposal(t.Context(), *p, nil); err != nil {
		t.Fatal(err)
	}
	w.history.series["geo all"] = wave(200)
	w.clock = now.Add(day)
	w.cron()
	if c := w.all(); c.Held != "human_review" || w.openProposal("geo").ID != p.ID || len(w.pub.commits) != 1 {
		t.Errorf("%+v, want hands off", c)
	}
}

func TestAProposalThatNothingSupportsAnyMoreIsClosed(t *testing.T) {
	w := one(t, 100, wave(100))
	w.cron()
	first := w.openProposal("geo")
	w.clock = now.Add(time.Hour)
	w.history.err["geo"] = errors.New("timeout")
	w.cron()
	if p := w.openProposal("geo"); p == nil || p.ID != first.ID {
		t.Error("a failed read closed the open proposal")
	}
	delete(w.history.err, "geo")
	w.history.series["geo all"] = wave(80) // 104: within the deadband
	w.clock = now.Add(2 * time.Hour)
	w.cron()
	if p := w.openProposal("geo"); p != nil {
		t.Errorf("still open: %+v", p)
	}
	if old, err := w.db.ProposalByID(t.Context(), first.ID); err != nil || old.State != rlc.Superseded {
		t.Errorf("%+v (%v), want superseded", old, err)
	}
	n := len(w.pub.commits)
	w.clock = now.Add(3 * time.Hour)
	w.cron()
	if len(w.pub.commits) != n {
		t.Error("closed a second time")
	}
}

func TestGeneratedQuotasAreBounded(t *testing.T) {
	w := newWorld(t, files(policy("shop", callers+"quotas: {max: 3}\n"),
		quotas("shop", rlc.Quota{Bucket: "callers", Key: caller("old"), Limit: rlc.Limit{Rate: 1, Burst: 2}, Why: "x"})))
	for i := range 8 {
		w.history.series[fmt.Sprintf("shop callers caller=pod-%d", i)] = wave(float64(10 * (i + 1)))
	}
	run := w.cron()
	p := w.openProposal("shop")
	var names []string
	for _, c := range p.Changes {
		names = append(names, c.Key["caller"])
	}
	if !slices.Equal(names, []string{"pod-6", "pod-7"}) {
		t.Errorf("quotas for %v, want the two largest beside the one in force", names)
	}
	if c := w.change("shop", "callers", caller("pod-5")); c.Held != "quotas_max" || !strings.Contains(c.HeldWhy, "this key and 5 smaller ones") || c.New != nil {
		t.Errorf("%+v, want held with the count", c)
	}
	if run.Result != rlc.ResultOK || run.Total != 1+4 {
		t.Errorf("run %+v, want 5 looked at: what was left out is counted, not kept", run)
	}
}

func TestAnAttributeThatHistoryDoesNotCarryComputesNothing(t *testing.T) {
	w := newWorld(t, policy("shop", "  - {name: tenants, each: [tenant]}\n  - {name: all}\n"))
	w.history.series["shop all"] = wave(10)
	w.cron()
	for _, bucket := range []string{"tenants", "all"} { // what is no tenant's falls to all: it depends on it too
		if c := w.change("shop", bucket, nil); c.Held != "attribute_not_in_history" || c.New != nil || !strings.Contains(c.HeldWhy, "tenant") {
			t.Errorf("%s: %+v, want held", bucket, c)
		}
	}
}

func TestHandWrittenLimitsAreNotComputed(t *testing.T) {
	w := newWorld(t, policy("shop", callers+"  - {name: hand, match: {caller: acme}, limit: {rate: 5, burst: 10}}\n"))
	w.history.series["shop hand"] = wave(10)
	w.history.series["shop callers caller=web"] = wave(10)
	if run := w.cron(); run.Total != 1 {
		t.Errorf("run %+v, want the one computed quota", run)
	}
}

func TestContractsAndCapacitiesNeedNoHistory(t *testing.T) {
	w := newWorld(t, files(
		rlc.Files{"contracts/acme-2026.yaml": []byte("apiVersion: rlc/v1\nkind: Contract\nname: acme-2026\ncaller: acme\nrate: 50\nburst: 100\nreference: order 7\n")},
		policy("shop", "  - {name: acme, match: {caller: acme}, policy: {kind: contractual, contract: acme-2026}}\n"+
			"  - {name: whole, role: cap, policy: {kind: capacity}}\ncapacity: {rate: 1000, burst: 2000, reserve: 0.1}\n")))
	w.history.err["shop"] = errors.New("connection refused")
	run := w.cron()
	if run.Result != rlc.ResultDegraded || run.Changed != 2 {
		t.Errorf("run %+v, want both put up although history is away", run)
	}
	for bucket, want := range map[string]rlc.Limit{"acme": {Rate: 50, Burst: 100}, "whole": {Rate: 900, Burst: 2000}} {
		if c := w.change("shop", bucket, nil); c.New == nil || *c.New != want {
			t.Errorf("%s: %+v, want %v", bucket, c, want)
		}
	}
}

// Two callers ask for 130 and 390; the service carries 400 and has no reserve.
// What was cut is replayed against what it became.
func TestQuotasAreMadeToFitTheCapacity(t *testing.T) {
	w := shop(t)
	w.repo.commit(now.Add(-50*day), policy("shop", callers+"capacity: {rate: 400}\n"))
	w.cron()
	web, search := w.change("shop", "callers", caller("web")), w.change("shop", "callers", caller("search"))
	if search.New.Rate != 130 || web.New.Rate != 270 || web.Look == "" {
		t.Errorf("search %v, web %v; want 130 and 270 with a look", search.New, web.New)
	}
	if web.Backtest.New == nil || web.Backtest.New.Drops == 0 || search.Backtest.New.Drops != 0 {
		t.Errorf("web %+v: 300/s against 270 drops", web.Backtest.New)
	}
	if w.history.reads != 2 {
		t.Errorf("history read %d times, want a second time for what was cut", w.history.reads)
	}
}

func TestAPanicInOneServiceStaysThere(t *testing.T) {
	w := shop(t)
	w.repo.commit(now.Add(-50*day), policy("geo", "  - {name: all}\n"))
	w.history.series["geo all"] = func(time.Time) float64 { panic("bug") }
	run := w.cron()
	if run.Result != rlc.ResultDegraded || !strings.Contains(run.Detail, "geo: internal error: bug") || w.openProposal("shop") == nil {
		t.Errorf("run %+v, want degraded and shop put up", run)
	}
}

func TestOnlyTheWorstEpisodesAreKept(t *testing.T) {
	// Every two hours three minutes at 30/s against a quota of 20/s with burst
	// 40: 12 a day, 336 in four weeks, less those at the window's edges.
	w := one(t, 20, func(t time.Time) float64 {
		if t.Hour()%2 == 0 && t.Minute() < 3 {
			return 30 + float64(t.Day()%7)
		}
		return 5
	})
	w.cron()
	b := w.all().Backtest.Old
	if b == nil || len(b.Episodes) != 100 || b.Omitted < 230 || b.Omitted > 240 {
		t.Fatalf("%d episodes kept, %d omitted; want 100 of about 336", len(b.Episodes), b.Omitted)
	}
	for i, e := range b.Episodes {
		if e.Peak < 34 || i > 0 && !b.Episodes[i-1].From.Before(e.From) {
			t.Errorf("episode %+v, want the worst, in order of time", e)
		}
	}
}
