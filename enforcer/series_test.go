package enforcer

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func newTable(most int) *table {
	return &table{max: most, rest: series{labels: labels{Other, Other}}}
}

func TestThePeakIsTheHighestSecondOfTheLastClosedMinute(t *testing.T) {
	var p peak
	add := func(second int64, n int) {
		for range n {
			p.add(n%outcomes, second)
		}
	}
	const minute = 1_000_000 * 60 // a clock minute
	add(minute+3, 5)
	add(minute+4, 9)
	add(minute+59, 2)
	for _, c := range []struct {
		at   int64
		want uint32
	}{{minute + 59, 0}, {minute + 60, 9}, {minute + 119, 9}, {minute + 120, 0}} {
		if got := p.closed(c.at); got != c.want {
			t.Errorf("%d s into the minute: %d, want %d", c.at-minute, got, c.want)
		}
	}
	// A second that nothing came after is part of its minute.
	add(minute+60, 30)
	if got := p.closed(minute + 125); got != 30 {
		t.Errorf("the only second of a minute: %d, want 30", got)
	}
	add(minute+121, 1)
	if got := p.closed(minute + 130); got != 30 {
		t.Errorf("once the next minute has begun: %d, want 30", got)
	}
	if got := p.closed(minute + 600); got != 0 {
		t.Errorf("a quiet minute: %d, want 0", got)
	}
}

func TestThePeakCountsEveryRequestOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p peak
		bySecond := map[int64]uint32{}
		at := int64(6000)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			at += rapid.Int64Range(0, 40).Draw(t, "gap")
			n := rapid.IntRange(1, 4).Draw(t, "n")
			for range n {
				p.add(n%outcomes, at)
			}
			bySecond[at] += uint32(n)
		}
		now := at + rapid.Int64Range(0, 130).Draw(t, "later")
		var want uint32
		for second, n := range bySecond {
			if second/60 == now/60-1 {
				want = max(want, n)
			}
		}
		if got := p.closed(now); got != want {
			t.Fatalf("got %d, want %d of %v at %d", got, want, bySecond, now)
		}
	})
}

// While a second is being turned, some counters are in the new one and some are not,
// whichever comes first: who counts with one that is not has to see the turn through,
// so that nothing of the new second is taken for the old one's.
func TestARequestNeverCountsInASecondThatIsBeingTurned(t *testing.T) {
	const old, second = 100, 101
	for turned := range 1 << outcomes {
		for outcome := range outcomes {
			p := peak{second: old}
			for i := range p.now {
				p.now[i].Store(uint64(old+turned>>i&1) << 32)
			}
			p.enter(outcome, second)
			want := [2]int64{second, second}
			if turned>>outcome&1 == 1 {
				want[1] = old // this one had turned: nothing is waited for
			}
			if got := [2]int64{int64(p.now[outcome].Load() >> 32), p.second}; got != want {
				t.Errorf("counters %0*b turned, outcome %d: %v, want %v", outcomes, turned, outcome, got, want)
			}
		}
	}
}

func TestASeriesBeyondTheBoundIsOther(t *testing.T) {
	tab := newTable(2)
	a, b, c := tab.get(labels{"a", ""}), tab.get(labels{"b", ""}), tab.get(labels{"c", ""})
	if a == b || a == &tab.rest || c != &tab.rest || tab.get(labels{"a", ""}) != a {
		t.Error("want two series of their own and one for the rest")
	}
	if got := tab.all(); len(got) != 2 {
		t.Errorf("%d series while the rest has counted nothing, want 2", len(got))
	}
	c.count(Drop, 1)
	if got := tab.all(); len(got) != 3 || got[2].labels != (labels{Other, Other}) {
		t.Errorf("%d series, the last %+v", len(got), got[len(got)-1].labels)
	}
}

