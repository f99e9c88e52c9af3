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
// samples are taken in groups, each for its least. And so it is with digits: a
// value is held as the float32 at or below it, at most 1.2 parts in ten million
// less. Memory: four bytes a value, about 10 kB a series at one minute and at
// most 18 kB, whatever the step. The zero value has no past.
type Running struct {
	days []runningDay // ascending, at most 28
	last float64      // the point before
}

type runningDay struct {
	day     int64 // since 1970
	present int32
	samples int32     // in its tail
	group   int32     // samples that each value stands for; the least for what is left
	out     float32   // the highest sample left out, 0 for none
	kept    []float32 // the least of each group, in no order where a group is one sample
}

// Add appends a day later than all before it; days that are 28 or more days
// older than it leave.
func (r *Running) Add(d rlc.SeriesDay) {
	n := runningDay{day: d.Day.Unix() / int64(day/time.Second), samples: int32(len(d.Tail))}
	for len(r.days) > 0 && n.day-r.days[0].day >= 28 {
		r.leave()
	}
	for i := range d.Hours {
		n.present += int32(d.Hours[i].Present)
	}
	if n.present == 0 {
		return
	}
	if i := len(r.days); i < cap(r.days) {
		n.kept = r.days[:i+1][i].kept[:0] // the room of a day that left
	}
	n.kept = slices.Grow(n.kept, min(len(d.Tail), runningKept))
	if len(d.Tail) <= runningKept {
		n.group = 1
		for i := range d.Tail {
			n.kept = append(n.kept, below(d.Tail[i].Rate))
		}
	} else {
		n.bound(d.Tail)
	}
	if d.TailFloor > 0 {
		n.out = below(rlc.Rate(math.Nextafter(float64(d.TailFloor), 0)))
	}
	r.days = append(r.days, n)
}

// leave takes the oldest day out, whose room the next one has.
func (r *Running) leave() {
	last := len(r.days) - 1
	oldest := r.days[0]
	copy(r.days, r.days[1:])
	r.days[last] = oldest
	r.days = r.days[:last]
}

// below is the highest float32 that is not above a rate.
func below(v rlc.Rate) float32 {
	f := float32(v)
	if float64(f) > float64(v) {
		f = math.Nextafter32(f, 0)
	}
	return f
}

// Reset forgets all days and keeps their room.
func (r *Running) Reset() { r.days, r.last = r.days[:0], 0 }

// bound puts a long tail into groups, the lowest first.
func (d *runningDay) bound(tail []rlc.Sample) {
	rates := make([]float32, len(tail))
	for i := range tail {
		rates[i] = below(tail[i].Rate)
	}
	slices.Sort(rates)
	group := (len(rates) + runningKept - 1) / runningKept
	d.group = int32(group)
	for i := len(rates) - group; ; i -= group {
		d.kept = append(d.kept, rates[max(i, 0)])
		if i <= 0 {
			break
		}
	}
	slices.Reverse(d.kept)
}

// Point is the running point: 0 where there is no past, above 0 otherwise (an
// idle series' point is the smallest number above 0, so that all its traffic is
// above the point). Where ties kept the upper 5 % out of the tails, it is the
// lowest of the days' highest samples left out.
func (r *Running) Point() rlc.Rate {
	total, samples, group := 0, 0, int32(0)
	low := float32(math.MaxFloat32)
	for i := range r.days {
		d := &r.days[i]
		total += int(d.present)
		samples += int(d.samples)
		low = min(low, d.out)
		group = max(group, d.group)
	}
	if total == 0 {
		return 0
	}
	k := int(math.Ceil(tailShare*float64(total) - 1e-9))
	switch {
	case samples < k:
		r.last = float64(low)
	case group > 1:
		r.last = r.grouped(k)
	default:
		r.last = r.ascending(samples - k)
	}
	return rlc.Rate(max(r.last, math.SmallestNonzeroFloat64))
}

// ascending is the value at index i of all kept in ascending order. It seldom
// moves far: only the values near the one before are sorted out while it is
// found there.
func (r *Running) ascending(i int) float64 {
	for _, share := range []float64{0.0005, 0.005, 0.05} {
		if v, ok := r.within(i, r.last*(1-share), r.last*(1+share)); ok {
			return v
		}
	}
	v, _ := r.within(i, 0, math.MaxFloat32)
	return v
}

// within is ascending where the value lies from least to most.
func (r *Running) within(i int, least, most float64) (float64, bool) {
	if !(least < most) {
		return 0, false
	}
	from, to := float32(least), float32(most)
	under := 0
	var room [512]float64
	near := room[:0]
	for j := range r.days {
		for _, v := range r.days[j].kept {
			if v > to {
				continue
			}
			if v < from {
				under++
			} else {
				near = append(near, float64(v))
			}
		}
	}
	if i -= under; i < 0 || i >= len(near) {
		return 0, false
	}
	return Select(near, i), true
}

// grouped is the highest value such that k samples lie there or above, by the
// groups they stand in: at or below the k-th highest sample.
func (r *Running) grouped(k int) float64 {
	type group struct {
		rate    float64
		samples int
	}
	var all []group
	for i := range r.days {
		d := &r.days[i]
		left := int(d.samples)
		for _, v := range slices.Backward(d.kept) {
			n := min(int(d.group), left)
			all = append(all, group{float64(v), n})
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
