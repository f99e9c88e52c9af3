package predictive

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/historical"
)

var now = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC) // a Monday

const hour = time.Hour

// input is a history of days before now.
func input(days float64, step time.Duration, rate func(time.Time) float64) rlc.Input {
	n := int(days * 24 * float64(hour/step))
	start := now.Add(-time.Duration(n) * step)
	values := make([]float64, n)
	for i := range values {
		values[i] = rate(start.Add(time.Duration(i) * step))
	}
	return rlc.Input{Now: now, History: stat.Summarise(step, start, values)}
}

func propose(t testing.TB, c Config, in rlc.Input) rlc.Estimate {
	t.Helper()
	est, err := New(c).Propose(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return est
}

func near(t testing.TB, what string, got rlc.Rate, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1e-6*want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// office is 100/s from nine to five on workdays, 20/s otherwise, the same every
// week.
func office(t time.Time) float64 {
	if d := t.Weekday(); t.Hour() >= 9 && t.Hour() < 17 && d != time.Saturday && d != time.Sunday {
		return 100
	}
	return 20
}

// rules are the steps that acted.
func rules(est rlc.Estimate) []string {
	var out []string
	for _, s := range est.Steps {
		if s.Acted {
			out = append(out, s.Rule)
		}
	}
	return out
}

func TestItForecastsEveryHourOfTheHorizon(t *testing.T) {
	est := propose(t, Config{}, input(28, 5*time.Minute, office))
	f := est.Forecast
	if !f.From.Equal(now) || len(f.Q50) != 168 || len(f.Q99) != 168 || f.Rates != nil {
		t.Fatalf("from %v, %d and %d hours, rates %v", f.From, len(f.Q50), len(f.Q99), f.Rates)
	}
	for i := range f.Q99 {
		// Every model but two knows such a week exactly; those that do not get
		// hardly a share.
		want := office(now.Add(time.Duration(i) * hour))
		if q := float64(f.Q99[i]); q < want || q > 1.01*want {
			t.Errorf("hour %d: %v, want about %v", i, q, want)
		}
		near(t, "middle", f.Q50[i], want)
	}
	if f.Coverage == nil || *f.Coverage < 0.999 {
		t.Errorf("coverage %v of a week that repeats", f.Coverage)
	}
	if peak := slices.Max(f.Q99); est.Limit.Rate != peak*1.3 || !strings.HasPrefix(est.Why, "forecast 99 % peak 100/s × 1.30 headroom") {
		t.Errorf("limit %v for a peak of %v, %q", est.Limit, peak, est.Why)
	}
	if n := len(propose(t, Config{Horizon: 24 * hour}, input(28, 5*time.Minute, office)).Forecast.Q99); n != 24 {
		t.Errorf("%d hours of one day", n)
	}
}

func TestTheHoursAreThoseOfTheServicesZone(t *testing.T) {
	// In New York, five hours behind. Its summer ended on 1 November: in UTC
	// its office hours moved.
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Skip("no time zone data")
	}
	in := input(28, 15*time.Minute, func(at time.Time) float64 { return office(at.In(zone)) })
	in.Location = zone
	for i, q := range propose(t, Config{}, in).Forecast.Q50 {
		near(t, "middle", q, office(now.Add(time.Duration(i)*hour).In(zone)))
	}
}

func TestScheduleHourlyPublishesTheForecastsShape(t *testing.T) {
	est := propose(t, Config{Hourly: true, Planned: 0.5}, input(28, 5*time.Minute, office))
	f := est.Forecast
	if len(f.Rates) != len(f.Q99) {
		t.Fatalf("%d rates for %d hours", len(f.Rates), len(f.Q99))
	}
	for i, r := range f.Rates {
		near(t, "rate", r, float64(f.Q99[i])*1.5*1.3)
	}
	near(t, "the one number", est.Limit.Rate, float64(slices.Max(f.Rates)))
	if !strings.HasSuffix(est.Why, " × 1.50 planned × 1.30 headroom") {
		t.Errorf("why %q", est.Why)
	}
}

func TestGrowthOfEveryWeekGoesOn(t *testing.T) {
	grown := func(weekly float64) func(time.Time) float64 {
		return func(at time.Time) float64 { return office(at) * math.Pow(weekly, at.Sub(now).Hours()/week) }
	}
	est := propose(t, Config{}, input(28, 15*time.Minute, grown(1.1)))
	// Monday's last office hour, and Friday's, at the level they will have.
	for _, at := range []time.Duration{14 * hour, 4*24*hour + 14*hour} {
		near := float64(est.Forecast.Q50[at/hour]) / grown(1.1)(now.Add(at))
		if near < 0.99 || near > 1.01 {
			t.Errorf("in %v: the middle is %.3f of what will come", at, near)
		}
	}
	if shrunk := propose(t, Config{}, input(28, 15*time.Minute, grown(0.9))); float64(slices.Max(shrunk.Forecast.Q99)) < grown(0.9)(now.Add(-10*hour)) {
		t.Errorf("a falling series is forecast to fall on: %v", slices.Max(shrunk.Forecast.Q99))
	}
	// One week that did not grow: no growth is projected.
	uneven := input(28, 15*time.Minute, func(at time.Time) float64 {
		return office(at) * []float64{1, 1.1, 1.09, 1.2}[3-min(3, int(now.Sub(at).Hours()-0.001)/week)]
	})
	for _, s := range propose(t, Config{}, uneven).Steps {
		if strings.Contains(s.Detail, "grew") {
			t.Errorf("growth in %q", s.Detail)
		}
	}
}

func TestANewLevelOfThreeDaysIsFollowed(t *testing.T) {
	est := propose(t, Config{}, input(28, 5*time.Minute, func(at time.Time) float64 {
		if now.Sub(at) <= 72*hour { // Friday 02:00
			return 2.5 * office(at)
		}
		return office(at)
	}))
	// One office day and a weekend were at the new level of 250/s.
	if est.Limit.Rate < 250 || est.Limit.Rate > 1.3*250 {
		t.Errorf("limit %v at a level of 250", est.Limit.Rate)
	}
}

func TestAForecastAloneLowersNothing(t *testing.T) {
	// Calm since two weeks; before, the busiest hour reached 200/s.
	in := input(28, 15*time.Minute, func(at time.Time) float64 {
		if now.Sub(at) > 14*24*hour && at.Hour() == 12 {
			return 200
		}
		return 50
	})
	free := propose(t, Config{}, in)
	if free.Limit.Rate >= 250 {
		t.Fatalf("the forecast does not fall: %v", free.Limit.Rate)
	}
	in.Current = &rlc.Limit{Rate: 255, Burst: 510}
	est := propose(t, Config{}, in)
	if est.Limit.Rate != 255 || !slices.Contains(rules(est), "not_below_peaks") || !strings.HasSuffix(est.Why, "; kept at 255/s by the peaks of the window") {
		t.Errorf("limit %v, %q, %v", est.Limit.Rate, est.Why, rules(est))
	}
	in.Current = &rlc.Limit{Rate: 1000, Burst: 2000} // far above the peaks with headroom
	near(t, "lowered as far as the peaks allow", propose(t, Config{}, in).Limit.Rate, 200*1.3)
}

func TestTheHourMaximumStandsWhereItWasBetter(t *testing.T) {
	// Every second hour is 30/s in one week and 5/s in the next, the others are
	// always 10/s: the hours' own highest are right, and what is usual misleads.
	est := propose(t, Config{}, input(28, 15*time.Minute, func(at time.Time) float64 {
		hours := int(at.Unix() / 3600)
		switch {
		case hours%2 == 0:
			return 10
		case (hours/2+hours/week)%2 == 0:
			return 30
		}
		return 5
	}))
	s := est.Steps[slices.IndexFunc(est.Steps, func(s rlc.Reason) bool { return s.Rule == "hour_of_week_maximum" || s.Rule == "forecast" })]
	if s.Rule != "hour_of_week_maximum" || !strings.Contains(s.Detail, "over the last 7 days the forecast lost") || !strings.HasPrefix(est.Why, "hour-of-week maximum ") {
		t.Errorf("%s: %s; %q", s.Rule, s.Detail, est.Why)
	}

	young := propose(t, Config{}, input(2, 5*time.Minute, office))
	near(t, "two days of 100/s", young.Limit.Rate, 20*1.2*1.3*(1+0.5*12/14))
	if !strings.Contains(young.Steps[2].Detail, "too little history to test a forecast on") || young.Forecast.Coverage != nil {
		t.Errorf("%+v", young.Steps)
	}
}

func TestBatchesCountAtEveryHourUnlessTheyComeBack(t *testing.T) {
	batches := func(when func(time.Time) bool) rlc.Estimate {
		return propose(t, Config{}, input(28, 5*time.Minute, func(at time.Time) float64 {
			if when(at) {
				return 200
			}
			return 0
		}))
	}
	once := now.Add(-100 * hour)
	any := batches(func(at time.Time) bool { return !at.Before(once) && at.Before(once.Add(30*time.Minute)) })
	near(t, "limit", any.Limit.Rate, 260)
	near(t, "the least hour", slices.Min(any.Forecast.Q99), 200)
	if any.Why != "highest batch 200/s × 1.30 headroom" || !slices.Contains(rules(any), "batches") {
		t.Errorf("why %q, %v", any.Why, rules(any))
	}

	nightly := batches(func(at time.Time) bool { return at.Hour() == 3 && at.Minute() < 30 })
	if q := nightly.Forecast.Q99; q[1] < 200 || q[12] > 1 || nightly.Limit.Rate < 200 {
		t.Errorf("at three %v, at two in the afternoon %v", q[1], q[12])
	}
}

func TestACallerWhoSleepsMayStillAskOnce(t *testing.T) {
	// Three requests in each hour of a workday, none on weekends.
	est := propose(t, Config{}, input(28, time.Minute, func(at time.Time) float64 {
		if d := at.Weekday(); at.Minute()%20 == 0 && d != time.Saturday && d != time.Sunday {
			return 1.0 / 60
		}
		return 0
	}))
	near(t, "Sunday noon", est.Forecast.Q99[6*24+10], 1.0/60)
}

func TestCapacityCapsTheNumberAndTheHours(t *testing.T) {
	in := input(28, 5*time.Minute, office)
	in.Capacity = &rlc.Capacity{Rate: 100, Reserve: 0.2}
	est := propose(t, Config{Hourly: true}, in)
	if est.Limit.Rate != 80 || slices.Max(est.Forecast.Rates) != 80 || !strings.HasSuffix(est.Why, "; at most the capacity of 80/s") {
		t.Errorf("limit %v, hours up to %v, %q", est.Limit, slices.Max(est.Forecast.Rates), est.Why)
	}
	in.Capacity.Rate = 1000
	if est := propose(t, Config{}, in); slices.Contains(rules(est), "capacity") {
		t.Error("a capacity that is not reached acted")
	}
}

func TestAStormIsLeftOutAsHistoricalDoes(t *testing.T) {
	storm := now.Add(-58 * hour) // Friday 16:00
	in := input(28, time.Minute, func(at time.Time) float64 {
		if !at.Before(storm) && at.Before(storm.Add(40*time.Minute)) {
			return 900
		}
		return office(at)
	})
	est := propose(t, Config{}, in)
	if len(est.Flags) != 1 || est.Flags[0].Rule != "spike" || est.Flags[0].With <= est.Limit.Rate || est.Limit.Rate > 135 {
		t.Errorf("limit %v, flags %+v", est.Limit, est.Flags)
	}
}

// series is any history: short or long, with a season, gaps, bursts and levels.
func series(t *rapid.T) rlc.Input {
	days := rapid.Float64Range(0.2, 30).Draw(t, "days")
	step := rapid.SampledFrom([]time.Duration{15 * time.Minute, 30 * time.Minute, hour}).Draw(t, "step")
	scale := math.Pow(10, rapid.Float64Range(-4, 7).Draw(t, "scale"))
	silent := rapid.Float64Range(0, 1).Draw(t, "silent")
	gaps := rapid.Float64Range(0, 0.5).Draw(t, "gaps")
	burst := rapid.Float64Range(0, 3).Draw(t, "burst")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	in := input(days, step, func(at time.Time) float64 {
		switch {
		case r.Float64() < gaps:
			return math.NaN()
		case r.Float64() < silent:
			return 0
		}
		// Far below what no limit may be, headroom and all.
		return min(1e9, scale*(1+math.Sin(float64(at.Hour())/24*2*math.Pi))*math.Exp(burst*r.NormFloat64()))
	})
	if rapid.Bool().Draw(t, "quota") {
		in.Current = &rlc.Limit{Rate: rlc.Rate(scale * rapid.Float64Range(0.1, 10).Draw(t, "rate")), Burst: 1}
	}
	for i := range in.History.Hours {
		in.History.Hours[i].Unhealthy = r.Float64() < 0.05
	}
	return in
}

func TestWhatHoldsForAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := series(t)
		headroom := rapid.Float64Range(0, 3).Draw(t, "headroom")
		more := headroom + rapid.Float64Range(0, 3).Draw(t, "more")
		c := Config{Headroom: &headroom, Hourly: rapid.Bool().Draw(t, "hourly")}
		est, err := New(c).Propose(context.Background(), in)
		_, herr := historical.New(historical.Config{Headroom: &headroom}).Propose(context.Background(), in)
		if (err == nil) != (herr == nil) || err != nil && (!errors.Is(err, rlc.ErrAbstain) || err.Error() != herr.Error()) {
			t.Fatalf("%v, historical %v", err, herr)
		}
		if err != nil {
			return
		}
		first, _ := json.Marshal(est) // fails for NaN and ±Inf
		again, _ := New(c).Propose(context.Background(), in)
		second, _ := json.Marshal(again)
		if len(first) == 0 || string(first) != string(second) {
			t.Fatalf("equal inputs gave\n%s\n%s", first, second)
		}
		if err := est.Limit.Valid(); err != nil || est.Limit.Rate <= 0 {
			t.Fatalf("limit %v: %v", est.Limit, err)
		}
		if f := est.Forecast; f != nil {
			for i := range f.Q99 {
				if !(f.Q50[i] >= 0 && f.Q50[i] <= f.Q99[i] && f.Q99[i] > 0) {
					t.Fatalf("hour %d: %v and %v", i, f.Q50[i], f.Q99[i])
				}
			}
			if c.Hourly && math.Abs(float64(slices.Max(f.Rates)/est.Limit.Rate)-1) > 1e-9 {
				t.Fatalf("hours up to %v, one number %v", slices.Max(f.Rates), est.Limit.Rate)
			}
			if f.Coverage != nil && (*f.Coverage < 0 || *f.Coverage > 1+1e-9) {
				t.Fatalf("coverage %v", *f.Coverage)
			}
		}
		c.Headroom = &more
		if est2, err := New(c).Propose(context.Background(), in); err != nil || est2.Limit.Rate < est.Limit.Rate*(1-1e-12) {
			t.Fatalf("headroom %v gives %v, %v gives %v, %v", headroom, est.Limit.Rate, more, est2.Limit.Rate, err)
		}
	})
}

// A key of 10,000 that are forecast in one run: its cost does not depend on the
// step.
func BenchmarkPropose(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	in := input(28, time.Minute, func(at time.Time) float64 { return office(at) * (1 + 0.1*r.Float64()) })
	p := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Propose(context.Background(), in); err != nil {
			b.Fatal(err)
		}
	}
}
