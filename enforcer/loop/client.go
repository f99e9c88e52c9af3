package loop

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The client's times.
const (
	// ClientTick is how often a client looks whether to report; each client at a
	// phase of its own.
	ClientTick = 100 * time.Millisecond

	slowReport   = time.Second
	fastReport   = 250 * time.Millisecond
	surpriseHot  = 2 * time.Second // reports fast after it saw a jump by itself
	surpriseOver = 4               // deviations
	surpriseMore = 2               // requests
	parkAfter    = 10 * time.Minute
	aloneAfter   = 2 * time.Second // without a word on a path
)

// ClientConfig is what a client is built from.
type ClientConfig struct {
	Node    string // unique in the zone; required for reports
	Stripes int    // counters per count of a busy handle, a power of two; 0: as many as there are processors, at most 8
	// MaxHandles bounds the paths that are counted; 0 means 100,000. Handles
	// beyond it admit everything and are not reported.
	MaxHandles int
}

// Client is the loop's end in a data plane: handles for the requests, reports
// up, directives down. It is safe for use by many goroutines.
type Client struct {
	node       string
	stripes    int
	maxHandles int
	untracked  atomic.Uint64

	mu          sync.Mutex
	handles     map[string]*Handle
	order       []*Handle // in the order they were made; parked ones are taken out
	buckets     map[string]*bucket
	incarnation uint64
	seq         uint64
	epoch, said uint64        // stamp of the directives in force
	heard       time.Duration // when any came; meaningful while talking
	since       time.Duration // since when they have come without a silence of TTL
	talking     bool          // something was ever heard
	peers       int           // see SetPeers
	now         time.Duration // of the last call that had a time
}

// NewClient makes a client without handles. It forwards everything until
// directives come.
func NewClient(c ClientConfig) *Client {
	if c.Stripes <= 0 {
		c.Stripes = min(runtime.GOMAXPROCS(0), 8)
	}
	for c.Stripes&(c.Stripes-1) != 0 {
		c.Stripes++
	}
	if c.MaxHandles <= 0 {
		c.MaxHandles = 100_000
	}
	return &Client{node: c.Node, stripes: c.Stripes, maxHandles: c.MaxHandles,
		handles: map[string]*Handle{}, buckets: map[string]*bucket{}}
}

// Handle finds or makes the handle of a path. Hold it: finding takes a lock.
func (c *Client) Handle(p Path) *Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := p.Join()
	if h := c.handles[key]; h != nil {
		return h
	}
	p = slices.Clone(p)
	if len(c.handles) >= c.maxHandles || len(p) > MaxPath {
		c.untracked.Add(1)
		h := newHandle(c, p, &[]*bucket{})
		h.set()
		return h
	}
	h := newHandle(c, p, c.chain(p))
	c.handles[key] = h
	c.enlist(h)
	return h
}

// Find finds the handle of a path, nil where nobody has asked for it.
func (c *Client) Find(p Path) *Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handles[p.Join()]
}

// chain finds or makes the buckets of a path. The caller holds mu.
func (c *Client) chain(p Path) *[]*bucket {
	chain := make([]*bucket, len(p))
	for i, name := range p {
		b := c.buckets[name]
		if b == nil {
			b = newBucket(name)
			c.buckets[name] = b
		}
		chain[i] = b
	}
	return &chain
}

// enlist makes a handle part of reports. The caller holds mu.
func (c *Client) enlist(h *Handle) {
	for _, b := range h.buckets() {
		b.handles = append(b.handles, h)
	}
	c.order = append(c.order, h)
	h.parked.Store(false)
	h.report.begin(c.now, h)
	h.set()
}

// unpark brings a handle back that was idle for long.
func (c *Client) unpark(h *Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !h.parked.Load() {
		return
	}
	key := h.path.Join()
	if other := c.handles[key]; other != nil && other != h {
		return // somebody made a new one meanwhile; this one keeps deciding, uncounted
	}
	c.handles[key] = h
	h.chain.Store(c.chain(h.path))
	c.enlist(h)
}

// Untracked is how many handles were asked for beyond the bound.
func (c *Client) Untracked() uint64 { return c.untracked.Load() }

// ClientState is what a client hears of the loop.
type ClientState struct {
	Talking bool          // something was ever heard
	Silent  time.Duration // since anything was heard
	Buckets int           // that are counted
	Local   int           // of them, held to this node's own share of the limit
}

// State is what is heard, as of the last tick.
func (c *Client) State() ClientState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := ClientState{Talking: c.talking, Buckets: len(c.buckets)}
	if c.talking {
		s.Silent = c.now - c.heard
	}
	for _, b := range c.buckets {
		if b.local.on.Load() {
			s.Local++
		}
	}
	return s
}

