package policies

import (
	"testing"

	"github.com/openrlc/rlc/internal/stat"
)

// BenchmarkKey is what one key of four weeks at one minute costs from its
// sketches to its change: promise P17 has 10,000 of them in 60 s.
func BenchmarkKey(b *testing.B) {
	r := run{history: recorded(monday, 28, usual), current: quota(130)}
	b.ReportAllocs()
	for b.Loop() {
		r.propose(b)
	}
}

// BenchmarkCover is the coverage alone, which policy and guards each measure.
func BenchmarkCover(b *testing.B) {
	h := recorded(monday, 28, usual)
	for b.Loop() {
		stat.Cover(h, nil, nil)
	}
}
