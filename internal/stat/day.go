package stat

import (
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// Day sketches one UTC day of a series, hour by hour, and forgets the samples
// that cannot belong to its tail: what it holds is at most twice the day's upper
// 2,880 samples, whatever the step, and seldom more than twice its upper tenth. The zero value wants a Begin;
// a Day may begin again, and then keeps its room.
type Day struct {
	midnight time.Time
	above    float64 // every sample from here on belongs to the tail: just above the running point
	share    int     // more samples than the tail's share of a whole day with its ties
	hours    []rlc.Hour
	samples  int         // so far
	kept     []candidate // ascending in time: every sample from least on
	least    float64
	out      float64 // the highest sample that was left out; −1 for none
	room     int     // how many may be kept before some are forgotten
	guess    float64 // where Foresee thinks that the tail begins, or a little below
	foreseen int     // samples that it saw there; 0 where it was wrong
}

type candidate struct {
	at   time.Duration // since midnight
	rate float64
}

// Begin begins a day. Running is the series' running 28-day 95 % point before
// it; 0 where there is no past, and then the day's own 95 % point is the floor.
func (d *Day) Begin(midnight time.Time, step time.Duration, running rlc.Rate) {
	*d = Day{midnight: midnight, above: math.Inf(1), hours: d.hours[:0], kept: d.kept[:0], out: -1, guess: d.guess}
	if running != 0 {
		d.above = math.Nextafter(float64(running), d.above)
	}
	d.share = int(math.Ceil(tailTies*float64(day)/float64(step))) + 1
	d.room = min(2*d.share, 2*tailMax)
	d.hours = slices.Grow(d.hours, int(day/time.Hour))
	d.kept = slices.Grow(d.kept, min(d.room, int(day/step)))
}

// Foresee tells of samples that Add will bring. It changes no result: where more
// of them than the tail's share lie at or above a guess, the tail does not begin
// below it, and what does is left out when it comes instead of when there is no
// room. The guess is what a day before came to, so that it helps where days are
// much alike.
func (d *Day) Foresee(values []float64) {
	n := 0
	for _, v := range values {
		if v >= d.guess && v <= math.MaxFloat64 {
			n++
		}
	}
	if n > d.share {
		d.least = max(d.least, min(d.guess, d.above))
		d.foreseen = max(d.foreseen, n)
	}
}

// learn makes the next day's guess: such that a little more than the tail's share
// lie there or above.
func (d *Day) learn() {
	switch {
	case d.foreseen == 0:
		d.guess = 0.95 * d.least
	case d.foreseen < d.share*5/4:
		d.guess *= 0.98
	case d.foreseen > d.share*3/2:
		d.guess = max(1.02*d.guess, 0.97*d.least)
	}
}

// Add adds the steps of one clock hour, later than all before: values[i] is the
// mean rate of the step at midnight + from + i × step; NaN, ±Inf and negatives
// are missing. It returns the hour's sketch, to be annotated before the next
// Add; nil where no sample is present.
func (d *Day) Add(from, step time.Duration, values []float64) *rlc.Hour {
	n, sum, most := 0, 0.0, 0.0
	least, out, kept := d.least, d.out, d.kept
	for i, v := range values {
		if !(v >= 0 && v <= math.MaxFloat64) {
			continue
		}
		n++
		sum += v
		most = max(most, v)
		if v < least {
			out = max(out, v)
			continue
		}
		if len(kept) == d.room {
			d.out, d.kept = out, kept
			d.forget()
			least, out, kept = d.least, d.out, d.kept
		}
		kept = append(kept, candidate{from + time.Duration(i)*step, v})
	}
	d.out, d.kept = out, kept
	if n == 0 {
		return nil
	}
	d.samples += n
	d.hours = append(d.hours, rlc.Hour{
		Start: d.midnight.Add(from.Truncate(time.Hour)), Expected: len(values), Present: n,
		Max: rlc.Rate(most), P99: rlc.Rate(p99(values, n, most)), Mean: rlc.Rate(min(sum/float64(n), most)),
	})
	return &d.hours[len(d.hours)-1]
}

// p99 is the 99 % point of the n samples among values, the highest of which is
// most.
func p99(values []float64, n int, most float64) float64 {
	k := rank(n, 0.99)
	if k == n-1 {
		return most
	}
	var room [240]float64
	samples := room[:0]
	for _, v := range values {
		if present(v) {
			samples = append(samples, v)
		}
	}
	return Select(samples, k)
}

// forget leaves out what cannot belong to the tail however the day goes on. The
// day's own 95 % point can only rise, and so can its 2,880th highest sample.
func (d *Day) forget() {
	var room [512]float64
	values := d.rates(room[:0])
	n := len(values)
	least := d.least
	if n > d.share {
		own := Select(values, n-d.share)
		if atLeast(values, own) > 2*d.share-2 { // ties: should the point be here, it moves above them
			own = math.Nextafter(own, math.Inf(1))
		}
		least = max(least, min(own, d.above))
	}
	if n > tailMax {
		least = max(least, math.Nextafter(Select(values, n-tailMax-1), math.Inf(1)))
	}
	d.leave(least)
	d.room = max(d.room, 2*len(d.kept))
}

// leave leaves out the samples below least.
func (d *Day) leave(least float64) {
	d.least = least
	d.kept = slices.DeleteFunc(d.kept, func(c candidate) bool {
		if c.rate < least {
			d.out = max(d.out, c.rate)
			return true
		}
		return false
	})
}

func (d *Day) rates(into []float64) []float64 {
	for _, c := range d.kept {
		into = append(into, c.rate)
	}
	return into
}

// Sketch ends the day. Sealed is left zero. The hours and the tail are written
// into the room of those of used, a day that nobody needs any more.
func (d *Day) Sketch(id rlc.SeriesID, used rlc.SeriesDay) rlc.SeriesDay {
	out := rlc.SeriesDay{Series: id, Day: d.midnight}
	if d.samples == 0 {
		return out
	}
	out.Hours = append(used.Hours[:0], d.hours...)
	d.learn()
	d.leave(d.tailFrom())
	if d.out >= 0 {
		out.TailFloor = rlc.Rate(math.Nextafter(d.out, math.Inf(1)))
	}
	if len(d.kept) > 0 {
		out.Tail = slices.Grow(used.Tail[:0], len(d.kept))
		for _, c := range d.kept {
			out.Tail = append(out.Tail, rlc.Sample{Time: d.midnight.Add(c.at), Rate: rlc.Rate(c.rate)})
		}
	}
	return out
}

// tailFrom is the least rate that belongs to the tail.
func (d *Day) tailFrom() float64 {
	var room [512]float64
	values := d.rates(room[:0])
	n := len(values)
	from := math.Nextafter(d.out, math.Inf(1)) // where the upper share is of ties that were left out
	if k := int(math.Ceil(tailShare * float64(d.samples))); k <= n {
		own := Select(values, n-k)
		if atLeast(values, own) > int(math.Ceil(tailTies*float64(d.samples))) {
			own = math.Nextafter(own, math.Inf(1))
		}
		from = max(from, min(own, d.above))
	}
	if atLeast(values, from) > tailMax {
		from = math.Nextafter(Select(values, n-tailMax-1), math.Inf(1))
	}
	return from
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
