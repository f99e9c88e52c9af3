package predictive

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/score"
)

// kinds are series of ten weeks that recorded traces may lack. Each is forecast
// five times, a week ahead, and must cover enough and lose less than the highest
// step × 1.2; the bounds are those seen, rounded to where a change shows.
func kinds() map[string]kind {
	return map[string]kind{
		"weekly and daily seasons": {func(s season) float64 { return s.usual }, 0.98, 0.3},
		"8 % growth a week":        {func(s season) float64 { return s.usual * math.Pow(1.08, s.weeks) }, 0.97, 0.4},
		"7 % less every week":      {func(s season) float64 { return s.usual * math.Pow(0.93, s.weeks) }, 0.99, 0.25},
		"levels that shift": {func(s season) float64 {
			switch {
			case s.weeks > 7.5:
				return s.usual * 1.3
			case s.weeks > 4.6:
				return s.usual * 2.2
			}
			return s.usual
		}, 0.98, 0.55},
		"few requests": {func(s season) float64 { return s.usual / 25000 }, 0.98, 0.5},
		"bursts": {func(s season) float64 {
			if s.r.Float64() < 0.002 {
				s.usual *= 1 + 5*s.r.ExpFloat64()
			}
			return s.usual * math.Exp(0.4*s.r.NormFloat64())
		}, 0.98, 0.15},
		"a nightly batch": {func(s season) float64 {
			if s.at.Hour() == 2 {
				return 300 * math.Exp(0.1*s.r.NormFloat64())
			}
			return 1
		}, 0.99, 0.02},
		"batches at any hour": {func(s season) float64 {
			day := int(s.at.Unix() / 86400)
			if hash := uint64(day) * 0x9E3779B97F4A7C15; s.at.Hour() == int(hash>>33)%24 && s.at.Minute() < 30 {
				return 200
			}
			return 0
		}, 0.995, 0.9},
		"silent weekends": {func(s season) float64 {
			if d := s.at.Weekday(); d == time.Saturday || d == time.Sunday {
				return 0
			}
			return s.usual
		}, 0.97, 0.3},
		"noise alone": {func(s season) float64 { return 50 * math.Exp(0.5*s.r.NormFloat64()) }, 0.98, 0.45},
	}
}

type kind struct {
	rate  func(s season) float64
	cover float64 // least share of steps within the limit
	rel   float64 // most loss, relative to the highest step × 1.2
}

type season struct {
	at    time.Time
	weeks float64 // since the start
	usual float64 // about 100/s, with a day's and a week's season and a level that wanders
	r     *rand.Rand
}

func TestItForecastsKindsOfTrafficThatTheTracesLack(t *testing.T) {
	const step = 10 * time.Minute
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	for name, kind := range kinds() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 7))
			trace := score.Trace{Name: name, Start: start, Step: step, Values: make([]float64, 10*7*24*6)}
			wander := 0.0
			for i := range trace.Values {
				at := trace.Time(i)
				s := season{at: at, weeks: at.Sub(start).Hours() / week, r: r}
				wander = 0.98*wander + 0.03*r.NormFloat64()
				s.usual = 100 * math.Exp(wander) * (1 + 0.6*math.Sin((at.Sub(at.Truncate(24*time.Hour)).Hours()-9)/24*2*math.Pi))
				if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
					s.usual *= 0.6
				}
				trace.Values[i] = arrivals(r, kind.rate(s)*step.Seconds()) / step.Seconds()
			}
			var splits []score.Split
			for w := range 5 {
				origin := start.AddDate(0, 0, 7*(5+w))
				splits = append(splits, score.Split{Series: name, Step: step, From: origin.AddDate(0, 0, -28), Origin: origin, Until: origin.AddDate(0, 0, 7)})
			}
			base, err := score.Series(trace, splits, func(s score.Split) ([]score.Level, error) { return score.HighestTimes(1.2, trace, s), nil })
			if err != nil {
				t.Fatal(err)
			}
			own, err := score.Series(trace, splits, func(s score.Split) ([]score.Level, error) { return levelsOf(trace, s) })
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("cover %.4f, loss %.3f of the baseline's", own.Cover, own.Pinball/base.Pinball)
			if rel := own.Pinball / base.Pinball; own.Cover < kind.cover || rel > kind.rel {
				t.Errorf("cover %.4f, want %v; loss %.3f of the baseline's, want at most %v", own.Cover, kind.cover, rel, kind.rel)
			}
		})
	}
}

func levelsOf(trace score.Trace, s score.Split) ([]score.Level, error) {
	from := trace.Index(s.From)
	h := stat.Summarise(trace.Step, trace.Time(from), trace.Values[from:trace.Index(s.Origin)])
	est, err := New(Config{}).Propose(context.Background(), rlc.Input{Now: s.Origin, History: h})
	if err != nil {
		return nil, err
	}
	var levels []score.Level
	for i, q := range est.Forecast.Q99 {
		levels = append(levels, score.Level{At: s.Origin.Add(time.Duration(i) * time.Hour), Q50: float64(est.Forecast.Q50[i]), Q99: float64(q)})
	}
	return levels, nil
}

// arrivals is a number of requests where mean are expected (Poisson; normal
// where there are many).
func arrivals(r *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	n, p := 0.0, r.Float64()
	for least := math.Exp(-mean); p > least; n++ {
		p *= r.Float64()
	}
	return n
}
