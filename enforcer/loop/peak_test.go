package loop

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestPeakIsTheHighestSecondOfTheLastMinuteThatIsOver(t *testing.T) {
	var p peak
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	p.add(20, at(9.9), at(10))   // a first report covers a tenth of a second
	p.add(100, at(20.5), at(21)) // half of a second
	p.add(50, at(20), at(20.2))
	p.add(90, at(30.5), at(31.5)) // 45 in each
	p.add(300, at(61), at(62))
	for _, c := range []struct{ now, want float64 }{
		{62, 0},    // the first minute may still change
		{64, 150},  // 100 + 50 in the second from 20 on
		{123, 150}, // the second one may
		{124, 300},
		{190, 0}, // nothing came in the third
		{900, 0},
	} {
		if got := p.last(at(c.now)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("after %v s the peak is %v, want %v", c.now, got, c.want)
		}
	}
}

// tree is real clients, an aggregator a zone and a controller in one process.
type tree struct {
	clients []*Client
	zones   []*Aggregator
	control *Controller
	above   *Controller // nil: none
}

func newTree(nodes, zones int, limits func(string, Place) (Setting, bool), regional bool) *tree {
	r := &tree{}
	for i := range nodes {
		r.clients = append(r.clients, NewClient(ClientConfig{Node: fmt.Sprint(i), Stripes: 1}))
		r.clients[i].Connect(1)
	}
	config := ControllerConfig{Epoch: 1, Limits: limits}
	if regional {
		r.above = NewController(config)
		config.Region, config.Parent = "r", true
	}
	r.control = NewController(config)
	for z := range zones {
		r.zones = append(r.zones, NewAggregator(AggregatorConfig{Source: Source{Place: Place{Zone: fmt.Sprint(z), Region: "r"}}, Epoch: 1}))
	}
	return r
}

// tick is 10 ms of it; each tier has a phase of its own.
func (r *tree) tick(now time.Duration) {
	step := int(now / (10 * time.Millisecond))
	for i, c := range r.clients {
		if step%10 == i*3%10 {
			if report, send := c.Tick(now); send {
				c.Apply(r.zones[i%len(r.zones)].Report(report, now), now)
			}
		}
	}
	if step%5 != 0 {
		return
	}
	for z, a := range r.zones {
		sum, send, down, told := a.Tick(now)
		if send {
			r.control.Sum(sum, now)
		}
		if told {
			r.tell(z, down, now)
		}
	}
	for _, o := range r.control.Tick(now) {
		for z, a := range r.zones {
			if a.config.Source == o.Source {
				r.tell(z, a.Apply(o.Directives, now), now)
			}
		}
	}
	if r.above == nil {
		return
	}
	if sum, send := r.control.Up(now); send {
		r.above.Sum(sum, now)
	}
	for _, o := range r.above.Tick(now) {
		r.control.Apply(o.Directives, now)
	}
}

func (r *tree) tell(zone int, d Directives, now time.Duration) {
	for i, c := range r.clients {
		if d.Seq > 0 && i%len(r.zones) == zone {
			c.Apply(r.zones[zone].For(fmt.Sprint(i), d), now)
		}
	}
}

// What a whole fleet is offered counts by the second, however many tiers it
// passes and although a node's first report covers a tenth of one.
func TestTheFleetsPeakIsCountedByTheSecond(t *testing.T) {
	none := func(string, Place) (Setting, bool) { return Setting{Rate: 1e6}, true }
	for _, c := range []struct {
		name        string
		nodes       int
		regional    bool
		offer       func(step int) (node, n int) // each 10 ms
		least, most float64
	}{
		{"steady 100/s over 4 nodes", 4, false, func(step int) (int, int) { return step % 4, 1 }, 99, 108},
		{"the same below a region", 4, true, func(step int) (int, int) { return step % 4, 1 }, 99, 112},
		{"20 at once, once a minute", 2, false, func(step int) (int, int) {
			if step%6000 == 3050 {
				return 0, 20
			}
			return 0, 0
		}, 10, 20},
		{"a second of 1,000/s over a steady 100/s", 4, false, func(step int) (int, int) {
			if s := step % 6000; s >= 3000 && s < 3100 {
				return step % 4, 10
			}
			return step % 4, 1
		}, 700, 1010},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTree(c.nodes, 2, none, c.regional)
			var handles []*Handle
			for _, k := range r.clients {
				handles = append(handles, k.Handle(Path{"bucket", "cap"}))
			}
			step := 0
			for ; step < 13_000; step++ {
				if node, n := c.offer(step); n > 0 {
					handles[node].Take(Normal, uint64(n), 1)
				}
				r.tick(time.Duration(step) * 10 * time.Millisecond)
			}
			top := r.control
			if r.above != nil {
				top = r.above
			}
			buckets, _ := top.State(time.Duration(step) * 10 * time.Millisecond)
			if len(buckets) != 2 {
				t.Fatalf("buckets %+v", buckets)
			}
			for _, b := range buckets {
				if b.Peak < c.least || b.Peak > c.most {
					t.Errorf("peak of %s %v, want %v to %v", b.Bucket, b.Peak, c.least, c.most)
				}
			}
		})
	}
}

// A controller that starts late does not take what its sources have counted in
// all their life for a second's.
func TestANewControllersFirstPeakIsNoHistory(t *testing.T) {
	c := NewController(ControllerConfig{Limits: limits(map[string]Setting{"a": {Rate: 1e6}})})
	s := sumOf("a1", 1, 100)
	s.Paths[0].Counted, s.Paths[0].Spans = 1e6, 1e6
	c.Sum(s, 10*second)
	c.Tick(12 * second)
	if b, _ := c.State(70 * second); b[0].Peak > 100 {
		t.Errorf("peak %v, want 100 at most", b[0].Peak)
	}
}