func TestBusyCallersTakeThePlacesOfQuietOnes(t *testing.T) {
	tab := newTable(20)
	for i := range 20 {
		s := tab.get(labels{fmt.Sprintf("c%02d", i), ""})
		for range 10 * i {
			s.count(Admit, 1)
		}
	}
	busy := map[labels]uint64{{"big", ""}: 1000, {"mid", ""}: 30, {"small", ""}: 15, {"tiny", ""}: 1}
	if !tab.rank(busy) {
		t.Fatal("nothing changed")
	}
	// Three places at most (a tenth and one); c00 had 0, c01 10, c02 20.
	for name, want := range map[string]bool{"big": true, "mid": true, "small": false, "tiny": false, "c00": false, "c01": false, "c02": true, "c19": true} {
		if got := tab.set[labels{name, ""}] != nil; got != want {
			t.Errorf("%s has a series: %v, want %v", name, got, want)
		}
	}
	if len(tab.set) != 20 {
		t.Errorf("%d series", len(tab.set))
	}
	// Nobody was busy since: nothing moves.
	if tab.rank(nil) {
		t.Error("a quiet minute changed places")
	}
}

func TestABusyCallerBehindOtherGetsItsSeries(t *testing.T) {
	e, l := loadedFor(t, "series: {max: 1}\nbuckets:\n  - {name: callers, each: [caller]}\n")
	ask := func(caller string, n int) {
		for range n {
			e.Decide(Request{Service: "s", Attributes: map[string]string{"caller": caller}})
		}
	}
	ask("early", 2)
	ask("late", 50)
	e.rank()
	ask("late", 5)
	ask("early", 1)
	tab := &l.services["s"].buckets[0].counts.table
	if s := tab.set[labels{"late", ""}]; s == nil || s.total() != 5 {
		t.Errorf("late: %+v", s)
	}
	if got := tab.rest.total(); got != 51 {
		t.Errorf("the rest has %d, want 50 of late and 1 of early", got)
	}
}

func TestRoutesAreBoundedAndFoundAgain(t *testing.T) {
	e, l := loadedFor(t, "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.001, burst: 1}}\n")
	first := func(want Outcome) {
		t.Helper()
		for i := range 50 {
			if d := e.Decide(Request{Service: "s", Attributes: map[string]string{"caller": fmt.Sprint(i)}}); d.Outcome != want {
				t.Fatalf("caller %d: %s, want %s", i, d.Outcome, want)
			}
		}
	}
	first(Admit)
	for i := range uint64(2 * routesMost) {
		l.routes.put(&route{course: &course{hash: max(i*0x9E3779B97F4A7C15, 1)}})
	}
	n := 0
	l.routes.each(func(*route) { n++ })
	if n > routesMost || n < routesMost/2 {
		t.Errorf("%d routes, want at most %d", n, routesMost)
	}
	// Where a route was dropped, the next one leads to the same counter.
	l.routes.clear()
	first(Drop)
}

// The cache stays dense without searches becoming long.
func TestRoutesAreFoundAfterFewPlaces(t *testing.T) {
	var c routes
	c.init()
	s := &active{service: &service{}}
	const n = 10_000
	all := make([]*route, n)
	for i := range all {
		values := []string{fmt.Sprint("caller-", i)}
		all[i] = &route{service: s, course: &course{hash: c.hash(s, values)}}
		all[i].setValues(values)
		c.put(all[i])
	}
	searched, places := 0, *c.places.Load()
	for i, r := range all {
		if c.get(r.hash, s, r.values) != r {
			t.Fatalf("route %d is lost", i)
		}
		for probe := 0; places.at(r.hash, probe).route.Load() != r; probe++ {
			searched++
		}
		searched++
	}
	// Twice as many places if chance has put more than routeProbes routes in a row.
	if len(places) > 32_768 || searched > 3*n {
		t.Errorf("%d routes in %d places are found after %d, want at most three for each", n, len(places), searched)
	}
	// Where chance is even, three of four places are taken.
	c.clear()
	for i := range uint64(16_384*3/4 + 2) {
		if places := c.places.Load(); i == 16_384*3/4+1 && len(*places) != 16_384 {
			t.Errorf("%d routes in %d places, want 16,384", i, len(*places))
		}
		c.put(&route{course: &course{hash: (i + 1) * 0x9E3779B97F4A7C15}})
	}
	if places := c.places.Load(); len(*places) != 32_768 {
		t.Errorf("one route more in %d places, want 32,768", len(*places))
	}
}

