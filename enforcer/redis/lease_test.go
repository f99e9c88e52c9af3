package redis

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// nodes are Counters of several enforcers on one Redis, whose clocks are off
// by a few seconds each, and the clock that they share with it.
type nodes struct {
	server *redistest.Server
	all    []*timed
	now    int64
}

func newNodes(t testing.TB, n int, c Config) *nodes {
	t.Helper()
	ns := &nodes{server: redistest.Start(t), now: 1_800_000_000_000_000}
	for range n {
		c := c
		if c.Prefix == "" {
			c.Prefix = "shared:"
		}
		ns.all = append(ns.all, virtual(t, ns.server, c))
	}
	return ns
}

// at moves the clock that the servers and all nodes share. Nodes read it each
// with an error of its own.
func (ns *nodes) at(us int64) {
	ns.now = us
	ns.all[0].set(us)
}

// take asks node i.
func (ns *nodes) take(t testing.TB, i int, charges ...gcra.Charge) gcra.Tally {
	t.Helper()
	skew := int64(i) * 7_000_000
	return take(t, ns.all[i].Counter.Set(charges), ns.now+skew, 1)
}

// Two nodes, 800 requests a second offered on 500: every second 500 ± 5 % are
// admitted, and Redis hears a small part of it.
func TestLeasedNodesAdmitTheLimitEverySecond(t *testing.T) {
	ns := newNodes(t, 2, Config{})
	ch := gcra.Charge{Bucket: "b", Key: "hot", Limit: compile(t, 500, 50)}
	sets := []*Set{ns.all[0].Counter.Set([]gcra.Charge{ch}).(*Set), ns.all[1].Counter.Set([]gcra.Charge{ch}).(*Set)}
	start := ns.now
	const seconds, offered = 30, 800
	var admitted [seconds][2]int
	for i := range seconds * offered {
		if ns.now = start + int64(i)*1_000_000/offered; i%2 == 0 {
			ns.at(ns.now)
		}
		node := i % 2
		if take(t, sets[node], ns.now+int64(node)*7_000_000, 1).OK() {
			admitted[i/offered][node]++
		}
	}
	for s, n := range admitted {
		sum, most := n[0]+n[1], 525
		if s == 0 {
			most += 50 // the burst
		}
		if sum < 475 || sum > most {
			t.Errorf("second %d: %d admitted, want 500 ± 5 %%", s, sum)
		}
		if s > 0 && min(n[0], n[1]) < 150 {
			t.Errorf("second %d: %v: one node has all", s, n)
		}
	}
	calls := ns.all[0].sent.Load() + ns.all[1].sent.Load()
	t.Logf("%d requests, %d calls, %d outstanding", seconds*offered, calls, ns.all[0].Stats().Outstanding+ns.all[1].Stats().Outstanding)
	if calls > seconds*offered/4 {
		t.Errorf("%d calls for %d requests", calls, seconds*offered)
	}
}

// Over any span the nodes together admit at most what the limit allows and the
// leases that were outstanding when it began.
func TestOvershootIsBoundedByTheLeasesOutstanding(t *testing.T) {
	ns := newNodes(t, 4, Config{})
	const rate, burst = 2000, 400
	ch := gcra.Charge{Bucket: "b", Limit: compile(t, rate, burst)}
	var sets []*Set
	for _, n := range ns.all {
		sets = append(sets, n.Counter.Set([]gcra.Charge{ch}).(*Set))
	}
	type moment struct{ at, admitted, outstanding int64 }
	start, admitted := ns.now, int64(0)
	var log []moment
	for i := range 20_000 {
		// Loads that come and go: each node is busy in its turn.
		ns.at(start + int64(i)*100)
		node := (i/700 + i%3) % len(sets)
		if take(t, sets[node], ns.now+int64(node)*7_000_000, 1).OK() {
			admitted++
		}
		if i%50 == 0 {
			m := moment{ns.now, admitted, 0}
			for _, n := range ns.all {
				m.outstanding += n.Stats().Outstanding
			}
			log = append(log, m)
		}
	}
	worst := math.Inf(-1)
	for i, a := range log {
		for _, b := range log[i:] {
			allowed := float64(burst) + rate*float64(b.at-a.at)/1e6
			over := float64(b.admitted-a.admitted) - allowed
			if worst = max(worst, over); over > float64(a.outstanding)+1 {
				t.Fatalf("%d admitted in %d µs, allowed %g and %d outstanding", b.admitted-a.admitted, b.at-a.at, allowed, a.outstanding)
			}
		}
	}
	t.Logf("worst span: %.0f above limit and burst; admitted %d of 20000", worst, admitted)
}

