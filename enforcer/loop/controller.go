package loop

import (
	"slices"
	"sync"
	"time"
)

const (
	learnAtLeast = 1500 * time.Millisecond
	learnAtMost  = 10 * time.Second
	reviewEvery  = time.Second // limits are asked for again
)

// Setting is a bucket's limit in one place.
type Setting struct {
	Rate  float64 // requests/s, of the scope
	Scope Scope
}

// ControllerConfig is what a controller is built from.
type ControllerConfig struct {
	Epoch uint64 // grows with each start
	// Limits finds a bucket's limit in a place; false means that it has none.
	// Required. It is asked when a bucket first appears and each second again.
	Limits func(bucket string, at Place) (Setting, bool)
	// Zones are those that a new controller waits for before it speaks, at most
	// ten seconds; empty means those heard within the first 1.5 s. "z/a" is the
	// aggregator a of zone z.
	Zones []string
	// ReleaseAfter frees the share of a silent source. 0 keeps it for ever: a zone
	// that is cut off goes on using it, so that the total stays within the
	// limit, and the price is the unused share of a zone that is truly dead.
	ReleaseAfter time.Duration
	// Region and Parent make it the controller of a region: it decides what has
	// the scope of the region and passes on what another controller, to which it
	// is a source like a zone, decides for all regions.
	Region string
	Parent bool
	// Minute is how far into a clock minute the zero of its times is, for peaks.
	Minute time.Duration
	// MaxPaths bounds what is compared, over all sources; 0 means 1,000,000.
	// Paths beyond it count as late and run without directives.
	MaxPaths int
}

// Order is what one source is to be told.
type Order struct {
	Source
	Directives
}

// Controller compares the zones' sums with the limits. It is safe for use by
// many goroutines.
type Controller struct {
	config ControllerConfig

	mu       sync.Mutex
	started  bool
	start    time.Duration
	speaking bool
	reviewed time.Duration
	repeated time.Duration
	seq      uint64
	late     uint64
	clipped  uint64 // claims of sources that were not believed
	zones    map[Source]*zone
	order    []*zone
	tier     tier
	upward   *upward // nil without a parent
}

// zone is one source as the controller knows it.
type zone struct {
	Source
	epoch, seq uint64
	seen       time.Duration
	told       time.Duration
	flows      map[string]*flow
	parts      map[string]*part // by bucket
	keeps      map[string]Keep  // decided by the source

	flagged     []string
	clippedAt   time.Duration // when a claim of the source itself was last not believed; 0: never
	members     int           // nodes that reported to it
	taken       []Taken       // nodes that it has from others
	takenBefore int           // its nodes that others had when it last spoke
	left        float64       // part of its last sums that still counts
	claim       float64       // left while it is silent, else 0
}

// NewController makes a controller that has heard nothing.
func NewController(c ControllerConfig) *Controller {
	if c.MaxPaths <= 0 {
		c.MaxPaths = 1_000_000
	}
	k := &Controller{config: c, zones: map[Source]*zone{}}
	if c.Parent {
		k.upward = newUpward()
	}
	return k
}

func (c *Controller) begin(now time.Duration) {
	if !c.started {
		c.started, c.start, c.reviewed = true, now, now
	}
}

