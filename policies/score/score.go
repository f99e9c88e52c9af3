package score

import (
	"fmt"
	"math"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

const (
	level = 0.99 // the share of steps that a limit is meant to cover
	day   = 24 * time.Hour
	week  = 7 * day
	tiny  = 1e-12 // keeps a division by a mean of 0 finite
)

// Scores are what one series' forecasts are worth, pooled over all steps of all
// its origins. Rates are measured in units of the series' mean.
type Scores struct {
	Pinball     float64 // mean of 0.99 × what was missed, 0.01 × what was reserved in vain
	HourPinball float64 // the same for the peaks of hours
	DayPinball  float64 // and of days
	Cover       float64 // share of steps at or below the limit
	HourCover   float64 // share of hours whose peak is
	DayCover    float64
	Over        float64 // limit / peak of the hour (at least 10 % of what was learnt from)
	DayOver     float64
	Alloc       float64 // limit / rate, of the means
	Drop        float64 // share of traffic above the limit
	MASE        float64 // error of q50 against that of the seasonal naive; NaN where that has none
	Steps       int
	Origins     int
}

// Series scores the forecasts of one series. splits are its own; forecast
// answers each of them.
func Series(t Trace, splits []Split, forecast func(Split) ([]Level, error)) (Scores, error) {
	var steps, hours, days pairs
	var floors, mase []float64
	for _, s := range splits {
		levels, err := forecast(s)
		if err != nil {
			return Scores{}, fmt.Errorf("%s at %s: %w", s.Series, s.Origin.Format(time.RFC3339), err)
		}
		first, last := t.Index(s.Origin), t.Index(s.Until)
		next, at := 0, Level{Q50: math.NaN(), Q99: math.NaN()}
		limits := make([]float64, last-first)
		miss, n := 0.0, 0
		for i := first; i < last; i++ {
			for next < len(levels) && !levels[next].At.After(t.Time(i)) {
				at = levels[next]
				next++
			}
			limits[i-first] = at.Q99
			y := t.Values[i]
			if math.IsNaN(y) {
				continue
			}
			if !finite(at.Q50) || !finite(at.Q99) {
				return Scores{}, fmt.Errorf("%w: %s at %s: no finite forecast for %s", rlc.ErrInvalid, s.Series, s.Origin.Format(time.RFC3339), t.Time(i).Format(time.RFC3339))
			}
			steps.add(y, at.Q99)
			miss += math.Abs(y - at.Q50)
			n++
		}
		learnt := t.Values[t.Index(s.From):first]
		if naive := naiveError(learnt, s, t.Step); naive > 0 {
			mase = append(mase, miss/float64(n)/naive)
		}
		before := hours.n()
		peaks(&hours, t, first, limits, time.Hour)
		peaks(&days, t, first, limits, day)
		floor := 0.1 * mean(present(learnt))
		for range hours.n() - before {
			floors = append(floors, floor)
		}
	}
	if steps.n() == 0 {
		return Scores{}, fmt.Errorf("%w: series %s has nothing to score", rlc.ErrInvalid, t.Name)
	}
	out := Scores{
		Pinball: steps.pinball(), HourPinball: hours.pinball(), DayPinball: days.pinball(),
		Cover: steps.cover(), HourCover: hours.cover(), DayCover: days.cover(),
		Alloc: mean(steps.limit) / max(mean(steps.rate), tiny),
		MASE:  mean(mase), Steps: steps.n(), Origins: len(splits),
	}
	missed, sum := 0.0, 0.0
	for i, y := range steps.rate {
		missed += max(0, y-steps.limit[i])
		sum += y
	}
	out.Drop = missed / max(sum, tiny)
	out.Over = hours.over(func(i int) float64 { return floors[i] })
	floor := mean(floors)
	out.DayOver = days.over(func(int) float64 { return floor })
	return out, nil
}

// naiveError is the mean error of the seasonal naive within what was learnt
// from: last week's step, or yesterday's below 14 days. NaN where there is none.
func naiveError(learnt []float64, s Split, step time.Duration) float64 {
	lag := week
	if s.Origin.Sub(s.From) < 2*week {
		lag = day
	}
	back := int(lag / step)
	var errs []float64
	for i := back; i < len(learnt); i++ {
		if e := math.Abs(learnt[i] - learnt[i-back]); !math.IsNaN(e) {
			errs = append(errs, e)
		}
	}
	return mean(errs)
}

// peaks adds the peak and the highest limit of every UTC unit of which at least
// half the steps are there.
func peaks(out *pairs, t Trace, first int, limits []float64, unit time.Duration) {
	need := max(1, 0.5*float64(unit)/float64(t.Step))
	for i := 0; i < len(limits); {
		at := t.Time(first + i).Truncate(unit)
		peak, limit, n := math.Inf(-1), math.Inf(-1), 0
		for ; i < len(limits) && t.Time(first+i).Truncate(unit).Equal(at); i++ {
			if !math.IsNaN(limits[i]) {
				limit = max(limit, limits[i])
			}
			if y := t.Values[first+i]; !math.IsNaN(y) {
				peak = max(peak, y)
				n++
			}
		}
		if float64(n) >= need {
			out.add(peak, limit)
		}
	}
}

// pairs are rates beside the limits that stood for them.
type pairs struct{ rate, limit []float64 }

func (p *pairs) add(rate, limit float64) {
	p.rate, p.limit = append(p.rate, rate), append(p.limit, limit)
}

func (p *pairs) n() int { return len(p.rate) }

func (p *pairs) pinball() float64 {
	if p.n() == 0 {
		return math.NaN()
	}
	sum := 0.0
	for i, y := range p.rate {
		sum += stat.Pinball(level, y, p.limit[i])
	}
	return sum / float64(p.n()) / max(mean(p.rate), tiny)
}

func (p *pairs) cover() float64 {
	n := 0
	for i, y := range p.rate {
		if y <= p.limit[i] {
			n++
		}
	}
	return float64(n) / float64(p.n())
}

func (p *pairs) over(floor func(i int) float64) float64 {
	sum := 0.0
	for i, l := range p.limit {
		sum += l / max(p.rate[i], floor(i), tiny)
	}
	return sum / float64(p.n())
}

// HighestTimes forecasts the baseline that others are compared with: factor ×
// the highest step that was learnt from, and their median.
func HighestTimes(factor float64, t Trace, s Split) []Level {
	learnt := present(t.Values[t.Index(s.From):t.Index(s.Origin)])
	top := 0.0
	for _, v := range learnt {
		top = max(top, v)
	}
	return []Level{{At: s.Origin, Q50: stat.Median(learnt), Q99: factor * top}}
}

func present(values []float64) []float64 {
	var out []float64
	for _, v := range values {
		if !math.IsNaN(v) {
			out = append(out, v)
		}
	}
	return out
}

// mean is NaN for no values.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
