package loop

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Admitted is what Take returns for a request that passes.
const Admitted = -1

// Handle is the hot path of one path of buckets: it counts a request and
// decides it. It is safe for use by many goroutines, takes no lock, reads no
// clock and allocates nothing.
type Handle struct {
	keep  [Classes]atomic.Uint64  // the share kept by the whole path, × 2³²; 0: look closer
	room  atomic.Int64            // that of the path's first bucket, requests
	known atomic.Bool             // there is a directive for every bucket of the path
	seed  uint32                  // of Draw
	wide  atomic.Pointer[stripes] // counts instead of own once it is there
	own   [perLine]atomic.Uint64  // one stripe beside what a decision reads

	client *Client
	path   Path
	chain  atomic.Pointer[[]*bucket] // replaced when a parked handle comes back
	parked atomic.Bool               // not reported; the next request makes it so
	report reporting
	_      [32]byte // makes the size a multiple of a cache line's
}

// stripes are counters that processors share without waiting for each other.
// One counts offered requests per class, then dropped ones per position.
type stripes struct {
	counts []atomic.Uint64
	stride uint64 // counters in one
	mask   uint64 // how many there are, − 1
}

// always is the threshold that every draw is below.
const always = 1 << 32

// perLine is the counters in a cache line; a stripe of stripes fills whole
// lines.
const perLine = 8

// busy is the rate, in requests/s, from which a handle's processors would wait
// for each other.
const busy = 10_000

func newHandle(c *Client, p Path, chain *[]*bucket) *Handle {
	h := &Handle{client: c, path: p, seed: rand.Uint32()}
	h.chain.Store(chain)
	if Classes+len(p) > perLine {
		h.widen(1)
	}
	return h
}

// widen gives the handle so many stripes, a power of two. It is done once: what
// other stripes have counted would be lost.
func (h *Handle) widen(n int) {
	stride := (Classes + len(h.path) + perLine - 1) / perLine * perLine
	h.wide.Store(&stripes{counts: make([]atomic.Uint64, stride*n), stride: uint64(stride), mask: uint64(n - 1)})
}

// stripe is where a request with a draw is counted.
func (h *Handle) stripe(draw uint64) []atomic.Uint64 {
	if w := h.wide.Load(); w != nil {
		at := (draw & w.mask) * w.stride
		return w.counts[at : at+w.stride]
	}
	return h.own[:]
}

func (h *Handle) buckets() []*bucket { return *h.chain.Load() }

// Path is what the handle stands for. It is shared and not to be changed.
func (h *Handle) Path() Path { return h.path }

// Offer counts a request of a class and reports whether it is admitted.
func (h *Handle) Offer(c Class) bool { return h.Draw(c, 1) == Admitted }

