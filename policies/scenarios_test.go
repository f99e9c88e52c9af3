package policies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// The scenarios of policies.md 6, by number.

func TestScenario1AGapBlocksOnlyTheDecrease(t *testing.T) {
	// 12 % of 28 days: 28 × 24 × 0.12 = 80.64 h are missing, so 88 % are there.
	gap := func(at time.Time) float64 {
		if from := monday.Add(-10 * day); !at.Before(from) && at.Before(from.Add(4838*minute)) {
			return nan
		}
		return usual(at)
	}
	h := recorded(monday, 28, gap)

	_, c := run{history: h, current: quota(300)}.propose(t) // 100 × 1.3 = 130 would be a decrease
	wantHeld(t, c, "coverage", "coverage 88 % < 95 %")

	_, c = run{history: h, current: quota(90)}.propose(t) // 130 is an increase
	wantLimit(t, c, 130, 260)
}

func TestScenario1AGapOverTheBusiestHoursBlocksTheDecrease(t *testing.T) {
	// Two of the eight busiest hours of every weekday are missing: 40 h of
	// 672, 94 % of all, and a quarter of the busiest.
	gap := func(at time.Time) float64 {
		if d := at.Weekday(); d != time.Saturday && d != time.Sunday && at.Hour() == 12 {
			return nan
		}
		return usual(at)
	}
	_, c := run{history: recorded(monday, 28, gap), current: quota(300)}.propose(t)
	wantHeld(t, c, "coverage", "coverage of the busiest hours 90 % < 95 %")
	if c.Coverage < 0.9 || c.Coverage > 0.91 {
		t.Errorf("coverage %v, want that of the busiest hours", c.Coverage)
	}
}

func TestScenario3ANewCallerStartsInShadowWithLittleConfidence(t *testing.T) {
	thursday := time.Date(2026, 11, 26, 2, 0, 0, 0, time.UTC)
	h := recorded(thursday, 2, usual)

	est, c := run{now: thursday, history: h}.propose(t)
	// 1 + 0.5 × (14 − 2)/14 = 1.4286; 100 × 1.3 × 1.4286 = 185.71, up to 186.
	near(t, "estimate", est.Limit.Rate, 100*1.3*(1+0.5*12/14))
	wantLimit(t, c, 186, 372)
	if c.NewMode != rlc.Shadow || c.Why != "weekly peak 100/s × 1.30 headroom × 1.43 for 2 of 14 days" {
		t.Errorf("mode %q, why %q", c.NewMode, c.Why)
	}

	soft := quota(500)
	soft.Mode = rlc.Shadow
	_, c = run{now: thursday, history: h, current: soft}.propose(t)
	wantHeld(t, c, "valid_days", "2 of 14 days of history")

	_, c = run{now: thursday, history: recorded(thursday, 23.0/24, usual)}.propose(t)
	wantHeld(t, c, "abstained", "23.0 h of history, 24 h needed")
}

func TestScenario6TheWholeMetricIsGoneOrZero(t *testing.T) {
	lastRun := monday.Add(-day)
	fleet := func(traffic func(time.Time) float64) []FleetSeries {
		var all []FleetSeries
		for range 20 {
			all = append(all, SeriesOf(recorded(monday, 28, traffic), lastRun, monday))
		}
		return all
	}
	since := func(v float64) func(time.Time) float64 {
		return func(at time.Time) float64 {
			if at.Before(monday.Add(-20 * hour)) {
				return usual(at)
			}
			return v
		}
	}
	if why := FleetBreaker(fleet(usual)); why != "" {
		t.Errorf("ordinary traffic trips the breaker: %s", why)
	}
	if why := FleetBreaker(fleet(since(nan))); why != "20 of 20 series lost half their data since the last run" {
		t.Errorf("relabelled: %q", why)
	}
	if why := FleetBreaker(fleet(since(0))); why != "the fleet offered 0 % of what is usual in the last closed hour, less than 70 %" {
		t.Errorf("zero: %q", why)
	}
}

