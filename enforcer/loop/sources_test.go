package loop

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"
)

// attended is a controller whose sources say the same every 250 ms for a minute.
// It returns the last word to each on a bucket.
func attended(c *Controller, bucket string, sums map[string][]PathSum) map[string]Directive {
	told := map[string]Directive{}
	c.Tick(0)
	for step := range 240 {
		now := time.Duration(step+1) * 250 * time.Millisecond
		for _, zone := range []string{"a", "b", "c"} {
			if paths, ok := sums[zone]; ok {
				for i := range paths {
					rate := total(paths[i].Offered)
					paths[i].Counted += rate / 4
					paths[i].Spans += rate / 4
				}
				c.Sum(Sum{Source: Source{Place: Place{Zone: zone}}, Epoch: 1, Seq: uint64(step + 1), Members: 10, Paths: paths}, now)
			}
		}
		for _, o := range c.Tick(now) {
			for _, d := range o.List {
				if d.Bucket == bucket {
					told[o.Zone] = d
				}
			}
		}
	}
	return told
}

func offers(rate float64, path ...string) PathSum {
	return PathSum{Path: path, Nodes: 10, Offered: normal(rate), Dropped: make([]float64, len(path))}
}

// A zone whose sums are absurd, or true in a flood that no other zone sees, gets
// what the others leave: they keep what they kept without it.
func TestAZoneIsBelievedNoMoreThanOneNode(t *testing.T) {
	for _, c := range []struct {
		name    string
		claim   float64 // of zone c; a is offered 5,000/s and b 4,000/s
		limit   float64
		keep    float64 // of a and b
		let     float64 // requests/s let through by c, were its claim true
		doubted bool
	}{
		// 3 % of 9,000 are believed; the 730/s that nobody uses are its, too.
		{"absurd", 1e15, 10_000, 1, math.Inf(1), true},
		{"a flood", 300_000, 10_000, 1, 1000, true},
		// 9,000 and the 270 that are believed share 6,000.
		{"above the limit anyway", 300_000, 6000, 6000. / 9270, 300, true},
		{"much", 81_000, 10_000, 10_000. / 90_000, 9000, false},
		{"within the limit", 81_000, 100_000, 1, 81_000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := NewController(ControllerConfig{Limits: limits(map[string]Setting{"q": {Rate: c.limit}})})
			told := attended(k, "q", map[string][]PathSum{"a": {offers(5000, "q")}, "b": {offers(4000, "q")}, "c": {offers(c.claim, "q")}})
			for _, zone := range []string{"a", "b"} {
				// Nothing is ever dropped here, so the law takes what it may back.
				if got := told[zone].Keep[Normal]; math.Abs(got-c.keep) > 0.05*c.keep {
					t.Errorf("zone %s keeps %v, want %v", zone, got, c.keep)
				}
			}
			if let := told["c"].Keep[Normal] * c.claim; !math.IsInf(c.let, 1) && (let > 1.05*c.let || let < 0.5*c.let) {
				t.Errorf("the claim lets %v/s through, want %v", let, c.let)
			}
			buckets, zones := k.State(time.Minute)
			doubted := map[string]bool{}
			for _, z := range zones {
				doubted[z.Zone] = z.Doubted
			}
			if want := map[string]bool{"a": false, "b": false, "c": c.doubted}; !reflect.DeepEqual(doubted, want) || (k.Clipped() > 0) != c.doubted {
				t.Errorf("doubted %v and %d clipped, want %v", doubted, k.Clipped(), want)
			}
			if peak := buckets[0].Peak; c.doubted && peak > 10_000 {
				t.Errorf("a peak of %v/s is kept, want what is believed", peak)
			}
		})
	}
}

// All paths below one limit are one claim: names that are made up gain nothing.
func TestAZonesPathsAreJudgedTogether(t *testing.T) {
	lies := []PathSum{}
	for i := range 100 {
		lies = append(lies, offers(10_000, fmt.Sprint("made up ", i), "cap"))
	}
	k := NewController(ControllerConfig{Limits: limits(map[string]Setting{"cap": {Rate: 10_000}})})
	told := attended(k, "cap", map[string][]PathSum{"a": {offers(5000, "x", "cap")}, "b": {offers(4000, "y", "cap")}, "c": lies})
	if got := told["a"].Keep[Normal]; got < 0.99 {
		t.Errorf("the others keep %v beside a million a second of made-up paths, want all", got)
	}
	if let := told["c"].Keep[Normal] * 1e6; let > 1050 {
		t.Errorf("they let %v/s through, want what the others leave", let)
	}
}

// Who is alone on a path is compared with who is on others below the same limit.
func TestANodeAloneOnAPathIsCompared(t *testing.T) {
	for _, c := range []struct {
		claim, believed uint64
	}{{1e12, 180}, {100_000, 100_000}} { // 3 % of 6,000; less than twenty limits
		a := NewAggregator(AggregatorConfig{Source: zoneZ})
		say := func(seq uint64) {
			for i := range 6 {
				a.Report(Report{Node: fmt.Sprint("other", i), Incarnation: 1, Seq: seq, At: time.Duration(seq) * second, Paths: []PathReport{
					{Path: Path{"x", "cap"}, Since: second, Offered: normalCount(1000 * seq), Dropped: []uint64{0, 0}}}}, time.Duration(seq)*second)
			}
		}
		say(1)
		a.Apply(order(1, Directive{Bucket: "x", None: true, Keep: keepAll}, Directive{Bucket: "made up", None: true, Keep: keepAll}, Directive{Bucket: "cap", Limit: 6000, Keep: keepAll, Share: 1}), second)
		a.Tick(second + tick)
		a.Report(Report{Node: "alone", Incarnation: 1, Seq: 1, At: second, Paths: []PathReport{
			{Path: Path{"made up", "cap"}, Since: second, Offered: normalCount(c.claim), Dropped: []uint64{0, 0}}}}, second+2*tick)
		if got := a.nodes["alone"].order[0].believe; math.Abs(got-float64(c.believed)) > 1 {
			t.Errorf("of %d/s on a path of its own %v are believed, want %d", c.claim, got, c.believed)
		}
		d := a.For("alone", order(2, Directive{Bucket: "cap", Limit: 6000, Keep: keepAll}))
		if doubted := d.List[0].Keep[Normal] < 1; doubted != (c.believed < c.claim) {
			t.Errorf("a claim of %d keeps %v of the cap", c.claim, d.List[0].Keep[Normal])
		}
	}
}
