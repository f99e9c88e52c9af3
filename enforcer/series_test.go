package enforcer

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	"pgregory.net/rapid"
)

func newTable(most int) *table {
	t := &newCounts("s", "b", rlc.QuotaRole).table
	t.max = most
	return t
}

func TestThePeakIsTheHighestSecondOfTheLastClosedMinute(t *testing.T) {
	p := newSeries(labels{})
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
		p := newSeries(labels{})
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
			p := newSeries(labels{})
			p.second = old
			for i := range p.now {
				p.now[i].Store(uint64(old+turned>>i&1) << 32)
			}
			(&route{now: p.now, course: &course{series: p}}).enter(outcomeNames[outcome], second)
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
		l.routes.put(&route{course: &course{id: identity{i * 0x9E3779B97F4A7C15, i + firstMark}}})
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
		all[i] = &route{course: &course{id: c.identify(s, []string{fmt.Sprint("caller-", i)})}}
		c.put(all[i])
	}
	searched, places := 0, *c.places.Load()
	for i, r := range all {
		if c.get(r.id) != r {
			t.Fatalf("route %d is lost", i)
		}
		for probe := 0; places.at(r.id, probe).route.Load() != r; probe++ {
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
		c.put(&route{course: &course{id: identity{i * 0x9E3779B97F4A7C15, i + firstMark}}})
	}
	if places := c.places.Load(); len(*places) != 32_768 {
		t.Errorf("one route more in %d places, want 32,768", len(*places))
	}
}

// No route is forgotten before the cache is as large as it may be.
func TestNoRouteIsLostWhileTheCacheGrows(t *testing.T) {
	var c routes
	var all []*route
	for size := 0; size < routesMost; {
		h := uint64(len(all)+1) * 0x9E3779B97F4A7C15 // as chance would have it, the same in each run
		h = (h ^ h>>32) * 0xD6E8FEB86659FD93
		r := &route{course: &course{id: identity{h ^ h>>32, h | firstMark}}}
		c.put(r)
		all = append(all, r)
		if places := len(*c.places.Load()); places != size {
			size = places
			for i, r := range all {
				if c.get(r.id) != r {
					t.Fatalf("of %d routes number %d is lost in %d places", len(all), i, places)
				}
			}
		}
	}
	if len(all) < routesMost/4 {
		t.Errorf("%d places for %d routes", routesMost, len(all))
	}
}

// What a decision reads of a route stands in one cache line.
func TestARouteIsACacheLine(t *testing.T) {
	if size := reflect.TypeFor[route]().Size(); size != 64 {
		t.Errorf("%d bytes, want 64", size)
	}
	if size := reflect.TypeFor[spot]().Size(); size != 16 {
		t.Errorf("%d bytes a place, want 16", size)
	}
}

// Routes are told apart by service, by values, and by which value stands where.
func TestRoutesOfOtherValuesAreOthers(t *testing.T) {
	var c routes
	c.init()
	long := strings.Repeat("c", maxValue)
	seen := map[identity]string{}
	for _, s := range []*active{{salt: 1}, {salt: 2}} {
		for _, first := range []string{"", "a", "b", long} {
			for _, values := range [][]string{{first}, {first, ""}, {first, "a"}, {first, "b"}, {first, long}, {first + "a", ""}} {
				id, name := c.identify(s, values), fmt.Sprintf("%d %q", s.salt, values)
				if id != c.identify(s, values) {
					t.Errorf("%.40s has two identities", name)
				}
				if was, ok := seen[id]; ok && was != name {
					t.Errorf("%.40s is taken for %.40s", name, was)
				}
				seen[id] = name
			}
		}
	}
}

// Whoever found a mark gets that mark's route or none, when another takes the place
// meanwhile.
func TestAPlaceThatChangesHandsGivesNoOthersRoute(t *testing.T) {
	first := &route{course: &course{id: identity{mark: firstMark}}}
	second := &route{course: &course{id: identity{mark: firstMark + 1}}}
	var s spot
	s.set(first)
	s.mark.Store(changeMark) // as far as set has come
	s.route.Store(second)
	if s.of(firstMark) != nil {
		t.Error("another's route")
	}
	s.set(second)
	if s.of(firstMark) != nil || s.of(firstMark+1) != second {
		t.Error("not the route of the mark that stands")
	}
}

// Two requests may find out the same route at once; one of them is cached.
func TestARouteIsCachedOnce(t *testing.T) {
	var c routes
	c.init()
	id := identity{1, firstMark}
	first := &route{course: &course{id: id}}
	c.put(first)
	c.put(&route{course: &course{id: id}})
	n := 0
	c.each(func(*route) { n++ })
	if n != 1 || c.get(id) != first {
		t.Errorf("%d routes", n)
	}
}

// Routes that something newer has replaced keep no lane of the loop from those that
// decide now, nor do those that are cached too late.
func TestRoutesThatAreReplacedGiveTheirLanesBack(t *testing.T) {
	const body = "buckets:\n  - {name: callers, each: [caller], algorithm: drop_ratio, limit: {rate: 100, burst: 10}}\n"
	c := loop.NewClient(loop.ClientConfig{Node: "n"})
	e, err := New(Config{Name: "e", Loop: c})
	if err != nil {
		t.Fatal(err)
	}
	open := func() (n int) {
		e.loaded.Load().routes.each(func(r *route) {
			if draw, _ := r.lane.Take(0); draw != 0 {
				n++
			}
		})
		return n
	}
	for i := range uint64(10) {
		if err := e.Load(snapshotOf(1+i, body)); err != nil {
			t.Fatal(err)
		}
		old := e.loaded.Load()
		e.Decide(Request{Service: "s", Caller: "a"})
		c.Apply(loop.Directives{Epoch: 1, Seq: 1 + i, List: []loop.Directive{{Bucket: asIfPrefix + "s\x00callers\x00callers/caller=a", Limit: 100, Keep: loop.Keep{1, 1, 1}}}}, 0)
		if n := open(); n != 1 {
			t.Fatalf("snapshot %d: %d open lanes, want 1", 1+i, n)
		}
		e.renew(e.now())
		var late *route
		e.Decide(Request{Service: "s", Caller: "a"})
		e.loaded.Load().routes.each(func(r *route) { late = r })
		if old.routes.put(late); old.routes.get(late.id) != nil {
			t.Fatal("a route is cached where nothing is in force any more")
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
	rest := newSeries(labels{})
	quiet, routes := &route{course: &course{series: rest}, now: rest.now}, make([]route, 8)
	for i := range routes {
		routes[i] = route{course: &course{series: rest}, now: rest.now}
	}
	for i := range 80_000 {
		r := &routes[i%len(routes)]
		if i%2000 == 0 {
			r = quiet
		}
		r.see(r.add(Admit, 1))
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