// storm is usual traffic with a factor on top in [from, from+long).
func storm(from time.Time, long time.Duration, factor float64) func(time.Time) float64 {
	return func(at time.Time) float64 {
		if !at.Before(from) && at.Before(from.Add(long)) {
			return factor * usual(at)
		}
		return usual(at)
	}
}

func TestScenario7ARetryStormIsLeftOutShownAndCountedOnRequest(t *testing.T) {
	peak := monday.Add(-4*day - 12*hour) // Wednesday 14:00
	r := run{history: recorded(monday, 28, storm(peak, 40*minute, 3)), current: quota(130)}

	est, c := r.propose(t)
	near(t, "estimate", est.Limit.Rate, 130) // 100 × 1.3
	wantLimit(t, c, 130, 260)
	want := []rlc.Flag{{
		Window: rlc.Window{From: peak, Until: peak.Add(hour), Reason: "more than 1.8 × the usual 100/s"},
		Rule:   "spike", Peak: 300, With: 390, // 300 × 1.3
	}}
	if !slices.Equal(c.Flags, want) {
		t.Errorf("flags %+v, want %+v", c.Flags, want)
	}
	if text := Explain(c).Text(); !strings.Contains(text, "counted, the quota would be 390/s") {
		t.Errorf("the explanation does not say what it would have been:\n%s", text)
	}

	r.input = func(in *rlc.Input) { in.Count = []rlc.Window{{From: peak, Until: peak.Add(40 * minute)}} }
	est, c = r.propose(t)
	near(t, "counted", est.Limit.Rate, 390)
	wantLimit(t, c, 260, 520) // +100 % a day
	if len(c.Flags) != 0 {
		t.Errorf("a counted window is still flagged: %+v", c.Flags)
	}
}

func TestScenario7AStormBelowTwiceTheThirdHighestPeakCounts(t *testing.T) {
	// Three storms of ×3, ×2.9 and ×1.9 on three days: 300 / 2 = 150 was
	// reached three times, at least 24 h apart.
	at := func(d int) time.Time { return monday.Add(-time.Duration(d)*day - 12*hour) }
	h := recorded(monday, 28, func(x time.Time) float64 {
		for d, f := range map[int]float64{4: 3, 12: 2.9, 19: 1.9} {
			if from := at(d); !x.Before(from) && x.Before(from.Add(40*minute)) {
				return f * usual(x)
			}
		}
		return usual(x)
	})
	est, c := run{history: h, current: quota(300)}.propose(t)
	near(t, "peak", est.Peak.Rate, 300)
	if len(est.Flags) != 0 {
		t.Errorf("flags %+v", est.Flags)
	}
	if !slices.ContainsFunc(c.Reasons, func(r rlc.Reason) bool { return r.Rule == "recurrent" }) {
		t.Error("the change does not say that the storms count")
	}
}

func TestScenario7WithOneWeekOfHistoryAStormIsLeftOutToo(t *testing.T) {
	h := recorded(monday, 7, storm(monday.Add(-4*day-12*hour), 40*minute, 30))
	est, _ := run{history: h}.propose(t)
	// 100 × 1.3 × (1 + 0.5 × 7/14) = 162.5
	near(t, "estimate", est.Limit.Rate, 162.5)
	if len(est.Flags) != 1 || est.Flags[0].Peak != 3000 {
		t.Errorf("flags %+v", est.Flags)
	}
}

func TestScenario7AFloodOverTwoMidnightsIsNotRecurrent(t *testing.T) {
	// From Tuesday to Thursday 00:30; 6 × 40 at night is above 2 × 100, too.
	from := time.Date(2026, 11, 17, 23, 30, 0, 0, time.UTC)
	est, _ := run{history: recorded(monday, 28, storm(from, 25*hour, 6))}.propose(t)
	near(t, "estimate", est.Limit.Rate, 130)
	if len(est.Flags) == 0 {
		t.Error("the flood is not shown")
	}
}

