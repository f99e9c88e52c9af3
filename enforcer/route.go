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
	service *active
	values  []string // of service.attrs

	quota      *bucket // the quota bucket, or service.unmatched
	key        rlc.Key // sensitive values are hashed
	series     *series // nil for a route that only looks
	strange    bool    // without a bucket, a caller or a quota: the identity breaker's
	noQuota    []*counts
	caps       []*bucket   // every cap that matches and is not turned off, and limit overrides
	off        []*counts   // buckets that a panic turned off
	overrides  []*override // the others that match
	holds      bool        // an admitted request holds something until it is over
	costHeader string
	live       world
	asIf       world // empty where it would always say the same as live

	seen atomic.Uint64 // requests counted under Other since the last ranking
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

// The cache of routes holds at most routeShards × routesPerShard.
const (
	routeShards    = 64
	routesPerShard = 2048
)

// routes is the cache. It is empty and ready for use after init.
type routes struct {
	seed  maphash.Seed
	shard [routeShards]struct {
		mu     sync.RWMutex
		routes map[uint64]*route
	}
}

func (c *routes) init() { c.seed = maphash.MakeSeed() }

// hash mixes the service's name and the values that its decisions depend on.
func (c *routes) hash(s *active, values []string) uint64 {
	h := maphash.String(c.seed, s.Name)
	for _, v := range values {
		h = (h ^ maphash.String(c.seed, v)) * 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	return h
}

// get finds a cached route, or nil.
func (c *routes) get(h uint64, s *active, values []string) *route {
	sh := &c.shard[h%routeShards]
	sh.mu.RLock()
	r := sh.routes[h]
	sh.mu.RUnlock()
	if r != nil && r.service == s && slices.Equal(r.values, values) {
		return r
	}
	return nil
}

// put caches a route. A full shard first loses half of its routes, whichever
// come up.
func (c *routes) put(h uint64, r *route) {
	sh := &c.shard[h%routeShards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.routes == nil {
		sh.routes = map[uint64]*route{}
	}
	if len(sh.routes) >= routesPerShard {
		n := 0
		for k := range sh.routes {
			if n++; n > routesPerShard/2 {
				break
			}
			delete(sh.routes, k)
		}
	}
	sh.routes[h] = r
}

// clear drops every route.
func (c *routes) clear() {
	for i := range c.shard {
		sh := &c.shard[i]
		sh.mu.Lock()
		clear(sh.routes)
		sh.mu.Unlock()
	}
}

// each calls f with every cached route.
func (c *routes) each(f func(*route)) {
	for i := range c.shard {
		sh := &c.shard[i]
		sh.mu.RLock()
		for _, r := range sh.routes {
			f(r)
		}
		sh.mu.RUnlock()
	}
}
