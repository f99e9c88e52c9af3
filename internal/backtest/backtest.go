// Package backtest replays past offered traffic against a limit and says what
// would have been dropped: how much, when, and at what excess.
//
// The law, per present step of length s at mean rate r: what does not fit into
// what the limit refills during the step and the tokens left from before is
// dropped,
//
//	excess = max(0, r·s − rate·s − tokens)
//
// tokens refill to burst and never beyond, and a gap refills them. A step sees
// its mean only: at a step of one minute the replay finds sustained excess, not
// bursts.
package backtest

import (
	"iter"
	"math"
	"time"

	"github.com/openrlc/rlc"
)

// quietGap joins dropping steps into one episode: a shorter pause between them
// does not end it.
const quietGap = 10 * time.Minute

// Replay replays samples against limit. The samples lie step apart or further,
// ascending in time, none of them NaN; where two lie further apart, steps are
// missing and the tokens are full again. The replay begins with full tokens.
// Every figure is exact, so AtLeast is false.
func Replay(step time.Duration, samples iter.Seq[rlc.Sample], limit rlc.Limit) rlc.Backtest {
	b := newBucket(step, limit)
	rec := newRecord(step, limit)
	var requests float64
	var last time.Time
	for x := range samples {
		if !last.IsZero() && stepsBetween(last, x.Time, step) > 1 {
			b.fill()
		}
		last = x.Time
		requests += float64(x.Rate) * b.s
		rec.step(x, b.charge(x.Rate))
	}
	return rec.result(requests)
}

// Samples makes a sequence of a regular grid: values[i] is the rate of the step
// that starts at start + i·step. NaN, infinite and negative values are missing
// samples.
func Samples(step time.Duration, start time.Time, values []float64) iter.Seq[rlc.Sample] {
	return func(yield func(rlc.Sample) bool) {
		for i, v := range values {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				continue
			}
			if !yield(rlc.Sample{Time: start.Add(time.Duration(i) * step), Rate: rlc.Rate(v)}) {
				return
			}
		}
	}
}

// stepsBetween is how many steps lie between the starts of two steps, 1 for
// neighbours.
func stepsBetween(a, b time.Time, step time.Duration) int {
	return int((b.Sub(a) + step/2) / step)
}

// bucket is the state of the law for one limit.
type bucket struct {
	s      float64 // seconds in a step
	rate   float64
	burst  float64
	tokens float64 // 0 to burst
}

func newBucket(step time.Duration, limit rlc.Limit) bucket {
	return bucket{s: step.Seconds(), rate: float64(limit.Rate), burst: float64(limit.Burst), tokens: float64(limit.Burst)}
}

func (b *bucket) fill() { b.tokens = b.burst }

// limit puts another limit in force. As in the enforcers a debt stays: what was
// taken and has not come back is taken of the new burst.
func (b *bucket) limit(l rlc.Limit) {
	debt := b.burst - b.tokens
	b.rate, b.burst = float64(l.Rate), float64(l.Burst)
	b.tokens = max(b.burst-debt, 0)
}

// refill adds what arrives over n steps at rate r each, which is negative where
// r is above the limit. It returns what did not fit.
func (b *bucket) refill(n int, r float64) (excess float64) {
	t := b.tokens + float64(n)*(b.rate-r)*b.s
	b.tokens = min(max(t, 0), b.burst)
	return max(-t, 0)
}

// charge lets one step at rate r pass and returns its dropped requests. A
// remainder in the digits that float64 cannot hold is no drop.
func (b *bucket) charge(r rlc.Rate) float64 {
	excess := b.refill(1, float64(r))
	if excess <= 1e-9*float64(r)*b.s {
		return 0
	}
	return excess
}

// record gathers drops into episodes.
type record struct {
	length time.Duration
	limit  rlc.Rate
	out    rlc.Backtest
	worst  float64 // the largest excess so far
	open   bool    // the last episode may still go on
	// What was offered since the last dropping step, and its highest step: it
	// belongs to the episode if that goes on.
	quiet     float64
	quietPeak rlc.Rate
	offered   []float64 // requests of each episode
}

func newRecord(step time.Duration, limit rlc.Limit) *record {
	return &record{length: step, limit: limit.Rate, out: rlc.Backtest{Step: step.Seconds(), Episodes: []rlc.Episode{}}}
}

// step notes one step of which drops requests were dropped.
func (r *record) step(x rlc.Sample, drops float64) {
	requests := float64(x.Rate) * r.out.Step
	if drops == 0 {
		r.pause(requests, x.Rate)
		return
	}
	r.out.Drops += drops
	if drops > r.worst {
		r.worst = drops
		r.out.Worst = &rlc.Peak{Rate: x.Rate, At: x.Time}
	}
	n := len(r.out.Episodes) - 1
	if !r.open || x.Time.Sub(r.out.Episodes[n].Until) >= quietGap {
		r.out.Episodes = append(r.out.Episodes, rlc.Episode{From: x.Time, Limit: r.limit})
		r.offered = append(r.offered, 0)
		r.quiet, r.quietPeak = 0, 0
		r.open = true
		n++
	}
	e := &r.out.Episodes[n]
	e.Until = x.Time.Add(r.length)
	e.Drops += drops
	e.Peak = max(e.Peak, x.Rate, r.quietPeak)
	r.offered[n] += r.quiet + requests
	r.quiet, r.quietPeak = 0, 0
}

// pause notes requests of steps without a drop.
func (r *record) pause(requests float64, peak rlc.Rate) {
	if r.open {
		r.quiet += requests
		r.quietPeak = max(r.quietPeak, peak)
	}
}

func (r *record) result(requests float64) rlc.Backtest {
	for i := range r.out.Episodes {
		r.out.Episodes[i].Share = share(r.out.Episodes[i].Drops, r.offered[i])
	}
	r.out.Requests = requests
	r.out.Share = share(r.out.Drops, requests)
	return r.out
}

func share(drops, requests float64) rlc.Ratio {
	if requests <= 0 {
		return 0
	}
	return rlc.Ratio(min(drops/requests, 1))
}
