package memory

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/openrlc/rlc/enforcer/gcra"
)

// Set is a group of counters that one request is charged to, all or none. It
// is safe for use by many goroutines. It holds its counters, so that a second
// request finds them without a search, and looks again for those that were
// evicted meanwhile.
type Set struct {
	memory  *Memory
	charges []gcra.Charge
	one     atomic.Pointer[counter] // of a set of one charge; nil until found
	found   atomic.Pointer[found]   // of a set of several; nil until found
}

// found is the counters of several charges, in the order of locking.
type found struct {
	counters []*counter // nil: the space is full and the request is admitted
	index    []int      // which charge each belongs to
	complete bool       // every charge has a counter of its own
}

// Set prepares charging these counters together: at most gcra.MaxCharges, each
// named once. The charges belong to the set from here on.
func (m *Memory) Set(charges []gcra.Charge) *Set {
	if len(charges) > gcra.MaxCharges {
		panic(fmt.Sprintf("memory: %d charges in one set, at most %d", len(charges), gcra.MaxCharges))
	}
	return &Set{memory: m, charges: charges}
}

// Take asks every counter for cost tokens at now, in microseconds on a clock
// that all calls share, and charges all when all admit. A cost of 0 is a peek at
// 1 and one below 0 at -cost, which makes no counter. The error is always nil.
func (s *Set) Take(_ context.Context, now, cost int64) (gcra.Tally, error) {
	if len(s.charges) == 1 {
		return s.takeOne(now, cost), nil
	}
	for {
		f := s.found.Load()
		if f == nil {
			if f = s.find(now, cost > 0); f.complete {
				s.found.Store(f)
			}
		}
		if t, ok := s.take(f, now, cost); ok {
			return t, nil
		}
		s.found.CompareAndSwap(f, nil)
	}
}

// Settle charges every counter with by tokens more, or gives them back where by
// is negative, as gcra.Limit.Settle does. Now is that of the charge; with a
// later one as much is given back as a counter owes. A counter that was evicted
// since owed nothing. The error is always nil.
func (s *Set) Settle(_ context.Context, now, by int64) error {
	for i := range s.charges {
		for !s.memory.settle(&s.charges[i], now, by) {
		}
	}
	return nil
}

// settle is false where the counter was evicted meanwhile.
func (m *Memory) settle(c *gcra.Charge, now, by int64) bool {
	k := m.find(m.space(c.Bucket), c, now, by > 0)
	if k == nil {
		return true // it owes nothing, or was never counted
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.gone {
		c.Limit.Settle(&k.state, now, by)
		k.limit = &c.Limit
	}
	return !k.gone
}

// take charges the counters found; ok is false where one of them was evicted.
func (s *Set) take(f *found, now, cost int64) (t gcra.Tally, ok bool) {
	locked := 0
	defer func() {
		for _, k := range f.counters[:locked] {
			if k != nil {
				k.mu.Unlock()
			}
		}
	}()
	for _, k := range f.counters {
		if k != nil {
			k.mu.Lock()
		}
		locked++
		if k != nil && k.gone {
			return t, false
		}
	}
	var few [4]gcra.State
	before := few[:]
	if len(s.charges) > len(few) {
		before = make([]gcra.State, len(s.charges))
	}
	for i := range s.charges {
		c := &s.charges[i]
		k := f.counters[f.index[i]]
		if k == nil {
			t.Untracked |= 1 << i
			t.Add(i, gcra.Verdict{OK: true, Remaining: c.Limit.Burst()})
			continue
		}
		before[i] = k.state
		t.Add(i, c.Limit.TakeFrom(&k.state, now, cost))
		if k.limit != &c.Limit {
			k.limit = &c.Limit
		}
	}
	if t.OK() || cost <= 0 {
		return t, true
	}
	for i := range s.charges {
		if k := f.counters[f.index[i]]; k != nil && t.Refused&(1<<i) == 0 {
			k.state = before[i]
		}
	}
	return t, true
}

// takeOne is Take for the usual case of a single counter.
func (s *Set) takeOne(now, cost int64) (t gcra.Tally) {
	c := &s.charges[0]
	for {
		k := s.one.Load()
		if k == nil {
			own := false
			if k, own = s.lookup(c, now, cost > 0); own {
				s.one.Store(k)
			}
		}
		if k == nil {
			return gcra.Tally{Untracked: 1, Remaining: c.Limit.Burst()}
		}
		k.mu.Lock()
		if k.gone {
			k.mu.Unlock()
			s.one.CompareAndSwap(k, nil)
			continue
		}
		var v gcra.Verdict
		if c.Limit.Length() > 0 {
			v = k.take(&c.Limit, now, cost)
		} else {
			// A bucket's arithmetic is total, and a defer would cost a tenth of it.
			v = c.Limit.TakeFrom(&k.state, now, cost)
			if k.limit != &c.Limit {
				k.limit = &c.Limit
			}
			k.mu.Unlock()
		}
		t.Add(0, v)
		return t
	}
}

// take charges a counter that is locked, and unlocks it, even where the
// arithmetic of a window or a calendar panics.
func (k *counter) take(l *gcra.Limit, now, cost int64) gcra.Verdict {
	defer k.mu.Unlock()
	if k.limit != l {
		k.limit = l
	}
	return l.TakeFrom(&k.state, now, cost)
}

// lookup is the counter of a charge. It is nil where the space is full and the
// request is admitted, and own says whether the set may keep it.
func (s *Set) lookup(c *gcra.Charge, now int64, create bool) (k *counter, own bool) {
	sp := s.memory.space(c.Bucket)
	k = s.memory.find(sp, c, now, create)
	if k == nil && !create {
		k = &counter{limit: &c.Limit} // a full one that nobody else sees
	}
	return k, k != nil && k.id != 0 && k != sp.rest
}

// find looks the counters up and orders them for locking.
func (s *Set) find(now int64, create bool) *found {
	n := len(s.charges)
	f := &found{counters: make([]*counter, n), index: make([]int, n), complete: true}
	order := make([]int, n) // position to charge
	for i := range s.charges {
		k, own := s.lookup(&s.charges[i], now, create)
		f.complete = f.complete && own
		// Insertion by id: sets are small, and those without a counter come first.
		p := i
		for ; p > 0 && less(k, f.counters[p-1]); p-- {
			f.counters[p], order[p] = f.counters[p-1], order[p-1]
		}
		f.counters[p], order[p] = k, i
	}
	for p, i := range order {
		f.index[i] = p
	}
	return f
}

func less(a, b *counter) bool {
	if a == nil || b == nil {
		return a == nil && b != nil
	}
	return a.id < b.id
}
