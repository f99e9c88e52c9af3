package demo

import (
	"math"
	"math/rand/v2"
	"time"
)

// recorded is the recording rule's name: the first source of the built-in
// profile "rlc".
const recorded = "rlc:enforcer_requests:rate1m"

// minutes yields a series' rate for each minute of [from, until), stamped with
// the minute's end, as a rate over one minute is.
func minutes(s TrafficSeries, from, until time.Time) func(yield func(int64, float64) bool) {
	return func(yield func(int64, float64) bool) {
		for t := from; t.Before(until); t = t.Add(time.Minute) {
			r := s.Rate(t.Add(-time.Minute))
			if math.IsNaN(r) {
				continue // a gap stays a gap
			}
			if !yield(t.UnixMilli(), r) {
				return
			}
		}
	}
}

// arrivals draws how many requests arrive where mean are expected: Poisson, by
// Knuth's product for small means and its normal approximation above 30.
func arrivals(random *rand.Rand, mean float64) int {
	switch {
	case !(mean > 0):
		return 0
	case mean > 30:
		return max(0, int(math.Round(mean+math.Sqrt(mean)*random.NormFloat64())))
	}
	limit, n := math.Exp(-mean), 0
	for p := random.Float64(); p > limit; p *= random.Float64() {
		n++
	}
	return n
}
