package policies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

// byDay are hours from a time on: day from 8 to 20 o'clock, else night.
func byDay(from time.Time, days int, day, night rlc.Rate) *rlc.QuotaHours {
	h := &rlc.QuotaHours{From: from, Rates: make([]rlc.Rate, 24*days)}
	for i := range h.Rates {
		h.Rates[i] = night
		if k := from.Add(time.Duration(i) * hour).Hour(); k >= 8 && k < 20 {
			h.Rates[i] = day
		}
	}
	return h
}

// hourlyEstimate asks for its highest hour by day and for night at night.
func hourlyEstimate(day, night rlc.Rate) rlc.Estimate {
	est := estimate(day)
	est.Forecast = &rlc.Forecast{From: monday, Rates: byDay(monday, 7, day, night).Rates}
	return est
}

// withHours is a quota in force with hours.
func withHours(rate rlc.Rate, h *rlc.QuotaHours) *rlc.Quota {
	q := quota(rate)
	q.Hours = h
	return q
}

// atHour is the rate that a change's hours have at an hour of monday.
func atHour(t testing.TB, c rlc.Change, k int) rlc.Rate {
	t.Helper()
	if c.NewTimed.Hours == nil {
		t.Fatalf("no hours\n%s", Explain(c).Text())
	}
	r, ok := c.NewTimed.Hours.At(time.Date(2026, 11, 23, k, 0, 0, 0, time.UTC))
	if !ok {
		t.Fatalf("no hour %d in %v", k, c.NewTimed.Hours)
	}
	return r
}

func TestAnHourFallsWithEvidenceAndByTheStepsOfItsHourOfTheWeek(t *testing.T) {
	dayAgo, weekAgo := monday.Add(-day), monday.Add(-7*day)
	limit := func(rate rlc.Rate) *rlc.Limit { return &rlc.Limit{Rate: rate, Burst: rlc.Burst(2 * rate)} }
	for name, x := range map[string]struct {
		current    *rlc.Quota
		amend      func(*Evidence, *rlc.Estimate)
		noon, dark rlc.Rate // 12:00 and 03:00
		none       bool
	}{
		"a quota that is new":                  {noon: 100, dark: 40.1},
		"from one rate at most −10 % in a day": {current: quota(100), noon: 100, dark: 90},
		"−30 % in a week": {
			current: withHours(100, byDay(dayAgo, 7, 100, 75)), noon: 100, dark: 70, // not 67.5
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.DayAgo, e.DayAgoHours, e.WeekAgo = limit(100), e.Current.Hours, limit(100)
			},
		},
		"from hours of a day and a week ago": {
			current: withHours(100, byDay(dayAgo, 7, 100, 50)), noon: 100, dark: 45,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.DayAgo, e.DayAgoHours = limit(100), e.Current.Hours
				e.WeekAgo, e.WeekAgoHours = limit(100), byDay(weekAgo, 7, 100, 60)
			},
		},
		"no lower than the highest estimate of the hour in 7 days": {
			current: quota(100), noon: 100, dark: 95.5,
			amend: func(e *Evidence, _ *rlc.Estimate) {
				e.RecentHours = []rlc.QuotaHours{*byDay(weekAgo, 7, 100, 95.5), *byDay(dayAgo, 7, 100, 40)}
			},
		},
		"the floor": {amend: func(e *Evidence, _ *rlc.Estimate) { e.Guards.Floor = 50 }, noon: 100, dark: 50},
		"a contract": {amend: func(e *Evidence, _ *rlc.Estimate) {
			e.Contract = &rlc.Contract{Limit: rlc.Limit{Rate: 60, Burst: 60}}
		}, noon: 100, dark: 60},
		"once a day": {current: quota(100), none: true, amend: func(e *Evidence, _ *rlc.Estimate) { e.Lowered = true }},
		"stale":      {current: quota(100), none: true, amend: func(e *Evidence, _ *rlc.Estimate) { e.History.Newest = monday.Add(-3 * minute) }},
		"no decrease": {current: quota(100), none: true, amend: func(_ *Evidence, est *rlc.Estimate) {
			est.NoDecrease = "censored"
		}},
		"few days":                          {current: quota(100), none: true, amend: func(_ *Evidence, est *rlc.Estimate) { est.ValidDays = 13 }},
		"a new quota with a thin coverage":  {none: true, amend: func(_ *Evidence, est *rlc.Estimate) { est.Coverage = 0.9 }},
		"a new quota, not all targets seen": {none: true, amend: func(e *Evidence, _ *rlc.Estimate) { e.History = partial(e.History) }},
	} {
		e, est := proven(x.current), hourlyEstimate(100, 40.04)
		if x.amend != nil {
			x.amend(&e, &est)
		}
		c := Guard(e, est, nil)
		switch {
		case x.none && c.NewTimed.Hours != nil:
			t.Errorf("%s: %v", name, c.NewTimed.Hours.Rates[:24])
		case x.none && !slices.Contains(acted(c), "hours"):
			t.Errorf("%s: no reason\n%s", name, Explain(c).Text())
		case !x.none && (atHour(t, c, 12) != x.noon || atHour(t, c, 3) != x.dark):
			t.Errorf("%s: %v at noon, %v at night, want %v and %v\n%s", name, atHour(t, c, 12), atHour(t, c, 3), x.noon, x.dark, Explain(c).Text())
		}
	}
}

