package historical

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

var now = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)

const hour = time.Hour

// input is a history of days before now.
func input(days int, step time.Duration, rate func(time.Time) float64) rlc.Input {
	n := int(time.Duration(days) * day / step)
	start := now.Add(-time.Duration(days) * day)
	values := make([]float64, n)
	for i := range values {
		values[i] = rate(start.Add(time.Duration(i) * step))
	}
	return rlc.Input{Now: now, History: stat.Summarise(step, start, values)}
}

func flat(time.Time) float64 { return 100 }

func propose(t *testing.T, in rlc.Input) rlc.Estimate {
	t.Helper()
	est, err := New(Config{}).Propose(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return est
}

func near(t *testing.T, got rlc.Rate, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1e-9*want {
		t.Errorf("rate %v, want %v", got, want)
	}
}

func TestHeadroomIsSmallerWhereTheStepSeesShortPeaks(t *testing.T) {
	near(t, propose(t, input(14, time.Minute, flat)).Limit.Rate, 130)
	near(t, propose(t, input(14, 15*time.Second, flat)).Limit.Rate, 120)
}

func TestConfidenceGrowsToOneInFourteenDays(t *testing.T) {
	for days, want := range map[int]float64{1: 1 + 0.5*13/14, 7: 1.25, 13: 1 + 0.5/14, 14: 1, 28: 1} {
		est := propose(t, input(days, time.Minute, flat))
		near(t, est.Limit.Rate, 130*want)
		if est.Shadow != (days < 14) || (est.NoDecrease == "") == est.Shadow {
			t.Errorf("%d days: shadow %v, no decrease %q", days, est.Shadow, est.NoDecrease)
		}
	}
}

func TestGrowthIsProjectedFromTheNewestWeek(t *testing.T) {
	week := func(at time.Time) int { return int(at.Sub(now.Add(-28*day)) / (7 * day)) } // 0 to 3, oldest first
	cases := map[string]struct {
		peaks  [4]float64
		growth float64
	}{
		"steady":                           {[4]float64{100, 100, 100, 100}, 1},
		"10 % a week":                      {[4]float64{100, 110, 121, 133.1}, 1.10},
		"at most 15 %":                     {[4]float64{100, 130, 169, 219.7}, 1.15},
		"never shrinks":                    {[4]float64{100, 90, 81, 72.9}, 1},
		"an older peak stands as it was":   {[4]float64{100, 140, 90, 108}, 1}, // 108 × 1.15 = 124.2 is below 140
		"a rise of one week is no habit":   {[4]float64{100, 100, 100, 140}, 1},
		"the median of 1.1, 1.05 and 0.98": {[4]float64{100, 110, 115.5, 113.19}, 1.03}, // 113.19 × 1.05 / 115.5 = 1.029
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			est := propose(t, input(28, 15*time.Minute, func(at time.Time) float64 { return c.peaks[week(at)] }))
			top := max(c.peaks[0], c.peaks[1], c.peaks[2], c.peaks[3])
			near(t, est.Limit.Rate, top*c.growth*1.3)
			if strings.Contains(est.Why, "growth") != (c.growth > 1) {
				t.Errorf("why %q", est.Why)
			}
		})
	}
}

func TestTheHoursOfTheWeekAreLocal(t *testing.T) {
	// A batch every local midnight in Paris: in UTC it moves by an hour on 25
	// October 2026, when summer time ends.
	paris, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		t.Skip("no time zone data")
	}
	in := input(35, 15*time.Minute, func(at time.Time) float64 {
		if at.In(paris).Hour() == 0 {
			return 1000
		}
		return 10
	})
	in.Location = paris
	s := stat.NewSeason(in.History.Hours, paris)
	midnight := time.Date(2026, 11, 23, 0, 0, 0, 0, paris)
	if s.Ref(midnight) != 1000 || s.Ref(midnight.Add(2*hour)) != 10 {
		t.Errorf("midnight %v, two o'clock %v", s.Ref(midnight), s.Ref(midnight.Add(2*hour)))
	}
}

func TestNothingOfAMostlyIdleSeriesIsFlagged(t *testing.T) {
	est := propose(t, input(28, 15*time.Minute, func(at time.Time) float64 {
		if at.Equal(now.Add(-100 * hour)) {
			return 500
		}
		return 0
	}))
	near(t, est.Limit.Rate, 650)
	if len(est.Flags) != 0 {
		t.Errorf("flags %+v", est.Flags)
	}
}

func TestADeclaredIncidentNeverCounts(t *testing.T) {
	incident := rlc.Window{From: now.Add(-90 * hour), Until: now.Add(-80 * hour), Reason: "INC-917"}
	in := input(28, 15*time.Minute, func(at time.Time) float64 {
		if incident.Contains(at) {
			return 170 // below what would be flagged
		}
		return 100
	})
	near(t, propose(t, in).Limit.Rate, 221)
	in.Exclude = []rlc.Window{incident}
	in.Count = []rlc.Window{incident} // a declared incident wins
	est := propose(t, in)
	near(t, est.Limit.Rate, 130)
	if len(est.Flags) != 1 || est.Flags[0].Rule != "excluded" || est.Flags[0].Reason != "INC-917" || est.Flags[0].With != 221 || est.Coverage != 1 {
		t.Errorf("flags %+v, coverage %v", est.Flags, est.Coverage)
	}
}

func TestARiseLessThanADayOldIsCappedForANewCallerToo(t *testing.T) {
	est := propose(t, input(20, 15*time.Minute, func(at time.Time) float64 {
		if !at.Before(now.Add(-5 * hour)) {
			return 1000
		}
		return 100
	}))
	near(t, est.Limit.Rate, 130*1.25)
	if est.Look == "" || est.Why != "weekly peak 100/s × 1.30 headroom × 1.25 for a rise less than a day old" {
		t.Errorf("look %q, why %q", est.Look, est.Why)
	}
}

func TestItAbstainsWithoutADayOfDataOrARequest(t *testing.T) {
	empty := rlc.Input{Now: now, History: rlc.History{Step: time.Minute, Until: now}}
	half := input(1, time.Minute, func(at time.Time) float64 {
		if at.Minute() == 0 {
			return math.NaN()
		}
		return 100
	})
	silent := input(28, 15*time.Minute, func(time.Time) float64 { return 0 })
	for name, in := range map[string]rlc.Input{"empty": empty, "23.6 hours": half, "silent": silent} {
		if est, err := New(Config{}).Propose(context.Background(), in); !errors.Is(err, rlc.ErrAbstain) {
			t.Errorf("%s: %v, %v", name, est.Limit, err)
		}
	}
}

func TestThePeakIsTheStepNotTheHour(t *testing.T) {
	at := now.Add(-50*hour - 17*time.Minute)
	est := propose(t, input(28, time.Minute, func(x time.Time) float64 {
		if x.Equal(at) {
			return 150
		}
		return 100
	}))
	if est.Peak != (rlc.Peak{Rate: 150, At: at}) {
		t.Errorf("peak %+v, want 150 at %v", est.Peak, at)
	}
}
