package loop

import (
	"fmt"
	"testing"
	"time"
)

// steady is a node that reports each second what every path of it was offered.
type steady struct {
	agg    *Aggregator
	report Report
}

func newSteady(a *Aggregator, node string, paths int) *steady {
	s := &steady{agg: a, report: Report{Node: node, Incarnation: 1}}
	for i := range paths {
		s.report.Paths = append(s.report.Paths, PathReport{Path: Path{fmt.Sprint("b", i)}, Since: time.Second, Dropped: []uint64{0}})
	}
	return s
}

// second reports n requests of each of the first paths.
func (s *steady) second(now time.Duration, n uint64, paths int) {
	s.report.Seq++
	s.report.At = now
	r := s.report
	r.Paths = r.Paths[:paths]
	for i := range r.Paths {
		r.Paths[i].Offered[Normal] += n
	}
	s.agg.Report(r, now)
}

// What a node reports each second, in the same order, costs no allocation and no
// search by name.
func TestARepeatedReportIsReadInOrder(t *testing.T) {
	a := NewAggregator(AggregatorConfig{})
	s, now := newSteady(a, "x", 50), time.Second
	s.second(now, 10, 50)
	n := a.nodes["x"]
	clear(n.paths) // a search would find nothing and make the path anew
	if allocated := testing.AllocsPerRun(20, func() {
		now += time.Second
		s.second(now, 10, 50)
	}); allocated > 0 {
		t.Errorf("%v allocations a report, want none", allocated)
	}
	if len(n.order) != 50 || len(n.paths) != 0 {
		t.Errorf("%d paths known, %d found by name; want 50 and none", len(n.order), len(n.paths))
	}
}

// The order and the identity of paths decide how fast they are found, and
// nothing else.
func TestPathsAreFoundInAnyOrder(t *testing.T) {
	a := NewAggregator(AggregatorConfig{})
	counts := make([]uint64, 30)
	for round := range 10 {
		r := Report{Node: "x", Incarnation: 1, Seq: uint64(round + 1), At: time.Duration(round+1) * time.Second}
		for i := range counts {
			b := (i*7 + round*11) % len(counts)
			counts[b] += uint64(b)
			r.Paths = append(r.Paths, PathReport{Path: Path{fmt.Sprint("b", b)}, Since: time.Second, Offered: normalCount(counts[b]), Dropped: []uint64{0}})
		}
		a.Report(r, r.At)
	}
	for b := range counts {
		if got := a.paths[fmt.Sprint("b", b)].rate[Normal]; got != int64(b)*milliRequests {
			t.Errorf("bucket %d has %d/s, want %d", b, got/milliRequests, b)
		}
	}
}

// A path that its node reports no longer is taken away after 2.5 s, comes back,
// and is forgotten after minutes, while the rest of the node goes on.
func TestASilentPathOfALivingNode(t *testing.T) {
	a := NewAggregator(AggregatorConfig{Source: zoneZ})
	s := newSteady(a, "x", 2)
	rate := func() int64 { return a.paths["b1"].rate[Normal] / milliRequests }
	sweep := func(from, to time.Duration, paths int) {
		for now := from; now < to; now += tick {
			if now%time.Second == 0 {
				s.second(now, 10, paths)
			}
			a.Tick(now)
		}
	}
	sweep(time.Second, 5*time.Second, 2)
	if rate() != 10 {
		t.Fatalf("%d/s, want 10", rate())
	}
	sweep(5*time.Second, 6500*time.Millisecond, 1) // last reported at 4 s
	if rate() != 10 {
		t.Errorf("%d/s within 2.5 s of silence, want 10", rate())
	}
	sweep(6500*time.Millisecond, 7*time.Second, 1)
	if rate() != 0 {
		t.Errorf("%d/s after 2.5 s of silence, want 0", rate())
	}
	sweep(7*time.Second, 9*time.Second, 2)
	if rate() != 10 {
		t.Errorf("%d/s when it is back, want 10", rate())
	}
	end := 9*time.Second + 2*forgetAfter
	sweep(9*time.Second, end, 1)
	if a.paths["b1"] != nil || len(a.nodes["x"].order) != 1 || a.paths["b0"] == nil {
		t.Error("a path is not forgotten minutes after it fell silent, or one that goes on is")
	}
}

// What chance moves waits, so that a fleet at rest is told once in two seconds;
// what is more than chance is told at once.
func TestSlightNewsWaitForEachOther(t *testing.T) {
	a := NewAggregator(AggregatorConfig{Source: zoneZ})
	s := newSteady(a, "x", 50)
	s.second(0, 10, 50)
	seq, messages := uint64(0), 0
	say := func(now time.Duration, keep func(bucket int) float64, buckets ...int) {
		seq++
		d := Directives{Epoch: 1, Seq: seq}
		for _, b := range buckets {
			d.List = append(d.List, Directive{Bucket: fmt.Sprint("b", b), Limit: 10_000, Keep: Keep{1, keep(b), MinKeep}})
		}
		if v := a.Apply(d, now); len(v.List) > 0 {
			messages++
		}
	}
	flat := func(int) float64 { return 0.8 }
	var all []int
	for b := range 50 {
		all = append(all, b)
	}
	say(0, flat, all...)
	if messages != 1 {
		t.Fatalf("%d messages for what is new, want 1 at once", messages)
	}
	messages = 0
	for step := range 200 { // 10 s; each tick another bucket has moved by 2 %
		now := time.Duration(step+1) * tick
		say(now, func(int) float64 { return 0.8 * (1 + 0.02*float64(step%2)) }, step%50)
		if step%20 == 0 {
			say(now, flat, all...) // the controller repeats all
		}
		if _, _, _, told := a.Tick(now); told {
			messages++
		}
	}
	if messages < 5 || messages > 6 {
		t.Errorf("%d messages in 10 s of trembling, want one in two seconds", messages)
	}
	messages = 0
	say(10100*time.Millisecond, func(int) float64 { return 0.7 }, 3)
	if messages != 1 {
		t.Error("an eighth less is not told at once")
	}
}
