package policies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// The scenarios of policies.md 6 that concern a forecast, by number.

func predictivePolicy(t testing.TB, params rlc.Params) rlc.Policy {
	t.Helper()
	p, err := Builtin().New(rlc.PolicySpec{Kind: "predictive", Params: params})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// between fails where a rate lies outside.
func between(t testing.TB, what string, got, low, high rlc.Rate) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %v, want %v to %v", what, got, low, high)
	}
}

func TestPredictiveScenario1AGapBlocksOnlyTheDecrease(t *testing.T) {
	h := recorded(monday, 28, func(at time.Time) float64 {
		if from := monday.Add(-10 * day); !at.Before(from) && at.Before(from.Add(4838*minute)) {
			return nan
		}
		return usual(at)
	})
	_, c := run{policy: predictivePolicy(t, nil), history: h, current: quota(300)}.propose(t)
	wantHeld(t, c, "coverage", "coverage 88 % < 95 %")
	_, c = run{policy: predictivePolicy(t, nil), history: h, current: quota(90)}.propose(t)
	between(t, "an increase", c.New.Rate, 130, 135)
}

func TestPredictiveScenario3ANewCallerStartsInShadow(t *testing.T) {
	thursday := time.Date(2026, 11, 26, 2, 0, 0, 0, time.UTC)
	est, c := run{policy: predictivePolicy(t, nil), now: thursday, history: recorded(thursday, 2, usual)}.propose(t)
	// Too young for a forecast: the hours' own highest × 1.2, × 1.3, × 1.4286.
	near(t, "estimate", est.Limit.Rate, 100*1.2*1.3*(1+0.5*12/14))
	if c.NewMode != rlc.Shadow || c.Why != "hour-of-week maximum 100/s × 1.20 × 1.30 headroom × 1.43 for 2 of 14 days" {
		t.Errorf("mode %q, why %q", c.NewMode, c.Why)
	}
}

func TestPredictiveScenario7ARetryStormIsLeftOutAndCountedOnRequest(t *testing.T) {
	peak := monday.Add(-4*day - 12*hour) // Wednesday 14:00
	r := run{policy: predictivePolicy(t, nil), history: recorded(monday, 28, storm(peak, 40*minute, 3)), current: quota(135)}
	est, c := r.propose(t)
	between(t, "without the storm", est.Limit.Rate, 130, 135)
	if len(c.Flags) != 1 || c.Flags[0].Rule != "spike" || c.Flags[0].Peak != 300 || c.Flags[0].With <= est.Limit.Rate {
		t.Errorf("flags %+v", c.Flags)
	}
	r.input = func(in *rlc.Input) { in.Count = []rlc.Window{{From: peak, Until: peak.Add(40 * minute)}} }
	counted, _ := r.propose(t)
	if counted.Limit.Rate <= est.Limit.Rate || len(counted.Flags) != 0 {
		t.Errorf("counted: %v, flags %+v", counted.Limit.Rate, counted.Flags)
	}
}

func TestPredictiveScenario8ALevelShiftThreeDaysOldIsReachedWithinTwoRuns(t *testing.T) {
	thursday := time.Date(2026, 11, 26, 2, 0, 0, 0, time.UTC)
	level := storm(time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC), 1000*hour, 2.5)
	first := quota(130)
	est, c := run{policy: predictivePolicy(t, nil), now: thursday, history: recorded(thursday, 28, level), current: first}.propose(t)
	between(t, "estimate", est.Limit.Rate, 280, 430) // 250/s will come; lifted for the day that took it by surprise
	wantLimit(t, c, 260, 520)                        // +100 % against 24 h ago: above the new level
	if len(est.Flags) != 0 {
		t.Errorf("flags %+v", est.Flags)
	}
}

func TestPredictiveScenario9And10ARiseOfHoursIsCapped(t *testing.T) {
	now := time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)
	for _, times := range []float64{2.5, 3} {
		_, c := run{policy: predictivePolicy(t, nil), now: now, history: recorded(now, 28, storm(now.Add(-7*hour), 7*hour, times)), current: quota(130)}.propose(t)
		between(t, "at most +25 %", c.New.Rate, 130, 163)
		if !strings.Contains(c.Look, "nobody can tell yet") {
			t.Errorf("look %q", c.Look)
		}
	}
}

