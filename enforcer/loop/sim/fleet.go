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
	zones   []*simZone
	control *simControl
}

type simNode struct {
	client  *loop.Client
	handles []*loop.Handle // by stream
	zone    *simZone
	phase   int
	skew    time.Duration
	running bool
	came    uint64 // incarnation
	line    line
	down    line
	lies    uint64
}

type simZone struct {
	place loop.Place
	agg   *loop.Aggregator
	phase int
	dead  bool
	cut   bool // from the controller
	up    line
	down  line
	epoch uint64
}

type simControl struct {
	ctl   *loop.Controller
	phase int
	dead  bool
	epoch uint64
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
	for z := range r.config.Zones {
		zone := &simZone{place: loop.Place{Zone: "zone-" + strconv.Itoa(z)}, phase: r.phase(loop.AggregatorTick)}
		f.zones = append(f.zones, zone)
		f.startZone(zone)
	}
	f.startController()
	for i := range r.config.Nodes {
		n := &simNode{zone: f.zones[i%len(f.zones)], phase: r.phase(loop.ClientTick)}
		if r.config.Skew {
			n.skew = 5*time.Minute + time.Duration(r.rng.Int64N(int64(10*time.Minute))) - 5*time.Minute
		}
		f.nodes = append(f.nodes, n)
	}
	return f
}

func (f *loopFleet) startZone(z *simZone) {
	z.epoch++
	z.agg = loop.NewAggregator(loop.AggregatorConfig{Place: z.place, Epoch: z.epoch})
	z.dead = false
	for _, n := range f.nodes {
		if n.zone == z && n.running {
			n.came++
			n.client.Connect(n.came)
		}
	}
}

