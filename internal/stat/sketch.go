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
	for i := 0; i < len(values); {
		at := start.Add(time.Duration(i) * step)
		midnight := at.Truncate(day)
		n := min(int((midnight.Add(day).Sub(at)+step-1)/step), len(values)-i)
		d := sketch("", midnight, at.Sub(midnight), step, values[i:i+n], running.Point())
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
	return sketch(id, midnight.UTC(), 0, step, values, running)
}

// sketch is SketchDay for values that start at an offset into the day.
func sketch(id rlc.SeriesID, midnight time.Time, offset, step time.Duration, values []float64, running rlc.Rate) rlc.SeriesDay {
	d := rlc.SeriesDay{Series: id, Day: midnight}
	var room [24 * 60]float64 // a day of minutes needs no heap
	all := room[:0]
	for i := 0; i < len(values); {
		n := int((offset + time.Duration(i)*step) / time.Hour)
		end := min(len(values), int((time.Duration(n+1)*time.Hour-offset+step-1)/step))
		h := rlc.Hour{Start: midnight.Add(time.Duration(n) * time.Hour), Expected: end - i}
		first, sum, most := len(all), 0.0, 0.0
		for _, v := range values[i:end] {
			if present(v) {
				all = append(all, v)
				sum += v
				most = max(most, v)
			}
		}
		i = end
		hour := all[first:]
		if len(hour) == 0 {
			continue
		}
		h.Present = len(hour)
		h.Max = rlc.Rate(most)
		h.P99 = rlc.Rate(Select(hour, rank(len(hour), 0.99)))
		h.Mean = rlc.Rate(min(sum/float64(len(hour)), most))
		if d.Hours == nil {
			d.Hours = make([]rlc.Hour, 0, 24)
		}
		d.Hours = append(d.Hours, h)
	}
	floor, kept := tailFloor(all, float64(running))
	d.TailFloor = rlc.Rate(floor)
	if kept == 0 {
		return d
	}
	d.Tail = make([]rlc.Sample, 0, kept)
	for i, v := range values {
		if present(v) && v >= floor {
			d.Tail = append(d.Tail, rlc.Sample{Time: midnight.Add(offset + time.Duration(i)*step), Rate: rlc.Rate(v)})
		}
	}
	return d
}

// tailFloor is the least rate such that every sample at or above it belongs to
// the tail, and how many do: just above the highest sample left out, 0 where
// none is. It reorders the samples.
func tailFloor(samples []float64, running float64) (floor float64, kept int) {
	n := len(samples)
	if n == 0 {
		return 0, 0
	}
	// The samples from here on are kept; without a past nothing lies above it.
	from := math.Inf(1)
	if running != 0 {
		from = math.Nextafter(running, from)
	}
	// The day's own upper share, with its ties where they are few.
	own := Select(samples, n-int(math.Ceil(tailShare*float64(n))))
	if atLeast(samples, own) > int(math.Ceil(tailTies*float64(n))) {
		own = math.Nextafter(own, math.Inf(1))
	}
	from = min(from, own)
	if kept = atLeast(samples, from); kept > tailMax {
		from = math.Nextafter(Select(samples, n-tailMax-1), math.Inf(1))
		kept = atLeast(samples, from)
	}
	if kept == n {
		return 0, n
	}
	out := 0.0
	for _, v := range samples {
		if v < from {
			out = max(out, v)
		}
	}
	return math.Nextafter(out, math.Inf(1)), kept
}

// atLeast counts the values at or above v.
func atLeast(values []float64, v float64) int {
	n := 0
	for _, x := range values {
		if x >= v {
			n++
		}
	}
	return n
}

// Join puts stored days together into the History of [from, until): the hours
// that overlap it and the tail samples in those hours. Days are ascending.
// Newest is exact where the newest hour misses nothing; otherwise it is the
// earliest end that fits, so that a series never looks fresher than it is.
func Join(days []rlc.SeriesDay, step time.Duration, from, until time.Time) rlc.History {
	h := rlc.History{Step: step, From: from, Until: until}
	first := from.UTC().Truncate(time.Hour)
	for _, d := range days {
		before := len(h.Hours)
		for _, hour := range d.Hours {
			if hour.Present > 0 && !hour.Start.Before(first) && hour.Start.Before(until) {
				h.Hours = append(h.Hours, hour)
			}
		}
		if len(h.Hours) == before {
			continue // a day without samples in the window bounds nothing
		}
		h.TailFloor = max(h.TailFloor, d.TailFloor)
		for _, s := range d.Tail {
			if !s.Time.Before(first) && s.Time.Before(until) {
				h.Tail = append(h.Tail, s)
			}
		}
	}
	h.Tail = slices.DeleteFunc(h.Tail, func(s rlc.Sample) bool { return s.Rate < h.TailFloor })
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
