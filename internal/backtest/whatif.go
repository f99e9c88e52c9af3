package backtest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// The statistics that a what-if starts from.
const (
	StatMax  = "max"   // the highest step
	StatP999 = "p99.9" // 99.9 % of the steps lie at or below it
	StatP99  = "p99"   // 99 % of them do
)

// Stats lists them.
func Stats() []string { return []string{StatMax, StatP999, StatP99} }

// Choice is how a person would have a limit made: a statistic of the steps of
// the last Window, times 1 + Headroom, at least Floor.
type Choice struct {
	Stat     string        // one of Stats
	Window   time.Duration // back from the history's Until; 0: all of it
	Headroom float64       // share added, 0 or more
	Floor    rlc.Rate      // the least rate; 0 for none
	Seconds  float64       // burst in seconds of rate; 0: 2
	Exclude  []rlc.Window  // hours that overlap one are left out of the statistic
}

// Valid reports whether c can be answered.
func (c Choice) Valid() error {
	switch {
	case !slices.Contains(Stats(), c.Stat):
		return fmt.Errorf("%w: stat %q is none of %v", rlc.ErrInvalid, c.Stat, Stats())
	case c.Window < 0:
		return fmt.Errorf("%w: a window of %s", rlc.ErrInvalid, rlc.DurationText(c.Window))
	case !(c.Headroom >= 0 && c.Headroom <= 10):
		return fmt.Errorf("%w: headroom %s is outside 0 to 10", rlc.ErrInvalid, rlc.Number(c.Headroom))
	case !(c.Floor >= 0 && c.Floor <= rlc.MaxRate):
		return fmt.Errorf("%w: floor %s is outside 0 to %s", rlc.ErrInvalid, rlc.Number(c.Floor), rlc.Number(rlc.MaxRate))
	case !(c.Seconds >= 0 && c.Seconds <= 3600):
		return fmt.Errorf("%w: a burst of %s seconds is outside 0 to 3,600", rlc.ErrInvalid, rlc.Number(c.Seconds))
	}
	return nil
}

// Limit is the limit that a choice makes of a statistic's value: rounded up to
// three digits, as computed quotas are.
func (c Choice) Limit(value rlc.Rate) rlc.Limit {
	seconds := c.Seconds
	if seconds == 0 {
		seconds = 2
	}
	r := max(stat.RoundUp(value*rlc.Rate(1+c.Headroom)), c.Floor)
	if r <= 0 {
		return rlc.Limit{}
	}
	return rlc.Limit{Rate: r, Burst: rlc.Burst(max(1, math.Ceil(float64(r)*seconds)))}
}

// Statistic is c's statistic of a history. atMost says that it lies below the
// tail, where only its bound is known; ok is false where no hour is left.
//
// Percentiles are nearest rank over all present steps: the step with so many
// above it is looked up in the tail, which holds every step at or above
// TailFloor. Exclusions and the window's start count whole hours.
func Statistic(h rlc.History, c Choice) (value rlc.Rate, atMost, ok bool) {
	k := keep(h, c)
	if k.steps == 0 {
		return 0, false, false
	}
	value, atMost = k.statistic(c.Stat)
	return value, atMost, true
}

// Value is a statistic's value.
type Value struct {
	Rate   rlc.Rate
	AtMost bool // it lies below the tail: Rate is a bound
}

// Statistics are the values of all Stats of a history at once, by name, whatever
// c.Stat; nil where no hour is left.
func Statistics(h rlc.History, c Choice) map[string]Value {
	k := keep(h, c)
	if k.steps == 0 {
		return nil
	}
	all := map[string]Value{}
	for _, name := range Stats() {
		value, atMost := k.statistic(name)
		all[name] = Value{value, atMost}
	}
	return all
}

// kept is what a choice leaves of a history.
type kept struct {
	steps int       // with a sample
	most  rlc.Rate  // the highest
	floor rlc.Rate  // every step at or above it is among rates
	rates []float64 // in no order
}

func keep(h rlc.History, c Choice) kept {
	k := kept{floor: h.TailFloor, rates: make([]float64, 0, len(h.Tail))}
	tail := h.Tail
	for _, hour := range h.Hours {
		end := hour.Start.Add(time.Hour)
		var in []rlc.Sample
		in, tail = inHour(tail, hour.Start, end)
		if !c.keeps(h, hour) {
			continue
		}
		k.steps += hour.Present
		k.most = max(k.most, hour.Max)
		for _, x := range in {
			k.rates = append(k.rates, float64(x.Rate))
		}
	}
	return k
}