// partial is a history of which a third of the hours lacks targets.
func partial(h rlc.History) rlc.History {
	return marking(h, monday.Add(-12*day), monday.Add(-3*day), func(x *rlc.Hour) { x.Partial = x.Present })
}

func TestWithoutEvidenceHoursMayRiseAndNoneFalls(t *testing.T) {
	in := byDay(monday.Add(-4*day), 7, 100, 60) // until Thursday 02:00
	e := proven(withHours(100, in))
	e.History = partial(e.History)
	if c := Guard(e, hourlyEstimate(100, 40), nil); c.NewTimed.Hours != in || c.Moves() {
		t.Errorf("lower hours without evidence: %v", c.NewTimed)
	}
	c := Guard(e, hourlyEstimate(90, 80), nil) // by day 90 is lower, at night 80 is higher
	if noon, dark := atHour(t, c, 12), atHour(t, c, 3); noon != 100 || dark != 80 {
		t.Errorf("%v at noon, %v at night, want 100 and 80", noon, dark)
	}
	// After the hours in force the rate stands: none of its hours may be lower.
	if r, _ := c.NewTimed.Hours.At(monday.Add(4 * day)); r != 100 {
		t.Errorf("after those in force: %v, want the rate of 100", r)
	}
	// The quota's own decrease is held, its hours may rise all the same.
	c = Guard(e, hourlyEstimate(85, 80), nil)
	if c.Held != "coverage" || atHour(t, c, 3) != 80 || atHour(t, c, 12) != 100 {
		t.Errorf("held by %q, %v at night, %v at noon", c.Held, atHour(t, c, 3), atHour(t, c, 12))
	}
	e.HumanEdit = "ana"
	if c := Guard(e, hourlyEstimate(90, 80), nil); c.NewTimed.Hours != in {
		t.Errorf("a person's quota has new hours: %v", c.NewTimed.Hours)
	}
}

