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
	// ten seconds; empty means those heard within the first 1.5 s.
	Zones []string
	// ReleaseAfter frees the share of a silent zone. 0 keeps it for ever: a zone
	// that is cut off goes on using it, so that the total stays within the
	// limit, and the price is the unused share of a zone that is truly dead.
	ReleaseAfter time.Duration
}

// Order is what one zone is to be told.
type Order struct {
	Place
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
	zones    map[Place]*zone
	order    []*zone
	tier     tier
}

type zone struct {
	Place
	epoch, seq uint64
	seen       time.Duration
	told       time.Duration
	flows      map[string]*flow
	parts      map[string]*part // by bucket
	keeps      map[string]Keep  // decided in the zone
}

// NewController makes a controller that has heard nothing.
func NewController(c ControllerConfig) *Controller {
	return &Controller{config: c, zones: map[Place]*zone{}}
}

func (c *Controller) begin(now time.Duration) {
	if !c.started {
		c.started, c.start, c.reviewed = true, now, now
	}
}

// Sum takes a zone's sum that came at now.
func (c *Controller) Sum(s Sum, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(now)
	z := c.zones[s.Place]
	if z != nil && now-z.seen <= TTL && !after(s.Epoch, s.Seq, z.epoch, z.seq) {
		c.late++
		return
	}
	if s.Leaving {
		if z != nil {
			c.drop(z)
		}
		return
	}
	if z == nil {
		z = &zone{Place: s.Place, flows: map[string]*flow{}, parts: map[string]*part{}, keeps: map[string]Keep{}, told: now - time.Second}
		c.zones[s.Place] = z
		c.order = append(c.order, z)
	}
	if s.Epoch != z.epoch {
		// A new aggregator names all it knows; what it does not name is gone.
		for _, f := range z.flows {
			f.offered, f.nodes, f.doubted = [Classes]float64{}, 0, 0
			clear(f.dropped)
		}
	}
	z.epoch, z.seq, z.seen = s.Epoch, s.Seq, now
	for _, k := range s.Keeps {
		z.keeps[k.Bucket] = saneKeep(k.Keep)
	}
	for i := range s.Paths {
		c.load(z, &s.Paths[i])
	}
}

func (c *Controller) load(z *zone, p *PathSum) {
	if len(p.Path) == 0 || len(p.Path) > MaxPath || len(p.Dropped) != len(p.Path) {
		c.late++
		return
	}
	key := p.Path.Join()
	f := z.flows[key]
	if f == nil {
		f = &flow{path: slices.Clone(p.Path), dropped: make([]float64, len(p.Path))}
		c.link(z, f)
		z.flows[key] = f
		c.tier.add(f)
	}
	f.nodes, f.doubted = max(p.Nodes, 0), sane(p.Doubted)
	for i := range p.Offered {
		f.offered[i] = sane(p.Offered[i])
	}
	for i := range p.Dropped {
		f.dropped[i] = sane(p.Dropped[i])
	}
}

// link builds a flow's chain.
func (c *Controller) link(z *zone, f *flow) {
	f.chain = f.chain[:0]
	for _, bucket := range f.path {
		p := z.parts[bucket]
		if p == nil {
			p = &part{cell: c.cell(z, bucket)}
			p.cell.parts = append(p.cell.parts, p)
			z.parts[bucket] = p
		}
		f.chain = append(f.chain, p)
	}
}

// cell is a bucket's counter for a zone, under its scope.
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
	k.limit, k.scope = sane(s.Rate), s.Scope
	k.decide = ok && s.Scope != Zone
	k.none = !ok
	if made && !c.speaking {
		// After a start nothing is known of what was admitted before.
		k.law.Restart(c.start)
	}
	return k
}

