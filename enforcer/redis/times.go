package redis

import (
	"sync/atomic"
	"time"
)

// bounds are those of the round trips that are told apart, in microseconds: up
// to the deadline of a decision and beyond it.
var bounds = [...]int64{125, 250, 500, 1000, 2000, 4000, 8000, 16_000, 64_000, 256_000}

// times counts round trips by how long they took. The zero value is empty.
type times struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64 // microseconds
}

func (t *times) add(took time.Duration) {
	us, i := took.Microseconds(), 0
	for i < len(bounds) && us > bounds[i] {
		i++
	}
	t.counts[i].Add(1)
	t.sum.Add(us)
}

// RoundTrips is how long Redis and the way there took. A batch of decisions is
// one round trip, so that measuring costs a decision nothing.
type RoundTrips struct {
	Count   uint64
	Seconds float64 // all of them together
	// UpTo has, by an upper bound in seconds, how many took no longer.
	UpTo map[float64]uint64
}

func (t *times) roundTrips() RoundTrips {
	r := RoundTrips{Seconds: float64(t.sum.Load()) / 1e6, UpTo: map[float64]uint64{}}
	for i, bound := range bounds {
		r.Count += t.counts[i].Load()
		r.UpTo[float64(bound)/1e6] = r.Count
	}
	r.Count += t.counts[len(bounds)].Load()
	return r
}