// keeps reports whether a choice counts an hour of a history.
func (c *Choice) keeps(h rlc.History, hour rlc.Hour) bool {
	outside := c.Window > 0 && hour.Start.Before(h.Until.Add(-c.Window))
	return !outside && hour.Present > 0 && !overlapsAny(c.Exclude, hour.Start, hour.Start.Add(time.Hour))
}

func (k *kept) statistic(name string) (value rlc.Rate, atMost bool) {
	above := 0.0
	switch name {
	case StatP999:
		above = 0.001
	case StatP99:
		above = 0.01
	default:
		return k.most, false
	}
	// The nearest rank from below is ceil((1 − above)·steps); from above it has
	// this many steps over it.
	over := k.steps - int(math.Ceil((1-above)*float64(k.steps)-1e-9))
	if over >= len(k.rates) {
		return min(k.floor, k.most), true
	}
	return rlc.Rate(stat.Select(k.rates, len(k.rates)-1-over)), false
}

func overlapsAny(all []rlc.Window, from, until time.Time) bool {
	for _, w := range all {
		if w.Overlaps(from, until) {
			return true
		}
	}
	return false
}

// Point is one point of a frontier: how much a headroom would have dropped.
type Point struct {
	Headroom float64   `json:"headroom"`
	Rate     rlc.Rate  `json:"rate"`
	Drops    float64   `json:"drops"`
	Share    rlc.Ratio `json:"share"`
	AtLeast  bool      `json:"at_least,omitempty"`
}

// Curve replays h at each headroom of a choice, bursts included: the points lie
// on the answer that FromHistory gives.
func Curve(h rlc.History, c Choice, headrooms []float64) []Point {
	value, _, ok := Statistic(h, c)
	if !ok {
		return nil
	}
	out := make([]Point, 0, len(headrooms))
	for _, x := range headrooms {
		c.Headroom = x
		limit := c.Limit(value)
		b := FromHistory(h, limit)
		out = append(out, Point{Headroom: x, Rate: limit.Rate, Drops: b.Drops, Share: b.Share, AtLeast: b.AtLeast})
	}
	return out
}

// Prepared is one series made ready for many questions: its statistic costs a
// look, and its drops a binary search.
type Prepared struct {
	Bucket string
	Key    rlc.Key
	Value  rlc.Rate // the choice's statistic
	AtMost bool
	*Frontier
}

// Prepare makes a series ready; ok is false where nothing of it is left.
func Prepare(s rlc.Series, c Choice) (p Prepared, ok bool) {
	value, atMost, ok := Statistic(s.History, c)
	if !ok {
		return Prepared{}, false
	}
	return Prepared{Bucket: s.Bucket, Key: s.Key, Value: value, AtMost: atMost, Frontier: NewFrontier(s.History)}, true
}

// Fleet is the curve of many series together, each limited by its own
// statistic: Rate is the sum of the limits and Drops the sum of what lies above
// them. Bursts are not counted, so it never shows less than the replay.
func Fleet(all []Prepared, c Choice, headrooms []float64) []Point {
	out := make([]Point, 0, len(headrooms))
	for _, x := range headrooms {
		c.Headroom = x
		p := Point{Headroom: x}
		var requests float64
		for i := range all {
			rate := c.Limit(all[i].Value).Rate
			drops, atLeast := all[i].Above(rate)
			p.Rate += rate
			p.Drops += drops
			p.AtLeast = p.AtLeast || atLeast
			requests += all[i].Requests
		}
		p.Share = share(p.Drops, requests)
		out = append(out, p)
	}
	return out
}

// Headrooms are steps + 1 values from 0 to most.
func Headrooms(most float64, steps int) []float64 {
	out := make([]float64, 0, steps+1)
	for i := range steps + 1 {
		out = append(out, math.Round(most*float64(i)/float64(steps)*1e6)/1e6)
	}
	return out
}

// bend is how far a knee lies below the straight line, as a share of the whole
// fall. Before a point that far below, a step of headroom saves at least 2.25
// times what one after it does: (0.2 + x)(1 − x) / x(0.8 − x) is least at x = 0.4.
const bend = 0.2

// Knee is the point of a falling curve that lies farthest below the straight
// line from its first to its last point: more headroom than there buys little.
// ok is false for a curve without a bend: one that stays within a fifth of its
// fall of that line, as nearly straight ones do.
func Knee(points []Point) (at int, ok bool) {
	if len(points) < 3 || points[0].Drops <= points[len(points)-1].Drops {
		return 0, false
	}
	first, last := points[0], points[len(points)-1]
	best := 0.0
	for i, p := range points {
		x := (p.Headroom - first.Headroom) / (last.Headroom - first.Headroom)
		y := (p.Drops - last.Drops) / (first.Drops - last.Drops)
		if d := 1 - x - y; d > best+1e-9 {
			best, at = d, i
		}
	}
	return at, best >= bend-1e-9
}
