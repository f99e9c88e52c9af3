package enforcer

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/openrlc/rlc"
)

// route is where requests with the same attribute values go: the buckets that
// count them and the counters that they are charged to. It is a cache; one can
// be dropped and found again at any time.
//
// There are two worlds of counters. In the live one only enforcing buckets
// exist: it decides. In the other, every bucket enforces: what it refuses and
// the live one admits is a virtual drop. So a shadow bucket never changes what
// an enforcing one decides, and a trace replayed in shadow has as many virtual
// drops as it has drops once everything enforces.
type route struct {
	// What most decisions read stands in two cache lines that lie side by side.
	service *active
	quota   *bucket          // the quota bucket, or service.unmatched
	key     rlc.Key          // sensitive values are hashed
	series  *series          // nil for a route that only looks
	alone   alone            // where the loop decides alone
	noted   bool             // something is counted beside series
	long    bool             // the values are not in text
	sizes   [fewValues]uint8 // of the values in text
	text    [textSize]byte   // the values of service.attrs, one after another
	seen    atomic.Uint64    // requests counted under Other since the last ranking

	*course
}

// How many values stand in a route itself, and their bytes. They make it two
// cache lines long.
const (
	fewValues = 4
	textSize  = 42 // 128 bytes in all
)

// course is the rest of a route.
type course struct {
	hash       uint64   // of service and values
	values     []string // of service.attrs
	strange    bool     // without a bucket, a caller or a quota: the identity breaker's
	noQuota    []*counts
	caps       []*bucket   // every cap that matches and is not turned off, and limit overrides
	off        []*counts   // buckets that a panic turned off
	overrides  []*override // the others that match
	holds      bool        // an admitted request holds something until it is over
	trips      bool        // it may wait for the shared store more than once
	costHeader string
	live       world
	asIf       world // empty where it would always say the same as live
}

// Beyond seenExactly, one request of seenSample in the mean is seen for all: a
// ranking needs no more.
const (
	seenExactly = 64
	seenSample  = 8
)

// see counts a request for the ranking; n tells it from others.
func (t *route) see(n uint64) {
	switch {
	case t.seen.Load() < seenExactly:
		t.seen.Add(1)
	case n*0x9E3779B97F4A7C15>>32%seenSample == 0:
		t.seen.Add(seenSample)
	}
}

// setValues makes the route that of requests with these attribute values. The
// slice is kept.
func (t *route) setValues(values []string) {
	t.values = values
	at := 0
	for i, v := range values {
		if i == fewValues || at+len(v) > textSize {
			t.long = true
			return
		}
		t.sizes[i] = uint8(len(v))
		at += copy(t.text[at:], v)
	}
}

// is reports whether the route is that of a service's requests with these
// attribute values.
func (t *route) is(s *active, values []string) bool {
	if t.service != s {
		return false
	}
	if t.long {
		return slices.Equal(t.values, values)
	}
	rest := t.text[:]
	for i, v := range values {
		if n := int(t.sizes[i&(fewValues-1)]); n != len(v) || string(rest[:n]) != v {
			return false
		}
		rest = rest[len(v):]
	}
	return true
}

// asIfPrefix sets the counters of the world in which all enforce apart. No
// service name begins with a NUL.
const asIfPrefix = "\x00as-if "

// labels are those of a request under a quota bucket. Values that mean "no
// identity" are empty, as the matcher has it.
func (s *service) labels(b *bucket, told rlc.Attributes) (l labels) {
	if b.caller {
		l.caller = s.identity(told, "caller")
	}
	if b.procedure {
		l.procedure = s.identity(told, "procedure")
	}
	return l
}

// The cache of routes holds at most routesMost. A route stands in one of the
// routeProbes places that follow its hash.
const (
	routesFirst = 64
	routesMost  = 1 << 17
	routeProbes = 32
)

// routes is the cache. It is empty and ready for use after init. Finding takes
// no lock.
type routes struct {
	seed   maphash.Seed
	places atomic.Pointer[places]

	mu   sync.Mutex
	held int
}

// places is an open hash table; its length is a power of two. A place once
// taken stays so, so that a search may end at a free one.
type places []spot

// spot is a place. A search that passes over a route does not touch it.
type spot struct {
	hash  atomic.Uint64 // of the route, written after it; 0: free
	route atomic.Pointer[route]
}

func (s *spot) set(r *route) {
	s.route.Store(r)
	s.hash.Store(r.hash)
}

func (p places) at(h uint64, probe int) *spot {
	return &p[(h+uint64(probe))&uint64(len(p)-1)]
}

// add puts a route into a free place and reports whether there was one.
func (p places) add(r *route) bool {
	for i := range routeProbes {
		if at := p.at(r.hash, i); at.hash.Load() == 0 {
			at.set(r)
			return true
		}
	}
	return false
}

func (c *routes) init() { c.seed = maphash.MakeSeed() }

// hash mixes the service and the values that its decisions depend on. It is never
// 0.
func (c *routes) hash(s *active, values []string) uint64 {
	h := s.salt
	for _, v := range values {
		h = (h ^ maphash.String(c.seed, v)) * 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	return max(h, 1)
}

// get finds a cached route, or nil.
func (c *routes) get(h uint64, s *active, values []string) *route {
	all := c.places.Load()
	if all == nil {
		return nil
	}
	for i := range routeProbes {
		at := all.at(h, i)
		switch at.hash.Load() {
		case h:
			if r := at.route.Load(); r.is(s, values) {
				return r
			}
		case 0:
			return nil
		}
	}
	return nil
}

// put caches a route. Where all of its places are taken and there cannot be
// more, another route makes room.
func (c *routes) put(r *route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.places.Load()
	if all == nil || c.held > len(*all)*3/4 && len(*all) < routesMost {
		all = c.grow(all)
	}
	for !all.add(r) {
		if len(*all) >= routesMost {
			all.at(r.hash, int(r.hash>>32%routeProbes)).set(r)
			return
		}
		all = c.grow(all)
	}
	c.held++
}

// grow makes twice the room. The caller holds the lock.
func (c *routes) grow(from *places) *places {
	if from == nil {
		to := make(places, routesFirst)
		c.places.Store(&to)
		return &to
	}
	to := make(places, 2*len(*from))
	c.held = 0
	for i := range *from {
		if r := (*from)[i].route.Load(); r != nil && to.add(r) {
			c.held++
		}
	}
	c.places.Store(&to)
	return &to
}

// clear drops every route.
func (c *routes) clear() {
	c.mu.Lock()
	c.places.Store(nil)
	c.held = 0
	c.mu.Unlock()
}

// each calls f with every cached route.
func (c *routes) each(f func(*route)) {
	all := c.places.Load()
	if all == nil {
		return
	}
	for i := range *all {
		if r := (*all)[i].route.Load(); r != nil {
			f(r)
		}
	}
}