// Sum takes a source's sum that came at now.
func (c *Controller) Sum(s Sum, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(now)
	z := c.zones[s.Source]
	if z != nil && now-z.seen <= TTL && !after(s.Epoch, s.Seq, z.epoch, z.seq) {
		c.late++
		return
	}
	if s.Leaving {
		if z != nil {
			c.drop(z, now)
		}
		return
	}
	if z == nil {
		z = &zone{Source: s.Source, flows: map[string]*flow{}, parts: map[string]*part{}, keeps: map[string]Keep{}, told: now - time.Second}
		c.zones[s.Source] = z
		c.order = append(c.order, z)
		c.reassign(s.Place, now)
	}
	if s.Epoch != z.epoch {
		// A new aggregator names all it knows; what it does not name is gone.
		for _, f := range z.flows {
			f.said, f.nodes, f.saidDoubted, f.counted = [Classes]float64{}, 0, 0, counted{}
			clear(f.saidDropped)
		}
	}
	z.epoch, z.seq, z.seen = s.Epoch, s.Seq, now
	z.flagged = s.Flagged[:min(len(s.Flagged), MaxFlagged)]
	z.members, z.left, z.takenBefore = max(s.Members, 0), 1, c.takenFrom(z)
	for _, k := range s.Keeps {
		z.keeps[k.Bucket] = saneKeep(k.Keep)
	}
	loaded := make([]*flow, len(s.Paths))
	for i := range s.Paths {
		loaded[i] = c.load(z, &s.Paths[i], now)
	}
	c.believe(z, now)
	for i, f := range loaded {
		if f != nil {
			c.count(f, &s.Paths[i], now)
		}
	}
	c.hand(z, s.Taken)
}

// load enters what a source says of a path; nil where that is damaged or too much.
func (c *Controller) load(z *zone, p *PathSum, now time.Duration) *flow {
	key := p.Path.Join()
	f := z.flows[key]
	if len(p.Path) == 0 || len(p.Path) > MaxPath || len(p.Dropped) != len(p.Path) || f == nil && len(c.tier.flows) >= c.config.MaxPaths {
		c.late++
		return nil
	}
	if f == nil {
		f = &flow{path: slices.Clone(p.Path), dropped: make([]float64, len(p.Path)), saidDropped: make([]float64, len(p.Path)), busy: now}
		c.link(z, f)
		z.flows[key] = f
		c.tier.add(f)
		c.upward.add(key, f)
	}
	if total(p.Offered) > 0 || p.Doubted > 0 {
		f.busy = now
	}
	f.nodes, f.saidDoubted = max(p.Nodes, 0), sane(p.Doubted)
	for i := range p.Offered {
		f.said[i] = sane(p.Offered[i])
	}
	for i := range p.Dropped {
		f.saidDropped[i] = sane(p.Dropped[i])
	}
	return f
}

// count enters what a flow has counted since it last told into the peaks of its
// buckets, of an outer one what the inner ones leave.
func (c *Controller) count(f *flow, s *PathSum, now time.Duration) {
	told := counted{sane(s.Counted), sane(s.Spans)}
	fresh, trust := told.since(f.counted), f.trust()
	fresh.requests, fresh.spans = fresh.requests*trust, fresh.spans*trust
	offered := total(f.offered)
	if f.counted == (counted{}) && fresh.requests > offered*fresh.span() {
		// Its source counts for longer than this controller listens.
		fresh = counted{offered * fresh.span(), offered * fresh.span() * fresh.span()}
	}
	f.counted = told
	c.upward.count(s.Path.Join(), fresh)
	to := c.config.Minute + now
	from := to - time.Duration(fresh.span()*float64(time.Second))
	through := f.offered
	for i, p := range f.chain {
		if i > 0 {
			for class, k := range f.chain[i-1].cell.keep {
				through[class] *= k
			}
		}
		if offered > 0 {
			p.cell.peak.add(fresh.requests*total(through)/offered, from, to)
		} else {
			p.cell.peak.add(fresh.requests, from, to)
		}
	}
}

// link builds a flow's chain.
func (c *Controller) link(z *zone, f *flow) {
	f.chain = f.chain[:0]
	for _, bucket := range f.path {
		p := z.parts[bucket]
		if p == nil {
			p = &part{cell: c.cell(z, bucket), of: z.Place, claim: z.claim, members: &z.members}
			p.cell.parts = append(p.cell.parts, p)
			z.parts[bucket] = p
		}
		f.chain = append(f.chain, p)
	}
}

