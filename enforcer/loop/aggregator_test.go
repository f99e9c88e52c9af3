package loop

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
)

// zoneZ is the only aggregator of zone z.
var zoneZ = Source{Place: Place{Zone: "z"}}

// feed reports n nodes' steady load for a while.
type feed struct {
	agg  *Aggregator
	seq  uint64
	sent map[string]uint64
}

func (f *feed) report(t *testing.T, now time.Duration, rates map[string]float64) {
	t.Helper()
	if f.sent == nil {
		f.sent = map[string]uint64{}
	}
	f.seq++
	names := make([]string, 0, len(rates))
	for n := range rates {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		f.sent[n] += uint64(rates[n])
		f.agg.Report(Report{Node: n, Incarnation: 1, Seq: f.seq, At: now, Paths: []PathReport{
			{Path: Path{"a"}, Since: second, Offered: [Classes]uint64{Normal: f.sent[n]}, Dropped: []uint64{0}}}}, now)
	}
}

// load is what the aggregator has of a path.
func load(a *Aggregator, now time.Duration) float64 {
	a.Tick(now)
	zp := a.paths[Path{"a"}.Join()]
	if zp == nil {
		return 0
	}
	return total(zp.offered)
}

func TestAggregatorSums(t *testing.T) {
	a := NewAggregator(AggregatorConfig{Source: zoneZ, Epoch: 1})
	f := feed{agg: a}
	for now := second; now <= 3*second; now += second {
		f.report(t, now, map[string]float64{"x": 100, "y": 50})
	}
	sum, up, _, down := a.Tick(3 * second)
	want := Sum{Source: zoneZ, Epoch: 1, Seq: 1, Members: 2, Paths: []PathSum{{Path: Path{"a"}, Nodes: 2, Offered: normal(150), Dropped: []float64{0}, Counted: 450, Spans: 450}}}
	if !up || down || !reflect.DeepEqual(sum, want) {
		t.Errorf("sum %+v (%v), told clients: %v; want %+v", sum, up, down, want)
	}
	if _, up, _, _ := a.Tick(3*second + tick); up {
		t.Error("an unmoved sum is repeated within 250 ms")
	}
	// y's stream closes, x falls silent for longer than 2.5 s.
	a.Gone("y", 1)
	if v := load(a, 4*second); v != 100 {
		t.Errorf("%v/s after a stream closed, want 100", v)
	}
	if v := load(a, 6*second); v != 0 {
		t.Errorf("%v/s after 3 s of silence, want 0", v)
	}
}

func TestAggregatorIsQuietAfterAStart(t *testing.T) {
	a := NewAggregator(AggregatorConfig{})
	f := feed{agg: a}
	f.report(t, 0, map[string]float64{"x": 100})
	for now := time.Duration(0); now < sumQuiet; now += tick {
		if s, up, _, _ := a.Tick(now); up {
			t.Fatalf("said %+v at %v", s, now)
		}
	}
	if _, up, _, _ := a.Tick(sumQuiet); !up {
		t.Error("still quiet after 1.6 s")
	}
}

func TestAggregatorCountsOnce(t *testing.T) {
	a := NewAggregator(AggregatorConfig{})
	at := func(seq uint64, at time.Duration, count uint64) Report {
		return Report{Node: "x", Incarnation: 1, Seq: seq, At: at, Paths: []PathReport{
			{Path: Path{"a"}, Since: second, Offered: normalCount(count), Dropped: []uint64{0}}}}
	}
	a.Report(at(1, 301*second, 100), second) // its clock is 5 minutes ahead
	a.Report(at(2, 302*second, 200), 2*second)
	a.Report(at(2, 302*second, 200), 2*second) // doubled
	a.Report(at(1, 301*second, 100), 2*second) // late
	if v := load(a, 2*second); v != 100 || a.stats.Late != 2 {
		t.Errorf("%v/s, %d late; want 100 and 2", v, a.stats.Late)
	}
	// Report 3 is lost; 4 covers both seconds.
	a.Report(at(4, 304*second, 500), 4*second)
	if v := load(a, 4*second); v != 150 {
		t.Errorf("%v/s, want 300 requests over 2 s", v)
	}
	// Report 5 comes after 6 s on the way.
	a.Report(at(5, 305*second, 9999), 11*second)
	if a.stats.Late != 3 || a.paths["a"].rate[Normal] == 9499*milliRequests {
		t.Error("a report of 6 s ago counts")
	}
	// Counts that fall are no counts.
	a.Report(at(6, 312*second, 3), 12*second)
	if a.stats.Invalid != 1 {
		t.Errorf("%d invalid, want 1", a.stats.Invalid)
	}
}

func normalCount(n uint64) [Classes]uint64 { return [Classes]uint64{Normal: n} }

