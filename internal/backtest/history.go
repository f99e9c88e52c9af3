package backtest

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// FromHistory replays a history against limit without its samples: from the
// hourly sketches, which hold every request, and the tail, which holds every
// step that can matter to a limit above it.
//
// Of a step that is not in the tail only bounds are known: its rate lies
// between 0 and the lower of TailFloor and its hour's maximum, or it has no
// sample at all. FromHistory carries the highest and the lowest number of tokens
// that these bounds allow. While both drop the same, the answer is exact and
// equals Replay over the samples; that is so for every limit a little above
// TailFloor, because one step outside the tail refills its burst. Where they
// part, AtLeast is true and Drops is a lower bound.
//
// Requests is always exact. An episode's Share is exact but for steps outside
// the tail in a quiet gap within it, which count at their hour's mean.
func FromHistory(h rlc.History, limit rlc.Limit) rlc.Backtest {
	return FromTimed(h, limit, rlc.Timed{})
}

// FromTimed is FromHistory for a limit that differs by time: each past hour is
// replayed against the rate of the same hour of the week, with a burst in the same
// proportion as enforcers give it, and a window from the first step
// that begins in it to the last one. What was taken of one burst is taken of the
// next one's too. Of an episode Limit is the rate at which it began. Where seconds
// were counted, Bursts says whether the burst held them.
func FromTimed(h rlc.History, limit rlc.Limit, timed rlc.Timed) rlc.Backtest {
	if timed.Hours == nil && len(timed.Windows) == 0 && holds(h, limit) {
		out := newRecord(h.Step, limit).result(offered(h))
		out.Bursts = bursts(h, limit, timed)
		return out
	}
	w := walk{most: newBucket(h.Step, limit), rec: newRecord(h.Step, limit)}
	w.least = w.most
	tail := h.Tail
	var requests, atLeast float64
	var end time.Time // of the hour before
	for _, hour := range h.Hours {
		most := w.turn(timed.Of(limit, hour.Start))
		if !hour.Start.Equal(end) {
			w.fill()
		}
		end = hour.Start.Add(time.Hour)
		w.edges = w.edges[:0]
		for _, at := range timed.Edges(hour.Start, end) {
			w.edges = append(w.edges, edge{at, timed.Of(limit, at)})
			most = rlc.Limit{Rate: max(most.Rate, w.edges[len(w.edges)-1].Rate), Burst: max(most.Burst, w.edges[len(w.edges)-1].Burst)}
		}
		turns := len(w.edges)
		var in []rlc.Sample
		in, tail = inHour(tail, hour.Start, end)
		before := w.rec.out.Drops
		w.hour(hour, in, float64(h.TailFloor), h.Step)

		offered := float64(hour.Mean) * float64(hour.Present) * w.most.s
		requests += offered
		// Whatever the order of its steps, an hour admits at most what refills
		// during them and the tokens at its start, after each missing step and at
		// each turn to another limit.
		admitted := float64(most.Rate)*float64(hour.Present)*w.most.s + float64(most.Burst)*float64(1+missing(hour)+turns)
		atLeast += max(w.rec.out.Drops-before, offered-admitted)
	}
	out := w.rec.result(requests)
	out.Bursts = bursts(h, limit, timed)
	if w.parted {
		out.AtLeast = true
		out.Drops = atLeast
		out.Share = share(atLeast, requests)
	}
	return out
}

// holds reports whether no step lies above the limit's rate: nothing is dropped
// then, whatever the tokens, and no step needs to be looked at.
func holds(h rlc.History, limit rlc.Limit) bool {
	for i := range h.Hours {
		if !(h.Hours[i].Max <= limit.Rate) {
			return false
		}
	}
	return limit.Burst >= 0
}

// offered is what a history's requests are.
func offered(h rlc.History) (requests float64) {
	s := h.Step.Seconds()
	for i := range h.Hours {
		requests += float64(h.Hours[i].Mean) * float64(h.Hours[i].Present) * s
	}
	return requests
}

// walk is a replay over a history: two buckets that bound the tokens from above
// and below.
type walk struct {
	most, least bucket
	parted      bool // the bounds dropped differently
	rec         *record
	edges       []edge // of the hour, those to come
}

// edge is a moment from which another limit holds.
type edge struct {
	at time.Time
	rlc.Limit
}

func (w *walk) fill() {
	w.most.fill()
	w.least.fill()
}

// turn puts another limit in force, and returns it.
func (w *walk) turn(l rlc.Limit) rlc.Limit {
	if l.Rate != w.rec.limit || float64(l.Burst) != w.most.burst {
		w.most.limit(l)
		w.least.limit(l)
		w.rec.limit = l.Rate
	}
	return l
}

// reach puts in force what holds at t. What came and went since the step before
// leaves no trace.
func (w *walk) reach(t time.Time) {
	n := 0
	for n < len(w.edges) && !w.edges[n].at.After(t) {
		n++
	}
	if n > 0 {
		w.turn(w.edges[n-1].Limit)
		w.edges = w.edges[n:]
	}
}

// over goes over n neighbouring steps outside the tail, of which the first begins
// at from.
func (w *walk) over(from time.Time, n int, step time.Duration, u unseen) {
	for len(w.edges) > 0 {
		before := int((w.edges[0].at.Sub(from) + step - 1) / step)
		if before >= n {
			break
		}
		w.pass(before, u)
		from, n = from.Add(time.Duration(before)*step), n-before
		w.reach(from)
	}
	w.pass(n, u)
}

