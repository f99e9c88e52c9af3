// Package sim runs whole fleets on the drop-ratio loop in virtual time: the
// real clients, aggregators and controller of package loop, Poisson arrivals,
// messages that take 5 to 50 ms, retries and faults. A run depends on its seed
// alone. Beside the loop it runs two older designs, for comparison.
package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Step is the grain of virtual time.
const Step = 10 * time.Millisecond

// Design is how the fleet limits.
type Design int

// The designs.
const (
	// Loop is package loop.
	Loop Design = iota
	// Naive is the loop as it was first published: reports each second, every
	// tier on a tick of its own of one second, the plain ratio.
	Naive
	// Shares is what was given up for it: each node refills its share of the
	// limit, in proportion to what it was offered in the second before, and may
	// save up ten seconds of it.
	Shares
)

// Stream is one kind of traffic.
type Stream struct {
	// Rate is the first tries offered at t, requests/s.
	Rate func(t time.Duration) float64
	// Node picks the node of a request; nil: any that runs, evenly.
	Node func(t time.Duration, r *rand.Rand) int
	// Path is the buckets it is charged to; nil: Bucket alone.
	Path []string
	// Class is its priority.
	Class uint8
}

// Bucket is the one that streams without a path are charged to.
const Bucket = "bucket"

// Retry is what a refused request does.
type Retry struct {
	Times    int           // tries after the first
	Min, Max time.Duration // wait before each, uniform
}

// Config is one run.
type Config struct {
	Design   Design
	Seed     uint64
	Nodes    int
	Zones    int                // 0 means 3
	PerZone  int                // aggregators in each; 0 means 1
	Regions  int                // controllers between the zones and the global one; 0: none
	Limits   map[string]float64 // requests/s, global; required
	Zonal    map[string]bool    // limits that each zone has for itself
	Regional map[string]bool    // limits that each region has for itself
	Streams  []Stream
	Retry    Retry
	For      time.Duration
	Aligned  bool                         // every clock ticks at the same moment
	Running  func(t time.Duration) int    // how many nodes run; nil: all
	Silent   bool                         // nodes stop without their streams breaking
	Skew     bool                         // nodes' clocks differ by up to five minutes
	Lost     float64                      // share of reports that vanish
	Late     float64                      // share of reports that come 30 s late as well as lost in time
	Tenfold  bool                         // every report comes ten times
	Liar     float64                      // what node 0 claims on top, requests a report; 0: nothing
	Events   map[time.Duration]func(*Run) // at these times, multiples of Step
	Admitted bool                         // (Naive) the law on admitted load, to see it swing
}

// Result is what was seen, per Step.
type Result struct {
	Config   Config
	Offered  []float64   // requests, retries among them
	Admitted []float64   // requests
	Of       [][]float64 // admitted, by stream
	Tries    [][]float64 // offered, by stream
	Messages int         // reports up
	Told     int         // messages down to nodes
}

// Run is a fleet in motion.
type Run struct {
	config Config
	rng    *rand.Rand
	now    time.Duration
	step   int
	queue  [][]func() // by step, a ring
	fleet  fleet
	nodes  int // running
	result Result
}

// fleet is a design under test.
type fleet interface {
	// offer decides a request of a stream at a node.
	offer(node, stream int) bool
	// tick is called each Step.
	tick()
	// scale sets how many nodes run.
	scale(nodes int)
}

// ring is longer than the longest delay, in steps.
const ring = 4096

// Do runs a fleet to its end.
func Do(c Config) Result {
	if c.Zones == 0 {
		c.Zones = 3
	}
	r := &Run{config: c, rng: rand.New(rand.NewPCG(c.Seed, 0x5EED)), queue: make([][]func(), ring), nodes: c.Nodes}
	r.result.Config = c
	r.result.Of, r.result.Tries = make([][]float64, len(c.Streams)), make([][]float64, len(c.Streams))
	switch c.Design {
	case Naive:
		r.fleet = newNaive(r)
	case Shares:
		r.fleet = newShares(r)
	default:
		r.fleet = newLoopFleet(r)
	}
	steps := int(c.For / Step)
	for s := range r.result.Of {
		r.result.Of[s], r.result.Tries[s] = make([]float64, steps), make([]float64, steps)
	}
	r.result.Offered, r.result.Admitted = make([]float64, steps), make([]float64, steps)
	for r.step = range steps {
		r.now = time.Duration(r.step) * Step
		if f := c.Events[r.now]; f != nil {
			f(r)
		}
		if c.Running != nil {
			r.nodes = max(1, min(c.Running(r.now), c.Nodes))
		}
		r.fleet.scale(r.nodes)
		due := r.queue[r.step%ring]
		r.queue[r.step%ring] = nil
		for _, f := range due {
			f()
		}
		r.arrivals()
		r.fleet.tick()
	}
	return r.result
}

// arrivals offers the first tries of this step.
func (r *Run) arrivals() {
	for s := range r.config.Streams {
		st := &r.config.Streams[s]
		for range poisson(r.rng, st.Rate(r.now)*Step.Seconds()) {
			node := 0
			if st.Node != nil {
				node = st.Node(r.now, r.rng)
			} else {
				node = r.rng.IntN(r.nodes)
			}
			r.try(node, s, r.config.Retry.Times)
		}
	}
}

// try is one try of a request.
func (r *Run) try(node, stream, left int) {
	r.result.Offered[r.step]++
	r.result.Tries[stream][r.step]++
	if r.fleet.offer(node, stream) {
		r.result.Admitted[r.step]++
		r.result.Of[stream][r.step]++
		return
	}
	if left > 0 {
		retry := r.config.Retry
		wait := retry.Min + time.Duration(r.rng.Int64N(int64(retry.Max-retry.Min)+1))
		r.after(wait, func() { r.try(min(node, r.nodes-1), stream, left-1) })
	}
}

// after does f later, at least one step on.
func (r *Run) after(d time.Duration, f func()) {
	at := r.step + min(max(int(d/Step), 1), ring-1)
	r.queue[at%ring] = append(r.queue[at%ring], f)
}

// delay is a message's way.
func (r *Run) delay() time.Duration {
	return 5*time.Millisecond + time.Duration(r.rng.Int64N(int64(45*time.Millisecond)))
}

// phase is where in a period somebody's clock ticks.
func (r *Run) phase(period time.Duration) int {
	if r.config.Aligned {
		return 0
	}
	return r.rng.IntN(int(period / Step))
}

// poisson draws from a Poisson distribution: by multiplication for small means,
// by its normal limit for large ones.
func poisson(r *rand.Rand, mean float64) int {
	if mean <= 0 {
		return 0
	}
	if mean > 500 {
		return max(0, int(math.Round(mean+math.Sqrt(mean)*r.NormFloat64())))
	}
	n := 0
	for left := mean; left > 0; left -= 30 {
		floor, p := math.Exp(-min(left, 30)), r.Float64()
		for p > floor {
			p *= r.Float64()
			n++
		}
	}
	return n
}
