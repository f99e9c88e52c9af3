package sim

import (
	"strconv"
	"time"

	"github.com/openrlc/rlc/enforcer/loop"
)

// loopFleet is package loop wired over messages that take their time.
type loopFleet struct {
	run     *Run
	paths   []loop.Path // by stream
	nodes   []*simNode
	zones   []*simZone    // every aggregator, those of a zone side by side
	regions []*simControl // the regions' controllers, if there are any
	control *simControl   // the one above all
}

type simNode struct {
	client  *loop.Client
	handles []*loop.Handle // by stream
	zone    *simZone
	from    loop.Origin
	phase   int
	skew    time.Duration
	running bool
	came    uint64 // incarnation
	line    line
	down    line
	lies    uint64
}

// simZone is one aggregator.
type simZone struct {
	source  loop.Source
	control *simControl
	agg     *loop.Aggregator
	phase   int
	dead    bool
	cut     bool // from the controller
	up      line
	down    line
	epoch   uint64
}

// simControl is one controller; a region's has the lines to the one above.
type simControl struct {
	region   string
	ctl      *loop.Controller
	phase    int
	dead     bool
	cut      bool // from the controller above
	epoch    uint64
	up, down line
}

// line keeps a stream's messages in order.
type line struct{ last time.Duration }

func newLoopFleet(r *Run) *loopFleet {
	f := &loopFleet{run: r}
	for _, s := range r.config.Streams {
		if s.Path == nil {
			s.Path = []string{Bucket}
		}
		f.paths = append(f.paths, s.Path)
	}
	f.addZones()
	f.control = &simControl{phase: r.phase(loop.ControllerTick)}
	for _, c := range append(f.regions, f.control) {
		f.startController(c)
	}
	per := max(r.config.PerZone, 1)
	for i := range r.config.Nodes {
		at := i%r.config.Zones*per + i/r.config.Zones%per
		n := &simNode{zone: f.zones[at], phase: r.phase(loop.ClientTick)}
		if r.config.Skew {
			n.skew = 5*time.Minute + time.Duration(r.rng.Int64N(int64(10*time.Minute))) - 5*time.Minute
		}
		f.nodes = append(f.nodes, n)
	}
	for _, z := range f.zones {
		if z.control == nil {
			z.control = f.control
		}
	}
	return f
}

// addZones makes the aggregators and, in turn over the zones, their regions.
func (f *loopFleet) addZones() {
	r := f.run
	for i := range r.config.Regions {
		f.regions = append(f.regions, &simControl{region: "region-" + strconv.Itoa(i), phase: r.phase(loop.ControllerTick)})
	}
	for z := range r.config.Zones {
		place := loop.Place{Zone: "zone-" + strconv.Itoa(z)}
		var above *simControl
		if len(f.regions) > 0 {
			above = f.regions[z%len(f.regions)]
			place.Region = above.region
		}
		for i := range max(r.config.PerZone, 1) {
			zone := &simZone{source: loop.Source{Place: place}, control: above, phase: r.phase(loop.AggregatorTick)}
			if r.config.PerZone > 1 {
				zone.source.Name = strconv.Itoa(i)
			}
			f.zones = append(f.zones, zone)
			f.startZone(zone)
		}
	}
}

func (f *loopFleet) startZone(z *simZone) {
	z.epoch++
	z.agg = loop.NewAggregator(loop.AggregatorConfig{Source: z.source, Epoch: z.epoch})
	z.dead = false
	for _, n := range f.nodes {
		if n.zone == z && n.running {
			n.came++
			n.client.Connect(n.came)
		}
	}
}

// killZone stops an aggregator. Where its zone has others its nodes go over to
// the next one, each after a pause of its own.
func (f *loopFleet) killZone(z *simZone) {
	z.dead = true
	var next *simZone
	for _, o := range f.zones {
		if o.source.Place == z.source.Place && !o.dead {
			next = o
		}
	}
	if next == nil {
		return
	}
	for _, n := range f.nodes {
		if n.zone != z || !n.running {
			continue
		}
		pause := time.Duration(f.run.rng.Int64N(int64(200 * time.Millisecond)))
		f.run.after(pause+f.run.delay(), func() {
			n.from, n.zone = loop.Origin{Name: z.source.Name, Epoch: z.epoch}, next
			n.came++
			n.client.Connect(n.came)
		})
	}
}

func (f *loopFleet) startController(c *simControl) {
	c.epoch++
	c.dead = false
	limits, zonal, regional := f.run.config.Limits, f.run.config.Zonal, f.run.config.Regional
	c.ctl = loop.NewController(loop.ControllerConfig{Epoch: c.epoch, Region: c.region, Parent: c.region != "",
		Limits: func(bucket string, _ loop.Place) (loop.Setting, bool) {
			s := loop.Setting{Rate: limits[bucket]}
			switch {
			case zonal[bucket]:
				s.Scope = loop.Zone
			case regional[bucket]:
				s.Scope = loop.Region
			}
			_, ok := limits[bucket]
			return s, ok
		}})
}

func (f *loopFleet) scale(nodes int) {
	for i, n := range f.nodes {
		switch {
		case i < nodes && !n.running:
			n.running = true
			n.came++
			n.client = loop.NewClient(loop.ClientConfig{Node: strconv.Itoa(i), Stripes: 1})
			n.client.Connect(n.came)
			n.handles = n.handles[:0]
			for _, p := range f.paths {
				n.handles = append(n.handles, n.client.Handle(p))
			}
		case i >= nodes && n.running:
			n.running = false
			if !f.run.config.Silent {
				n.zone.agg.Gone(strconv.Itoa(i), n.came)
			}
		}
	}
}