// Connect begins an incarnation: counts of the reports to come start from the
// last report, and Seq from 1. Call it when a stream to an aggregator opens.
func (c *Client) Connect(incarnation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incarnation, c.seq = incarnation, 0
	for _, h := range c.order {
		h.report.rebase(c.now)
	}
}

// Tick is to be called every ClientTick. It returns what to report, if
// anything is due, and puts buckets whose directives have run out on their
// local share.
func (c *Client) Tick(now time.Duration) (r Report, send bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, now)
	any, heads := false, c.peers
	for _, b := range c.buckets {
		b.rate = 0
		heads = max(heads, b.directive.Nodes)
	}
	for _, h := range c.order {
		h.report.count(now, h)
		if h.report.rate > busy && c.stripes > 1 && h.wide.Load() == nil {
			h.widen(c.stripes)
		}
		for _, b := range h.buckets() {
			b.rate += h.report.rate
		}
		any = any || h.report.due
		h.stand(now, heads)
	}
	c.expire(now)
	if any {
		r = Report{Node: c.node, Incarnation: c.incarnation, Seq: c.seq + 1, At: now}
		for _, h := range c.order {
			if entry, ok := h.report.take(now, h); ok {
				r.Paths = append(r.Paths, entry)
			}
		}
		c.seq++
	}
	c.park(now)
	return r, any
}

// SetPeers says how many nodes there are, this one included, for the time when
// no directive says it: whoever refuses to direct this one tells. 0 is unknown.
func (c *Client) SetPeers(n int) {
	c.mu.Lock()
	c.peers = n
	c.mu.Unlock()
}

// stand notes whether the path is on its own, among so many heads.
func (h *Handle) stand(now time.Duration, heads int) {
	alone := 0
	if now-h.report.began >= aloneAfter && slices.ContainsFunc(h.buckets(), func(b *bucket) bool { return !b.told }) {
		alone = max(heads, 1)
	}
	h.heads.Store(int64(alone))
}

// park takes handles out that were idle for long.
func (c *Client) park(now time.Duration) {
	parked := false
	c.order = slices.DeleteFunc(c.order, func(h *Handle) bool {
		if now-h.report.active < parkAfter {
			return false
		}
		delete(c.handles, h.path.Join())
		h.parked.Store(true)
		h.set()
		parked = true
		return true
	})
	if !parked {
		return
	}
	for name, b := range c.buckets {
		b.handles = slices.DeleteFunc(b.handles, func(h *Handle) bool { return h.parked.Load() })
		if len(b.handles) == 0 {
			delete(c.buckets, name)
		}
	}
}

// Apply puts directives in force that came at now. Late and repeated ones are
// ignored.
func (c *Client) Apply(d Directives, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, now)
	if c.talking && now-c.heard <= TTL && !after(d.Epoch, d.Seq, c.epoch, c.said) {
		return
	}
	silent := c.talking && now-c.heard > TTL
	if silent || !c.talking {
		c.since = now
	}
	c.epoch, c.said, c.heard, c.talking, c.peers = d.Epoch, d.Seq, now, true, 0
	for _, v := range d.List {
		b := c.buckets[v.Bucket]
		if b == nil {
			continue
		}
		v.Keep = saneKeep(v.Keep)
		b.directive, b.heard, b.known, b.told = v, now, !v.None, true
		if v.None {
			v.Keep = keepAll
		}
		b.setKeep(v.Keep)
		b.room = int64(max(0, sane(v.Limit)-sane(v.Load)))
		b.local.on.Store(false)
		for _, h := range b.handles {
			h.set()
		}
	}
	if silent {
		c.expire(now)
	}
}

// expire puts every bucket on its local share once nothing at all was heard for
// TTL. There it stays until it is heard of again. A bucket that was not
// mentioned for TTL while others were has no limit any more and forwards.
func (c *Client) expire(now time.Duration) {
	silent := c.talking && now-c.heard > TTL
	for _, b := range c.buckets {
		if !b.known {
			continue
		}
		was := b.local.on.Load()
		switch forgotten := c.heard-max(b.heard, c.since) > TTL; {
		case forgotten && !silent:
			b.known = false
			b.setKeep(keepAll)
			b.local.on.Store(false)
		case silent || was:
			b.local.fill(now, b.localRate())
		}
		if b.local.on.Load() != was || !b.known {
			for _, h := range b.handles {
				h.set()
			}
		}
	}
}

