package enforcer

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
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
	// What most decisions read is one cache line.
	lane    loop.Lane     // where the loop decides alone
	alone   uint8         // what its draws cost there, and 0 elsewhere; see byLoop
	enforce bool          // it decides in the live world
	noted   bool          // something is counted beside series
	other   bool          // series is that of the rest
	seen    atomic.Uint32 // requests counted there since the last ranking
	quota   *bucket       // the quota bucket, or service.unmatched
	key     rlc.Key       // sensitive values are hashed
	limit   *rlc.Limit    // the quota bucket's, where the loop decides alone
	now     *cells        // of series
	*course
}

// course is the rest of a route.
type course struct {
	id         identity
	service    *active
	values     []string     // of service.attrs
	series     *series      // nil for a route that only looks
	handle     *loop.Handle // where the loop decides alone
	class      loop.Class   // of its draws
	strange    bool         // without a bucket, a caller or a quota: the identity breaker's
	noQuota    []*counts
	caps       []*bucket   // every cap that matches and is not turned off, and limit overrides
	off        []*counts   // buckets that a panic turned off
	overrides  []*override // the others that match
	caller     string      // whom they are told of: hashed where it is sensitive
	holds      bool        // an admitted request holds something until it is over
	trips      bool        // it may wait for the shared store more than once
	costHeader string
	live       world
	asIf       world // empty where it would always say the same as live
}

// add counts a request in its series. It returns bits that tell one request of a
// second from the next.
func (t *route) add(o Outcome, second int64) uint64 {
	t.enter(o, second)
	return t.now[o.index()].Add(1)
}

// enter begins a second of the series, if it is a new one to an outcome.
func (t *route) enter(o Outcome, second int64) {
	if t.now.behind(o.index(), second) {
		t.series.turn(second)
	}
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
	seeds  [2]maphash.Seed
	places atomic.Pointer[places]

	mu    sync.Mutex
	held  int
	ended bool
}

// identity tells a route from all others: two independent hashes of 64 bits, with
// secret seeds, of the service and of the values that its decisions depend on. A
// request with other values is taken for it once in 2⁶⁴ looks.
type identity struct {
	at   uint64 // where it stands
	mark uint64 // firstMark or more
}

// What a place's mark is where it is no route's.
const (
	freeMark   = 0
	changeMark = 1 // another route takes the place
	firstMark  = 2
)

// places is an open hash table; its length is a power of two. A place once
// taken stays so, so that a search may end at a free one.
type places []spot

// spot is a place. A search that passes over a route does not touch it.
type spot struct {
	mark  atomic.Uint64 // of the route
	route atomic.Pointer[route]
}

func (s *spot) set(r *route) {
	s.mark.Store(changeMark)
	s.route.Store(r)
	s.mark.Store(r.id.mark)
}

// of is the route where it is mark's. Between two looks at the mark no other took
// the place.
func (s *spot) of(mark uint64) *route {
	if r := s.route.Load(); s.mark.Load() == mark {
		return r
	}
	return nil
}

func (p places) at(id identity, probe int) *spot {
	return &p[(id.at+uint64(probe))&uint64(len(p)-1)]
}

// add puts a route into a free place and reports whether there was one.
func (p places) add(r *route) bool {
	for i := range routeProbes {
		if at := p.at(r.id, i); at.mark.Load() == freeMark {
			at.set(r)
			return true
		}
	}
	return false
}

func (c *routes) init() { c.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()} }

// identify hashes the service and the values.
func (c *routes) identify(s *active, values []string) identity {
	id := identity{s.salt, s.salt}
	for _, v := range values {
		id.at = step(id.at, maphash.String(c.seeds[0], v))
	}
	// While memory is asked for the place.
	for _, v := range values {
		id.mark = step(id.mark, maphash.String(c.seeds[1], v))
	}
	id.mark = max(id.mark, firstMark)
	return id
}

func step(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>32
}

// get finds a cached route, or nil.
func (c *routes) get(id identity) *route {
	all := c.places.Load()
	if all == nil {
		return nil
	}
	for i := range routeProbes {
		at := all.at(id, i)
		switch at.mark.Load() {
		case id.mark:
			return at.of(id.mark)
		case freeMark:
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
	if c.ended || c.get(r.id) != nil {
		return
	}
	r.open()
	all := c.places.Load()
	if all == nil || c.held > len(*all)*3/4 && len(*all) < routesMost {
		all = c.grow(all)
	}
	for !all.add(r) {
		if len(*all) >= routesMost {
			at := all.at(r.id, int(r.id.mark%routeProbes))
			at.route.Load().close()
			at.set(r)
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
		switch r := (*from)[i].route.Load(); {
		case r == nil:
		case to.add(r):
			c.held++
		default:
			r.close()
		}
	}
	c.places.Store(&to)
	return &to
}

// clear drops every route.
func (c *routes) clear() { c.drop(false) }

// end drops every route, and those to come: something else is in force.
func (c *routes) end() { c.drop(true) }

func (c *routes) drop(ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = c.ended || ended
	c.each((*route).close)
	c.places.Store(nil)
	c.held = 0
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
