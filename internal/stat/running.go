package stat

import (
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// Running estimates a series' running 28-day 95 % point from its stored days.
//
// The point is the ⌈5 % × n⌉-th highest of the n samples of the last 28 days,
// looked for among the samples that the days kept in their tails. Every day
// keeps its own top 5 % and whatever lay above the point of its time, so the
// kept samples suffice; where a day left out samples that would have counted,
// the estimate is below the true point and the next tail keeps more than the
// law asks, never less. Memory: eight bytes a kept sample, about 16 kB a series
// at one minute. The zero value has no past.
type Running struct {
	days []runningDay // ascending, at most 28
}

type runningDay struct {
	day     time.Time
	present int
	out     float64   // the highest sample left out, 0 for none
	kept    []float64 // the samples of its tail
}

// Add appends a day later than all before it; days that are 28 or more days
// older than it leave.
func (r *Running) Add(d rlc.SeriesDay) {
	first := 0
	for first < len(r.days) && d.Day.Sub(r.days[first].day) >= 28*day {
		first++
	}
	r.days = slices.Delete(r.days, 0, first)
	n := runningDay{day: d.Day}
	for _, h := range d.Hours {
		n.present += h.Present
	}
	if n.present == 0 {
		return
	}
	n.kept = make([]float64, len(d.Tail))
	for i, s := range d.Tail {
		n.kept[i] = float64(s.Rate)
	}
	if d.TailFloor > 0 {
		n.out = math.Nextafter(float64(d.TailFloor), 0)
	}
	r.days = append(r.days, n)
}

// Point is the running point: 0 where there is no past, above 0 otherwise (an
// idle series' point is the smallest number above 0, so that all its traffic is
// above the point). Where ties kept the upper 5 % out of the tails, it is the
// lowest of the days' highest samples left out.
func (r *Running) Point() rlc.Rate {
	total, kept := 0, 0
	low := math.Inf(1)
	for _, d := range r.days {
		total += d.present
		kept += len(d.kept)
		low = min(low, d.out)
	}
	if total == 0 {
		return 0
	}
	k := int(math.Ceil(tailShare*float64(total) - 1e-9))
	if kept < k {
		return rlc.Rate(max(low, math.SmallestNonzeroFloat64))
	}
	var room [28 * 24 * 60 / 20]float64 // the tails of four weeks of minutes
	all := room[:0]
	for _, d := range r.days {
		all = append(all, d.kept...)
	}
	return rlc.Rate(max(Select(all, len(all)-k), math.SmallestNonzeroFloat64))
}