func TestHoursInForceStayWhileTheyAreNearAndReachAhead(t *testing.T) {
	stood := func(rate, by, night rlc.Rate, now time.Time, est rlc.Estimate) (before, after *rlc.QuotaHours) {
		before = byDay(monday, 7, by, night)
		e := proven(withHours(rate, before))
		e.Now, e.DayAgo, e.DayAgoHours = now, &e.Current.Limit, before
		e.History = recorded(now, 28, usual)
		if est.Forecast != nil {
			est.Forecast.From = now
		}
		return before, Guard(e, est, nil).NewTimed.Hours
	}
	if before, after := stood(100, 100, 40, monday, hourlyEstimate(100, 40)); before != after {
		t.Error("the same forecast gives new hours")
	}
	if before, after := stood(100, 100, 40, monday, hourlyEstimate(100, 43.9)); before != after {
		t.Error("an hour within the deadband gives new hours")
	}
	if before, after := stood(100, 100, 40, monday, hourlyEstimate(100, 44)); before == after || after.Rates[0] != 44 {
		t.Error("an hour beyond the deadband leaves those in force")
	}
	// The deadband is that of the estimate: a step that is smaller is taken.
	if before, after := stood(100, 100, 61.3, monday, hourlyEstimate(100, 40)); before == after || after.Rates[0] != 55.2 { // 61.3 × 0.9 = 55.17
		t.Errorf("a step of 9.95 %% is not taken: %v", after)
	}
	late := monday.Add(5*day + hour) // they end in less than two days
	if before, after := stood(100, 100, 40, late, hourlyEstimate(100, 40)); before == after {
		t.Error("hours that end soon are left in force")
	}
	if before, after := stood(100, 120, 40, monday, hourlyEstimate(100, 40)); before == after || slices.Max(after.Rates) != 100 {
		t.Error("hours above the quota's rate are left in force")
	}
	if _, after := stood(100, 100, 40, monday, estimate(100)); after != nil {
		t.Error("a static estimate keeps hours")
	}
}

func TestHoursOfAYoungRiseAreHeldToTheHoursOfADayAgo(t *testing.T) {
	e := proven(withHours(100, byDay(monday, 7, 100, 40.1)))
	e.DayAgo, e.DayAgoHours = &e.Current.Limit, byDay(monday.Add(-day), 7, 100, 40.1)
	risen := hourlyEstimate(125, 90)
	risen.MaxIncrease = 0.25
	for range 3 { // as often as it runs within the day
		c := Guard(e, risen, nil)
		if got := atHour(t, c, 3); got != 50.1 { // 40.1 × 1.25 = 50.125, rounded down
			t.Fatalf("at night %v, want 50.1", got)
		}
		e.Current = withHours(c.New.Rate, c.NewTimed.Hours)
	}
	risen.MaxIncrease = 0
	if got := atHour(t, Guard(e, risen, nil), 3); got != 90 {
		t.Errorf("without a cap at night %v, want 90", got)
	}
}

func TestLoweredHoursWithoutACountOfTargetsAskForALook(t *testing.T) {
	e := proven(quota(100))
	e.History.Targets = false
	if c := Guard(e, hourlyEstimate(100, 40), nil); c.Look != uncounted || atHour(t, c, 3) != 90 {
		t.Errorf("look %q, hours %v", c.Look, c.NewTimed.Hours)
	}
	e = proven(withHours(100, byDay(monday, 7, 100, 40)))
	e.History.Targets = false
	if c := Guard(e, hourlyEstimate(100, 80), nil); c.Look != "" {
		t.Errorf("hours that rise ask for a look: %q", c.Look)
	}
}

func TestScenario1And25NoHourFallsWithoutEvidence(t *testing.T) {
	gap := recorded(monday, 28, func(at time.Time) float64 {
		if from := monday.Add(-10 * day); !at.Before(from) && at.Before(from.Add(4838*minute)) {
			return nan
		}
		return usual(at)
	})
	hourly := predictivePolicy(t, rlc.Params{"schedule": "hourly"})
	for name, x := range map[string]struct {
		history rlc.History
		why     string
	}{
		"1, a gap":            {gap, "one rate for all hours: coverage 88 % < 95 %"},
		"25, missing targets": {partial(recorded(monday, 28, usual)), "one rate for all hours: targets 67 % < 95 %"},
	} {
		for _, current := range []*rlc.Quota{quota(130), withHours(130, byDay(monday.Add(-3*day), 7, 130, 60))} {
			_, c := run{policy: hourly, history: x.history, current: current}.propose(t)
			if fallingHours(&c) > 0 || !c.NewTimed.Equal(c.OldTimed) {
				t.Errorf("%s: hours %v became %v", name, c.OldTimed.Hours, c.NewTimed.Hours)
			}
		}
		_, c := run{policy: hourly, history: x.history}.propose(t)
		if c.NewTimed.Hours != nil || !slices.ContainsFunc(c.Reasons, func(r rlc.Reason) bool { return r.Detail == x.why }) {
			t.Errorf("%s: a new quota has hours %v\n%s", name, c.NewTimed.Hours, Explain(c).Text())
		}
	}
	// With the evidence they do fall: the test above would see it.
	if _, c := (run{policy: hourly, history: recorded(monday, 28, usual), current: quota(130)}).propose(t); fallingHours(&c) == 0 || atHour(t, c, 3) != 117 {
		t.Errorf("with evidence nothing falls: %v\n%s", c.NewTimed.Hours, Explain(c).Text())
	}
}

