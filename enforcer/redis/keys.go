package redis

import (
	"hash/maphash"
	"sync"

	"github.com/openrlc/rlc/enforcer/gcra"
)

// keys are the counters whose rates are measured. The zero value is empty.
type keys struct {
	max  int
	once sync.Once
	seed maphash.Seed

	shard [16]struct {
		mu   sync.Mutex
		keys map[string]*key
	}
}

// key is one counter as this node sees it: how often it is asked for and, if
// that is often, the tokens leased for it.
type key struct {
	name string // in Redis

	mu     sync.Mutex
	gone   bool       // forgotten: whoever holds it looks again
	part   *part      // of the last request: its limit
	idle   int        // sweeps since then
	tokens int64      // held and not spent
	until  int64      // when they are to go back, microseconds on the callers' clock
	deny   int64      // until when nothing is asked for and what is not held is refused; 0: asked at once
	left   int64      // whole tokens that Redis had left after the last lease
	after  gcra.State // the counter after the last lease, on the callers' clock: how long a refusal lasts

	from   int64   // when the rate's measuring began
	count  int64   // tokens asked for since
	rate   float64 // a second, in the span before
	hot    bool
	refill *refill // under way; nil for none
}

// refill is a lease being asked for.
type refill struct {
	part       *part
	now        int64 // when it was asked for
	wants, has int64 // tokens to hold, and held before
	cost       int64 // of use at once

	done chan struct{}
	err  error // set before done is closed
}

// key finds what is known of a part, or nil where it is not to be leased.
func (c *Counter) key(p *part, op string) *key {
	if c.config.Strict || op != opTake || p.charge.Limit.Kind() != gcra.TokenBucket {
		return nil
	}
	return c.keys.find(p)
}

// find looks a part's key up, or makes it, unless there are too many.
func (ks *keys) find(p *part) *key {
	if k := p.hot.Load(); k != nil {
		return k
	}
	ks.once.Do(func() { ks.seed = maphash.MakeSeed() })
	sh := &ks.shard[maphash.String(ks.seed, p.name)%uint64(len(ks.shard))]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := sh.keys[p.name]
	if k == nil {
		if len(sh.keys) >= max(ks.max/len(ks.shard), 1) {
			return nil
		}
		if sh.keys == nil {
			sh.keys = map[string]*key{}
		}
		k = &key{name: p.name, part: p}
		sh.keys[p.name] = k
	}
	p.hot.Store(k)
	return k
}

// all lists the keys.
func (ks *keys) all() (out []*key) {
	for i := range ks.shard {
		sh := &ks.shard[i]
		sh.mu.Lock()
		for _, k := range sh.keys {
			out = append(out, k)
		}
		sh.mu.Unlock()
	}
	return out
}

// forget takes a key away that nobody asks for.
func (ks *keys) forget(k *key) {
	sh := &ks.shard[maphash.String(ks.seed, k.name)%uint64(len(ks.shard))]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tokens == 0 && k.refill == nil && !k.gone {
		k.gone = true
		delete(sh.keys, k.name)
	}
}

func (k *key) held() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tokens
}