// cell is a bucket's counter for a source, under its scope.
func (c *Controller) cell(z *zone, bucket string) *cell {
	s, ok := c.config.Limits(bucket, z.Place)
	n := cellName{bucket: bucket}
	switch {
	case !ok || s.Scope == Zone:
		n.area = z.Place // one without a limit concerns nobody else
	case s.Scope == Region:
		n.area = Place{Region: z.Region}
	}
	made := c.tier.cells[n] == nil
	k := c.tier.cellAt(n)
	changed := k.scope != s.Scope || k.none == ok
	k.limit, k.scope, k.none = sane(s.Rate), s.Scope, !ok
	if made && !c.speaking {
		// After a start nothing is known of what was admitted before.
		k.law.Restart(c.start)
	}
	if made || changed {
		k.keep = keepAll
		c.assign(k, z)
	}
	return k
}

// assign says who decides a cell that z takes part in: those above, the source
// itself where it knows all of it, or the law here.
func (c *Controller) assign(k *cell, z *zone) {
	k.above = c.upward != nil && k.scope == Global && !k.none
	k.below = !k.none && (k.scope == Zone && !c.several(z.Place) || k.scope == Region && z.Zone == "")
	k.decide = !k.none && !k.above && !k.below
	if k.above {
		c.upward.obey(k)
	}
}

// reassign looks again who decides the cells of a place, after a source has
// come or gone.
func (c *Controller) reassign(at Place, now time.Duration) {
	for _, z := range c.order {
		if z.Place != at {
			continue
		}
		for _, p := range z.parts {
			if k := p.cell; k.scope == Zone && !k.none && k.below == c.several(at) {
				c.assign(k, z)
				k.law.Restart(now)
				k.everSent = false
				delete(z.keeps, k.bucket)
			}
		}
	}
}

// drop removes a source and frees its share.
func (c *Controller) drop(z *zone, now time.Duration) {
	gone := map[*flow]bool{}
	for _, f := range z.flows {
		gone[f] = true
	}
	delete(c.zones, z.Source)
	c.order = slices.DeleteFunc(c.order, func(o *zone) bool { return o == z })
	c.tier.keepFlows(func(f *flow) bool { return !gone[f] })
	c.reassign(z.Place, now)
}

// forget drops the sources whose share is free and the paths that nobody has
// used for long.
func (c *Controller) forget(now time.Duration) {
	for _, z := range slices.Clone(c.order) {
		silent := now - z.seen
		if c.config.ReleaseAfter > 0 && silent > c.config.ReleaseAfter || z.left == 0 && silent > TTL {
			c.drop(z, now)
		}
	}
	idle := map[*flow]bool{}
	for _, z := range c.order {
		for key, f := range z.flows {
			if total(f.said)+f.saidDoubted == 0 && now-f.busy > forgetAfter {
				idle[f] = true
				delete(z.flows, key)
			}
		}
	}
	if len(idle) > 0 {
		c.tier.keepFlows(func(f *flow) bool { return !idle[f] })
	}
	c.upward.forget(now)
}

// review asks for the limits again. Where one went to another scope the cells
// are built anew.
func (c *Controller) review(now time.Duration) {
	if now-c.reviewed < reviewEvery {
		return
	}
	c.reviewed = now
	c.forget(now)
	for _, z := range c.order {
		moved := false
		for bucket, p := range z.parts {
			if p.flows == 0 {
				delete(z.parts, bucket)
				continue
			}
			s, ok := c.config.Limits(bucket, z.Place)
			k := p.cell
			if s.Scope != k.scope || ok == k.none {
				moved = true
				continue
			}
			k.limit = sane(s.Rate)
		}
		if moved {
			c.relink(z)
		}
	}
}