// What a node holds when it dies is lost, once; what it returns at a stop is
// there for the others.
func TestALeaseDiesWithItsNodeAndIsReturnedByAStop(t *testing.T) {
	for name, graceful := range map[string]bool{"killed": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			ns := newNodes(t, 2, Config{})
			const burst = 3_000
			ch := gcra.Charge{Bucket: "b", Limit: slow(t, burst)}
			admitted := int64(0)
			// Node 0 takes some, in a hurry.
			s := ns.all[0].Counter.Set([]gcra.Charge{ch})
			for i := range int64(500) {
				ns.at(ns.now + 10)
				if take(t, s, ns.now, 1).OK() {
					admitted++
				}
				if i == 499 && ns.all[0].Stats().Outstanding == 0 {
					t.Fatal("nothing is leased")
				}
			}
			held := ns.all[0].Stats().Outstanding
			if graceful {
				ns.all[0].Close()
			}
			// Node 1 takes the rest.
			rest := int64(0)
			other := ns.all[1].Counter.Set([]gcra.Charge{ch})
			for range 2 * burst {
				ns.at(ns.now + 1000)
				if take(t, other, ns.now, 1).OK() {
					rest++
				}
			}
			want := burst - admitted
			if !graceful {
				want -= held
			}
			if rest != want {
				t.Errorf("%d for the other node after %d admitted and %d held, want %d", rest, admitted, held, want)
			}
		})
	}
}

// One key at 500,000 requests a second, within and beyond its limit: Redis sees
// a call for about every twenty milliseconds.
func TestAFloodOnOneKeyCostsRedisTheLeaseRate(t *testing.T) {
	for _, rate := range []rlc.Rate{1_000_000, 367_000, 500, 20} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			ns := newNodes(t, 1, Config{})
			c := ns.all[0]
			l := compile(t, rate, rlc.Burst(max(rate/10, 1)))
			s := c.Counter.Set([]gcra.Charge{{Bucket: "b", Limit: l}}).(*Set)
			start := ns.now
			admitted := 0
			const requests = 500_000
			for i := range requests {
				if us := start + int64(i)*2; us%100 == 0 {
					ns.at(us) // Redis's clock in steps
				}
				if take(t, s, start+int64(i)*2, 1).OK() {
					admitted++
				}
			}
			// The first twenty find out that the key is hot; then one call each
			// 20 ms, a few to grow, and where little is free two for each burst.
			limit := 20.0 + 10 + 2*50 + 8*min(1/0.02, float64(rate)) + 40
			if n := c.sent.Load(); float64(n) > limit {
				t.Errorf("%d calls in a second of %d requests, want at most %g", n, requests, limit)
			} else {
				t.Logf("rate %g: %d calls, %d admitted", rate, n, admitted)
			}
			want := min(requests, float64(rate)*1.1)
			if float64(admitted) < want*0.95-2 || float64(admitted) > want*1.01+1 {
				t.Errorf("%d admitted, want about %g", admitted, want)
			}
		})
	}
}

func TestAChangeOfLimitReachesALease(t *testing.T) {
	ns := newNodes(t, 1, Config{})
	ask := func(l gcra.Limit, n int) (admitted int) {
		s := ns.all[0].Counter.Set([]gcra.Charge{{Bucket: "b", Limit: l}})
		for range n {
			ns.at(ns.now + 1000)
			if take(t, s, ns.now, 1).OK() {
				admitted++
			}
		}
		return admitted
	}
	if got := ask(slow(t, 100), 500); got != 100 {
		t.Fatalf("%d of 100 admitted", got)
	}
	if got := ask(slow(t, 150), 500); got < 45 || got > 50 {
		t.Errorf("raised by 50: %d admitted at once", got)
	}
	ns.at(ns.now + 1_000_000)
	if got := ask(slow(t, 1000), 300); got != 300 {
		t.Fatalf("%d of 300 admitted", got)
	}
	if got := ask(slow(t, 5), 500); got > 5 {
		t.Errorf("lowered to 5: %d admitted of what was held", got)
	}
}

// A hot cap is charged in memory beside a strict quota; where the quota
// refuses, the cap gets its token back.
func TestALeasedCapIsNotChargedWhereAQuotaRefuses(t *testing.T) {
	ns := newNodes(t, 1, Config{})
	wide := gcra.Charge{Bucket: "cap", Limit: slow(t, 5000)}
	admitted := 0
	for caller := range 50 {
		// Two of each caller's ten are admitted.
		for range 10 {
			ns.at(ns.now + 20)
			if ns.take(t, 0, gcra.Charge{Bucket: "quota", Key: fmt.Sprint(caller), Limit: slow(t, 2)}, wide).OK() {
				admitted++
			}
		}
	}
	if admitted != 100 {
		t.Errorf("%d admitted, want 100", admitted)
	}
	if n := ns.all[0].Stats(); n.Leased != 1 {
		t.Errorf("%+v: want the cap leased, and nothing else", n)
	}
	ns.all[0].Close()
	if got := take(t, virtual(t, ns.server, Config{Prefix: "shared:"}).Counter.Set([]gcra.Charge{wide}), ns.now, 0); got.Remaining != 4900 {
		t.Errorf("%d of 5000 left after 100 admitted", got.Remaining)
	}
}

