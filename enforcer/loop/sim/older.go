package sim

import (
	"time"

	"github.com/openrlc/rlc/enforcer/loop"
)

// naive is the loop as first published.
type naive struct {
	run    *Run
	phase  []int
	came   []float64 // per node, since its last report
	passed []float64
	known  []float64 // per node, at its zone
	zones  []naiveZone
	tick0  int
	keep   float64 // the controller's
	keeps  []float64
}

type naiveZone struct {
	phase int
	sum   float64 // at the controller
}

func newNaive(r *Run) *naive {
	n := &naive{run: r, keep: 1, tick0: r.phase(time.Second)}
	for range r.config.Zones {
		n.zones = append(n.zones, naiveZone{phase: r.phase(time.Second)})
	}
	for range r.config.Nodes {
		n.phase = append(n.phase, r.phase(time.Second))
		n.keeps = append(n.keeps, 1)
	}
	n.came, n.passed, n.known = make([]float64, r.config.Nodes), make([]float64, r.config.Nodes), make([]float64, r.config.Nodes)
	return n
}

func (n *naive) scale(int) {}

func (n *naive) offer(node, _ int) bool {
	n.came[node]++
	if n.run.rng.Float64() < n.keeps[node] {
		n.passed[node]++
		return true
	}
	return false
}

func (n *naive) tick() {
	r, second := n.run, int(time.Second/Step)
	for i := range n.phase {
		if r.step%second != n.phase[i] {
			continue
		}
		rate := n.came[i]
		if r.config.Admitted {
			rate = n.passed[i]
		}
		n.came[i], n.passed[i] = 0, 0
		r.result.Messages++
		r.after(r.delay(), func() { n.known[i] = rate })
	}
	for z := range n.zones {
		if r.step%second != n.zones[z].phase {
			continue
		}
		sum := 0.0
		for i := z; i < len(n.known); i += len(n.zones) {
			sum += n.known[i]
		}
		r.after(r.delay(), func() { n.zones[z].sum = sum })
	}
	if r.step%second != n.tick0 {
		return
	}
	load := 0.0
	for z := range n.zones {
		load += n.zones[z].sum
	}
	limit := r.config.Limits[Bucket]
	if load > 0 {
		k := limit / load
		if r.config.Admitted {
			k *= n.keep
		}
		n.keep = min(max(k, loop.MinKeep), 1)
	}
	keep := n.keep
	for i := range n.keeps {
		r.after(r.delay()+r.delay(), func() { n.keeps[i] = keep })
	}
}

// shares is the design before the loop.
type shares struct {
	run    *Run
	phase  []int
	came   []float64
	known  []float64
	share  []float64
	tokens []float64
}

// saved is how many seconds of its share a node may keep unused.
const saved = 10

func newShares(r *Run) *shares {
	s := &shares{run: r, came: make([]float64, r.config.Nodes), known: make([]float64, r.config.Nodes)}
	for range r.config.Nodes {
		s.phase = append(s.phase, r.phase(time.Second))
		share := 1 / float64(r.config.Nodes)
		s.share = append(s.share, share)
		s.tokens = append(s.tokens, saved*share*r.config.Limits[Bucket])
	}
	return s
}

func (s *shares) scale(int) {}

func (s *shares) offer(node, _ int) bool {
	s.came[node]++
	if s.tokens[node] < 1 {
		return false
	}
	s.tokens[node]--
	return true
}

func (s *shares) tick() {
	r, second := s.run, int(time.Second/Step)
	limit := r.config.Limits[Bucket]
	for i := range s.tokens {
		rate := s.share[i] * limit
		s.tokens[i] = min(s.tokens[i]+rate*Step.Seconds(), saved*rate)
		if r.step%second == s.phase[i] {
			came := s.came[i]
			s.came[i] = 0
			r.result.Messages++
			r.after(r.delay(), func() { s.known[i] = came })
		}
	}
	if r.step%second != 0 {
		return
	}
	whole := 0.0
	for _, v := range s.known {
		whole += v
	}
	for i := range s.share {
		share := 1 / float64(len(s.share))
		if whole > 0 {
			share = s.known[i] / whole
		}
		r.after(r.delay(), func() { s.share[i] = share })
	}
}
