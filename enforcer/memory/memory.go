// Package memory keeps token buckets in process and charges them atomically: a
// request that is charged to several is charged to all of them or to none.
//
// Counters live in spaces, one for each bucket, sharded by key. A space holds
// at most as many counters as its charges say; counters that are full again
// are the same as no counter, and are taken away by Sweep.
package memory

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/openrlc/rlc/enforcer/gcra"
)

// shards is the number of maps that the counters of a bucket are spread over.
const shards = 16

// Memory is a store of counters. The zero value is empty and ready for use; it
// is safe for use by many goroutines, and not to be copied.
type Memory struct {
	// Max bounds the live counters of all buckets together; 0 is no bound. Set
	// it before the first use.
	Max int

	live    atomic.Int64
	ids     atomic.Uint64
	evicted atomic.Uint64

	mu     sync.RWMutex
	spaces map[string]*space
}

// counter is one token bucket.
type counter struct {
	id uint64 // order of locking

	mu    sync.Mutex
	state gcra.State
	limit *gcra.Limit // the one it was charged under last
	gone  bool        // evicted: whoever still holds it looks again
}

// space holds the counters of one bucket.
type space struct {
	seed  maphash.Seed
	live  atomic.Int64
	swept atomic.Int64 // when a full space was last searched for idle counters
	rest  *counter     // for all keys beyond the bound, where they share
	shard [shards]struct {
		mu       sync.RWMutex
		counters map[string]*counter
	}
}

// space finds a bucket's counters, or makes room for them.
func (m *Memory) space(bucket string) *space {
	m.mu.RLock()
	s := m.spaces[bucket]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.spaces[bucket]; s == nil {
		s = &space{seed: maphash.MakeSeed(), rest: &counter{id: m.ids.Add(1)}}
		s.swept.Store(-sweepEvery)
		if m.spaces == nil {
			m.spaces = map[string]*space{}
		}
		m.spaces[bucket] = s
	}
	return s
}

// sweepEvery is how often, in microseconds, a full space is searched for idle
// counters on behalf of a new key.
const sweepEvery = 1_000_000

// find is the counter of a charge. Where there is none and create is set it is
// made, unless the space is full: then it is the shared one, or nil. Without
// create it is nil where there is none.
func (m *Memory) find(sp *space, c *gcra.Charge, now int64, create bool) *counter {
	sh := &sp.shard[maphash.String(sp.seed, c.Key)%shards]
	sh.mu.RLock()
	k := sh.counters[c.Key]
	sh.mu.RUnlock()
	full := c.Max > 0 && sp.live.Load() >= int64(c.Max) || m.Max > 0 && m.live.Load() >= int64(m.Max)
	switch {
	case k != nil:
		return k
	case !create && full && c.Share:
		return sp.rest
	case !create:
		return nil
	}
	if full {
		if last := sp.swept.Load(); now-last >= sweepEvery && sp.swept.CompareAndSwap(last, now) {
			m.sweep(sp, now)
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if k = sh.counters[c.Key]; k != nil {
		return k
	}
	n, all := sp.live.Add(1), m.live.Add(1)
	if c.Max > 0 && n > int64(c.Max) || m.Max > 0 && all > int64(m.Max) {
		sp.live.Add(-1)
		m.live.Add(-1)
		if c.Share {
			return sp.rest
		}
		return nil
	}
	if sh.counters == nil {
		sh.counters = map[string]*counter{}
	}
	k = &counter{id: m.ids.Add(1), limit: &c.Limit}
	sh.counters[c.Key] = k
	return k
}

// Sweep takes away the counters that are full at now. Call it every few
// seconds.
func (m *Memory) Sweep(now int64) {
	m.mu.RLock()
	all := make([]*space, 0, len(m.spaces))
	for _, s := range m.spaces {
		all = append(all, s)
	}
	m.mu.RUnlock()
	for _, s := range all {
		m.sweep(s, now)
	}
}

func (m *Memory) sweep(sp *space, now int64) {
	for i := range sp.shard {
		sh := &sp.shard[i]
		sh.mu.Lock()
		for key, k := range sh.counters {
			if k.evict(now) {
				delete(sh.counters, key)
				sp.live.Add(-1)
				m.live.Add(-1)
				m.evicted.Add(1)
			}
		}
		sh.mu.Unlock()
	}
}

// evict marks an idle counter as gone, and one whose limit's arithmetic panics,
// which nobody can charge.
func (k *counter) evict(now int64) (gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() {
		if recover() != nil {
			k.gone, gone = true, true
		}
	}()
	k.gone = k.limit.Idle(k.state, now)
	return k.gone
}

// Keep takes away the counters of every bucket that keep does not want: those
// of buckets that are no longer configured.
func (m *Memory) Keep(keep func(bucket string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, sp := range m.spaces {
		if keep(name) {
			continue
		}
		delete(m.spaces, name)
		for i := range sp.shard {
			sh := &sp.shard[i]
			sh.mu.Lock()
			for _, k := range sh.counters {
				k.mu.Lock()
				k.gone = true
				k.mu.Unlock()
			}
			m.live.Add(-int64(len(sh.counters)))
			clear(sh.counters)
			sh.mu.Unlock()
		}
		sp.rest.mu.Lock()
		sp.rest.gone = true
		sp.rest.mu.Unlock()
	}
}

// Live is the number of counters held.
func (m *Memory) Live() int { return int(m.live.Load()) }

// Evicted is how many idle counters were taken away so far.
func (m *Memory) Evicted() uint64 { return m.evicted.Load() }