// What lies idle goes back by itself.
func TestAnIdleLeaseIsReturned(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{LeaseTTL: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s := strict(t, c, "k", 10_000)
	for range 200 {
		take(t, s, time.Now().UnixMicro(), 1)
	}
	// What is on its way is neither held nor back yet.
	soon(t, "the lease returned", func() bool {
		return c.Stats().Outstanding == 0 && take(t, s, time.Now().UnixMicro(), 0).Remaining == 9800
	})
}

func TestALeasedDecisionAllocatesLittle(t *testing.T) {
	ns := newNodes(t, 1, Config{LeaseTTL: time.Hour})
	s := ns.all[0].Counter.Set([]gcra.Charge{{Bucket: "b", Limit: compile(t, 1e9, 1e9)}}).(*Set)
	for range 100 {
		take(t, s, ns.now, 1)
	}
	if n := testing.AllocsPerRun(1000, func() { take(t, s, ns.now, 1) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// More keys than may be measured: the rest is asked for strictly, and none is
// forgotten.
func TestMeasuredKeysAreBounded(t *testing.T) {
	ns := newNodes(t, 1, Config{MaxKeys: 32})
	for i := range 500 {
		ns.take(t, 0, gcra.Charge{Bucket: "b", Key: fmt.Sprint(i), Limit: slow(t, 1)})
	}
	if n := ns.all[0].Stats(); n.Measured > 32 || n.Measured == 0 {
		t.Errorf("%+v", n)
	}
	for i := range 500 {
		if ns.take(t, 0, gcra.Charge{Bucket: "b", Key: fmt.Sprint(i), Limit: slow(t, 1)}).OK() {
			t.Fatalf("key %d is forgotten", i)
		}
	}
	// Long idle ones make room.
	for range 700 {
		ns.all[0].sweep(100 * time.Millisecond)
	}
	if n := ns.all[0].Stats(); n.Measured != 0 {
		t.Errorf("after a minute: %+v", n)
	}
}

// What the script gives: at most what is wanted beyond what is held, at most
// half of what is free but what is of use, never what is not there.
func TestALeaseGetsAtMostHalfOfWhatIsFree(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{})
	for i, l := range []struct{ taken, wants, has, least, given, left int64 }{
		{0, 30, 0, 1, 30, 70},
		{0, 80, 0, 1, 50, 50},
		{0, 80, 0, 60, 60, 40},
		{0, 500, 0, 400, 100, 0},
		{90, 80, 0, 1, 5, 5},
		{99, 80, 0, 1, 1, 0},
		{100, 80, 0, 1, 0, 0},
		{100, 80, 0, 50, 0, 0},
		{40, 10, 25, 1, -15, 75},
		{40, 0, 25, 1, -25, 85},
		{10, 0, 25, 1, -25, 100}, // never above the burst
		{40, 25, 25, 1, 0, 60},
	} {
		s := strict(t, c, fmt.Sprint(i), 100)
		if l.taken > 0 && !take(t, s, 0, l.taken).OK() {
			t.Fatal("not taken")
		}
		answers, err := c.ask(t.Context(), patience, []query{s.parts[0].leaseQuery(c, 0, l.wants, l.has, l.least)}, false)
		if err != nil {
			t.Fatal(err)
		}
		if given, left := answers[0].numbers[0], take(t, s, 0, 0).Remaining; given != l.given || left != l.left {
			t.Errorf("%+v: %d given, %d left", l, given, left)
		}
	}
}

// Tokens that are on their way back are not spent meanwhile.
func TestTokensAreSpentOrGivenBackNeverBoth(t *testing.T) {
	server := redistest.Start(t)
	p := newProxy(t, server.Addr())
	c := counter(t, p.url(), Config{})
	const burst = 10_000
	s := strict(t, c, "k", burst)
	var admitted, now atomic.Int64
	now.Store(time.Now().UnixMicro())
	spend := func() {
		// 50,000 requests a second, of which a lease is to last 20 ms.
		if take(t, s, now.Add(20), 1).OK() {
			admitted.Add(1)
		}
	}
	for range 300 {
		spend()
	}
	k := s.parts[0].hot.Load()
	if k.held() < 100 {
		t.Fatalf("%d held", k.held())
	}
	p.harm("latency", `"latency":30`)
	var group sync.WaitGroup
	group.Go(func() { c.giveBack(k) })
	soon(t, "tokens on their way", func() bool { return k.held() == 0 })
	for range 4 {
		group.Go(func() {
			for range 20 {
				spend()
			}
		})
	}
	group.Wait()
	p.heal()
	c.Close()
	if left := take(t, strict(t, counter(t, server.URL(), Config{Prefix: c.config.Prefix}), "k", burst), 0, 0).Remaining; left != burst-admitted.Load() {
		t.Errorf("%d left after %d of %d", left, admitted.Load(), burst)
	}
}
