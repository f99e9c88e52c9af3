package policies

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// proven are four weeks of evidence: a decrease is allowed.
func proven(current *rlc.Quota) Evidence {
	return Evidence{Now: monday, History: recorded(monday, 28, usual), Current: current}
}

func estimate(rate rlc.Rate) rlc.Estimate {
	return rlc.Estimate{
		Limit: rlc.Limit{Rate: rate, Burst: rlc.Burst(2 * rate)}, Why: "an estimate",
		ValidDays: 28, Coverage: 1, Peak: rlc.Peak{Rate: rate / 2},
		Steps: []rlc.Reason{{Rule: "headroom", Rate: rate, Acted: true}},
	}
}

func TestTheGuardsRunInTheirOrderAndEachLeavesAReason(t *testing.T) {
	e := proven(quota(100))
	var rules []string
	for _, r := range Guard(e, estimate(150), nil).Reasons {
		rules = append(rules, r.Rule)
	}
	want := []string{"headroom", "data", "evidence", "deadband", "rounding", "step", "invariants"}
	if !slices.Equal(rules, want) {
		t.Errorf("rules %v, want %v", rules, want)
	}
}

func TestGuards(t *testing.T) {
	limit := func(rate rlc.Rate, burst rlc.Burst) *rlc.Limit { return &rlc.Limit{Rate: rate, Burst: burst} }
	cases := []struct {
		name  string
		old   rlc.Rate // 0: no quota in force
		want  rlc.Rate // estimate
		amend func(*Evidence, *rlc.Estimate)
		limit rlc.Limit
		acted []string // beside the policy's own
		held  string
	}{
		{name: "new is rounded up", want: 322.41, limit: *limit(323, 646), acted: []string{"rounding"}},
		{name: "inside the deadband", old: 100, want: 109.9, limit: *limit(100, 200), acted: []string{"deadband"}},
		{name: "at the deadband", old: 100, want: 110, limit: *limit(110, 220)},
		{name: "a decrease inside the deadband", old: 100, want: 91, limit: *limit(100, 200), acted: []string{"deadband"}},
		{name: "up at most +100 % in 24 h", old: 101.5, want: 900, limit: *limit(203, 406), acted: []string{"step_up"}},
		{name: "a clamped value rounds towards the quota in force", old: 61.3, want: 900, limit: *limit(122, 244), acted: []string{"step_up"}}, // 122.6
		{name: "down at most −10 % in 24 h", old: 61.3, want: 10, limit: *limit(55.2, 111), acted: []string{"step_down"}},                      // 55.17; burst 0.9 × 123 = 110.7
		{
			name: "up at most +150 % in 7 days", old: 200, want: 900,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.DayAgo, e.WeekAgo = limit(200, 400), limit(100, 200) },
			limit: *limit(250, 500), acted: []string{"week_up"},
		},
		{
			name: "down at most −30 % in 7 days", old: 75, want: 10,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.DayAgo, e.WeekAgo = limit(75, 150), limit(100, 200) },
			limit: *limit(70, 140), acted: []string{"week_down"},
		},
		{
			name: "a clamp never moves a quota the other way", old: 500, want: 900,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.DayAgo = limit(100, 200) },
			limit: *limit(500, 1000), acted: []string{"step_up"},
		},
		{
			name: "once a day", old: 95, want: 50,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.DayAgo = limit(100, 200) },
			limit: *limit(95, 190), acted: []string{"lowered_today"}, held: "lowered_today",
		},
		{
			name: "the highest estimate of the last 7 days", old: 100, want: 50,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.Guards.StepDown = 0.5
				e.Recent = []rlc.Limit{*limit(60, 120), *limit(80, 160), *limit(70, 140)}
			},
			limit: *limit(80, 160), acted: []string{"highest_of_week"},
		},
		{
			name: "an estimate of the last 7 days above the quota raises nothing", old: 100, want: 50,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.Recent = []rlc.Limit{*limit(300, 600)} },
			limit: *limit(100, 200), acted: []string{"highest_of_week", "deadband"},
		},
		{
			name: "a cap of the policy", old: 100, want: 180,
			amend: func(_ *Evidence, est *rlc.Estimate) { est.MaxIncrease = 0.25 },
			limit: *limit(125, 250), acted: []string{"max_increase"},
		},
		{
			name: "the floor", old: 6, want: 0.3,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.Guards.Floor = 5.8 },
			limit: *limit(5.8, 11), acted: []string{"step_down", "floor"}, // 0.9 × 6 = 5.4; burst 0.9 × 12 = 10.8
		},
		{
			name: "the contract", want: 40,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.Contract = &rlc.Contract{Limit: rlc.Limit{Rate: 100, Burst: 1}} },
			limit: *limit(100, 200), acted: []string{"contract"},
		},
		{
			name: "the contract's burst, of a rate that passes its own", want: 200,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.Contract = &rlc.Contract{Limit: rlc.Limit{Rate: 100, Burst: 1500}}
			},
			limit: *limit(200, 1500), acted: []string{"contract"},
		},
		{
			name: "the contract's burst, inside the deadband", old: 100, want: 101,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.Contract = &rlc.Contract{Limit: rlc.Limit{Rate: 100, Burst: 1500}}
			},
			limit: *limit(100, 1500), acted: []string{"deadband", "contract"},
		},
		{
			name: "a contract beyond the capacity", old: 50, want: 40,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.Contract = &rlc.Contract{Limit: rlc.Limit{Rate: 100, Burst: 1}}
				e.Capacity = &rlc.Capacity{Rate: 100, Reserve: 0.1}
			},
			limit: *limit(50, 100), acted: []string{"step_down", "conflict"}, held: "conflict",
		},
		{
			name: "a fixed limit moves at once, unrounded", old: 1000, want: 33.333,
			amend: func(_ *Evidence, est *rlc.Estimate) { est.Fixed, est.Limit.Burst = true, 40 },
			limit: *limit(33.333, 40),
		},
		{
			name: "a person's edit", old: 100, want: 900,
			amend: func(e *Evidence, _ *rlc.Estimate) { e.HumanEdit = "ana" },
			limit: *limit(100, 200), acted: []string{"human_edit"}, held: "human_edit",
		},
		{
			name: "a caller that has been gone for more than a week", old: 100, want: 50,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.History = recorded(monday, 28, func(at time.Time) float64 {
					if at.Before(monday.Add(-16 * day)) {
						return 50
					}
					return 0
				})
			},
			limit: *limit(100, 200), acted: []string{"vanished"}, held: "vanished",
		},
		{
			name: "a caller that comes once a week", old: 100, want: 50,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.History = recorded(monday, 28, func(at time.Time) float64 {
					if at.Weekday() == time.Monday && at.Hour() == 3 {
						return 50
					}
					return 0
				})
				e.Guards.StepDown = 0.5
			},
			limit: *limit(50, 100), acted: []string{},
		},
		{
			name: "a policy's word against a decrease", old: 100, want: 10,
			amend: func(_ *Evidence, est *rlc.Estimate) { est.NoDecrease = "not now" },
			limit: *limit(100, 200), acted: []string{"no_decrease"}, held: "no_decrease",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var current *rlc.Quota
			if c.old > 0 {
				current = quota(c.old)
			}
			e, est := proven(current), estimate(c.want)
			if c.amend != nil {
				c.amend(&e, &est)
			}
			got := Guard(e, est, nil)
			if got.New == nil || *got.New != c.limit || got.Held != c.held {
				t.Errorf("new %v, held %q; want %v, %q", got.New, got.Held, c.limit, c.held)
			}
			if rules := acted(got)[1:]; !slices.Equal(rules, c.acted) {
				t.Errorf("acted %v, want %v", rules, c.acted)
			}
		})
	}
}

