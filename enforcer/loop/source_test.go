package loop

import (
	"reflect"
	"testing"
	"time"
)

// named is the sum of an aggregator of zone a1 with so many nodes of 10/s.
func named(name string, seq uint64, nodes int, taken ...Taken) Sum {
	s := sumOf("a1", seq, 10*float64(nodes))
	s.Name, s.Members, s.Taken = name, nodes, taken
	s.Paths[0].Nodes = nodes
	return s
}

func TestNodesThatGoOverCountOnce(t *testing.T) {
	c := NewController(ControllerConfig{Limits: limits(map[string]Setting{"a": {Rate: 100}})})
	c.Tick(0)
	offered := func(now time.Duration) float64 {
		c.Tick(now)
		b, _ := c.State(now)
		return total(b[0].Offered)
	}
	c.Sum(named("x", 1, 10), second)
	c.Sum(named("y", 1, 10), second)
	if v := offered(2 * second); v != 200 {
		t.Errorf("%v/s from two aggregators, want 200", v)
	}
	// x dies; four, then all of its nodes come over to y, and one of them dies.
	fromX := Origin{"x", 1}
	for i, s := range []struct {
		nodes, taken int
		want         float64
	}{{14, 4, 200}, {20, 10, 200}, {19, 9, 190}} {
		now := 2*second + time.Duration(i+1)*100*time.Millisecond
		c.Sum(named("y", uint64(i+2), s.nodes, Taken{fromX, s.taken}), now)
		if v := offered(now); v != s.want {
			t.Errorf("%d of ten nodes at y: %v/s, want %v", s.taken, v, s.want)
		}
	}
	// x speaks again: what it says counts, whatever came over before.
	c.Sum(named("x", 2, 5), 3*second)
	if v := offered(3*second + tick); v != 240 {
		t.Errorf("%v/s with x back, want 240", v)
	}
	// A claim on another life of x changes nothing.
	c.Sum(named("y", 9, 19, Taken{Origin{"x", 7}, 19}), 3*second)
	if v := offered(3*second + 2*tick); v != 240 {
		t.Errorf("%v/s after a claim on a life that is not x's, want 240", v)
	}
}

func TestASourceWithoutNodesIsForgotten(t *testing.T) {
	c := NewController(ControllerConfig{Limits: limits(map[string]Setting{"a": {Rate: 100, Scope: Zone}})})
	c.Tick(0)
	c.Sum(named("x", 1, 10), second)
	c.Sum(named("y", 1, 10), second)
	decided := func(now time.Duration) (below bool) {
		for _, o := range c.Tick(now) {
			for _, d := range o.List {
				below = below || d.Decide
			}
		}
		return below
	}
	if decided(2 * second) {
		t.Error("one of two aggregators is to decide its zone's bucket by itself")
	}
	for now := 2 * second; now < 15*second; now += 200 * time.Millisecond {
		c.Sum(named("y", uint64(now), 20, Taken{Origin{"x", 1}, 10}), now)
		c.Tick(now)
	}
	_, zones := c.State(15 * second)
	if len(zones) != 1 || !decided(16*second) {
		t.Errorf("zones %+v; want the one that is left, and that it decides its zone's bucket", zones)
	}
}

// Who is silent keeps what it was told it may use, and the others the rest.
func TestASilentSourceKeepsItsPart(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, then float64 // offered by each of two zones
		keep         float64 // of the one that speaks
	}{
		{"above the limit", 100, 400, 50. / 400},
		{"far below it", 10, 400, (100 - 0.8*50) / 400},
	} {
		k := NewController(ControllerConfig{Limits: limits(map[string]Setting{"a": {Rate: 100}})})
		k.Tick(0)
		now, seq := second, uint64(1)
		speak := func(until time.Duration, rate float64, zones ...string) {
			for ; now < until; now += tick {
				for _, z := range zones {
					seq++
					k.Sum(sumOf(z, seq, rate), now)
				}
				k.Tick(now)
			}
		}
		speak(8*second, c.before, "a1", "a2")
		speak(9*second, c.before, "a1")
		speak(12*second, c.then, "a1")
		b, _ := k.State(now)
		// The sums say that nothing was dropped, so the law also collects what
		// that is worth: 4·sqrt(50)/2 s of it at most.
		if got := b[0].Keep[Normal]; got > c.keep || got < c.keep-0.05 {
			t.Errorf("%s: the other zone keeps %.3f, want about %.3f", c.name, got, c.keep)
		}
	}
}

