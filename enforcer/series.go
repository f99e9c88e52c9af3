package enforcer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// The names that stand where there is no name.
const (
	// Unmatched is the bucket of requests that no quota bucket matches.
	Unmatched = "__unmatched__"
	// Other is the label of everything beyond a bound, and of services that
	// have no policy.
	Other = "__other__"
)

// The longest attribute values that are kept as they are, in bytes.
const (
	maxValue = quotafile.MaxValue // for matching and charging
	maxLabel = 256                // in metrics
)

// clip bounds a value: a longer one becomes its beginning and a hash of the
// whole, so that two stay two.
func clip(v string, most int) string {
	if len(v) <= most {
		return v
	}
	sum := sha256.Sum256([]byte(v))
	return v[:most-17] + "~" + hex.EncodeToString(sum[:8])
}

// label is v as a metric's label can hold it: bounded, and valid UTF-8.
func label(v string) string { return strings.ToValidUTF8(clip(v, maxLabel), "\uFFFD") }

// labels tell the series of a bucket apart. A label that the bucket's traffic
// does not depend on is empty.
type labels struct{ caller, procedure string }

func (l labels) compare(o labels) int {
	return cmp.Or(strings.Compare(l.caller, o.caller), strings.Compare(l.procedure, o.procedure))
}

// series counts the requests of one label set by outcome.
type series struct {
	labels
	peak
	ranked uint64 // total when the table was ranked last; the table's lock
}

func (s *series) count(o Outcome, second int64) { s.add(o.index(), second) }

func (s *series) total() (n uint64) {
	for _, of := range s.totals() {
		n += of
	}
	return n
}

// table holds a bucket's series: at most max label sets, and one for the rest.
type table struct {
	rest series

	mu   sync.RWMutex
	max  int
	set  map[labels]*series
	gone uint64 // what series have counted that lost their place
	free []cells
}

// total is how many requests the bucket has counted.
func (t *table) total() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := t.gone + t.rest.total()
	for _, s := range t.set {
		n += s.total()
	}
	return n
}

// get finds or makes the series of l, or gives the one for the rest.
func (t *table) get(l labels) *series {
	l = labels{label(l.caller), label(l.procedure)}
	t.mu.RLock()
	s := t.set[l]
	t.mu.RUnlock()
	if s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s = t.set[l]; s != nil {
		return s
	}
	if len(t.set) >= t.max || l == t.rest.labels {
		return &t.rest
	}
	if t.set == nil {
		t.set = map[labels]*series{}
	}
	s = t.make(l)
	t.set[l] = s
	return s
}

// make makes a series. The first ones of a bucket count each in a cache line of its
// own, so that processors which count busy callers do not wait for each other; of
// many, the counts stand close together. The caller holds the lock.
func (t *table) make(l labels) *series {
	if len(t.set) < 64 {
		return newSeries(l)
	}
	if len(t.free) == 0 {
		t.free = make([]cells, 64)
	}
	s := &series{labels: l, peak: peak{now: &t.free[0]}}
	t.free = t.free[1:]
	return s
}

func newSeries(l labels) *series { return &series{labels: l, peak: peak{now: newCells()}} }

// newCells are in a cache line of their own.
func newCells() *cells {
	line := new(struct {
		cells
		_ [64 - outcomes*8]byte
	})
	return &line.cells
}

// resize sets the bound. Series above it stay: a counter that vanishes and
// comes back is worse than a few too many until the next start.
func (t *table) resize(n int) {
	t.mu.Lock()
	t.max = n
	t.mu.Unlock()
}

// all lists the series in order of their labels; the one for the rest comes
// last, and only once it has counted something.
func (t *table) all() []*series {
	t.mu.RLock()
	out := make([]*series, 0, len(t.set)+1)
	for _, s := range t.set {
		out = append(out, s)
	}
	t.mu.RUnlock()
	slices.SortFunc(out, func(a, b *series) int { return a.compare(b.labels) })
	if t.rest.total() > 0 {
		out = append(out, &t.rest)
	}
	return out
}