// relink builds a zone's chains anew.
func (c *Controller) relink(z *zone) {
	for _, p := range z.parts {
		p.cell.parts = slices.DeleteFunc(p.cell.parts, func(o *part) bool { return o == p })
	}
	clear(z.parts)
	mine := map[*flow]bool{}
	for _, f := range z.flows {
		mine[f] = true
	}
	flows := slices.Clone(c.tier.flows)
	c.tier.keepFlows(func(f *flow) bool { return !mine[f] })
	for _, f := range flows { // in their order, so that a step does not depend on a map
		if mine[f] {
			c.link(z, f)
			f.gone = false
			c.tier.add(f)
		}
	}
}

// Tick is to be called every ControllerTick. It returns what each zone is to
// be told.
func (c *Controller) Tick(now time.Duration) (orders []Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(now)
	if !c.speaking && !c.learned(now) {
		return nil
	}
	c.speaking = true
	c.review(now)
	for _, z := range c.order {
		for bucket, k := range z.keeps {
			if p := z.parts[bucket]; p != nil && p.cell.below {
				p.cell.keep = k
			}
		}
	}
	c.claims(now)
	c.upward.settle(c.tier.order, now)
	c.tier.step(now)

	repeat := now-c.repeated >= repeatEvery
	if repeat {
		c.repeated = now
	}
	say := map[*zone][]Directive{}
	for _, k := range c.tier.order {
		if k.above && !c.upward.knows(k) || !k.due(c.hot(k, now), repeat) {
			continue
		}
		for _, z := range c.order {
			if p := z.parts[k.bucket]; p != nil && p.cell == k {
				say[z] = append(say[z], c.directive(k, p, z, now))
			}
		}
	}
	for _, z := range c.order {
		if len(say[z]) == 0 && now-z.told < time.Second {
			continue
		}
		z.told = now
		c.seq++
		orders = append(orders, Order{z.Source, Directives{Epoch: c.config.Epoch, Seq: c.seq, List: say[z]}})
	}
	return orders
}

// hot reports whether a cell's nodes are to report every 250 ms.
func (c *Controller) hot(k *cell, now time.Duration) bool {
	if k.above && !k.decide {
		return c.upward.given[k.bucket].Hot
	}
	return k.law.Hot(now)
}

// directive is the word on a cell to z, whose part p is.
func (c *Controller) directive(k *cell, p *part, z *zone, now time.Duration) Directive {
	d := Directive{Bucket: k.bucket, Scope: k.scope, Limit: k.limit, None: k.none, Decide: k.below,
		Hot: c.hot(k, now), Keep: k.keep, Nodes: k.nodes, Load: total(k.offered), Spare: k.spare(p)}
	// One that is not heard may not hear: what it was told before stands.
	if p.share == 0 || now-z.seen <= 2*sumEvery {
		p.share = 1 / float64(len(k.parts))
		if k.admitted > 0 {
			p.share = p.admitted / k.admitted
		}
	}
	d.Share = p.share
	if k.above && !k.decide {
		// A part of the region's part of the whole.
		g := c.upward.given[k.bucket]
		d.None, d.Limit, d.Nodes, d.Load = g.None, g.Limit, g.Nodes, g.Load
		d.Share *= g.Share
		d.Spare = 0
		if k.doubted > 0 {
			d.Spare = g.Spare * p.doubted / k.doubted
		}
	}
	p.scale(&d)
	return d
}

// learned reports whether a new controller knows enough to speak. Below a
// parent that is away it says nothing: the zones go on with their own shares.
func (c *Controller) learned(now time.Duration) bool {
	return c.surveyed(now) && (c.upward == nil || c.upward.informed)
}

// surveyed reports whether a new controller has heard the zones.
func (c *Controller) surveyed(now time.Duration) bool {
	switch past := now - c.start; {
	case len(c.order) == 0 || past < learnAtLeast:
		return false
	case past >= learnAtMost:
		return true
	}
	for _, name := range c.config.Zones {
		if !slices.ContainsFunc(c.order, func(z *zone) bool { return z.Zone == name || z.Zone+"/"+z.Name == name }) {
			return false
		}
	}
	return true
}