func TestAPersonDecidesWhatHoursMove(t *testing.T) {
	move := func(old, new *rlc.QuotaHours) func(*rlc.Change) {
		return func(c *rlc.Change) {
			c.At, c.New = monday, c.Old
			c.OldTimed.Hours, c.NewTimed.Hours = old, new
		}
	}
	for name, x := range map[string]struct {
		change  func(*rlc.Change)
		ok      bool
		because string
	}{
		"hours far below the rate": {move(nil, byDay(monday, 7, 100, 5)), false, "callers: moves by 95 %, more than 20 %"},
		"hours a little below it":  {move(nil, byDay(monday, 7, 100, 81)), true, "no quota moves by more than 19 %"},
		"a renewal of the same":    {move(byDay(monday.Add(-6*day), 7, 100, 40), byDay(monday, 7, 100, 40)), true, "no quota moves by more than 0 %"},
		"hours that come back":     {move(byDay(monday, 7, 100, 80), nil), false, "callers: moves by 25 %, more than 20 %"},
		"that would have dropped": {func(c *rlc.Change) {
			move(nil, byDay(monday, 7, 100, 90))(c)
			c.Backtest.New.Drops = 3
		}, false, "callers: its decrease would have dropped 3 requests"},
		"that were not replayed exactly": {func(c *rlc.Change) {
			move(nil, byDay(monday, 7, 100, 90))(c)
			c.Backtest.New.AtLeast = true
		}, false, "callers: what its lower hours would have dropped is not known exactly"},
	} {
		if ok, because := AutoMerge(merging(x.change, nil)); ok != x.ok || !strings.HasPrefix(because, x.because) {
			t.Errorf("%s: %v, %q; want %v, %q", name, ok, because, x.ok, x.because)
		}
	}
}

func TestTheBlastGateCountsHours(t *testing.T) {
	changes := make([]rlc.Change, 10)
	for i := range changes {
		l := rlc.Limit{Rate: 100, Burst: 200}
		changes[i] = rlc.Change{Service: "s", At: monday, Old: &l, New: &l}
	}
	changes[0].NewTimed.Hours = byDay(monday, 7, 100, 90)
	why := func() string {
		var g BlastGate
		for _, c := range changes {
			g.Add(c)
		}
		return g.Why("s")
	}
	if got := why(); got != "" { // 1 of 10, and 12 of 24 hours by 10 % of it: 0.5 %
		t.Errorf("one of ten: %q", got)
	}
	changes[1].NewTimed.Hours = byDay(monday, 7, 100, 10)
	// 0.5 % and 12/24 × 90 % of a tenth: 5 % together.
	if got := why(); got != "" {
		t.Errorf("two of ten: %q", got)
	}
	changes[2].NewTimed.Hours = byDay(monday, 7, 100, 90)
	if got, want := why(), "3 of 10 quotas lowered, more than 20 %; the fleet's total is lowered by 5.5 %, more than 5 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var g BlastGate
	for _, c := range changes {
		g.Add(c)
	}
	g.Mark(changes)
	if changes[0].Look == "" || changes[3].Look != "" {
		t.Errorf("marked %q and %q", changes[0].Look, changes[3].Look)
	}
}

