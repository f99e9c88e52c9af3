package enforcer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// reason is why a shared store did not answer: an index into Reasons.
type reason int

const reasons = 12 // how many there are

// reasonOf finds the kind of a store's error; "other" for one that says none.
func reasonOf(err error) reason {
	all, said := Reasons(), ""
	if r := Reasoned(nil); errors.As(err, &r) {
		said = r.Reason()
	} else if errors.Is(err, context.DeadlineExceeded) {
		said = "timeout"
	}
	if i := slices.Index(all, said); i >= 0 {
		return reason(i)
	}
	return reason(len(all) - 1)
}

func (r reason) String() string     { return Reasons()[r] }
func (r reason) fallback() fallback { return byStore + fallback(r) }

// retryClosed is what a client is told to wait that was refused because the
// store did not answer.
const retryClosed = time.Second

// Peers says how many enforcers share a limit of each scope, this one
// included; 0 is unknown, and counts as 1. It decides how much of a limit is an
// enforcer's equal share while the shared store is away.
type Peers struct {
	Zone, Region, Global int
}

// of is the number of enforcers that share a limit of this scope.
func (p *Peers) of(scope string) int {
	switch {
	case p == nil:
		return 1
	case scope == rlc.ScopeZone:
		return max(p.Zone, 1)
	case scope == rlc.ScopeRegion:
		return max(p.Region, 1)
	}
	return max(p.Global, 1)
}

// local is what stands in for a stage of the shared store: counters of this
// process, each at the part of its limit that this enforcer may use.
type local struct {
	shares []float64 // of the stage's parts
	set    Set
}

// fall decides for a store that does not answer, as each bucket's on_failure
// says: closed refuses; local holds the key to max(an equal share, 1.5 × its
// own admitted rate of the last minute), and to no more than the limit; open
// holds it to the whole limit in this process, for open is bounded too.
func (e *Enforcer) fall(w *world, st *stage, at instant, n int64, why reason, v *verdict) (Set, gcra.Tally) {
	v.reason = why
	var few [8]float64
	shares := few[:0]
	var t gcra.Tally
	for i, j := range st.parts {
		p := &w.parts[j]
		v.fell |= 1 << j
		share := 1.0
		switch p.bucket.OnFailure {
		case rlc.FailClosed:
			t.Add(i, gcra.Verdict{Wait: retryClosed})
		case rlc.FailOpen:
		default:
			share = p.share(at.second, e.peers.Load().of(p.bucket.Scope))
		}
		shares = append(shares, share)
	}
	if t.Refused != 0 {
		v.closed = true
		return nil, t
	}
	l := st.local.Load()
	if l == nil || !slices.Equal(l.shares, shares) {
		cs := slices.Clone(st.charges)
		for i := range cs {
			cs[i].Limit = scaled(&w.parts[st.parts[i]], cs[i].Limit, shares[i])
		}
		l = &local{shares: slices.Clone(shares), set: e.local.Set(cs)}
		st.local.Store(l)
	}
	t, _ = l.set.Take(context.Background(), at.micros, n)
	return l.set, t
}

// share is the part of a limit, between 0 and 1, that this enforcer may use
// while the store is away.
func (p *part) share(second int64, peers int) float64 {
	share := 1 / float64(peers)
	if p.meter != nil && p.limit.Rate > 0 {
		share = max(share, 1.5*p.meter.fail(second)/float64(p.limit.Rate))
	}
	return min(share, 1)
}

// meter measures what was admitted of one key in the last minute. A route's
// decisions add to it without a lock.
type meter struct {
	born   int64         // second
	now    atomic.Uint64 // a minute since 1970 in its upper 24 bits, tokens admitted in it below
	before atomic.Uint64 // the same of a minute before that
	used   atomic.Bool   // a route holds it: for the sweep

	mu     sync.Mutex
	failed int64   // second of the last failure
	frozen float64 // rate when the failures began
}

const (
	meterBits = 40
	meterMask = 1<<meterBits - 1
	meterMost = 1 << 30 // tokens of one request, so that many at once cannot overflow
)

// add counts n tokens admitted at second.
func (m *meter) add(second, n int64) {
	minute, n := uint64(second/60)&(1<<24-1), min(n, meterMost)
	for {
		v := m.now.Load()
		switch {
		case v>>meterBits == minute:
			if v&meterMask < meterMask/2 {
				m.now.Add(uint64(n))
			}
			return
		case m.now.CompareAndSwap(v, minute<<meterBits|uint64(n)):
			m.before.Store(v)
			return
		}
	}
}

// rate is what was admitted in the minute before second, in tokens per second:
// the last clock minute counts for as much as of it lies in there. A younger
// meter is judged by its age, of at least 10 s.
func (m *meter) rate(second int64) float64 {
	minute := uint64(second/60) & (1<<24 - 1)
	into := float64(second%60) / 60
	now, before := m.now.Load(), m.before.Load()
	var n float64
	switch now >> meterBits {
	case minute:
		n = float64(now & meterMask)
		if before>>meterBits == minute-1 {
			n += float64(before&meterMask) * (1 - into)
		}
	case minute - 1:
		n = float64(now&meterMask) * (1 - into)
	}
	return n / float64(min(max(second-m.born, 10), 60))
}

// fail says that the store did not answer for this key, and returns the rate
// that was admitted before it stopped answering. While it goes on failing at
// least once a minute that rate stands: what the local limit admits must not
// raise the local limit.
func (m *meter) fail(second int64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == 0 || second-m.failed >= 60 {
		m.frozen = m.rate(second)
	}
	m.failed = max(m.failed, second)
	return m.frozen
}

// idle reports whether nothing would be lost with the meter.
func (m *meter) idle(second int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return second-m.failed >= 60 && m.rate(second) == 0
}

// meters are those of the keys whose counters live in the shared store, at most
// max. A key beyond that has none: it gets an equal share.
type meters struct {
	mu  sync.Mutex
	max int
	set map[string]*meter // by bucket's space, NUL, key
}

// get finds or makes a key's meter, nil where there is no room.
func (ms *meters) get(space, key string, second int64) *meter {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	id := space + "\x00" + key
	m := ms.set[id]
	if m == nil && len(ms.set) < ms.max {
		if ms.set == nil {
			ms.set = map[string]*meter{}
		}
		m = &meter{born: second}
		ms.set[id] = m
	}
	if m != nil {
		m.used.Store(true)
	}
	return m
}

// sweep takes away idle meters that no cached route holds: visit is called
// with a function that marks the ones that are held.
func (ms *meters) sweep(second int64, visit func(mark func(*meter))) {
	ms.mu.Lock()
	for _, m := range ms.set {
		m.used.Store(false)
	}
	ms.mu.Unlock()
	visit(func(m *meter) { m.used.Store(true) })
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for id, m := range ms.set {
		if !m.used.Load() && m.idle(second) {
			delete(ms.set, id)
		}
	}
}