// rank gives label sets that were busy among the rest since the last ranking a
// series of their own, in place of the least busy ones. A place changes hands
// only for more than twice the traffic, and at most a tenth of the places at a
// time, so that Prometheus sees a bounded number of new series. It reports
// whether any did.
func (t *table) rank(busy map[labels]uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	type ranked struct {
		series *series
		seen   uint64
	}
	have := make([]ranked, 0, len(t.set))
	for _, s := range t.set {
		n := s.total()
		have = append(have, ranked{s, n - s.ranked})
		s.ranked = n
	}
	if len(busy) == 0 {
		return false
	}
	slices.SortFunc(have, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.seen, b.seen), a.series.compare(b.series.labels))
	})
	want := make([]labels, 0, len(busy))
	for l := range busy {
		want = append(want, l)
	}
	slices.SortFunc(want, func(a, b labels) int { return cmp.Or(cmp.Compare(busy[b], busy[a]), a.compare(b)) })

	changed := false
	for i := range min(len(want), len(have), t.max/10+1) {
		if busy[want[i]] <= 2*have[i].seen {
			break
		}
		t.gone += have[i].series.total()
		delete(t.set, have[i].series.labels)
		t.set[want[i]] = newSeries(want[i])
		changed = true
	}
	return changed
}

// fallback says why a request was decided without a bucket.
type fallback int

const (
	byFull  fallback = iota // the bucket has no room for another counter
	byPanic                 // the bucket was turned off
	byLoop                  // the loop is silent
	byStore                 // the shared store did not answer: the first of Reasons

	fallbacks = byStore + reasons
)

func (f fallback) String() string {
	switch f {
	case byFull:
		return "counters_full"
	case byPanic:
		return "panic"
	case byLoop:
		return "loop"
	}
	return reason(f - byStore).String()
}

// counts is what one bucket has counted. It outlives snapshots, so that a
// counter only ever goes up.
type counts struct {
	service, bucket string
	role            rlc.Role
	table           table // of a quota bucket and of Unmatched
	outcomes        [outcomes]atomic.Uint64
	noQuota         atomic.Uint64
	fallbacks       [fallbacks]atomic.Uint64
	off             atomic.Bool // turned off by a panic, in the snapshot in force
	top             top         // who was refused most
}

func newCounts(service, bucket string, role rlc.Role) *counts {
	return &counts{service: service, bucket: bucket, role: role, table: table{rest: series{labels: labels{Other, Other}, peak: peak{now: newCells()}}}}
}

// cells count the newest second by outcome: the second in the upper half, its count in
// the lower.
type cells [outcomes]atomic.Uint64

// behind reports whether a second is a new one to the cell of an outcome. Each is
// asked for itself: turn goes from one to the next, in any order.
func (c *cells) behind(outcome int, second int64) bool {
	return int64(c[outcome].Load()>>32) < second
}

// peak counts requests by outcome, and finds the highest one-second count of
// each clock minute. A request costs one atomic step, for both.
type peak struct {
	now *cells

	mu                  sync.Mutex
	second              int64            // of all cells
	before              [outcomes]uint64 // counted in the seconds that are over
	minute, last        int64            // clock minutes since 1970
	highest, highInLast uint32
}

// add counts a request in its second (since 1970). A late one counts in the newest
// second.
func (p *peak) add(outcome int, second int64) {
	if p.now.behind(outcome, second) {
		p.turn(second)
	}
	p.now[outcome].Add(1)
}

// turn ends the second that was the newest, of all outcomes.
func (p *peak) turn(second int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.second
	if was >= second {
		return // somebody else was faster
	}
	p.second = second
	var n uint32
	for i := range p.now {
		counted := uint32(p.now[i].Swap(uint64(second) << 32))
		p.before[i] += uint64(counted)
		n += counted
	}
	switch minute := was / 60; {
	case minute > p.minute:
		p.last, p.highInLast = p.minute, p.highest
		p.minute, p.highest = minute, n
	case minute == p.minute:
		p.highest = max(p.highest, n)
	}
}

// totals is what was counted of each outcome.
func (p *peak) totals() (n [outcomes]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.now {
		n[i] = p.before[i] + uint64(uint32(p.now[i].Load()))
	}
	return n
}

// closed is the highest one-second count of the last clock minute that was
// over at second.
func (p *peak) closed(second int64) uint32 {
	want := second/60 - 1
	p.mu.Lock()
	defer p.mu.Unlock()
	var n uint32
	if p.second/60 == want {
		for i := range p.now {
			n += uint32(p.now[i].Load())
		}
	}
	if p.minute == want {
		n = max(n, p.highest)
	}
	if p.last == want {
		n = max(n, p.highInLast)
	}
	return n
}