func TestScenario7AFloodThatHasJustEndedIsNoNewLevel(t *testing.T) {
	now := time.Date(2026, 11, 26, 14, 0, 0, 0, time.UTC) // a Thursday
	for _, ago := range []time.Duration{4 * hour, 6 * hour, 11 * hour} {
		for _, long := range []time.Duration{26 * hour, 40 * hour} {
			h := recorded(now, 28, storm(now.Add(-ago-long), long, 6))
			est, c := run{now: now, history: h, current: quota(130)}.propose(t)
			near(t, "estimate", est.Limit.Rate, 130)
			wantLimit(t, c, 130, 260)
			if len(est.Flags) == 0 {
				t.Errorf("%s that ended %s ago are not shown", long, ago)
			}
		}
	}
}

func TestScenario8ALevelShiftThreeDaysOldIsReachedWithinTwoRuns(t *testing.T) {
	thursday := time.Date(2026, 11, 26, 2, 0, 0, 0, time.UTC)
	shift := time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)
	level := storm(shift, 1000*hour, 2.5)

	first := quota(130)
	est, c := run{now: thursday, history: recorded(thursday, 28, level), current: first}.propose(t)
	near(t, "estimate", est.Limit.Rate, 325) // 250 × 1.3
	wantLimit(t, c, 260, 520)                // +100 % against 24 h ago
	if len(est.Flags) != 0 {
		t.Errorf("flags %+v", est.Flags)
	}
	since := "level shift since 2026-11-23 "
	if !slices.ContainsFunc(c.Reasons, func(r rlc.Reason) bool { return strings.HasPrefix(r.Detail, since) }) {
		t.Errorf("no reason says %q: %+v", since, c.Reasons)
	}

	friday := thursday.Add(day)
	_, c = run{
		now: friday, history: recorded(friday, 28, level), current: quota(260),
		guards: func(e *Evidence) { e.WeekAgo = &first.Limit },
	}.propose(t)
	wantLimit(t, c, 325, 650) // 130 × 2.5: the step of a week just allows it
}

func TestScenario9AShiftSixHoursOldIsCappedAndAsksForALook(t *testing.T) {
	now := time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)
	est, c := run{now: now, history: recorded(now, 28, storm(now.Add(-6*hour), 6*hour, 2.5)), current: quota(130)}.propose(t)
	near(t, "estimate", est.Limit.Rate, 325)
	wantLimit(t, c, 162, 324) // 130 × 1.25 = 162.5, towards the quota in force
	if len(est.Flags) != 0 || !strings.Contains(c.Look, "nobody can tell yet") {
		t.Errorf("flags %+v, look %q", est.Flags, c.Look)
	}
	if rules := acted(c); rules[len(rules)-1] != "max_increase" {
		t.Errorf("acted %v", rules)
	}
}

func TestScenario9AnHourlyRunDoesNotCompoundTheCap(t *testing.T) {
	now := time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)
	before := quota(130)
	_, c := run{
		now: now, history: recorded(now, 28, storm(now.Add(-6*hour), 6*hour, 2.5)), current: quota(162),
		guards: func(e *Evidence) { e.DayAgo, e.WeekAgo = &before.Limit, &before.Limit },
	}.propose(t)
	wantLimit(t, c, 162, 324)
}

func TestScenario10AStormThatIsStillOnIsNoNewRegime(t *testing.T) {
	now := time.Date(2026, 11, 24, 18, 0, 0, 0, time.UTC)
	_, c := run{now: now, history: recorded(now, 28, storm(now.Add(-8*hour), 8*hour, 3)), current: quota(130)}.propose(t)
	wantLimit(t, c, 162, 324)
	if c.Look == "" {
		t.Error("nobody is asked to look")
	}
}

