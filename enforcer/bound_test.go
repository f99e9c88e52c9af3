package enforcer_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

func TestTheProcessHoldsNoMoreKeysThanItMay(t *testing.T) {
	for onFull, want := range map[string][2]int{"admit": {70, 0}, "share": {54, 16}} {
		e, at := start(t, enforcer.Config{MaxKeys: 50})
		load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\ncounters: {on_full: "+onFull+"}\nbuckets:\n"+
			"  - {name: one, each: [caller], match: {procedure: One}, limit: {rate: 1, burst: 2}}\n"+
			"  - {name: two, each: [caller], match: {procedure: Two}, limit: {rate: 1, burst: 2}}\n")))
		got := map[enforcer.Outcome]int{}
		send := func(from, until int) {
			for i := from; i < until; i++ {
				for o, n := range ask(e, 1, "s", rlc.Attributes{"caller": fmt.Sprint("c", i), "procedure": []string{"One", "Two"}[i%2]}) {
					got[o] += n
				}
			}
		}
		// Fifty have a counter; of twenty more each bucket's ten share two tokens,
		// or are admitted.
		send(0, 70)
		wantOutcomes(t, onFull, got, want[0], want[1], 0)
		if n := metrics(t, e)["rlc_enforcer_counters"]; n != "50" {
			t.Errorf("%s: %s live counters, want 50", onFull, n)
		}
		at.advance(2 * time.Second)
		send(100, 150) // by now the others are idle, and make room
		m := metrics(t, e)
		if m["rlc_enforcer_counters"] != "50" || m["rlc_enforcer_evictions_total"] != "50" {
			t.Errorf("%s: %s live counters, %s evicted, want 50 and 50", onFull, m["rlc_enforcer_counters"], m["rlc_enforcer_evictions_total"])
		}
	}
}

// TestMemoryOfManyBucketsAndKeys prints the figure of the enforcer's documents,
// at a fifth of its size; with RLC_TEST_FULL=1 at the whole: 10,000 buckets and
// 200,000 keys.
func TestMemoryOfManyBucketsAndKeys(t *testing.T) {
	const buckets = 20
	services := 100
	if os.Getenv("RLC_TEST_FULL") != "" {
		services = 500
	}
	keys, most := 400*services, 300*services
	files := rlc.Files{}
	for s := range services {
		body := "defaults: {mode: enforce}\nseries: {max: 1}\nbuckets:\n"
		for b := range buckets {
			body += fmt.Sprintf("  - {name: b%d, each: [caller], match: {procedure: P%d}, limit: {rate: 1, burst: 10}}\n", b, b)
		}
		for name, data := range policy(fmt.Sprint("s", s), body) {
			files[name] = data
		}
	}
	before := heapInUse()
	e, at := start(t, enforcer.Config{MaxKeys: most})
	load(t, e, snap(1, files))
	loaded := heapInUse()
	for i := range keys {
		e.Decide(enforcer.Request{Service: fmt.Sprint("s", i%services), Attributes: rlc.Attributes{
			"caller": fmt.Sprint("caller-", i), "procedure": fmt.Sprint("P", i/services%buckets),
		}})
	}
	after := heapInUse()
	live, _ := e.Counters()
	t.Logf("%d buckets: %d MiB; %d keys: %d MiB more, %d counters live", services*buckets, (loaded-before)>>20, keys, (after-loaded)>>20, live)
	if live != most {
		t.Errorf("%d live counters, want %d", live, most)
	}
	if each := (after - before) / uint64(keys); each > 2000 {
		t.Errorf("%d bytes a key, want at most 2,000", each)
	}
	at.advance(time.Minute)
	for range 10 {
		e.Tick()
	}
	if live, evicted := e.Counters(); live != 0 || int(evicted) != most {
		t.Errorf("once idle: %d live, %d evicted", live, evicted)
	}
	runtime.KeepAlive(e)
}

func heapInUse() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func TestADecisionAllocatesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		store  bool
		outs   enforcer.Outcome
		repeat int
	}{
		"admitted":             {"defaults: {mode: enforce}\nbuckets:\n  - {name: b, each: [caller], limit: {rate: 1000000, burst: 1000000}}\n", false, enforcer.Admit, 0},
		"in a shared store":    {"defaults: {mode: enforce}\nbuckets:\n  - {name: b, each: [caller], limit: {rate: 1000000, burst: 1000000}}\n", true, enforcer.Admit, 0},
		"with a cap in shadow": {"defaults: {mode: enforce}\nbuckets:\n  - {name: b, each: [caller], limit: {rate: 1000000, burst: 1000000}}\n  - {name: c, role: cap, mode: shadow, limit: {rate: 1000000, burst: 1000000}}\n", false, enforcer.Admit, 0},
		"dropped":              {"defaults: {mode: enforce}\nbuckets:\n  - {name: b, each: [caller], limit: " + twoADay + "}\n", false, enforcer.Drop, 2},
		"of a virtual drop":    {"buckets:\n  - {name: b, each: [caller], limit: " + twoADay + "}\n", false, enforcer.VirtualDrop, 2},
		"without a quota":      {"buckets:\n  - {name: b, each: [caller]}\n", false, enforcer.Admit, 0},
	} {
		config := enforcer.Config{}
		if c.store {
			config.Counter = enforcer.InProcess(nil)
		}
		e, _ := start(t, config)
		load(t, e, snap(1, policy("s", c.body)))
		ask(e, c.repeat+2, "s", search)
		r := enforcer.Request{Service: "s", Attributes: search}
		var d enforcer.Decision
		if n := testing.AllocsPerRun(1000, func() { d = e.Decide(r) }); n != 0 || d.Outcome != c.outs {
			t.Errorf("a decision %s: %g allocations, %s", name, n, d.Outcome)
		}
	}
}