// drop removes a zone and frees its share.
func (c *Controller) drop(z *zone) {
	gone := map[*flow]bool{}
	for _, f := range z.flows {
		gone[f] = true
	}
	delete(c.zones, z.Place)
	c.order = slices.DeleteFunc(c.order, func(o *zone) bool { return o == z })
	c.tier.keepFlows(func(f *flow) bool { return !gone[f] })
}

// review asks for the limits again. Where one went to another scope the cells
// are built anew.
func (c *Controller) review(now time.Duration) {
	if now-c.reviewed < reviewEvery {
		return
	}
	c.reviewed = now
	if c.config.ReleaseAfter > 0 {
		for _, z := range slices.Clone(c.order) {
			if now-z.seen > c.config.ReleaseAfter {
				c.drop(z)
			}
		}
	}
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
			if p := z.parts[bucket]; p != nil && p.cell.scope == Zone && !p.cell.none {
				p.cell.keep = k
			}
		}
	}
	c.tier.step(now)

	repeat := now-c.repeated >= repeatEvery
	if repeat {
		c.repeated = now
	}
	say := map[*zone][]Directive{}
	for _, k := range c.tier.order {
		if !k.due(k.law.Hot(now), repeat) {
			continue
		}
		for _, z := range c.order {
			if p := z.parts[k.bucket]; p != nil && p.cell == k {
				say[z] = append(say[z], k.directive(p, now))
			}
		}
	}
	for _, z := range c.order {
		if len(say[z]) == 0 && now-z.told < time.Second {
			continue
		}
		z.told = now
		c.seq++
		orders = append(orders, Order{z.Place, Directives{Epoch: c.config.Epoch, Seq: c.seq, List: say[z]}})
	}
	return orders
}

// directive is the word on a cell to the zone of p.
func (k *cell) directive(p *part, now time.Duration) Directive {
	d := Directive{Bucket: k.bucket, Scope: k.scope, Limit: k.limit, None: k.none, Decide: k.scope == Zone && !k.none,
		Hot: k.law.Hot(now), Keep: k.keep, Nodes: k.nodes, Load: total(k.offered), Spare: k.spare(p)}
	switch {
	case k.admitted > 0:
		d.Share = p.admitted / k.admitted
	case len(k.parts) > 0:
		d.Share = 1 / float64(len(k.parts))
	}
	return d
}

// learned reports whether a new controller knows enough to speak.
func (c *Controller) learned(now time.Duration) bool {
	switch past := now - c.start; {
	case len(c.order) == 0 || past < learnAtLeast:
		return false
	case past >= learnAtMost:
		return true
	}
	for _, name := range c.config.Zones {
		if !slices.ContainsFunc(c.order, func(z *zone) bool { return z.Zone == name }) {
			return false
		}
	}
	return true
}

// BucketState is one bucket as the controller sees it.
type BucketState struct {
	Bucket   string
	Area     Place // what its scope leaves empty is empty
	Scope    Scope
	Limit    float64 // requests/s; meaningless where None
	None     bool
	Offered  [Classes]float64 // requests/s, after the buckets inside it
	Admitted float64
	Keep     Keep
	Nodes    int
	Zones    int
	Peak     float64 // highest load of the last closed minute, requests/s
}

// ZoneState is one zone as the controller sees it.
type ZoneState struct {
	Place
	Age time.Duration // since its last sum
}

// State lists buckets and zones, in the order they appeared.
func (c *Controller) State(now time.Duration) (buckets []BucketState, zones []ZoneState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.tier.order {
		buckets = append(buckets, BucketState{Bucket: k.bucket, Area: k.area, Scope: k.scope, Limit: k.limit, None: k.none,
			Offered: k.offered, Admitted: k.admitted, Keep: k.keep, Nodes: k.nodes, Zones: len(k.parts), Peak: k.peak.closed})
	}
	for _, z := range c.order {
		zones = append(zones, ZoneState{z.Place, now - z.seen})
	}
	return buckets, zones
}

// Late is how many sums came late, twice or damaged.
func (c *Controller) Late() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}