func TestScenario10AStormThatBeganHoursAgoIsLeftOutLikeAnyOther(t *testing.T) {
	now := time.Date(2026, 11, 24, 16, 20, 0, 0, time.UTC)
	for _, long := range []time.Duration{10 * minute, 40 * minute, 2 * hour, 3*hour + 10*minute} {
		for _, factor := range []float64{3, 6, 30} {
			// The last one is still on; yesterday's, on the same history, ended long ago.
			today, before := storm(now.Add(-long), long, factor), storm(now.Add(-23*hour-50*minute), 20*minute, factor)
			for name, traffic := range map[string]func(time.Time) float64{
				"one":      today,
				"in waves": func(at time.Time) float64 { return max(today(at), before(at)) },
			} {
				est, c := run{now: now, history: recorded(now, 28, traffic), current: quota(130)}.propose(t)
				near(t, "estimate", est.Limit.Rate, 130)
				wantLimit(t, c, 130, 260)
				if last := len(est.Flags) - 1; last < 0 || est.Flags[last].Rule != "spike" || est.Flags[last].Peak != rlc.Rate(factor*100) || c.Look != "" {
					t.Errorf("%s, × %v for %s: flags %+v, look %q", name, factor, long, est.Flags, c.Look)
				}
			}
		}
	}
}

func TestScenario11SixWeeklyRunsDoNotShrinkAClippedQuota(t *testing.T) {
	noHeadroom, err := Builtin().New(rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"headroom": 0.0}})
	if err != nil {
		t.Fatal(err)
	}
	demand := func(at time.Time) float64 { return 30 * usual(at) } // up to 3000/s against 1000/s
	cases := map[string]func(now time.Time, limit float64) rlc.History{
		// What enforcers count: all that was offered, and the share dropped.
		"offered": func(now time.Time, limit float64) rlc.History {
			h := recorded(now, 28, demand)
			for i := range h.Hours {
				if x := &h.Hours[i]; float64(x.Max) > limit {
					x.Drops = rlc.Ratio(1 - limit/float64(x.Max))
				}
			}
			return h
		},
		// Offered, while clients that were refused back off: what is seen at
		// the peaks is 5 % less than what was asked for, and just above the limit.
		"backing off": func(now time.Time, limit float64) rlc.History {
			h := recorded(now, 28, func(at time.Time) float64 { return min(demand(at), 1.05*limit) })
			for i := range h.Hours {
				if x := &h.Hours[i]; float64(x.Max) > limit {
					x.Drops = 0.0476
				}
			}
			return h
		},
		// Another limiter that counts only what it admitted.
		"admitted": func(now time.Time, limit float64) rlc.History {
			return recorded(now, 28, func(at time.Time) float64 { return min(demand(at), 0.99*limit) })
		},
	}
	for name, history := range cases {
		t.Run(name, func(t *testing.T) {
			current, now := quota(1000), monday
			for week := range 6 {
				_, c := run{policy: noHeadroom, now: now, history: history(now, float64(current.Rate)), current: current}.propose(t)
				if c.New.Rate < current.Rate {
					t.Fatalf("week %d: %v became %v\n%s", week+1, current.Rate, c.New.Rate, Explain(c).Text())
				}
				if name == "admitted" && week == 0 {
					if c.New.Rate != 1200 || !strings.Contains(c.Look, "censored") { // 1000 × 1.2
						t.Errorf("new %v, look %q, want +20 %% suggested", c.New.Rate, c.Look)
					}
				} else if name != "admitted" && c.New.Rate != 1000 {
					t.Errorf("week %d: drops of our own raised the quota to %v", week+1, c.New.Rate)
				}
				current, now = &rlc.Quota{Limit: *c.New, Why: c.Why}, now.Add(7*day)
			}
		})
	}
}

