package enforcer

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc/enforcer/gcra"
)

// slot is a cap on the requests that are in flight at one time.
type slot struct {
	key     string // of whose requests
	most    int64
	timeout int64 // microseconds: when a place is free again that nobody freed
}

// slotWait is the longest that a client is told to wait for a place: one comes
// free when any request ends, and nobody knows when that is.
const slotWait = time.Second

// flights are the requests in flight under every such cap, in this process. A
// key without one takes no memory. It is ready for use after init.
type flights struct {
	seed  maphash.Seed
	shard [16]struct {
		mu   sync.Mutex
		keys map[string]*flight
	}
	most    int64         // places held at one time; more requests are admitted uncounted
	live    atomic.Int64  // places held
	expired atomic.Uint64 // places that a timeout freed
}

// flight holds the leases of one key in the order in which they expire.
type flight struct {
	live        int64
	first, last *lease
}

// lease is one request's place.
type lease struct {
	of      *flights
	key     string
	expires int64  // microseconds
	also    *lease // the same request's place under another cap

	flight     *flight // nil once the place is free
	prev, next *lease
}

func (f *flights) init() {
	f.seed = maphash.MakeSeed()
	for i := range f.shard {
		f.shard[i].keys = map[string]*flight{}
	}
}

// enter takes a place for a request, whatever it costs, or with peek set looks
// whether there is one.
func (f *flights) enter(p *part, now int64, peek bool) (t gcra.Tally, l *lease) {
	key := p.slot.key
	sh := &f.shard[maphash.String(f.seed, key)%uint64(len(f.shard))]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	k := sh.keys[key]
	if k == nil {
		k = &flight{}
	}
	for k.first != nil && k.first.expires <= now {
		f.expired.Add(1)
		k.remove(k.first)
	}
	v := gcra.Verdict{OK: k.live < p.slot.most}
	switch {
	case v.OK && f.live.Load() >= f.most:
		t.Untracked = 1
	case v.OK && !peek:
		sh.keys[key] = k
		l = &lease{of: f, key: key, expires: now + p.slot.timeout}
		k.insert(l)
	case !v.OK && k.first != nil:
		v.Wait = min(time.Duration(k.first.expires-now)*time.Microsecond, slotWait)
	case !v.OK:
		v.Wait = gcra.Forever // a cap of none
	}
	if k.live == 0 {
		delete(sh.keys, key)
	}
	v.Remaining = max(p.slot.most-k.live, 0)
	t.Add(0, v)
	return t, l
}

// leave frees the places of a request. A nil lease has none.
func (l *lease) leave() {
	for ; l != nil; l = l.also {
		sh := &l.of.shard[maphash.String(l.of.seed, l.key)%uint64(len(l.of.shard))]
		sh.mu.Lock()
		if k := l.flight; k != nil {
			k.remove(l)
			if k.live == 0 {
				delete(sh.keys, l.key)
			}
		}
		sh.mu.Unlock()
	}
}

// sweep frees the places whose timeout is over.
func (f *flights) sweep(now int64) {
	for i := range f.shard {
		sh := &f.shard[i]
		sh.mu.Lock()
		for key, k := range sh.keys {
			for k.first != nil && k.first.expires <= now {
				f.expired.Add(1)
				k.remove(k.first)
			}
			if k.live == 0 {
				delete(sh.keys, key)
			}
		}
		sh.mu.Unlock()
	}
}

// insert puts l where it expires; nearly always that is last.
func (k *flight) insert(l *lease) {
	l.flight = k
	k.live++
	l.of.live.Add(1)
	after := k.last
	for after != nil && after.expires > l.expires {
		after = after.prev
	}
	if l.prev = after; after != nil {
		l.next, after.next = after.next, l
	} else {
		l.next, k.first = k.first, l
	}
	if l.next != nil {
		l.next.prev = l
	} else {
		k.last = l
	}
}

func (k *flight) remove(l *lease) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		k.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		k.last = l.prev
	}
	l.prev, l.next, l.flight = nil, nil, nil
	k.live--
	l.of.live.Add(-1)
}

// held is what an admitted request keeps until it is over.
type held struct {
	over     atomic.Bool
	within   time.Duration // all that may be waited for at the end; 0: no bound
	leases   []*lease
	reserved []charged // what was reserved for a cost that is not known yet
}

// keep enters what one world's decision left to be freed and settled.
func (h *held) keep(l *lease, w *world, done []charged) {
	if l != nil {
		h.leases = append(h.leases, l)
	}
	for i := range done {
		if w.stages[i].after {
			h.reserved = append(h.reserved, done[i])
		}
	}
}

// release frees and settles once. A cost below 0 keeps what was reserved.
func (h *held) release(cost int64) {
	if !h.over.CompareAndSwap(false, true) {
		return
	}
	for _, l := range h.leases {
		l.leave()
	}
	if cost < 0 {
		return
	}
	ctx := context.Background()
	if h.within > 0 && len(h.reserved) > 1 {
		a := &allowance{Context: ctx, within: h.within}
		defer a.end()
		ctx = a
	}
	for _, c := range h.reserved {
		c.settle(ctx, cost-c.amount)
	}
}
