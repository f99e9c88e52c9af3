package enforcer

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/match"
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
	service *service
	values  []string // of service.attrs

	quota   *bucket // the quota bucket, or service.unmatched
	key     rlc.Key
	series  *series // nil for a route that only looks
	noQuota []*counts
	caps    []*bucket // every cap that matches and is not turned off
	off     []*counts // buckets that a panic turned off
	live    world
	asIf    world // empty where it would always say the same as live

	seen atomic.Uint64 // requests counted under Other since the last ranking
}

// world is a set of counters with what they stand for, the quota bucket first.
type world struct {
	set   Set // nil: nothing is charged
	parts []part
}

// part is one limit that a request is held to.
type part struct {
	bucket *bucket
	key    rlc.Key
	limit  *rlc.Limit
	mode   rlc.Mode
	source string
	charge gcra.Charge
}

// asIfPrefix sets the counters of the world in which all enforce apart. No
// service name begins with a NUL.
const asIfPrefix = "\x00as-if "

// build finds the route of a request. With look set it has no series and is
// not to be cached.
func (s *service) build(counter Counter, attrs rlc.Attributes, values []string, look bool) *route {
	m := s.matcher.Match(attrs)
	r := &route{service: s, values: values, quota: &s.unmatched}
	id := Unmatched
	if m.Quota.Bucket >= 0 {
		r.quota, r.key, id = &s.buckets[m.Quota.Bucket], m.Quota.Key, m.Quota.ID
	}
	if !look {
		r.series = r.quota.counts.table.get(s.labels(r.quota, attrs))
	}
	var parts []part
	parts = s.add(r, parts, r.quota, r.key, id)
	for _, hit := range m.Caps {
		b := &s.buckets[hit.Bucket]
		if b.counts.off.Load() {
			r.off = append(r.off, b.counts)
			continue
		}
		r.caps = append(r.caps, b)
		parts = s.add(r, parts, b, hit.Key, hit.ID)
	}

	var enforcing []part
	for _, p := range parts {
		if p.mode == rlc.Enforce {
			enforcing = append(enforcing, p)
		}
	}
	r.live = newWorld(counter, enforcing, "")
	if len(enforcing) < len(parts) || (s.joint && len(parts) > 0) {
		r.asIf = newWorld(counter, parts, asIfPrefix)
	}
	return r
}

// add appends what limits a bucket's key, if anything does.
func (s *service) add(r *route, parts []part, b *bucket, key rlc.Key, id string) []part {
	if b.counts.off.Load() {
		r.off = append(r.off, b.counts)
		return parts
	}
	limit, mode, source := s.limit(b, id)
	if source == "none" || source == "new_key" {
		if b != &s.unmatched {
			r.noQuota = append(r.noQuota, b.counts)
		}
	}
	if limit == nil {
		return parts
	}
	compiled, err := gcra.Compile(*limit)
	if err != nil {
		// The validator refuses such a limit; admitting is the safe side.
		return parts
	}
	return append(parts, part{bucket: b, key: key, limit: limit, mode: mode, source: source, charge: gcra.Charge{
		Bucket: s.Name + "\x00" + b.Name, Key: id, Limit: compiled,
		Max: s.Counters.Max, Share: s.Counters.OnFull == "share",
	}})
}

func newWorld(counter Counter, parts []part, prefix string) world {
	if len(parts) == 0 {
		return world{}
	}
	charges := make([]gcra.Charge, len(parts))
	for i := range parts {
		charges[i] = parts[i].charge
		charges[i].Bucket = prefix + charges[i].Bucket
	}
	return world{set: counter.Set(charges), parts: parts}
}

// labels are those of a request under a quota bucket. Values that mean "no
// identity" are empty, as the matcher has it.
func (s *service) labels(b *bucket, attrs rlc.Attributes) (l labels) {
	value := func(name string) string {
		v := attrs[name]
		if slices.Contains(s.Unknown[name], v) {
			return ""
		}
		return v
	}
	if b.caller {
		l.caller = value("caller")
	}
	if b.procedure {
		l.procedure = value("procedure")
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
func (c *routes) hash(s *service, values []string) uint64 {
	h := maphash.String(c.seed, s.Name)
	for _, v := range values {
		h = (h ^ maphash.String(c.seed, v)) * 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	return h
}

// get finds a cached route, or nil.
func (c *routes) get(h uint64, s *service, values []string) *route {
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

// busy lists, by bucket, the label sets that were counted under Other since
// the last call, with how often.
func (c *routes) busy() map[*counts]map[labels]uint64 {
	out := map[*counts]map[labels]uint64{}
	for i := range c.shard {
		sh := &c.shard[i]
		sh.mu.RLock()
		for _, r := range sh.routes {
			n := r.seen.Swap(0)
			if n == 0 {
				continue
			}
			b := r.quota.counts
			if out[b] == nil {
				out[b] = map[labels]uint64{}
			}
			attrs := make(rlc.Attributes, len(r.values))
			for j, name := range r.service.attrs {
				attrs[name] = r.values[j]
			}
			out[b][r.service.labels(r.quota, attrs)] += n
		}
		sh.mu.RUnlock()
	}
	return out
}

// matched lists the hits of a request, for explanations.
func (s *service) matched(attrs rlc.Attributes) []match.Hit {
	m := s.matcher.Match(attrs)
	return append([]match.Hit{m.Quota}, m.Caps...)
}