func TestScenario16QuietNightsAndWeekendsLowerNothing(t *testing.T) {
	office := func(at time.Time) float64 {
		if d := at.Weekday(); d == time.Saturday || d == time.Sunday || at.Hour() < 9 || at.Hour() >= 17 {
			return 0
		}
		return 100
	}
	_, c := run{history: recorded(monday, 28, office), current: quota(130)}.propose(t) // after a silent weekend
	if c.Held != "" {
		t.Errorf("held: %s", c.HeldWhy)
	}
	wantLimit(t, c, 130, 260)
}

func TestScenario17AWarningHoldsTheQuotaAndDegradesTheRun(t *testing.T) {
	h := recorded(monday, 28, func(at time.Time) float64 { return usual(at) / 10 })
	h.Problems = []rlc.HistoryProblem{{Rule: "warning", Detail: "PromQL warning: partial response"}}
	_, c := run{history: h, current: quota(130)}.propose(t)
	wantHeld(t, c, "warning", "PromQL warning: partial response")
	if !c.Failed {
		t.Error("the run would not be degraded")
	}
}

func TestScenario21ASparseCallerKeepsFloorAndBurst(t *testing.T) {
	// Five requests at once every four minutes: 0.02/s in the mean, 5/60 in
	// their minute.
	sparse := func(at time.Time) float64 {
		if at.Minute()%4 == 0 {
			return 5.0 / 60
		}
		return 0
	}
	_, c := run{history: recorded(monday, 28, sparse)}.propose(t)
	wantLimit(t, c, 1, 5) // 0.083 × 1.3 = 0.108, raised to the floor
	if c.Why != "weekly peak 0.0833/s × 1.30 headroom; floor 1/s" {
		t.Errorf("why %q", c.Why)
	}
}

func TestScenario23NoNumberThatIsNoneGetsThrough(t *testing.T) {
	h := recorded(monday, 28, usual)
	for name, l := range map[string]rlc.Limit{
		"NaN": {Rate: rlc.Rate(nan), Burst: 1}, "negative": {Rate: -5, Burst: 1}, "negative burst": {Rate: 5, Burst: -1},
		"infinite": {Rate: rlc.Rate(1 / zero()), Burst: 1}, "huge": {Rate: 1e12, Burst: 1},
	} {
		c := Guard(Evidence{Now: monday, History: h, Current: quota(130)}, rlc.Estimate{Limit: l}, nil)
		if c.Held != "implausible" || *c.New != quota(130).Limit || c.Estimate != nil {
			t.Errorf("%s: held %q, new %v, estimate %v", name, c.Held, c.New, c.Estimate)
		}
		broken := quota(1)
		broken.Limit = l
		if c := Guard(Evidence{Now: monday, History: h, Current: broken}, rlc.Estimate{Limit: rlc.Limit{Rate: 5, Burst: 5}}, nil); c.Held != "implausible" {
			t.Errorf("%s in force: held %q", name, c.Held)
		}
	}
}

func zero() float64 { return 0 }

func TestScenario24OneAbsurdSpikeIsLeftOut(t *testing.T) {
	at := monday.Add(-9*day - 12*hour)
	h := recorded(monday, 28, func(x time.Time) float64 {
		if x.Equal(at) {
			return 1e12
		}
		return usual(x)
	})
	est, c := run{history: h, current: quota(130)}.propose(t)
	near(t, "estimate", est.Limit.Rate, 130)
	wantLimit(t, c, 130, 260)
	if len(c.Flags) != 1 || c.Flags[0].Peak != 1e12 {
		t.Errorf("flags %+v", c.Flags)
	}

	// Just now it is a spike like any other.
	h = recorded(monday, 28, func(x time.Time) float64 {
		if x.Equal(monday.Add(-10 * minute)) {
			return 1e12
		}
		return usual(x)
	})
	est, c = run{history: h, current: quota(130)}.propose(t)
	near(t, "estimate", est.Limit.Rate, 130)
	wantLimit(t, c, 130, 260)
}