// No route is forgotten before the cache is as large as it may be.
func TestNoRouteIsLostWhileTheCacheGrows(t *testing.T) {
	var c routes
	s := &active{service: &service{}}
	var all []*route
	for size := 0; size < routesMost; {
		h := uint64(len(all)+1) * 0x9E3779B97F4A7C15 // as chance would have it, the same in each run
		h = (h ^ h>>32) * 0xD6E8FEB86659FD93
		r := &route{service: s, course: &course{hash: h ^ h>>32}}
		c.put(r)
		all = append(all, r)
		if places := len(*c.places.Load()); places != size {
			size = places
			for i, r := range all {
				if c.get(r.hash, s, nil) != r {
					t.Fatalf("of %d routes number %d is lost in %d places", len(all), i, places)
				}
			}
		}
	}
	if len(all) < routesMost/4 {
		t.Errorf("%d places for %d routes", routesMost, len(all))
	}
}

// A route is a pair of cache lines, which processors fetch together; names that
// do not fit are found all the same.
func TestARouteIsTwoCacheLines(t *testing.T) {
	if size := reflect.TypeFor[route]().Size(); size != 128 {
		t.Errorf("%d bytes, want 128", size)
	}
	s := &active{service: &service{}}
	short, exact, long := "a", strings.Repeat("b", textSize-1), strings.Repeat("c", textSize+1)
	var all [][]string
	for _, first := range []string{"", short, exact, long} {
		for _, second := range []string{"", short, exact, long} {
			all = append(all, []string{first, second}, []string{first, second, "", "x", "y"})
		}
	}
	for i, values := range all {
		r := &route{service: s, course: &course{}}
		r.setValues(values)
		for j, other := range all {
			if len(values) == len(other) && r.is(s, other) != (i == j) {
				t.Errorf("%q is taken for %q: %v", other, values, i != j)
			}
		}
		if r.is(&active{}, values) {
			t.Errorf("%q of another service is taken for this one's", values)
		}
	}
}

func TestDecidingACachedRouteAllocatesNothing(t *testing.T) {
	e, _ := loadedFor(t, "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 1000000, burst: 1000000}}\n  - {name: all, role: cap, mode: shadow, limit: {rate: 1000000, burst: 1000000}}\n")
	r := Request{Service: "s", Attributes: map[string]string{"caller": "a", "procedure": "P"}}
	if n := testing.AllocsPerRun(1000, func() { e.Decide(r) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestDecisionsAndReloadsRunSideBySide(t *testing.T) {
	e, _ := loadedFor(t, "buckets:\n  - {name: callers, each: [caller], limit: {rate: 1, burst: 1}}\n")
	var group sync.WaitGroup
	for g := range 3 {
		group.Go(func() {
			for i := range 500 {
				e.Decide(Request{Service: "s", Attributes: map[string]string{"caller": fmt.Sprint(i % 50)}})
				if i%100 == 0 {
					e.memory.Sweep(e.now().UnixMicro())
					e.rank()
					_, _ = e.gatherer.Gather()
				}
			}
			_ = g
		})
	}
	for n := range uint64(5) {
		if err := e.Load(snapshotOf(2+n, fmt.Sprintf("buckets:\n  - {name: callers, each: [caller], limit: {rate: %d, burst: 1}}\n", n+1))); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	// Every decision was counted once, whichever snapshot made it.
	total := uint64(0)
	for _, s := range e.loaded.Load().services["s"].buckets[0].counts.table.all() {
		total += s.total()
	}
	if total != 1500 {
		t.Errorf("%d counted of 1500", total)
	}
}

// What is seen of a route among the rest is exact while it is little, and close
// where it is sampled, also when callers take turns.
func TestBusyRoutesAreSeenForWhatTheyAre(t *testing.T) {
	var rest series
	quiet, routes := &route{}, make([]route, 8)
	for i := range 80_000 {
		r := &routes[i%len(routes)]
		if i%2000 == 0 {
			r = quiet
		}
		r.see(rest.count(Admit, 1))
	}
	if got := quiet.seen.Load(); got != 40 {
		t.Errorf("40 requests, seen as %d", got)
	}
	for i := range routes {
		if got := routes[i].seen.Load(); got < 9000 || got > 11000 {
			t.Errorf("route %d: 10,000 requests, seen as %d", i, got)
		}
	}
}