// Invariants 1 to 3 for hours: whatever runs, an hour falls with evidence only,
// and within the steps of its hour of the week.
func TestNoHourGoesBeyondTheStepHoweverManyRuns(t *testing.T) {
	fell := 0
	over(t, 100, func(t *rapid.T) {
		values := traffic(t, 40)
		first := monday.Add(-12 * day)
		q := &rlc.Quota{Limit: rlc.Limit{Rate: rlc.Rate(20 * highest(values)), Burst: 1000}}
		q.Rate = max(1, q.Rate)
		type state struct {
			at time.Time
			q  *rlc.Quota
		}
		force := []state{{first, q}}
		before := func(at time.Time) *rlc.Quota {
			out := force[0].q
			for _, s := range force {
				if !s.at.After(at) {
					out = s.q
				}
			}
			return out
		}
		hours := hourlyShape(t)
		now := first
		for range rapid.IntRange(2, 8).Draw(t, "runs") {
			now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "hours later")) * hour)
			end := 28*96 + int(now.Sub(first)/quarter)
			if end > len(values) {
				break
			}
			h := summarised(values[end-28*96:end], now)
			thin := rapid.IntRange(0, 3).Draw(t, "thin") == 0
			if thin {
				h = marking(h, now.Add(-10*day), now.Add(-7*day), func(x *rlc.Hour) { x.Partial = x.Present })
			}
			dayAgo, weekAgo := before(now.Add(-day)), before(now.Add(-7*day))
			e := Evidence{Now: now, Current: q, History: h, DayAgo: &dayAgo.Limit, DayAgoHours: dayAgo.Hours, WeekAgo: &weekAgo.Limit, WeekAgoHours: weekAgo.Hours}
			est := estimate(q.Rate)
			est.Forecast = &rlc.Forecast{From: now.Truncate(hour), Rates: hours(now, q.Rate)}
			c := Guard(e, est, nil)
			was, is := weekly(q.Hours, q.Rate, now), weekly(c.NewTimed.Hours, c.New.Rate, now)
			day, week := weekly(dayAgo.Hours, dayAgo.Rate, now.Add(-24*hour)), weekly(weekAgo.Hours, weekAgo.Rate, now.Add(-7*24*hour))
			eachHour(now, func(at time.Time) {
				if is(at) >= was(at) {
					return
				}
				fell++
				if thin || is(at) < day(at)*0.9*(1-1e-9) || is(at) < week(at)*0.7*(1-1e-9) {
					t.Fatalf("%s: %v became %v; a day ago %v, a week ago %v, thin %v\n%s", at, was(at), is(at), day(at), week(at), thin, Explain(c).Text())
				}
			})
			q = &rlc.Quota{Limit: *c.New, Hours: c.NewTimed.Hours}
			force = append(force, state{now, q})
		}
	})
	if !t.Failed() && fell == 0 {
		t.Error("no hour ever fell: the property says nothing")
	}
}

// hourlyShape draws shares of the rate by hour of the day.
func hourlyShape(t *rapid.T) func(now time.Time, rate rlc.Rate) []rlc.Rate {
	shares := rapid.SliceOfN(rapid.Float64Range(0, 1), 24, 24).Draw(t, "shares")
	return func(now time.Time, rate rlc.Rate) []rlc.Rate {
		out := make([]rlc.Rate, 7*24)
		for i := range out {
			out[i] = rate * rlc.Rate(shares[now.Truncate(hour).Add(time.Duration(i)*hour).Hour()])
		}
		return out
	}
}

func TestAWindowBelowTwoWeeksSaysThatItNeverLeavesShadow(t *testing.T) {
	for window, want := range map[string]bool{"7d": true, "13d": true, "14d": false} {
		p, err := Builtin().New(rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"window": window}})
		if err != nil {
			t.Fatal(err)
		}
		_, c := run{policy: p, history: recorded(monday, 28, usual), current: quota(300)}.propose(t)
		said := slices.ContainsFunc(c.Reasons, func(r rlc.Reason) bool { return r.Rule == "window" })
		if said != want || want == (c.New.Rate < 300) {
			t.Errorf("window %s: said %v, 300/s became %v, held %q", window, said, c.New.Rate, c.Held)
		}
	}
}
