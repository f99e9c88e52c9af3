package sim

import (
	"math/rand/v2"
	"time"
)

// Limit is the limit of the scenarios, requests/s, and Base the load before
// their steps.
const (
	Limit = 24_000
	Base  = 22_000
)

// Before is when the scenarios' steps fall, but for a phase of up to a second
// that the seed chooses.
const Before = 12 * time.Second

// phased is when the step of a seed falls.
func phased(seed uint64) time.Duration {
	return Before + time.Duration(seed*7919%100)*Step
}

// Flat is a constant load.
func Flat(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// Jump is a load that goes from one rate to another at a time.
func Jump(from, to float64, at time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		if t < at {
			return from
		}
		return to
	}
}

// Pulse is high between two times and low else.
func Pulse(low, high float64, from, until time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		if t >= from && t < until {
			return high
		}
		return low
	}
}

// Wave is high for the first half of every period from a time on, and low in
// the second.
func Wave(low, high float64, from, period time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		if t >= from && (t-from)%period < period/2 {
			return high
		}
		return low
	}
}

// One is a run of one stream against one limit.
func One(seed uint64, nodes int, limit float64, rate func(time.Duration) float64, duration time.Duration) Config {
	return Config{Seed: seed, Nodes: nodes, Limits: map[string]float64{Bucket: limit}, Streams: []Stream{{Rate: rate, Class: 1}}, For: duration}
}

// StepTo steps the load from Base to rate; the time of the step comes with it.
func StepTo(seed uint64, nodes int, rate float64) (Config, time.Duration) {
	at := phased(seed)
	return One(seed, nodes, Limit, Jump(Base, rate, at), at+30*time.Second), at
}

// OnOff picks among nodes that are busy four seconds of sixteen, one after
// another.
func OnOff(nodes int) func(time.Duration, *rand.Rand) int {
	return func(at time.Duration, r *rand.Rand) int {
		for {
			n := r.IntN(nodes)
			if (at+16*time.Second*time.Duration(n)/time.Duration(nodes))%(16*time.Second) < 4*time.Second {
				return n
			}
		}
	}
}

// First picks among the first n nodes.
func First(n int) func(time.Duration, *rand.Rand) int {
	return func(_ time.Duration, r *rand.Rand) int { return r.IntN(n) }
}
