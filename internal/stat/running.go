package stat

import (
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// runningKept bounds the values that Running keeps of a day: the share that
// ties may swell a minute series' tail to.
const runningKept = 2 * 24 * 60 / 20

// Running estimates a series' running 28-day 95 % point from its stored days.
//
// The point is the ⌈5 % × n⌉-th highest of the n samples of the last 28 days,
// looked for among the samples that the days kept in their tails. Every day
// keeps its own top 5 % and whatever lay above the point of its time, so the
// kept samples suffice; where a day left out samples that would have counted,
// the estimate is below the true point and the next tail keeps more than the
// law asks, never less. So it is where a tail is longer than runningKept: its
// samples are taken in groups, each for its least. Memory: eight bytes a value,
// about 16 kB a series at one minute and at most 32 kB, whatever the step. The
// zero value has no past.
type Running struct {
	days []runningDay // ascending, at most 28
	last float64      // the point before
}

type runningDay struct {
	day     time.Time
	present int
	samples int       // in its tail
	out     float64   // the highest sample left out, 0 for none
	group   int       // samples that each value stands for; the least for what is left
	kept    []float64 // the least of each group, in no order where a group is one sample
}

// Add appends a day later than all before it; days that are 28 or more days
// older than it leave.
func (r *Running) Add(d rlc.SeriesDay) {
	first := 0
	for first < len(r.days) && d.Day.Sub(r.days[first].day) >= 28*day {
		first++
	}
	r.days = slices.Delete(r.days, 0, first)
	var used []float64 // room of a day before Reset
	if n := len(r.days); n < cap(r.days) {
		used = r.days[:n+1][n].kept
	}
	n := runningDay{day: d.Day, samples: len(d.Tail)}
	for _, h := range d.Hours {
		n.present += h.Present
	}
	if n.present == 0 {
		return
	}
	n.kept = slices.Grow(used[:0], len(d.Tail))
	for _, s := range d.Tail {
		n.kept = append(n.kept, float64(s.Rate))
	}
	n.bound()
	if d.TailFloor > 0 {
		n.out = math.Nextafter(float64(d.TailFloor), 0)
	}
	r.days = append(r.days, n)
}

// Reset forgets all days and keeps their room.
func (r *Running) Reset() { r.days, r.last = r.days[:0], 0 }

// bound puts a long tail into groups, the lowest first.
func (d *runningDay) bound() {
	d.group = (len(d.kept) + runningKept - 1) / runningKept
	if d.group <= 1 {
		return
	}
	slices.Sort(d.kept)
	var least []float64
	for i := len(d.kept) - d.group; ; i -= d.group {
		least = append(least, d.kept[max(i, 0)])
		if i <= 0 {
			break
		}
	}
	slices.Reverse(least)
	d.kept = slices.Clip(least)
}

// Point is the running point: 0 where there is no past, above 0 otherwise (an
// idle series' point is the smallest number above 0, so that all its traffic is
// above the point). Where ties kept the upper 5 % out of the tails, it is the
// lowest of the days' highest samples left out.
func (r *Running) Point() rlc.Rate {
	total, samples, group := 0, 0, 0
	low := math.Inf(1)
	for i := range r.days {
		d := &r.days[i]
		total += d.present
		samples += d.samples
		low = min(low, d.out)
		group = max(group, d.group)
	}
	if total == 0 {
		return 0
	}
	k := int(math.Ceil(tailShare*float64(total) - 1e-9))
	switch {
	case samples < k:
		r.last = low
	case group > 1:
		r.last = r.grouped(k)
	default:
		r.last = r.ascending(samples - k)
	}
	return rlc.Rate(max(r.last, math.SmallestNonzeroFloat64))
}

// ascending is the value at index i of all kept in ascending order. Nearly all
// of them lie above the point, and it seldom moves far: only the values below a
// little more are sorted out while it is found there.
func (r *Running) ascending(i int) float64 {
	var room [28 * runningKept]float64
	for _, most := range []float64{1.002 * r.last, 1.02 * r.last, math.Inf(1)} {
		all := room[:0]
		for _, d := range r.days {
			for _, v := range d.kept {
				if v <= most {
					all = append(all, v)
				}
			}
		}
		if i < len(all) {
			return Select(all, i)
		}
	}
	return 0 // not reached: i is one of their indices
}

// grouped is the highest value such that k samples lie there or above, by the
// groups they stand in: at or below the k-th highest sample.
func (r *Running) grouped(k int) float64 {
	type group struct {
		rate    float64
		samples int
	}
	var all []group
	for _, d := range r.days {
		left := d.samples
		for _, v := range slices.Backward(d.kept) {
			n := min(max(d.group, 1), left)
			all = append(all, group{v, n})
			left -= n
		}
	}
	slices.SortFunc(all, func(a, b group) int {
		switch {
		case a.rate > b.rate:
			return -1
		case a.rate < b.rate:
			return 1
		}
		return 0
	})
	for _, g := range all {
		if k -= g.samples; k <= 0 {
			return g.rate
		}
	}
	return 0 // not reached: there are k samples
}