func (f *loopFleet) offer(node, stream int) bool {
	n := f.nodes[node]
	return n.handles[stream].Take(loop.Class(f.run.config.Streams[stream].Class), 1, f.run.rng.Uint64()) == loop.Admitted
}

func (f *loopFleet) tick() {
	r := f.run
	per := int(loop.ClientTick / Step)
	for _, n := range f.nodes {
		if n.running && r.step%per == n.phase {
			if report, send := n.client.Tick(r.now + n.skew); send {
				f.report(n, report)
			}
		}
	}
	per = int(loop.AggregatorTick / Step)
	for _, z := range f.zones {
		if z.dead || r.step%per != z.phase {
			continue
		}
		sum, up, d, down := z.agg.Tick(r.now)
		if down {
			f.broadcast(z, d)
		}
		if c := z.control; up && !z.cut && !c.dead {
			z.up.send(r, func() {
				if !c.dead && !z.cut {
					c.ctl.Sum(sum, r.now)
				}
			})
		}
	}
	for _, c := range f.regions {
		if !c.dead && r.step%per == c.phase {
			f.command(c)
			f.account(c)
		}
	}
	if c := f.control; !c.dead && r.step%per == c.phase {
		f.command(c)
	}
}

// command carries a controller's orders down.
func (f *loopFleet) command(c *simControl) {
	r := f.run
	for _, o := range c.ctl.Tick(r.now) {
		if region := f.region(o.Source); region != nil {
			if !region.cut {
				region.down.send(r, func() {
					if !region.dead && !region.cut {
						region.ctl.Apply(o.Directives, r.now)
					}
				})
			}
			continue
		}
		z := f.zone(o.Source)
		if !z.cut {
			z.down.send(r, func() {
				if !z.dead && !z.cut {
					f.broadcast(z, z.agg.Apply(o.Directives, r.now))
				}
			})
		}
	}
}

// account carries a region's sum up.
func (f *loopFleet) account(c *simControl) {
	sum, up := c.ctl.Up(f.run.now)
	if !up || c.cut || f.control.dead {
		return
	}
	c.up.send(f.run, func() {
		if !f.control.dead && !c.cut {
			f.control.ctl.Sum(sum, f.run.now)
		}
	})
}

func (f *loopFleet) region(s loop.Source) *simControl {
	for _, c := range f.regions {
		if s.Zone == "" && s.Region == c.region {
			return c
		}
	}
	return nil
}

func (f *loopFleet) zone(s loop.Source) *simZone {
	for _, z := range f.zones {
		if z.source == s {
			return z
		}
	}
	return nil
}

// report carries a client's report up.
func (f *loopFleet) report(n *simNode, report loop.Report) {
	r := f.run
	r.result.Messages++
	report.From = n.from
	if r.config.Liar > 0 && n == f.nodes[0] {
		n.lies += uint64(min(r.config.Liar, 1<<62))
		for i := range report.Paths {
			report.Paths[i].Offered[loop.Normal] += n.lies
		}
	}
	deliver := func() {
		if n.zone.dead {
			return
		}
		answer := n.zone.agg.Report(report, r.now)
		if len(answer.List) > 0 {
			n.down.send(r, func() { n.client.Apply(answer, r.now+n.skew) })
		}
	}
	if r.rng.Float64() < r.config.Lost {
		return
	}
	if r.rng.Float64() < r.config.Late {
		r.after(30*time.Second, deliver)
		return
	}
	n.line.send(r, deliver)
	if r.config.Tenfold {
		for range 9 {
			n.line.send(r, deliver)
		}
	}
}

// broadcast carries directives down to every node of a zone.
func (f *loopFleet) broadcast(z *simZone, d loop.Directives) {
	if d.Seq == 0 {
		return
	}
	for i, n := range f.nodes {
		if n.zone != z || !n.running {
			continue
		}
		f.run.result.Told++
		own := z.agg.For(strconv.Itoa(i), d)
		n.down.send(f.run, func() {
			if !z.dead && n.running {
				n.client.Apply(own, f.run.now+n.skew)
			}
		})
	}
}

// send does f after a message's way, and after what was sent before.
func (l *line) send(r *Run, f func()) {
	at := max(r.now+r.delay(), l.last)
	l.last = at
	r.after(at-r.now, f)
}

// KillController stops the controller until StartController.
func (r *Run) KillController() { r.fleet.(*loopFleet).control.dead = true }

// StartController starts a new controller that knows nothing.
func (r *Run) StartController() { f := r.fleet.(*loopFleet); f.startController(f.control) }

// KillRegion stops a region's controller until StartRegion.
func (r *Run) KillRegion(region int) { r.fleet.(*loopFleet).regions[region].dead = true }

// StartRegion starts a new controller of a region that knows nothing.
func (r *Run) StartRegion(region int) {
	f := r.fleet.(*loopFleet)
	f.startController(f.regions[region])
}

// CutRegion parts a region's controller from the one above, or joins it again.
func (r *Run) CutRegion(region int, cut bool) { r.fleet.(*loopFleet).regions[region].cut = cut }

// KillZone stops an aggregator until StartZone; those of a zone are numbered
// side by side.
func (r *Run) KillZone(zone int) { f := r.fleet.(*loopFleet); f.killZone(f.zones[zone]) }

// StartZone starts a new aggregator that knows nothing.
func (r *Run) StartZone(zone int) { f := r.fleet.(*loopFleet); f.startZone(f.zones[zone]) }

// Cut parts an aggregator from the controller, or joins it again.
func (r *Run) Cut(zone int, cut bool) { r.fleet.(*loopFleet).zones[zone].cut = cut }

// Clipped is how many claims a zone has not believed.
func (r *Run) Clipped(zone int) uint64 {
	return r.fleet.(*loopFleet).zones[zone].agg.Stats(r.now).Clipped
}