func TestPathsAreBoundedAndForgotten(t *testing.T) {
	c := NewController(ControllerConfig{Limits: limits(map[string]Setting{"a": {Rate: 100}}), MaxPaths: 1})
	c.Tick(0)
	s := sumOf("a1", 1, 100)
	s.Paths = append(s.Paths, PathSum{Path: Path{"b"}, Nodes: 1, Offered: normal(1), Dropped: []float64{0}})
	c.Sum(s, second)
	if len(c.tier.flows) != 1 || c.Late() != 1 {
		t.Errorf("%d flows, %d late; want the second path refused", len(c.tier.flows), c.Late())
	}
	c.Tick(2 * second)
	c.Sum(sumOf("a1", 2, 0), 2*second)
	c.Tick(forgetAfter)
	if len(c.tier.flows) != 1 {
		t.Error("a path is forgotten too soon")
	}
	c.Tick(4*second + forgetAfter)
	if len(c.tier.flows)+len(c.tier.cells) != 0 {
		t.Errorf("%d flows and %d cells of a path that nobody uses", len(c.tier.flows), len(c.tier.cells))
	}
}

func TestAnAggregatorSaysWhoCameOver(t *testing.T) {
	a := NewAggregator(AggregatorConfig{Source: Source{Place: zoneZ.Place, Name: "y"}, Epoch: 1})
	a.Tick(0)
	from := Origin{"x", 3}
	for i, n := range []Report{{Node: "1", From: from}, {Node: "2", From: from}, {Node: "3"}, {Node: "4", From: Origin{"y", 1}}} {
		n.Incarnation, n.Seq = 1, 1
		n.Paths = []PathReport{{Path: Path{"a"}, Offered: [Classes]uint64{uint64(i)}, Dropped: []uint64{0}}}
		a.Report(n, second)
	}
	a.Gone("2", 1)
	a.Tick(second)
	s, _, _, _ := a.Tick(2 * second)
	if want := []Taken{{from, 1}}; !reflect.DeepEqual(s.Taken, want) || s.Members != 3 {
		t.Errorf("%d nodes, taken %v; want 3 and %v", s.Members, s.Taken, want)
	}
}

// A region's controller sums its zones for its parent, decides what is the
// region's, and passes on what is the parent's.
func TestARegionsController(t *testing.T) {
	set := map[string]Setting{"all": {Rate: 100}, "own": {Rate: 60, Scope: Region}}
	c := NewController(ControllerConfig{Epoch: 5, Limits: limits(set), Region: "a", Parent: true})
	sums := func(seq uint64, now time.Duration) {
		for _, z := range []string{"a1", "a2"} {
			s := sumOf(z, seq, 50)
			s.Paths[0].Path, s.Paths[0].Dropped = Path{"own", "all"}, []float64{20, 0}
			c.Sum(s, now)
		}
	}
	c.Tick(0)
	sums(1, second)
	if o := c.Tick(2 * second); o != nil {
		t.Errorf("spoke before its parent did: %+v", o)
	}
	up, ok := c.Up(2 * second)
	want := Sum{Source: Source{Place: Place{Region: "a"}}, Epoch: 5, Seq: 1, Paths: []PathSum{
		{Path: Path{"own", "all"}, Nodes: 20, Offered: normal(100), Dropped: []float64{40, 0}}}}
	if !ok || !reflect.DeepEqual(up, want) {
		t.Errorf("told its parent %+v, want %+v", up, want)
	}
	c.Apply(Directives{Epoch: 1, Seq: 1, List: []Directive{
		{Bucket: "all", Limit: 100, Keep: Keep{1, 0.25, 0.1}, Nodes: 90, Load: 400, Share: 0.4},
		{Bucket: "own", Scope: Region, Limit: 60, Decide: true},
	}}, 2*second)
	var list []Directive
	for _, o := range c.Tick(2*second + tick) {
		if o.Zone == "a1" {
			list = o.List
		}
	}
	own := list[0]
	own.Keep = keepAll // the law's
	if wantAll := (Directive{Bucket: "all", Limit: 100, Keep: Keep{1, 0.25, 0.1}, Nodes: 90, Load: 400, Share: 0.2}); len(list) != 2 || list[1] != wantAll {
		t.Errorf("told a zone %+v, want %+v passed on with half of the region's share", list, wantAll)
	}
	if wantOwn := (Directive{Bucket: "own", Scope: Region, Limit: 60, Hot: own.Hot, Keep: keepAll, Nodes: 20, Load: 100, Share: 0.5}); own != wantOwn {
		t.Errorf("told a zone %+v, want %+v decided here", own, wantOwn)
	}
	// The parent asks what the region decides by itself.
	up, _ = c.Up(2*second + 300*time.Millisecond)
	if len(up.Keeps) != 1 || up.Keeps[0].Bucket != "own" || up.Keeps[0].Keep[Normal] > 0.7 || up.Keeps[0].Keep[Normal] < 0.4 {
		t.Errorf("keeps %+v, want about 0.6 of its own bucket", up.Keeps)
	}
	// The parent falls silent: the region holds itself to its share of 40/s.
	for now := 3 * second; now < 20*second; now += tick {
		sums(uint64(now), now)
		c.Tick(now)
	}
	b, _ := c.State(20 * second)
	if k := b[1]; k.Bucket != "all" || k.Limit != 40 || k.Keep[Normal] > 0.8 {
		t.Errorf("alone it holds %+v, want its 40/s", k)
	}
}