func TestAPolicyThatAbstainsOrFailsHoldsTheQuota(t *testing.T) {
	c := Guard(proven(quota(100)), rlc.Estimate{}, fmt.Errorf("%w: nobody knows", rlc.ErrAbstain))
	wantHeld(t, c, "abstained", "nobody knows")
	if c.Failed {
		t.Error("an abstention degrades the run")
	}
	c = Guard(proven(quota(100)), rlc.Estimate{}, errors.New("boom"))
	wantHeld(t, c, "policy_failed", "boom")
	if !c.Failed {
		t.Error("a failure does not degrade the run")
	}
}

func TestReportedZeroNeedsTheSameHoursOfOtherWeeks(t *testing.T) {
	zeroed := func(at time.Time) float64 {
		if !at.Before(monday.Add(-day)) {
			return 0
		}
		return usual(at)
	}
	_, c := run{history: recorded(monday, 28, zeroed), current: quota(130)}.propose(t)
	wantHeld(t, c, "reported_zero", "the last 24 h are all zero; the same hours had traffic in 3 of the last 3 weeks")

	weekdays := func(at time.Time) float64 {
		if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
			return 0
		}
		return usual(at)
	}
	if _, c := (run{history: recorded(monday, 28, weekdays), current: quota(130)}).propose(t); c.Held != "" {
		t.Errorf("a silent weekend holds the quota: %s", c.HeldWhy) // Sunday 02:00 to Monday 02:00 has two busy hours
	}
	sunday := monday.Add(-day)
	if _, c := (run{now: sunday, history: recorded(sunday, 28, weekdays), current: quota(130)}).propose(t); c.Held != "" {
		t.Errorf("a silent Saturday holds the quota: %s", c.HeldWhy)
	}
}