// Draw is Take with random bits of its own: while one stripe counts, they are
// SplitMix64's of how many requests there have been, which costs less than
// asking for some.
func (h *Handle) Draw(c Class, n uint64) int {
	if c >= Classes {
		c = Normal
	}
	if h.wide.Load() != nil {
		return h.Take(c, n, rand.Uint64())
	}
	draw := mix(uint64(h.seed)<<32 + uint64(c)<<24 + h.own[c].Add(n)*0x9E3779B97F4A7C15)
	if draw>>32 < h.keep[c].Load() {
		return Admitted
	}
	return h.refuse(c, n, draw)
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Take counts a request that costs n and decides it with draw, 64 random bits:
// it returns Admitted, or the position on the path of the bucket that refuses.
// Two handles given the same draw refuse the same requests where their ratios
// are the same.
func (h *Handle) Take(c Class, n, draw uint64) int {
	if c >= Classes {
		c = Normal
	}
	if w := h.wide.Load(); w != nil {
		w.counts[(draw&w.mask)*w.stride+uint64(c)].Add(n)
	} else {
		h.own[c].Add(n)
	}
	if draw>>32 < h.keep[c].Load() {
		return Admitted
	}
	return h.refuse(c, n, draw)
}

// Keep is the share of a class that passes the whole path now.
func (h *Handle) Keep(c Class) float64 {
	if c >= Classes {
		c = Normal
	}
	k := 1.0
	for _, b := range h.buckets() {
		k *= b.share(c)
	}
	return k
}

// Look is Take for a request that is neither counted nor charged.
func (h *Handle) Look(c Class, draw uint64) int {
	if c >= Classes {
		c = Normal
	}
	if draw>>32 < h.keep[c].Load() {
		return Admitted
	}
	kept := 1.0
	for i, b := range h.buckets() {
		if b.local.on.Load() {
			if b.local.tokens.Load() < milli {
				return i
			}
			continue
		}
		if kept *= b.share(c); draw>>32 >= threshold(kept) {
			return i
		}
	}
	return Admitted
}

// Directed reports whether every bucket of the path has a directive. A request
// whose path has none is counted and forwarded.
func (h *Handle) Directed() bool { return h.known.Load() }

// Room is how many requests the path's first bucket could take in the next
// second beyond what is offered, as was last told; 0 where it is at its limit.
func (h *Handle) Room() int64 { return h.room.Load() }

// refuse finds which bucket refuses, if any does after all.
func (h *Handle) refuse(c Class, n, draw uint64) int {
	if h.parked.Load() {
		h.client.unpark(h)
	}
	by, kept, chain := Admitted, 1.0, h.buckets()
	for i, b := range chain {
		if b.local.on.Load() {
			if b.local.take(n) {
				continue
			}
			for _, inner := range chain[:i] {
				if inner.local.on.Load() {
					inner.local.give(n)
				}
			}
			by = i
			break
		}
		kept *= b.share(c)
		if draw>>32 >= threshold(kept) {
			by = i
			break
		}
	}
	if by != Admitted {
		h.stripe(draw)[Classes+by].Add(n)
	}
	return by
}

// read sums the stripes into offered and dropped.
func (h *Handle) read(offered *[Classes]uint64, dropped []uint64) {
	*offered = [Classes]uint64{}
	clear(dropped)
	add := func(stripe []atomic.Uint64) {
		for c := range offered {
			offered[c] += stripe[c].Load()
		}
		for i := range dropped[:min(len(dropped), len(stripe)-Classes)] {
			dropped[i] += stripe[Classes+i].Load()
		}
	}
	add(h.own[:])
	if w := h.wide.Load(); w != nil {
		for i := uint64(0); i <= w.mask; i++ {
			add(w.counts[i*w.stride : (i+1)*w.stride])
		}
	}
}

// set computes the thresholds from the buckets' shares.
func (h *Handle) set() {
	if chain := h.buckets(); len(chain) > 0 {
		h.room.Store(chain[0].room)
	}
	closer, known := h.parked.Load(), len(h.path) == len(h.buckets())
	for _, b := range h.buckets() {
		closer = closer || b.local.on.Load()
		known = known && b.known
	}
	h.known.Store(known)
	for c := range h.keep {
		if closer {
			h.keep[c].Store(0)
			continue
		}
		h.keep[c].Store(threshold(h.Keep(Class(c))))
	}
}

// threshold is a share of the draws.
func threshold(k float64) uint64 { return uint64(math.Round(k * always)) }

// bucket is what a client knows of one bucket. All of its handles share it.
type bucket struct {
	name      string
	keep      [Classes]atomic.Uint64 // bits of a float64
	local     local
	directive Directive
	heard     time.Duration // when the directive came
	known     bool          // there is a directive
	room      int64         // requests
	handles   []*Handle
	rate      float64 // offered here over the last second, requests/s
}

func newBucket(name string) *bucket {
	b := &bucket{name: name}
	b.setKeep(keepAll)
	return b
}

func (b *bucket) share(c Class) float64 { return math.Float64frombits(b.keep[c].Load()) }

func (b *bucket) setKeep(k Keep) {
	for c := range k {
		b.keep[c].Store(math.Float64bits(k[c]))
	}
}

func (b *bucket) hot() bool { return b.known && b.directive.Hot }

// local is the token bucket that stands in when nothing is heard. It is filled
// at each of the client's ticks, so that taking needs no clock.
type local struct {
	on     atomic.Bool
	tokens atomic.Int64 // thousandths
	last   time.Duration
}

const milli = 1000

// take takes n tokens if they are there.
func (l *local) take(n uint64) bool {
	if n > math.MaxInt64/milli {
		return false
	}
	want := int64(n) * milli
	for {
		have := l.tokens.Load()
		if have < want {
			return false
		}
		if l.tokens.CompareAndSwap(have, have-want) {
			return true
		}
	}
}

func (l *local) give(n uint64) { l.tokens.Add(int64(n) * milli) }

// fill adds what rate gave since the last fill. A bucket that was off starts
// full.
func (l *local) fill(now time.Duration, rate float64) {
	depth := max(1, 0.2*rate) * milli
	if !l.on.Load() {
		l.last = now
		l.tokens.Store(int64(depth))
		l.on.Store(true)
		return
	}
	more := rate * (now - l.last).Seconds() * milli
	if more < 1 {
		return // keep the time until it is worth a thousandth
	}
	l.last = now
	for {
		have := l.tokens.Load()
		next := int64(min(float64(have)+more, depth))
		if l.tokens.CompareAndSwap(have, next) {
			return
		}
	}
}