func TestPredictiveScenario11AClippedQuotaDoesNotShrink(t *testing.T) {
	admitted := func(now time.Time, limit float64) rlc.History {
		return recorded(now, 28, func(at time.Time) float64 { return min(30*usual(at), 0.99*limit) })
	}
	offered := func(now time.Time, limit float64) rlc.History {
		h := recorded(now, 28, func(at time.Time) float64 { return 30 * usual(at) })
		for i := range h.Hours {
			if x := &h.Hours[i]; float64(x.Max) > limit {
				x.Drops = rlc.Ratio(1 - limit/float64(x.Max))
			}
		}
		return h
	}
	for name, history := range map[string]func(time.Time, float64) rlc.History{"admitted": admitted, "offered": offered} {
		current, now := quota(1000), monday
		for range 6 {
			_, c := run{policy: predictivePolicy(t, rlc.Params{"headroom": 0.0}), now: now, history: history(now, float64(current.Rate)), current: current}.propose(t)
			if c.New.Rate < current.Rate || name == "offered" && c.New.Rate != 1000 {
				t.Fatalf("%s: %v became %v\n%s", name, current.Rate, c.New.Rate, Explain(c).Text())
			}
			current, now = &rlc.Quota{Limit: *c.New, Why: c.Why}, now.Add(7*day)
		}
	}
}

func TestPredictiveScenario12ALowHolidayLowersNothing(t *testing.T) {
	h := recorded(monday, 28, func(at time.Time) float64 {
		if monday.Sub(at) < 7*day {
			return 0.3 * usual(at)
		}
		return usual(at)
	})
	_, c := run{policy: predictivePolicy(t, nil), history: h, current: quota(130)}.propose(t)
	wantLimit(t, c, 130, 260)
}

func TestPredictiveScenario16QuietNightsAndWeekendsLowerNothing(t *testing.T) {
	office := func(at time.Time) float64 {
		if d := at.Weekday(); d == time.Saturday || d == time.Sunday || at.Hour() < 9 || at.Hour() >= 17 {
			return 0
		}
		return 100
	}
	est, c := run{policy: predictivePolicy(t, rlc.Params{"schedule": "hourly"}), history: recorded(monday, 28, office), current: quota(130)}.propose(t)
	between(t, "after a silent weekend", c.New.Rate, 130, 136)
	between(t, "Monday noon", est.Forecast.Rates[10], 130, 136)
	between(t, "Sunday noon", est.Forecast.Rates[6*24+10], 0.01, 10)
}

func TestPredictiveScenario24OneAbsurdSpikeIsLeftOut(t *testing.T) {
	at := monday.Add(-9*day - 3*hour)
	est, _ := run{policy: predictivePolicy(t, nil), history: recorded(monday, 28, func(x time.Time) float64 {
		if x.Equal(at) {
			return 1e12
		}
		return usual(x)
	})}.propose(t)
	between(t, "estimate", est.Limit.Rate, 130, 135)
}

func TestPredictiveScenario26AFailingRetryStormRaisesNothing(t *testing.T) {
	from := monday.Add(-3*day - 18*hour)
	h := marking(recorded(monday, 28, storm(from, 12*hour, 1.7)), from, from.Add(12*hour), func(x *rlc.Hour) { x.Unhealthy = true })
	est, _ := run{policy: predictivePolicy(t, nil), history: h}.propose(t)
	between(t, "estimate", est.Limit.Rate, 130, 135)
	if len(est.Flags) != 1 || est.Flags[0].Rule != "unhealthy" {
		t.Errorf("flags %+v", est.Flags)
	}
}

func TestPredictiveScenario29ARandomBatchIsNotFlaggedAway(t *testing.T) {
	h := recorded(monday, 28, func(at time.Time) float64 {
		d := int(at.Sub(monday.Add(-28*day)) / day)
		if at.Hour() == d*7%24 && at.Minute() < 30 {
			return 200
		}
		return 0
	})
	est, c := run{policy: predictivePolicy(t, rlc.Params{"schedule": "hourly"}), history: h}.propose(t)
	if c.New == nil || c.New.Rate < 200 || len(est.Flags) != 0 || slices.Min(est.Forecast.Rates) < 200 {
		t.Errorf("new %v, hours from %v, flags %+v", c.New, slices.Min(est.Forecast.Rates), est.Flags)
	}
}
