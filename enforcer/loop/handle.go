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
// clock and allocates nothing. What a decision touches is one cache line, so
// that thousands of handles in turn stay near the processor.
type Handle struct {
	keep    [Classes]atomic.Uint32  // the share kept by the whole path, × 2³²; 0: look closer
	seed    uint32                  // of Draw
	room    atomic.Int64            // that of the path's first bucket, requests; < 0: a bucket has no directive
	wide    atomic.Pointer[stripes] // counts from when it is there, beside what own and dropped have
	own     [Classes]atomic.Uint64  // offered requests per class
	details                         // of the rest of a handle
}

type details = *handleDetails

type handleDetails struct {
	client  *Client
	path    Path
	chain   atomic.Pointer[[]*bucket] // replaced when a parked handle comes back
	dropped []atomic.Uint64           // requests per position
	parked  atomic.Bool               // not reported; the next request makes it so
	heads   atomic.Int64              // see Heads
	lanes   []opened
	report  reporting
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

// perLine is the counters in a cache line; a stripe fills whole lines.
const perLine = 8

// busy is the rate, in requests/s, from which a handle's processors would wait
// for each other.
const busy = 10_000

func newHandle(c *Client, p Path, chain *[]*bucket) *Handle {
	h := &Handle{seed: rand.Uint32(), details: &handleDetails{client: c, path: p, dropped: make([]atomic.Uint64, len(p))}}
	h.chain.Store(chain)
	return h
}

// widen gives the handle so many stripes, a power of two. It is done once: what
// other stripes have counted would be lost.
func (h *Handle) widen(n int) {
	stride := (Classes + len(h.path) + perLine - 1) / perLine * perLine
	h.wide.Store(&stripes{counts: make([]atomic.Uint64, stride*n), stride: uint64(stride), mask: uint64(n - 1)})
	h.setLanes()
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
	draw := mix(uint64(h.seed)<<32 + uint64(c)<<24 + h.own[c].Add(n)*golden)
	if uint32(draw>>32) < h.keep[c].Load() {
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
	if uint32(draw>>32) < h.keep[c].Load() {
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
	if uint32(draw>>32) < h.keep[c].Load() {
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
func (h *Handle) Directed() bool { return h.room.Load() >= 0 }

// Heads is among how many nodes a path's limits are to be shared of which the loop
// has said nothing for a while, though it was asked: this many are known, this one
// included. It is 0 as long as an answer may still come.
func (h *Handle) Heads() int { return int(h.heads.Load()) }

// Local reports whether a bucket of the path is held to this node's own share of its
// limit, since the loop is silent.
func (h *Handle) Local() bool {
	if h.keep[Normal].Load() != 0 {
		return false
	}
	for _, b := range h.buckets() {
		if b.local.on.Load() {
			return true
		}
	}
	return false
}

// Room is how many requests the path's first bucket could take in the next
// second beyond what is offered, as was last told; 0 where it is at its limit,
// and less where the path is not Directed.
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
	if by == Admitted {
		return by
	}
	if w := h.wide.Load(); w != nil {
		w.counts[(draw&w.mask)*w.stride+uint64(Classes+by)].Add(n)
	} else {
		h.dropped[by].Add(n)
	}
	return by
}

// read sums what was counted into offered and dropped. The caller holds the
// client's lock.
func (h *Handle) read(offered *[Classes]uint64, dropped []uint64) {
	for c := range offered {
		offered[c] = h.own[c].Load()
	}
	for _, o := range h.lanes {
		offered[o.class] += o.lane.own.Load() - o.began
	}
	for i := range dropped {
		dropped[i] = h.dropped[i].Load()
	}
	w := h.wide.Load()
	if w == nil {
		return
	}
	for i := uint64(0); i <= w.mask; i++ {
		stripe := w.counts[i*w.stride : (i+1)*w.stride]
		for c := range offered {
			offered[c] += stripe[c].Load()
		}
		for i := range dropped {
			dropped[i] += stripe[Classes+i].Load()
		}
	}
}

// set computes the thresholds from the buckets' shares. The caller holds the
// client's lock.
func (h *Handle) set() {
	defer h.setLanes()
	chain := h.buckets()
	room := int64(unknown)
	if len(chain) > 0 {
		room = chain[0].room
	}
	closer := h.parked.Load()
	if len(h.path) != len(chain) {
		room = unknown
	}
	for _, b := range chain {
		closer = closer || b.local.on.Load()
		if !b.known {
			room = unknown
		}
	}
	h.room.Store(room)
	for c := range h.keep {
		if closer {
			h.keep[c].Store(0)
			continue
		}
		// The very highest draw looks closer, where nothing is dropped.
		h.keep[c].Store(uint32(min(threshold(h.Keep(Class(c))), always-1)))
	}
}

// unknown is the room of a path of which the loop has not said everything.
const unknown = -1

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
	told      bool          // there ever was, be it that there is no limit
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