func (f *loopFleet) startController() {
	if f.control == nil {
		f.control = &simControl{phase: f.run.phase(loop.ControllerTick)}
	}
	f.control.epoch++
	f.control.dead = false
	limits, zonal := f.run.config.Limits, f.run.config.Zonal
	f.control.ctl = loop.NewController(loop.ControllerConfig{Epoch: f.control.epoch,
		Limits: func(bucket string, _ loop.Place) (loop.Setting, bool) {
			s := loop.Setting{Rate: limits[bucket]}
			if zonal[bucket] {
				s.Scope = loop.Zone
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
			n.zone.agg.Gone(strconv.Itoa(i), n.came)
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
		if up && !z.cut && !f.control.dead {
			z.up.send(r, func() {
				if !f.control.dead && !z.cut {
					f.control.ctl.Sum(sum, r.now)
				}
			})
		}
	}
	if c := f.control; !c.dead && r.step%per == c.phase {
		for _, o := range c.ctl.Tick(r.now) {
			z := f.zone(o.Place)
			if !z.cut {
				z.down.send(r, func() {
					if !z.dead && !z.cut {
						f.broadcast(z, z.agg.Apply(o.Directives, r.now))
					}
				})
			}
		}
	}
}

func (f *loopFleet) zone(p loop.Place) *simZone {
	for _, z := range f.zones {
		if z.place == p {
			return z
		}
	}
	return nil
}

// report carries a client's report up.
func (f *loopFleet) report(n *simNode, report loop.Report) {
	r := f.run
	r.result.Messages++
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
func (r *Run) StartController() { r.fleet.(*loopFleet).startController() }

// KillZone stops a zone's aggregator until StartZone.
func (r *Run) KillZone(zone int) { r.fleet.(*loopFleet).zones[zone].dead = true }

// StartZone starts a new aggregator that knows nothing.
func (r *Run) StartZone(zone int) { f := r.fleet.(*loopFleet); f.startZone(f.zones[zone]) }

// Cut parts a zone from the controller, or joins it again.
func (r *Run) Cut(zone int, cut bool) { r.fleet.(*loopFleet).zones[zone].cut = cut }

// Clipped is how many claims a zone has not believed.
func (r *Run) Clipped(zone int) uint64 {
	return r.fleet.(*loopFleet).zones[zone].agg.Stats(r.now).Clipped
}

// naive is the loop as first published.
type naive struct {
	run    *Run
	phase  []int
	came   []float64 // per node, since its last report
	passed []float64
	known  []float64 // per node, at its zone
	zones  []naiveZone
	tick0  int
	keep   float64 // the controller's
	keeps  []float64
}

type naiveZone struct {
	phase int
	sum   float64 // at the controller
}

func newNaive(r *Run) *naive {
	n := &naive{run: r, keep: 1, tick0: r.phase(time.Second)}
	for range r.config.Zones {
		n.zones = append(n.zones, naiveZone{phase: r.phase(time.Second)})
	}
	for range r.config.Nodes {
		n.phase = append(n.phase, r.phase(time.Second))
		n.keeps = append(n.keeps, 1)
	}
	n.came, n.passed, n.known = make([]float64, r.config.Nodes), make([]float64, r.config.Nodes), make([]float64, r.config.Nodes)
	return n
}

func (n *naive) scale(int) {}

func (n *naive) offer(node, _ int) bool {
	n.came[node]++
	if n.run.rng.Float64() < n.keeps[node] {
		n.passed[node]++
		return true
	}
	return false
}

func (n *naive) tick() {
	r, second := n.run, int(time.Second/Step)
	for i := range n.phase {
		if r.step%second != n.phase[i] {
			continue
		}
		rate := n.came[i]
		if r.config.Admitted {
			rate = n.passed[i]
		}
		n.came[i], n.passed[i] = 0, 0
		r.result.Messages++
		r.after(r.delay(), func() { n.known[i] = rate })
	}
	for z := range n.zones {
		if r.step%second != n.zones[z].phase {
			continue
		}
		sum := 0.0
		for i := z; i < len(n.known); i += len(n.zones) {
			sum += n.known[i]
		}
		r.after(r.delay(), func() { n.zones[z].sum = sum })
	}
	if r.step%second != n.tick0 {
		return
	}
	load := 0.0
	for z := range n.zones {
		load += n.zones[z].sum
	}
	limit := r.config.Limits[Bucket]
	if load > 0 {
		k := limit / load
		if r.config.Admitted {
			k *= n.keep
		}
		n.keep = min(max(k, loop.MinKeep), 1)
	}
	keep := n.keep
	for i := range n.keeps {
		r.after(r.delay()+r.delay(), func() { n.keeps[i] = keep })
	}
}

// shares is the design before the loop.
type shares struct {
	run    *Run
	phase  []int
	came   []float64
	known  []float64
	share  []float64
	tokens []float64
}

// saved is how many seconds of its share a node may keep unused.
const saved = 10

func newShares(r *Run) *shares {
	s := &shares{run: r, came: make([]float64, r.config.Nodes), known: make([]float64, r.config.Nodes)}
	for range r.config.Nodes {
		s.phase = append(s.phase, r.phase(time.Second))
		share := 1 / float64(r.config.Nodes)
		s.share = append(s.share, share)
		s.tokens = append(s.tokens, saved*share*r.config.Limits[Bucket])
	}
	return s
}

func (s *shares) scale(int) {}

func (s *shares) offer(node, _ int) bool {
	s.came[node]++
	if s.tokens[node] < 1 {
		return false
	}
	s.tokens[node]--
	return true
}

func (s *shares) tick() {
	r, second := s.run, int(time.Second/Step)
	limit := r.config.Limits[Bucket]
	for i := range s.tokens {
		rate := s.share[i] * limit
		s.tokens[i] = min(s.tokens[i]+rate*Step.Seconds(), saved*rate)
		if r.step%second == s.phase[i] {
			came := s.came[i]
			s.came[i] = 0
			r.result.Messages++
			r.after(r.delay(), func() { s.known[i] = came })
		}
	}
	if r.step%second != 0 {
		return
	}
	whole := 0.0
	for _, v := range s.known {
		whole += v
	}
	for i := range s.share {
		share := 1 / float64(len(s.share))
		if whole > 0 {
			share = s.known[i] / whole
		}
		r.after(r.delay(), func() { s.share[i] = share })
	}
}
