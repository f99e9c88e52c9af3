package loop

import (
	"math"
	"slices"
	"sync"
	"time"
)

// The aggregator's times.
const (
	// AggregatorTick is how often an aggregator works, ControllerTick a controller.
	AggregatorTick = tick
	ControllerTick = tick

	nodeSilent    = 2500 * time.Millisecond // then its load is gone
	forgetAfter   = parkAfter + time.Minute // longer than a client goes on counting an idle path
	reportTooOld  = 5 * time.Second
	sumEvery      = 250 * time.Millisecond
	sumQuiet      = 1600 * time.Millisecond // after a start
	zeroSumsFor   = 3 * time.Second         // how long a path that fell to zero is still named
	closeAfter    = 2 * time.Second         // of the controller's silence
	sweepEvery    = 250 * time.Millisecond
	shortestSpan  = 50 * time.Millisecond // between two reports
	longestFirst  = 10 * time.Second
	clockDrift    = 1e-3 // of a node's clock, that its age is judged with
	clipRoom      = 0.97 // of the limit; below it a claim moves no ratio
	clipMost      = 20.0 // × the mean of the others
	clipShare     = 0.03 // of the whole, for one node
	clipOfLimit   = 0.01
	clipRequests  = 10
	clipChance    = 4.0  // deviations
	maxClaim      = 1e11 // requests/s; rlc.MaxRate
	flagFor       = time.Minute
	milliRequests = 1000 // rates are summed as integers, so that sums do not drift
)

// MaxFlagged bounds the nodes that are named because their claims were not
// believed.
const MaxFlagged = 20

// AggregatorConfig is what an aggregator is built from.
type AggregatorConfig struct {
	Source        // where it runs; the name tells it from others in its zone
	Epoch  uint64 // grows with each start
	// Trusted names nodes whose claims are not compared with the others': one
	// that carries most of a small fleet's load. "a" is also "a/1": all of a host,
	// or of a certificate.
	Trusted []string
	// MaxPaths bounds what is summed; 0 means 200,000. Paths beyond it are
	// counted as refused and run without directives.
	MaxPaths int
}

// AggregatorStats are counts since the start, and the present state.
type AggregatorStats struct {
	Nodes, Paths               int
	Reports, Late, Clipped     uint64
	Invalid, Refused           uint64
	Closed                     bool     // the controller is silent: decided here
	Informed                   bool     // a controller was heard since the start
	ClippedNodes               []string // within the last minute, at most MaxFlagged
	ControllerEpoch, SumsSoFar uint64
}

// Aggregator sums the reports of one zone and passes directives on. While the
// controller is silent it closes the loop on the zone's share. It is safe for
// use by many goroutines.
type Aggregator struct {
	config AggregatorConfig

	mu      sync.Mutex
	started bool
	start   time.Duration
	swept   time.Duration
	live    int // nodes that were heard lately
	nodes   map[string]*node
	order   []*node
	paths   map[string]*zonePath
	list    []*zonePath
	tier    tier
	above   above
	taken   map[Origin]int      // live nodes that came over from another aggregator
	doubted map[string]struct{} // nodes with a claim that is not believed now
	seq     uint64              // of directives
	sums    uint64
	spoke   time.Duration // when all clients were last told anything
	passed  time.Duration // when they were last told everything

	summed time.Duration
	stats  AggregatorStats
}

// zonePath is one path's sum over the nodes.
type zonePath struct {
	flow
	rate  [Classes]int64
	drops []int64
	doubt int64
	live  int // nodes whose load on it counts
	known int // nodes that have reported it and are not forgotten

	counted counted
	said    counted // what of it was told
	telling telling
}

// NewAggregator makes an aggregator that has heard nothing.
func NewAggregator(c AggregatorConfig) *Aggregator {
	if c.MaxPaths <= 0 {
		c.MaxPaths = 200_000
	}
	return &Aggregator{config: c, nodes: map[string]*node{}, paths: map[string]*zonePath{}, taken: map[Origin]int{}, doubted: map[string]struct{}{}, above: above{given: map[string]*given{}}}
}

func (a *Aggregator) begin(now time.Duration) {
	if !a.started {
		a.started, a.start, a.swept = true, now, now
	}
}

// Report takes a node's report that arrived at now. Of r it keeps the paths,
// which must not be changed; a node that hands in the very same ones each time is
// served fastest. The answer is what the node is to be told at once: the
// directives of paths that it reports for the first time, or whose claim before
// was not believed. An empty answer needs no sending.
func (a *Aggregator) Report(r Report, now time.Duration) (answer Directives) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(now)
	a.stats.Reports++
	n := a.nodes[r.Node]
	if n == nil || r.Incarnation > n.incarnation {
		if n != nil {
			a.remove(n)
		}
		n = &node{name: r.Node, incarnation: r.Incarnation, from: r.From, paths: map[*zonePath]*nodePath{}, offset: now - r.At, arrived: now, check: math.MaxInt64, trusted: a.trusts(r.Node)}
		a.nodes[r.Node] = n
		a.order = append(a.order, n)
		a.take(n)
	}
	if r.Incarnation < n.incarnation || r.Seq <= n.seq {
		a.stats.Late++
		return Directives{}
	}
	drift := time.Duration(clockDrift * float64(now-n.arrived))
	n.offset = min(n.offset+drift, now-r.At)
	if now-r.At-n.offset > reportTooOld {
		a.stats.Late++
		return Directives{}
	}
	whole := r.Seq == n.seq+1 // nothing was lost before it
	n.seq, n.arrived, n.next = r.Seq, now, 0
	var buckets []string
	for i := range r.Paths {
		tell, ok := a.entry(n, r.Paths[i:], r.At, now, whole)
		switch {
		case !ok:
			a.stats.Invalid++
		case tell:
			buckets = append(buckets, r.Paths[i].Path...)
		}
	}
	if len(buckets) == 0 {
		return Directives{}
	}
	slices.Sort(buckets)
	list := a.inForce(slices.Compact(buckets), now)
	if len(list) == 0 {
		return Directives{}
	}
	return a.scale(n, a.stamp(list))
}

