// Package stat holds arithmetic over plain slices: quantiles, sketches,
// seasonal profiles.
package stat

import (
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// The tail law. Of every UTC day the tail keeps each sample above the series'
// running 28-day 95 % point, and the day's own top 5 %: more than the top 1 %
// that a backtest needs, so that the kept samples of 28 days always hold the
// upper 5 % of the window and the running point can be taken from them (see
// Running).
const (
	tailShare = 0.05
	// tailTies bounds what ties may add: where the samples equal to the day's
	// 95 % point would swell the share to more than this (a constant series, or
	// one that counts a request a minute), the floor lies just above them and
	// the hourly maximum is what is known of them.
	tailTies = 2 * tailShare
	// tailMax bounds a day's tail whatever the step: two days of minutes. A
	// minute series always keeps what the law asks; at finer steps a day that
	// lies above its past altogether keeps its highest samples and a higher
	// floor.
	tailMax = 2 * 24 * 60
)

const day = 24 * time.Hour

// Summarise turns a whole series into its History: values[i] is the mean rate
// of the step at start + i × step; NaN, ±Inf and negatives are missing. It is
// what SketchDay, Running and Join make of the days one after the other, with
// Newest exact.
func Summarise(step time.Duration, start time.Time, values []float64) rlc.History {
	start = start.UTC()
	until := start.Add(time.Duration(len(values)) * step)
	var days []rlc.SeriesDay
	var running Running
	var one Day
	for i := 0; i < len(values); {
		at := start.Add(time.Duration(i) * step)
		midnight := at.Truncate(day)
		n := min(int((midnight.Add(day).Sub(at)+step-1)/step), len(values)-i)
		d := one.sketch("", midnight, at.Sub(midnight), step, values[i:i+n], running.Point())
		running.Add(d)
		days = append(days, d)
		i += n
	}
	h := Join(days, step, start, until)
	for i := len(values) - 1; i >= 0; i-- {
		if present(values[i]) {
			h.Newest = start.Add(time.Duration(i+1) * step)
			break
		}
	}
	return h
}

// SketchDay summarises one UTC day: values[i] is the mean rate of the step at
// day + i × step; NaN, ±Inf and negatives are missing. A day that is not over
// has fewer values: an hour expects the steps that values covers. Running is
// the series' running 28-day 95 % point before this day; 0 where there is no
// past, and then the day's own 95 % point is the floor. Sealed is left zero.
func SketchDay(id rlc.SeriesID, midnight time.Time, step time.Duration, values []float64, running rlc.Rate) rlc.SeriesDay {
	var d Day
	return d.sketch(id, midnight.UTC(), 0, step, values, running)
}

// sketch is SketchDay for values that start at an offset into the day.
func (d *Day) sketch(id rlc.SeriesID, midnight time.Time, offset, step time.Duration, values []float64, running rlc.Rate) rlc.SeriesDay {
	d.Begin(midnight, step, running)
	for i := 0; i < len(values); {
		at := offset + time.Duration(i)*step
		end := min(len(values), int((at.Truncate(time.Hour)+time.Hour-offset+step-1)/step))
		d.Add(at, step, values[i:end])
		i = end
	}
	return d.Sketch(id, rlc.SeriesDay{})
}

// Join puts stored days together into the History of [from, until): the hours
// that overlap it and the tail samples in those hours. Days are ascending.
// Newest is exact where the newest hour misses nothing; otherwise it is the
// earliest end that fits, so that a series never looks fresher than it is.
func Join(days []rlc.SeriesDay, step time.Duration, from, until time.Time) rlc.History {
	var j Joined
	for i := range days {
		j.Add(&days[i], from, until)
	}
	return j.History(step, from, until)
}

// Joined is Join for days that come one after the other. The zero value has
// none; Add copies what it keeps. After Reset it serves another series, in the
// room of the History before, which ends with that.
type Joined struct {
	hours []rlc.Hour
	tail  []rlc.Sample
	floor rlc.Rate
}

// Reset forgets all days and keeps their room.
func (j *Joined) Reset() { *j = Joined{hours: j.hours[:0], tail: j.tail[:0]} }

// Add adds a day later than all before.
func (j *Joined) Add(d *rlc.SeriesDay, from, until time.Time) {
	first := from.UTC().Truncate(time.Hour)
	if j.hours == nil { // room for days like this one
		n := int(until.Sub(from)/day) + 2
		j.hours = make([]rlc.Hour, 0, min(n, 64)*len(d.Hours))
		j.tail = make([]rlc.Sample, 0, min(n, 64)*len(d.Tail))
	}
	whole := !d.Day.Before(first) && !d.Day.Add(day).After(until)
	before := len(j.hours)
	for i := range d.Hours {
		if h := &d.Hours[i]; h.Present > 0 && (whole || !h.Start.Before(first) && h.Start.Before(until)) {
			j.hours = append(j.hours, *h)
		}
	}
	if len(j.hours) == before {
		return // a day without samples in the window bounds nothing
	}
	j.floor = max(j.floor, d.TailFloor)
	for i := range d.Tail {
		if s := &d.Tail[i]; s.Rate >= j.floor && (whole || !s.Time.Before(first) && s.Time.Before(until)) {
			j.tail = append(j.tail, *s)
		}
	}
}

// History is the days' history; they must not be added to afterwards.
func (j *Joined) History(step time.Duration, from, until time.Time) rlc.History {
	h := rlc.History{Step: step, From: from, Until: until, TailFloor: j.floor}
	if len(j.hours) > 0 {
		h.Hours = j.hours
	}
	j.tail = slices.DeleteFunc(j.tail, func(s rlc.Sample) bool { return s.Rate < j.floor })
	if len(j.tail) > 0 {
		h.Tail = j.tail
	}
	if n := len(h.Hours); n > 0 {
		last := h.Hours[n-1]
		h.Newest = last.Start.Add(time.Duration(last.Present) * step)
		if t := len(h.Tail); t > 0 {
			if end := h.Tail[t-1].Time.Add(step); end.After(h.Newest) {
				h.Newest = end
			}
		}
	}
	return h
}

// Quantile is the q-quantile of ascending values by nearest rank: the least
// value such that at least the share q of all lies at or below it. Q is clamped
// to 0 to 1. It panics on an empty slice.
func Quantile(sorted []float64, q float64) float64 {
	return sorted[rank(len(sorted), q)]
}

// rank is the index of the q-quantile of n ascending values.
func rank(n int, q float64) int {
	// The subtraction forgives the last bit of q × n (0.95 × 20 is above 19).
	return min(max(int(math.Ceil(q*float64(n)-1e-9)), 1), n) - 1
}

// present reports whether v is a sample: finite and not negative.
func present(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }
