package backtest

import (
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// Stream is one series on its way through counters.
type Stream struct {
	History  rlc.History
	Counters []int // indexes of what counts it: its quota's and its caps'
}

// Counter is what counts streams.
type Counter struct {
	rlc.Limit
	rlc.Timed // other limits at times; the zero value where Limit holds for all
}

// Together is what streams met that were replayed at the same time against
// counters that they share. In each step the counters are charged in the order
// they were given, quotas before caps, each with what those before it admitted;
// a counter refuses all its streams the same share of what comes to it.
//
// Steps outside a stream's tail pass at their hour's quiet mean, so that an
// hour's requests are exact and so is every step at or above the tail's floor;
// a limit below the floor of a stream sees less of the peaks under it. A stream
// without a sample in an hour offers nothing in it.
type Together struct {
	Step     time.Duration
	Offered  float64
	Refused  float64
	Highest  *rlc.Peak // the step with the most admitted; nil where nothing was
	Streams  []Refusal // as given
	Counters []Refusal // as given
	Hours    []HourTogether
}

// Refusal is what one stream or one counter lost.
type Refusal struct {
	Offered float64
	Refused float64
	First   time.Time // start of the first step with a refusal; zero for none
	Last    time.Time // end of the last
	Steps   int       // steps with a refusal
	By      []float64 // of a stream: refused by each of its counters, in order
	Worst   *rlc.Peak // the offered rate of the step that lost most
	most    float64
}

func (r *Refusal) add(at time.Time, step time.Duration, offered, refused float64) {
	r.Offered += offered
	if refused <= 1e-9*offered {
		return
	}
	r.Refused += refused
	if r.First.IsZero() {
		r.First = at
	}
	if end := at.Add(step); end.After(r.Last) {
		r.Last = end
		r.Steps++
	}
	if refused > r.most {
		r.most = refused
		r.Worst = &rlc.Peak{Rate: rlc.Rate(offered / step.Seconds()), At: at}
	}
}

// HourTogether sums up an hour.
type HourTogether struct {
	Start    time.Time
	Offered  float64
	Admitted float64
	Highest  rlc.Rate // the highest step's admitted rate
}

// ReplayTogether replays streams between from and until against counters; all
// histories have the given step.
func ReplayTogether(step time.Duration, from, until time.Time, streams []Stream, counters []Counter) Together {
	r := joint{
		out:     Together{Step: step, Streams: make([]Refusal, len(streams)), Counters: make([]Refusal, len(counters))},
		streams: streams, counters: counters, tails: make([][]rlc.Sample, len(streams)), hours: make([][]rlc.Hour, len(streams)),
		members: make([][]member, len(counters)), passes: make([]float64, len(streams)),
	}
	for _, c := range counters {
		r.buckets = append(r.buckets, newBucket(step, c.Limit))
	}
	for i, s := range streams {
		r.out.Streams[i].By = make([]float64, len(s.Counters))
		r.hours[i] = s.History.Hours
		r.tails[i] = s.History.Tail
		for place, c := range s.Counters {
			r.members[c] = append(r.members[c], member{i, place})
		}
	}
	for hour := from.UTC().Truncate(time.Hour); hour.Before(until); hour = hour.Add(time.Hour) {
		r.hour(hour, from, until)
	}
	return r.out
}

// joint is a replay of many streams.
type joint struct {
	out      Together
	streams  []Stream
	counters []Counter
	buckets  []bucket       // of each counter
	hours    [][]rlc.Hour   // of each stream, those not yet passed
	tails    [][]rlc.Sample // likewise
	members  [][]member     // of each counter
	passes   []float64      // requests of each stream that still pass in a step
}

// member is a stream that a counter counts, and the counter's place in the
// stream's list.
type member struct{ stream, place int }

// hour goes through one hour, step by step.
func (r *joint) hour(start, from, until time.Time) {
	n := int(time.Hour / r.out.Step)
	rates := make([][]float64, len(r.streams))
	any := false
	for i := range r.streams {
		rates[i] = r.rates(i, start, n)
		any = any || rates[i] != nil
	}
	r.turn(start)
	var turns []time.Time
	for _, c := range r.counters {
		turns = append(turns, c.Edges(start, start.Add(time.Hour))...)
	}
	slices.SortFunc(turns, time.Time.Compare)
	if !any {
		for i := range r.buckets {
			r.buckets[i].fill()
		}
		return
	}
	sum := HourTogether{Start: start}
	for k := range n {
		at := start.Add(time.Duration(k) * r.out.Step)
		if at.Before(from) || !at.Before(until) {
			continue
		}
		for len(turns) > 0 && !turns[0].After(at) {
			r.turn(at)
			turns = turns[1:]
		}
		offered, admitted := r.step(at, k, rates)
		sum.Offered += offered
		sum.Admitted += admitted
		rate := rlc.Rate(admitted / r.out.Step.Seconds())
		sum.Highest = max(sum.Highest, rate)
		if admitted > 0 && (r.out.Highest == nil || rate > r.out.Highest.Rate) {
			r.out.Highest = &rlc.Peak{Rate: rate, At: at}
		}
	}
	r.out.Offered += sum.Offered
	r.out.Refused += sum.Offered - sum.Admitted
	r.out.Hours = append(r.out.Hours, sum)
}

// turn puts in force what counters have at t.
func (r *joint) turn(t time.Time) {
	for i := range r.counters {
		if c := &r.counters[i]; c.Hours != nil || len(c.Windows) > 0 {
			r.buckets[i].limit(c.Of(c.Limit, t))
		}
	}
}

// rates are a stream's rates in an hour, nil where it has none.
func (r *joint) rates(i int, start time.Time, n int) []float64 {
	h := r.hours[i]
	for len(h) > 0 && h[0].Start.Before(start) {
		h = h[1:]
	}
	r.hours[i] = h
	var in []rlc.Sample
	in, r.tails[i] = inHour(r.tails[i], start, start.Add(time.Hour))
	if len(h) == 0 || !h[0].Start.Equal(start) || h[0].Present == 0 {
		return nil
	}
	quiet := 0.0
	if steps := h[0].Present - len(in); steps > 0 {
		// What is missing of the hour is not known to lie anywhere: the steps
		// without a place share the hour's requests.
		quiet = quietMean(h[0], in, steps) * float64(steps) / float64(max(n-len(in), 1))
	}
	out := slices.Repeat([]float64{quiet}, n)
	for _, x := range in {
		if k := int(x.Time.Sub(start) / r.out.Step); k < n {
			out[k] = float64(x.Rate)
		}
	}
	return out
}

// step charges one step of all streams, counter by counter.
func (r *joint) step(at time.Time, k int, rates [][]float64) (offered, admitted float64) {
	s := r.out.Step.Seconds()
	for i := range r.streams {
		r.passes[i] = 0
		if rates[i] != nil {
			r.passes[i] = rates[i][k] * s
		}
		offered += r.passes[i]
	}
	for c := range r.buckets {
		r.charge(at, c)
	}
	for i := range r.streams {
		came := 0.0
		if rates[i] != nil {
			came = rates[i][k] * s
		}
		r.out.Streams[i].add(at, r.out.Step, came, came-r.passes[i])
		admitted += r.passes[i]
	}
	return offered, admitted
}

// charge lets one counter take what still passes of its streams, which lose
// the same share.
func (r *joint) charge(at time.Time, c int) {
	arrives := 0.0
	for _, m := range r.members[c] {
		arrives += r.passes[m.stream]
	}
	drops := r.buckets[c].charge(rlc.Rate(arrives / r.out.Step.Seconds()))
	r.out.Counters[c].add(at, r.out.Step, arrives, drops)
	if drops == 0 {
		return
	}
	lost := min(drops/arrives, 1)
	for _, m := range r.members[c] {
		d := r.passes[m.stream] * lost
		r.passes[m.stream] -= d
		r.out.Streams[m.stream].By[m.place] += d
	}
}