func TestAQuotaLeavesShadowWithItsFourteenthDayAndNeverReturns(t *testing.T) {
	soft := quota(130)
	soft.Mode = rlc.Shadow
	_, c := run{history: recorded(monday, 14, usual), current: soft}.propose(t)
	if c.NewMode != "" || !c.Moves() || c.Why != soft.Why {
		t.Errorf("mode %q, moves %v, why %q", c.NewMode, c.Moves(), c.Why)
	}
	// A rename: two days of history for a quota that had its evidence.
	_, c = run{history: recorded(monday, 2, usual), current: quota(130)}.propose(t)
	wantHeld(t, c, "valid_days", "2 of 14 days of history; the quota in force is kept")
	// Unless what was seen passes it: the peak of these two weekend days is 60.
	_, c = run{history: recorded(monday, 2, usual), current: quota(50)}.propose(t)
	if c.Held != "" || c.New.Rate != 100 || c.NewMode != "" { // 60 × 1.3 × 1.43 = 111, +100 % = 100
		t.Errorf("held %q, new %v, mode %q", c.Held, c.New, c.NewMode)
	}
}

func TestADecreaseWithoutACountOfTargetsAsksForAPerson(t *testing.T) {
	e := proven(quota(300))
	e.History.Targets = false
	c := Guard(e, estimate(130), nil)
	if c.New.Rate != 270 || !strings.Contains(c.Look, "a person must approve") {
		t.Errorf("new %v, look %q", c.New, c.Look)
	}
}

func TestTheReasonOfAQuotaChangesOnlyWithItsRate(t *testing.T) {
	if c := Guard(proven(quota(100)), estimate(101), nil); c.Why != "as before" {
		t.Errorf("unchanged: %q", c.Why)
	}
	if c := Guard(proven(quota(100)), estimate(900), nil); c.Why != "an estimate; at most +100 % in 24 h, towards 900/s" {
		t.Errorf("clamped: %q", c.Why)
	}
}

func TestExplainTellsTheWayToTheNumber(t *testing.T) {
	h := recorded(monday, 28, usual)
	_, c := run{history: h, current: quota(61.3)}.propose(t)
	e := Explain(c)
	if e.Verdict != "raised from 61.3/s to 122/s (+99 %)" { // 122 / 61.3 = 1.990
		t.Errorf("verdict %q", e.Verdict)
	}
	var sum float64
	for _, l := range e.Lines {
		sum += l.Delta
	}
	if sum != 122 {
		t.Errorf("the waterfall ends at %v, want the new rate", sum)
	}
	held := Guard(Evidence{Now: monday, Current: quota(420)}, rlc.Estimate{}, nil)
	if got := Explain(held).Verdict; got != "held at 420/s: no sample in the window" {
		t.Errorf("verdict %q", got)
	}
	want := `new: 130/s, burst 260
* highest step                 100/s  highest step (1m) of the window, at 2026-10-26 09:00 UTC
  weekly peak that counts             highest weekly peak of the hours that count; nothing left out
  growth                              × 1.00: the newest week's peak grown by the usual step from week to week (at most × 1.15)
* headroom                     130/s  × 1.30 headroom
  confidence                          × 1.00 for 14 of 14 days of history
  burst                               burst 260: 2 × the rate; bursts below the step of 1m are not visible
  data                                data as expected: newest sample at 2026-11-23 02:00 UTC
  new                                 no quota was in force: nothing to measure a step against
  rounding                            up to three significant digits
  invariants                          floor and contract are kept
why: weekly peak 100/s × 1.30 headroom
`
	_, c = run{history: h}.propose(t)
	if got := Explain(c).Text(); got != want {
		t.Errorf("text:\n%s\nwant:\n%s", got, want)
	}
}

// One phrase says how a hold by a person ends, wherever it is told.
func TestAPersonsNumberIsHeldUntilItsLineIsRemoved(t *testing.T) {
	for _, g := range []guarding{{e: Evidence{HumanEdit: "ana", Current: &rlc.Quota{Limit: rlc.Limit{Rate: 100, Burst: 200}}}}, {e: Evidence{Current: &rlc.Quota{}}}} {
		if !g.person() || !strings.HasSuffix(g.change.HeldWhy, "; held until its line is removed from quotas.yaml") {
			t.Errorf("%+v: held because %q", g.e, g.change.HeldWhy)
		}
	}
}