// hour goes through one hour, whose steps in the tail are in.
func (w *walk) hour(hour rlc.Hour, in []rlc.Sample, floor float64, step time.Duration) {
	u := unseen{steps: max(hour.Present-len(in), 0), gaps: missing(hour), below: min(floor, float64(hour.Max))}
	if u.steps > 0 {
		u.mean = quietMean(hour, in, u.steps)
	}
	if len(in) == 0 {
		w.over(hour.Start, u.steps+u.gaps, step, u)
		return
	}
	w.over(hour.Start, int(in[0].Time.Sub(hour.Start)/step), step, u)
	for i, x := range in {
		if i > 0 {
			w.over(in[i-1].Time.Add(step), stepsBetween(in[i-1].Time, x.Time, step)-1, step, u)
		}
		w.reach(x.Time)
		drops := w.most.charge(x.Rate)
		if w.least.charge(x.Rate) != drops {
			w.parted = true
		}
		w.rec.step(x, drops)
	}
	last := in[len(in)-1].Time
	w.over(last.Add(step), int((hour.Start.Add(time.Hour).Sub(last)+step-1)/step)-1, step, u)
}

// unseen is what is known of an hour's steps outside the tail.
type unseen struct {
	steps int     // with a sample
	gaps  int     // without
	below float64 // no sample lies above it
	mean  float64 // of the samples
}

// pass goes over n neighbouring steps outside the tail.
func (w *walk) pass(n int, u unseen) {
	if n <= 0 {
		return
	}
	if u.steps == 0 { // all of them are gaps
		w.fill()
		return
	}
	if u.gaps > 0 || n > u.steps { // one of them may be a gap
		w.most.fill()
	} else {
		w.most.refill(n, 0)
	}
	over := u.below > w.least.rate
	if n > u.steps && !over { // one of them is a gap, and the tokens stay full after it
		w.least.fill()
	} else if excess := w.least.refill(min(n, u.steps), u.below); excess > 0 && over {
		w.parted = true // these steps may have dropped
	}
	offered := u.mean * w.most.s * float64(u.steps) / float64(u.steps+u.gaps)
	w.rec.pause(float64(n)*offered, 0)
}

func missing(hour rlc.Hour) int { return max(hour.Expected-hour.Present, 0) }

// quietMean is the mean rate of an hour's steps outside the tail.
func quietMean(hour rlc.Hour, in []rlc.Sample, steps int) float64 {
	sum := float64(hour.Mean) * float64(hour.Present)
	for _, x := range in {
		sum -= float64(x.Rate)
	}
	return max(sum, 0) / float64(steps)
}

// inHour splits tail into the samples of [from, until) and those after it.
func inHour(tail []rlc.Sample, from, until time.Time) (in, rest []rlc.Sample) {
	a := 0
	for a < len(tail) && tail[a].Time.Before(from) {
		a++
	}
	b := a
	for b < len(tail) && tail[b].Time.Before(until) {
		b++
	}
	return tail[a:b], tail[b:]
}

// Frontier answers, for any rate, how much of a history lies above it: the
// volume that a limit without a burst would have dropped. It is made once per
// history and then costs a binary search per question, which is what a curve of
// headroom against drops needs. It ignores bursts, so it never shows less than
// the replay.
type Frontier struct {
	// Requests is what was offered.
	Requests float64

	rates []float64 // ascending
	count []float64 // steps at rates[i] and above
	sum   []float64 // Σ rate·s of them
	floor float64   // below it an answer is a lower bound
	s     float64
}

// NewFrontier sorts h's tail. Steps outside it are summed up by hour.
func NewFrontier(h rlc.History) *Frontier {
	type quiet struct{ rate, steps float64 }
	f := &Frontier{floor: math.Inf(-1), s: h.Step.Seconds()}
	seen := make([]float64, 0, len(h.Tail))
	rest := make([]quiet, 0, len(h.Hours))
	tail := h.Tail
	for _, hour := range h.Hours {
		var in []rlc.Sample
		in, tail = inHour(tail, hour.Start, hour.Start.Add(time.Hour))
		f.Requests += float64(hour.Mean) * float64(hour.Present) * f.s
		for _, x := range in {
			seen = append(seen, float64(x.Rate))
		}
		if n := hour.Present - len(in); n > 0 {
			rest = append(rest, quiet{quietMean(hour, in, n), float64(n)})
			f.floor = max(f.floor, min(float64(h.TailFloor), float64(hour.Max)))
		}
	}
	slices.Sort(seen)
	slices.SortFunc(rest, func(a, b quiet) int { return cmp.Compare(a.rate, b.rate) })
	n := len(seen) + len(rest)
	f.rates, f.count, f.sum = make([]float64, n), make([]float64, n+1), make([]float64, n+1)
	for i := n - 1; i >= 0; i-- { // the highest of both first
		rate, steps := 0.0, 1.0
		if a, b := len(seen)-1, len(rest)-1; b < 0 || a >= 0 && seen[a] >= rest[b].rate {
			rate, seen = seen[a], seen[:a]
		} else {
			rate, steps, rest = rest[b].rate, rest[b].steps, rest[:b]
		}
		f.rates[i] = rate
		f.count[i] = f.count[i+1] + steps
		f.sum[i] = f.sum[i+1] + rate*steps*f.s
	}
	return f
}

// Above is Σ max(0, r − rate)·s over the history's steps. Where atLeast is
// true the rate lies below the tail and the sum is a lower bound: steps outside
// the tail count at their hour's mean, and the excess of a mean is at most the
// mean of the excesses.
func (f *Frontier) Above(rate rlc.Rate) (requests float64, atLeast bool) {
	i, _ := slices.BinarySearch(f.rates, float64(rate))
	return max(f.sum[i]-float64(rate)*f.count[i]*f.s, 0), float64(rate) < f.floor
}