func TestAggregatorDoubtsALiar(t *testing.T) {
	for _, claim := range []uint64{1e15, 1 << 63, math.MaxUint64} {
		a := NewAggregator(AggregatorConfig{})
		a.Apply(order(1, Directive{Bucket: "a", Limit: 2000, Keep: keepAll, Nodes: 100, Load: 1000, Share: 1}), second)
		f := feed{agg: a}
		rates := map[string]float64{}
		for i := range 100 {
			rates[string(rune('A'+i))] = 10
		}
		f.report(t, second, rates)
		a.Report(Report{Node: "liar", Incarnation: 1, Seq: 1, At: second, Paths: []PathReport{
			{Path: Path{"a"}, Since: second, Offered: normalCount(claim), Dropped: []uint64{0}}}}, second)
		// 3 % of what 100 others are offered.
		if v := load(a, second); math.Abs(v-1030) > 1 || a.stats.Clipped != 1 {
			t.Errorf("claim %d: %v/s, %d flagged; want 1030 and 1", claim, v, a.stats.Clipped)
		}
		d := a.For("liar", order(9, keepNormal("a", 0.8)))
		if k := d.List[0].Keep[Normal]; k != MinKeep {
			t.Errorf("the liar is let keep %v, want %v", k, MinKeep)
		}
		if d := a.For("A", order(9, keepNormal("a", 0.8))); d.List[0].Keep[Normal] != 0.8 {
			t.Errorf("an honest node keeps %v, want 0.8", d.List[0].Keep[Normal])
		}
	}
}

func TestAggregatorRefusesNonsense(t *testing.T) {
	a := NewAggregator(AggregatorConfig{MaxPaths: 1})
	for i, p := range []PathReport{
		{},
		{Path: Path{"a"}},
		{Path: make(Path, MaxPath+1), Dropped: make([]uint64, MaxPath+1)},
	} {
		a.Report(Report{Node: "x", Incarnation: 1, Seq: uint64(i + 1), Paths: []PathReport{p}}, 0)
	}
	if a.stats.Invalid != 3 || len(a.paths) != 0 {
		t.Errorf("%d invalid, %d paths", a.stats.Invalid, len(a.paths))
	}
	ok := func(name string) PathReport { return PathReport{Path: Path{name}, Dropped: []uint64{0}} }
	a.Report(Report{Node: "x", Incarnation: 1, Seq: 9, Paths: []PathReport{ok("a"), ok("b")}}, 0)
	if a.stats.Refused != 1 || len(a.paths) != 1 {
		t.Errorf("%d refused, %d paths; want 1 and 1", a.stats.Refused, len(a.paths))
	}
}

func TestAggregatorAnswersAFirstReportAtOnce(t *testing.T) {
	a := NewAggregator(AggregatorConfig{Epoch: 3})
	a.Apply(order(1, Directive{Bucket: "a", Limit: 100, Keep: Keep{1, 0.3, MinKeep}}), 0)
	r := Report{Node: "x", Incarnation: 1, Seq: 1, At: 0, Paths: []PathReport{{Path: Path{"a"}, Since: second, Offered: normalCount(1), Dropped: []uint64{0}}}}
	if d := a.Report(r, 0); d.Epoch != 3 || len(d.List) != 1 || d.List[0].Keep[Normal] != 0.3 {
		t.Errorf("answer %+v", d)
	}
	r.Seq = 2
	if d := a.Report(r, 0); len(d.List) != 0 {
		t.Errorf("a second report is answered %+v", d)
	}
}

func TestAggregatorClosesTheLoopOnItsShare(t *testing.T) {
	a := NewAggregator(AggregatorConfig{Epoch: 1})
	f := feed{agg: a}
	a.Apply(order(1, Directive{Bucket: "a", Limit: 300, Keep: Keep{1, 0.9, MinKeep}, Share: 0.5}), 0)
	var last Directives
	for now := second; now < 20*second; now += second {
		f.report(t, now, map[string]float64{"x": 600})
		for at := now; at < now+second; at += tick {
			if _, _, d, ok := a.Tick(at); ok && len(d.List) > 0 {
				last = d
			}
		}
		if now < 2*second && len(last.List) > 0 && last.List[0].Keep != (Keep{1, 0.9, MinKeep}) {
			t.Fatalf("decided itself after %v: %+v", now, last)
		}
	}
	// 300·0.5 of 600 offered; nothing is reported dropped, so that T is at −C:
	// C = 4·sqrt(150) = 49, over 4 s.
	want := (150 - 4*math.Sqrt(150)/4) / 600
	if len(last.List) != 1 || math.Abs(last.List[0].Keep[Normal]-want) > 0.01 || last.List[0].Limit != 150 || !a.Stats(20*second).Closed {
		t.Fatalf("told %+v, want to keep %.3f of a limit of 150", last, want)
	}
	if d := a.Apply(Directives{Epoch: 9, Seq: 1, List: []Directive{{Bucket: "a", Limit: 300, Keep: Keep{1, 0.7, MinKeep}, Share: 0.5}}}, 20*second); len(d.List) != 1 || a.Stats(20*second).Closed {
		t.Errorf("the controller's word is not passed on: %+v", d)
	}
	a.Tick(20 * second)
	if k := a.tier.order[0].keep[Normal]; k != 0.7 {
		t.Errorf("keeps %v after the controller returned, want its 0.7", k)
	}
}

func TestAggregatorThatKnowsNothingIsSilent(t *testing.T) {
	a := NewAggregator(AggregatorConfig{})
	f := feed{agg: a}
	for now := second; now < 20*second; now += second {
		f.report(t, now, map[string]float64{"x": 600})
		if _, _, d, ok := a.Tick(now); ok {
			t.Fatalf("told clients %+v", d)
		}
	}
}