// localRate is this node's part of the limit: half by head, half by its part of
// the load that was last known.
func (b *bucket) localRate() float64 {
	d := b.directive
	nodes, part := float64(max(d.Nodes, 1)), 0.0
	if d.Load > 0 {
		part = min(b.rate/d.Load, 1)
	}
	return sane(d.Limit) * (0.5/nodes + 0.5*part)
}

// reporting is what a handle remembers between reports. The client's lock
// guards it.
type reporting struct {
	offered [Classes]uint64 // read at the last tick
	dropped []uint64
	base    [Classes]uint64 // at the start of the incarnation
	baseOf  []uint64        // dropped, at the start of the incarnation

	last     time.Duration // when it was reported, or began
	lastOf   uint64        // total offered then
	rate     float64       // over the trailing second, requests/s
	ref      float64       // rate when it was last reported
	began    time.Duration
	active   time.Duration // when it last had a request
	zero     bool          // the last report said that nothing came
	reported bool
	hotUntil time.Duration
	due      bool
	ring     [int(time.Second / ClientTick)]uint64 // total offered at the last ticks
	next     int
}

func (r *reporting) begin(now time.Duration, h *Handle) {
	*r = reporting{dropped: make([]uint64, len(h.path)), last: now, began: now, active: now, zero: true}
	h.read(&r.offered, r.dropped)
	r.baseOf = slices.Clone(r.dropped)
	r.base = r.offered
	// A request that was counted before the handle was enlisted is the reason
	// for enlisting it; the next reading finds what came since.
	r.lastOf = sum(r.offered)
	for i := range r.ring {
		r.ring[i] = r.lastOf
	}
}

// rebase makes the counts of reports start from the last reading.
func (r *reporting) rebase(now time.Duration) {
	r.base, r.baseOf = r.offered, slices.Clone(r.dropped)
	r.reported, r.zero = false, true
	r.last, r.lastOf = now, sum(r.offered)
}

// count reads the handle and decides whether a report is due.
func (r *reporting) count(now time.Duration, h *Handle) {
	h.read(&r.offered, r.dropped)
	sofar := sum(r.offered)
	if sofar != r.ring[(r.next+len(r.ring)-1)%len(r.ring)] {
		r.active = now
	}
	n := float64(sofar - r.lastOf)
	since := (now - r.last).Seconds()
	slow := now >= r.hotUntil
	for _, b := range h.buckets() {
		slow = slow && !b.hot()
	}
	period := fastReport
	if slow {
		period = slowReport
	}
	r.due = false
	switch {
	case !r.reported:
		if r.due = n > 0; !r.due {
			r.last = now
		}
	case now-r.last >= period:
		// Intervals follow one another whether or not something comes: one that
		// began with a request would count too much, and a fleet that idles by
		// half would swing.
		if r.due = n > 0 || !r.zero; !r.due {
			r.last, r.ref = now, r.rate
		}
	case slow:
		expected := r.ref * since
		if math.Abs(n-expected) > surpriseOver*math.Sqrt(expected*(1+since)+1)+surpriseMore {
			r.due = true
			r.hotUntil = now + surpriseHot
		}
	}
	if span := min(now-r.began, time.Second).Seconds(); span > 0 {
		r.rate = float64(sofar-r.ring[r.next]) / span
	}
	r.ring[r.next] = sofar
	r.next = (r.next + 1) % len(r.ring)
}

// take is the handle's part of the report that is sent now: it joins when it is
// due, or nearly so.
func (r *reporting) take(now time.Duration, h *Handle) (PathReport, bool) {
	since := now - r.last
	half := slowReport / 2
	if now < r.hotUntil {
		half = fastReport / 2
	}
	if n := sum(r.offered) - r.lastOf; !r.due && (since < half || n == 0 && r.zero) {
		return PathReport{}, false
	}
	sofar := sum(r.offered)
	out := PathReport{Path: h.path, Since: since, Dropped: make([]uint64, len(r.dropped))}
	for c := range r.offered {
		out.Offered[c] = r.offered[c] - r.base[c]
	}
	for i := range r.dropped {
		out.Dropped[i] = r.dropped[i] - r.baseOf[i]
	}
	if !r.reported {
		// The first interval is short; the next report corrects it soon.
		r.hotUntil = max(r.hotUntil, now+fastReport)
	}
	r.zero = sofar == r.lastOf
	r.last, r.lastOf, r.ref, r.reported = now, sofar, r.rate, true
	return out, true
}

func sum(perClass [Classes]uint64) (n uint64) {
	for _, v := range perClass {
		n += v
	}
	return n
}