func TestScenario25MissingTargetsBlockTheDecrease(t *testing.T) {
	// A quarter of the targets is down for nine of 28 days: 19/28 = 67 %.
	h := marking(recorded(monday, 28, usual), monday.Add(-12*day), monday.Add(-3*day), func(x *rlc.Hour) { x.Partial = x.Present })
	_, c := run{history: h, current: quota(300)}.propose(t)
	wantHeld(t, c, "coverage", "targets 67 % < 95 %")
}

func TestScenario26AFailingRetryStormRaisesNothing(t *testing.T) {
	from := monday.Add(-3*day - 18*hour)
	h := marking(recorded(monday, 28, storm(from, 12*hour, 1.7)), from, from.Add(12*hour), func(x *rlc.Hour) { x.Unhealthy = true })
	est, c := run{history: h, current: quota(130)}.propose(t)
	wantLimit(t, c, 130, 260)
	if len(est.Flags) != 1 || est.Flags[0].Rule != "unhealthy" || est.Flags[0].With != 221 { // 170 × 1.3
		t.Errorf("flags %+v", est.Flags)
	}
}

func TestScenario27TenRunsInAnHourAreOneStep(t *testing.T) {
	h := recorded(monday, 28, func(at time.Time) float64 { return 10 * usual(at) }) // 1300 wanted
	first := quota(130)
	current := first
	for range 10 {
		_, c := run{history: h, current: current, guards: func(e *Evidence) { e.DayAgo, e.WeekAgo = &first.Limit, &first.Limit }}.propose(t)
		current = &rlc.Quota{Limit: *c.New, Why: c.Why}
	}
	if current.Limit != (rlc.Limit{Rate: 260, Burst: 520}) {
		t.Errorf("ten runs led from 130 to %v", current.Limit)
	}
}

func TestScenario26AStormOfFailingAnswersRaisesNothingHoweverLong(t *testing.T) {
	for _, long := range []time.Duration{40 * minute, 5 * hour, 20 * hour, 26 * hour, 3 * day} {
		for _, factor := range []float64{1.7, 3, 6} {
			from := monday.Add(-long)
			h := marking(recorded(monday, 28, storm(from, long, factor)), from.Truncate(hour), monday, func(x *rlc.Hour) { x.Unhealthy = true })
			for _, kind := range []string{"historical", "predictive", "recent"} {
				p, err := Builtin().New(rlc.PolicySpec{Kind: kind, Params: rlc.Params{"headroom": 0.3}})
				if err != nil {
					t.Fatal(err)
				}
				if _, c := (run{policy: p, history: h, current: quota(130)}).propose(t); c.New == nil || *c.New != quota(130).Limit {
					t.Errorf("%s: × %v for %s made 130/s %v\n%s", kind, factor, long, c.New, Explain(c).Text())
				}
			}
		}
	}
}

func TestScenario26ALevelThatOutlivesAFailureCounts(t *testing.T) {
	// × 2.5 for three days, the first twelve hours with failing answers.
	from := monday.Add(-3 * day)
	h := marking(recorded(monday, 28, storm(from, 3*day, 2.5)), from, from.Add(12*hour), func(x *rlc.Hour) { x.Unhealthy = true })
	est, c := run{history: h, current: quota(130)}.propose(t)
	near(t, "estimate", est.Limit.Rate, 1.3*250)
	wantLimit(t, c, 260, 520) // +100 % a day
}

func TestScenario29ARandomBatchIsNotFlaggedAway(t *testing.T) {
	// 30 minutes at 200/s, every day at another hour; silence between.
	h := recorded(monday, 28, func(at time.Time) float64 {
		d := int(at.Sub(monday.Add(-28*day)) / day)
		if at.Hour() == d*7%24 && at.Minute() < 30 {
			return 200
		}
		return 0
	})
	est, c := run{history: h}.propose(t)
	if c.New == nil || c.New.Rate < 200 || len(est.Flags) != 0 {
		t.Errorf("new %v, flags %+v", c.New, est.Flags)
	}
}