// entry takes the first of the paths that are left of a report. It reports whether
// the node is to be told of its buckets at once.
func (a *Aggregator) entry(n *node, list []PathReport, at, now time.Duration, whole bool) (tell, ok bool) {
	e := &list[0]
	if len(e.Path) == 0 || len(e.Path) > MaxPath || len(e.Dropped) != len(e.Path) {
		return false, false
	}
	np := n.expect(e.Path)
	if np == nil {
		if np, tell = a.meet(n, list, at); np == nil {
			return false, true
		}
	}
	if !np.live {
		np.live = true
		np.path.live++
		n.check = min(n.check, now+nodeSilent)
	}
	// What came since the report before came within Since: a path that is idle
	// lets its interval begin anew.
	between := at - np.at
	if whole && e.Since > 0 {
		between = min(between, e.Since)
	}
	span := max(between, shortestSpan).Seconds()
	claim := 0.0
	var perClass [Classes]float64
	for c := range perClass {
		if e.Offered[c] < np.offered[c] {
			return tell, false // counts never fall within an incarnation
		}
		perClass[c] = float64(e.Offered[c]-np.offered[c]) / span
		claim += perClass[c]
	}
	for i := range e.Dropped {
		if e.Dropped[i] < np.legs[i].dropped {
			return tell, false
		}
	}
	np.offered, np.at, np.seen = e.Offered, at, now

	doubted := np.believe < np.claim
	believed, flag := a.believe(n, np, claim, span)
	a.doubt(n, np, claim, believed)
	tell = tell || doubted
	if flag {
		a.stats.Clipped++
		n.clippedAt = now
	}
	part := 1.0
	if believed < claim {
		part = believed / claim
	}
	np.path.counted.add(claim*span*part, span)
	np.put(e, perClass, span, part)
	return tell, true
}

// put enters the believed part of a report into the sums.
func (np *nodePath) put(e *PathReport, perClass [Classes]float64, span, part float64) {
	// Unused limit is shared among doubted claims by their size. A broken one gets
	// what others leave of it.
	weight := min(np.claim, maxClaim) - np.believe
	if np.broken > 0 {
		weight = min(weight, np.broken)
	}
	np.setDoubt(int64(weight * milliRequests))
	for c := range perClass {
		v := int64(perClass[c] * part * milliRequests)
		np.path.rate[c] += v - np.rate[c]
		np.rate[c] = v
	}
	for i := range e.Dropped {
		l := &np.legs[i]
		dropped := float64(e.Dropped[i]-l.dropped) / span
		v := int64(min(dropped, np.claim) * part * milliRequests)
		np.path.drops[i] += v - l.rate
		*l = leg{e.Dropped[i], v}
	}
}

// path finds or makes a zone's path, or nil beyond the bound.
func (a *Aggregator) path(p Path) *zonePath {
	key := p.Join()
	zp := a.paths[key]
	if zp != nil {
		return zp
	}
	if len(a.paths) >= a.config.MaxPaths {
		return nil
	}
	zp = &zonePath{flow: flow{path: slices.Clone(p), dropped: make([]float64, len(p))}, drops: make([]int64, len(p))}
	for _, name := range p {
		c := a.tier.cellAt(cellName{bucket: name, area: a.config.Place})
		if len(c.parts) == 0 {
			c.parts = []*part{{cell: c, members: &a.live}}
			a.above.obey(c)
		}
		zp.chain = append(zp.chain, c.parts[0])
	}
	a.paths[key] = zp
	a.list = append(a.list, zp)
	a.tier.add(&zp.flow)
	return zp
}

// forget drops paths that nobody has reported for long.
func (a *Aggregator) forget(now time.Duration) {
	gone := map[*flow]bool{}
	a.list = slices.DeleteFunc(a.list, func(zp *zonePath) bool {
		if zp.known > 0 || !zp.telling.wasZero || now-zp.telling.zeroAt < forgetAfter+zeroSumsFor {
			return false
		}
		gone[&zp.flow] = true
		delete(a.paths, zp.path.Join())
		return true
	})
	if len(gone) == 0 {
		return
	}
	a.tier.keepFlows(func(f *flow) bool { return !gone[f] })
	for name := range a.above.given {
		if a.tier.cells[cellName{name, a.config.Place}] == nil {
			delete(a.above.given, name)
		}
	}
}

// Stats returns counts and state.
func (a *Aggregator) Stats(now time.Duration) AggregatorStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stats
	s.Nodes, s.Paths = a.live, len(a.paths)
	s.Informed, s.Closed = a.above.informed, a.above.silent(now)
	s.ControllerEpoch, s.SumsSoFar = a.above.epoch, a.sums
	return s
}
