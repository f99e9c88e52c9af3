package backtest

import (
	"iter"
	"math"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// maxBatches bounds the requests of one step that are taken one after another:
// 240 takes a step replay 28 days of minutes in about a second.
const maxBatches = 240

// ReplayCounted replays samples against a limit of any algorithm by the
// enforcers' own arithmetic. A step's requests come evenly spread, each ending
// its share of the step, in at most maxBatches batches; a batch is admitted as
// far as it fits. So a step's drops are right to one batch: to one request up to
// 240 requests a step, to 0.4 % of the step's requests above. For token buckets
// Replay is exact and faster.
func ReplayCounted(step time.Duration, samples iter.Seq[rlc.Sample], limit gcra.Limit) rlc.Backtest {
	rec := newRecord(step, rlc.Limit{Rate: sustained(limit)})
	var s gcra.State
	var requests, whole float64 // whole: what is left of a request
	for x := range samples {
		n := float64(x.Rate) * step.Seconds()
		requests += n
		batches := int64(min(max(math.Ceil(n-1e-9), 1), maxBatches))
		drops := int64(0)
		for i := int64(1); i <= batches; i++ {
			whole += n / float64(batches)
			cost := int64(whole + 1e-6)
			whole -= float64(cost)
			at := x.Time.UnixMicro() + step.Microseconds()*i/batches
			drops += cost - takeUpTo(limit, &s, at, cost)
		}
		rec.step(x, float64(drops))
	}
	return rec.result(requests)
}

// takeUpTo takes cost tokens, or what there is, and returns how many.
func takeUpTo(limit gcra.Limit, s *gcra.State, at, cost int64) int64 {
	if cost == 0 {
		return 0
	}
	v := limit.TakeFrom(s, at, cost)
	if v.OK {
		return cost
	}
	if v.Remaining > 0 && limit.TakeFrom(s, at, v.Remaining).OK {
		return v.Remaining
	}
	return 0
}

// sustained is what a limit admits in the long run, requests/s.
func sustained(limit gcra.Limit) rlc.Rate {
	if limit.Length() == 0 {
		return rlc.Rate(float64(limit.Rate()) / 1e6)
	}
	return rlc.Rate(float64(limit.Burst()) / (float64(limit.Length()) / 1e6))
}

// FromHistoryCounted replays a history against a limit of any algorithm,
// without its samples.
//
// A window of the calendar with edges on full hours admits the first so many
// requests of each window, whatever their order, so that its drops are exact by
// the hours alone; its episodes are made of hours. A bucket is FromHistory. Of
// every other window only a bound is known: it never admits more than a token
// bucket of the same rate that holds its requests once (a log), or twice (the
// others, which do so across an edge); what that bucket drops it drops at
// least.
func FromHistoryCounted(h rlc.History, limit gcra.Limit) rlc.Backtest {
	equal := rlc.Limit{Rate: sustained(limit), Burst: rlc.Burst(limit.Burst())}
	switch {
	case limit.Length() == 0:
		return FromHistory(h, equal)
	case limit.Kind() == gcra.FixedWindow && !limit.Rolls() && hourly(h, limit):
		return byHours(h, limit)
	case limit.Kind() != gcra.SlidingLog:
		equal.Burst *= 2
	}
	b := FromHistory(h, equal)
	b.AtLeast, b.Bursts = true, nil // the bucket is none that anybody set
	return b
}

// hourly reports whether all edges within h lie on full hours.
func hourly(h rlc.History, limit gcra.Limit) bool {
	const hour = int64(time.Hour / time.Microsecond)
	for _, x := range h.Hours {
		if limit.End(x.Start.UnixMicro())%hour != 0 {
			return false
		}
	}
	return true
}

// byHours replays hours, each as one step at its mean rate.
func byHours(h rlc.History, limit gcra.Limit) rlc.Backtest {
	rec := newRecord(time.Hour, rlc.Limit{Rate: sustained(limit)})
	most := float64(limit.Burst())
	var requests, used float64
	var end int64
	for _, x := range h.Hours {
		if e := limit.End(x.Start.UnixMicro()); e != end {
			end, used = e, 0
		}
		offered := float64(x.Mean) * float64(x.Present) * h.Step.Seconds()
		requests += offered
		admitted := min(offered, max(most-used, 0))
		used += offered
		drops := offered - admitted
		if drops <= 1e-9*offered {
			drops = 0
		}
		rec.step(rlc.Sample{Time: x.Start, Rate: rlc.Rate(offered / time.Hour.Seconds())}, drops)
	}
	return rec.result(requests)
}
