package loop

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// BenchmarkFloor is what any such decision costs at least: a random number and
// an atomic addition.
func BenchmarkFloor(b *testing.B) {
	var n atomic.Uint64
	for b.Loop() {
		n.Add(rand.Uint64() & 1)
	}
}

func BenchmarkOffer(b *testing.B) {
	c := NewClient(ClientConfig{Node: "n"})
	h := c.Handle(Path{"a", "b"})
	c.Apply(order(1, keepNormal("a", 0.9)), 0)
	b.ReportAllocs()
	for b.Loop() {
		h.Offer(Normal)
	}
}

func BenchmarkOfferParallel(b *testing.B) {
	c := NewClient(ClientConfig{Node: "n"})
	h := c.Handle(Path{"a", "b"})
	c.Apply(order(1, keepNormal("a", 0.9)), 0)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			h.Offer(Normal)
		}
	})
}
