package loop

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
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

// What a report costs an aggregator in a fleet that does not fit into the
// processor's caches.
func BenchmarkReportOfALargeFleet(b *testing.B) {
	a := NewAggregator(AggregatorConfig{})
	nodes := make([]*steady, 5000)
	now := time.Second
	for i := range nodes {
		nodes[i] = newSteady(a, fmt.Sprint("x", i), 50)
		nodes[i].second(now, 10, 50)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(nodes) == 0 {
			now += time.Second
		}
		nodes[i%len(nodes)].second(now, 11, 50)
	}
}
