package enforcer_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
)

const (
	ratioBucket = "  - {name: b, each: [caller], algorithm: drop_ratio, limit: {rate: 100, burst: 10}}\n"
	tokenBucket = "  - {name: b, each: [caller], limit: {rate: 100, burst: 10}}\n"
	ratioCap    = "  - {name: all, role: cap, algorithm: drop_ratio, limit: {rate: 500, burst: 500}}\n"

	ratioName = "s\x00b\x00b/caller=search"
	capName   = "s\x00all\x00all"
	asIf      = "\x00as-if "
)

// told is a word of the loop on some buckets, by their loop names.
func told(seq uint64, keep map[string]float64) loop.Directives {
	d := loop.Directives{Epoch: 1, Seq: seq}
	for name, k := range keep {
		d.List = append(d.List, loop.Directive{Bucket: name, Limit: 100, Load: 60, Keep: loop.Keep{1, k, loop.MinKeep}})
	}
	return d
}

func onLoop(t *testing.T, body string) (*enforcer.Enforcer, *loop.Client) {
	t.Helper()
	c := loop.NewClient(loop.ClientConfig{Node: "n"})
	e, _ := start(t, enforcer.Config{Loop: c})
	load(t, e, snap(1, policy("s", body)))
	return e, c
}

// share is the part of n requests with this outcome.
func share(e *enforcer.Enforcer, n int, of enforcer.Outcome) float64 {
	hits := 0
	for range n {
		if e.Decide(enforcer.Request{Service: "s", Attributes: search}).Outcome == of {
			hits++
		}
	}
	return float64(hits) / float64(n)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.03 {
		t.Errorf("%s: %.3f, want %.3f", what, got, want)
	}
}

func TestWithoutALoopARatioIsATokenBucket(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+ratioBucket)))
	wantOutcomes(t, "a burst of 10", ask(e, 30, "s", search), 10, 20, 0)
}

func TestTheLoopDecidesOnceItHasSpoken(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n"+ratioBucket)
	wantOutcomes(t, "nothing said yet: a token bucket", ask(e, 30, "s", search), 10, 20, 0)
	c.Apply(told(1, map[string]float64{ratioName: 0.3}), time.Second)
	near(t, "dropped at a ratio of 0.7", share(e, 5000, enforcer.Drop), 0.7)
	for {
		d := e.Decide(enforcer.Request{Service: "s", Attributes: search})
		if d.Outcome == enforcer.Admit {
			if d.Remaining != 40 || d.Limit.Rate != 100 {
				t.Errorf("admitted with %d left of %v, want 100 − 60", d.Remaining, d.Limit)
			}
			continue
		}
		if d.Bucket != "b" || d.Key["caller"] != "search" || d.RetryAfter != time.Second || d.Enforced.Bucket != "b" {
			t.Errorf("refused by %s %v, retry after %v", d.Bucket, d.Key, d.RetryAfter)
		}
		break
	}
	report, _ := c.Tick(2 * time.Second)
	if len(report.Paths) != 1 || report.Paths[0].Offered[loop.Normal] < 5030 {
		t.Errorf("reported %+v, want every request, those before the first word among them", report.Paths)
	}
}

// What routes have counted for the loop outlives them: a snapshot, an override and a
// ranking drop them all.
func TestWhatRoutesCountedForTheLoopOutlivesThem(t *testing.T) {
	body := "defaults: {mode: enforce}\nbuckets:\n" + ratioBucket
	e, c := onLoop(t, body)
	ask(e, 1, "s", search)
	c.Apply(told(1, map[string]float64{ratioName: 1}), 0)
	for i := range 6 { // more than a handle has lanes
		ask(e, 100, "s", search)
		load(t, e, snap(uint64(i+2), policy("s", body)))
	}
	ask(e, 50, "s", search)
	report, _ := c.Tick(time.Second)
	if len(report.Paths) != 1 || report.Paths[0].Offered[loop.Normal] != 651 {
		t.Errorf("reported %+v, want all 651 requests", report.Paths)
	}
}

func TestAPeekAtARatioLeavesNoTrace(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n"+ratioBucket)
	for range 100 {
		e.Decide(enforcer.Request{Service: "s", Attributes: search, Peek: true})
	}
	if c.Find(loop.Path{ratioName}) != nil {
		t.Error("a peek made a handle")
	}
	ask(e, 1, "s", search)
	c.Apply(told(1, map[string]float64{ratioName: 0.5}), time.Second)
	c.Tick(time.Second)
	drops := 0
	for range 2000 {
		if e.Decide(enforcer.Request{Service: "s", Attributes: search, Peek: true}).Outcome == enforcer.Drop {
			drops++
		}
	}
	near(t, "peeks refused at 0.5", float64(drops)/2000, 0.5)
	if r, _ := c.Tick(3 * time.Second); len(r.Paths) > 0 && r.Paths[0].Offered[loop.Normal] != 1 {
		t.Errorf("peeks were counted: %+v", r.Paths)
	}
}

// In shadow the ratio that would be drops virtually: as many as it would drop.
func TestShadowDropsByTheRatioThatWouldBe(t *testing.T) {
	e, c := onLoop(t, "buckets:\n"+ratioBucket)
	ask(e, 1, "s", search)
	c.Apply(told(1, map[string]float64{asIf + ratioName: 0.25}), time.Second)
	near(t, "virtual drops at 0.75", share(e, 5000, enforcer.VirtualDrop), 0.75)
	if n := share(e, 1000, enforcer.Drop); n != 0 {
		t.Errorf("%v dropped in shadow", n)
	}
}

// What the live world drops, the world in which all enforce drops as well: one
// draw decides both.
func TestBothWorldsGoByOneDraw(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n"+ratioBucket+"  - {name: all, role: cap, mode: shadow, algorithm: drop_ratio, limit: {rate: 500, burst: 500}}\n")
	ask(e, 1, "s", search)
	c.Apply(told(1, map[string]float64{ratioName: 0.5, asIf + ratioName: 0.5, asIf + capName: 0.5}), time.Second)
	counts := map[enforcer.Outcome]int{}
	for range 8000 {
		counts[e.Decide(enforcer.Request{Service: "s", Attributes: search}).Outcome]++
	}
	// 0.5 pass the quota; of those, 0.5 would be dropped by the cap.
	near(t, "dropped", float64(counts[enforcer.Drop])/8000, 0.5)
	near(t, "virtually dropped", float64(counts[enforcer.VirtualDrop])/8000, 0.25)
}

func TestAQuotaAndItsCapAreOnePath(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n"+ratioBucket+ratioCap)
	ask(e, 1, "s", search)
	c.Apply(told(1, map[string]float64{ratioName: 0.8, capName: 0.5}), time.Second)
	by := map[string]int{}
	for range 8000 {
		if d := e.Decide(enforcer.Request{Service: "s", Attributes: search}); d.Outcome == enforcer.Drop {
			by[d.Bucket]++
		}
	}
	near(t, "dropped by the quota", float64(by["b"])/8000, 0.2)
	near(t, "dropped by the cap", float64(by["all"])/8000, 0.4) // half of what is left
}

// A live bucket goes from a token bucket to the loop and back without a
// restart: counters go on, and it is limited all the time.
func TestChangingTheAlgorithmOfALiveBucket(t *testing.T) {
	c := loop.NewClient(loop.ClientConfig{Node: "n"})
	e, _ := start(t, enforcer.Config{Loop: c})
	head := "defaults: {mode: enforce}\nbuckets:\n"
	load(t, e, snap(1, policy("s", head+tokenBucket)))
	wantOutcomes(t, "token bucket", ask(e, 20, "s", search), 10, 10, 0)
	load(t, e, snap(2, policy("s", head+ratioBucket)))
	wantOutcomes(t, "ratio, nothing said yet: its debt stands", ask(e, 20, "s", search), 0, 20, 0)
	c.Apply(told(1, map[string]float64{ratioName: 1}), time.Second)
	wantOutcomes(t, "ratio", ask(e, 20, "s", search), 20, 0, 0)
	load(t, e, snap(3, policy("s", head+tokenBucket)))
	wantOutcomes(t, "token bucket again", ask(e, 20, "s", search), 0, 20, 0)
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_requests_total{bucket="b",caller="search",outcome="admit",procedure="",service="s"}`: "30",
		`rlc_enforcer_requests_total{bucket="b",caller="search",outcome="drop",procedure="",service="s"}`:  "50",
	})
}

func TestTiersArePriorities(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n  - {name: b, match: {procedure: P}, algorithm: drop_ratio, tier: {critical: [\"pay/*\"], batch: [etl]}, limit: {rate: 100, burst: 10}}\n")
	at := func(caller string) rlc.Attributes { return rlc.Attributes{"caller": caller, "procedure": "P"} }
	ask(e, 1, "s", at("web"))
	c.Apply(told(1, map[string]float64{"s\x00b\x00b": 0.5}), time.Second)
	wantOutcomes(t, "critical", ask(e, 500, "s", at("pay/cards")), 500, 0, 0)
	for caller, want := range map[string]float64{"web": 0.5, "etl": 0, "etl2": 0.5, "pay": 0.5} {
		got := 0
		for range 3000 {
			if e.Decide(enforcer.Request{Service: "s", Attributes: at(caller)}).Outcome == enforcer.Admit {
				got++
			}
		}
		near(t, caller+" admitted", float64(got)/3000, want)
	}
}

// A cap's tiers hold for callers whose quota buckets say nothing of them; of two
// buckets that name a caller the inner one decides.
func TestACapsTiersArePrioritiesToo(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: b, each: [caller], algorithm: drop_ratio, tier: {batch: [pay/slow]}, limit: {rate: 100, burst: 10}}\n"+
		"  - {name: all, role: cap, algorithm: drop_ratio, tier: {critical: [\"pay/*\"], batch: [etl]}, limit: {rate: 500, burst: 500}}\n")
	at := func(caller string) rlc.Attributes { return rlc.Attributes{"caller": caller} }
	keeps := map[string]float64{capName: 0.5}
	for _, caller := range []string{"pay/cards", "pay/slow", "web", "etl"} {
		ask(e, 1, "s", at(caller))
		keeps["s\x00b\x00b/caller="+caller] = 1
	}
	c.Apply(told(1, keeps), time.Second)
	for caller, want := range map[string]float64{"pay/cards": 1, "pay/slow": 0, "web": 0.5, "etl": 0} {
		got := 0
		for range 3000 {
			if e.Decide(enforcer.Request{Service: "s", Attributes: at(caller)}).Outcome == enforcer.Admit {
				got++
			}
		}
		near(t, caller+" admitted", float64(got)/3000, want)
	}
}

// Requests that the loop does not decide although it should are counted, and people
// are told.
func TestAnAbsentLoopIsSaid(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n"+ratioBucket)
	fallen := func() string {
		return metrics(t, e)[`rlc_enforcer_fallbacks_total{bucket="b",reason="loop",service="s"}`]
	}
	ask(e, 1, "s", search)
	c.Tick(time.Second)
	ask(e, 3, "s", search)
	if n := fallen(); n != "" {
		t.Errorf("%s fallbacks while the answer may still come", n)
	}
	c.Tick(4 * time.Second)
	ask(e, 3, "s", search)
	if n := fallen(); n != "3" {
		t.Errorf("%q fallbacks without an answer, want 3", n)
	}
	if _, notes := e.Ready(); len(notes) != 1 || !strings.Contains(notes[0], "nothing was heard of the loop") {
		t.Errorf("notes %v", notes)
	}
	c.Apply(told(1, map[string]float64{ratioName: 1}), 5*time.Second)
	ask(e, 3, "s", search)
	if _, notes := e.Ready(); fallen() != "3" || notes != nil {
		t.Errorf("%q fallbacks while the loop decides, want 3; notes %v", fallen(), notes)
	}
	c.Tick(16 * time.Second)
	ask(e, 2, "s", search)
	if n := fallen(); n != "5" {
		t.Errorf("%q fallbacks on a local share, want 5", n)
	}
	if _, notes := e.Ready(); len(notes) != 1 || !strings.Contains(notes[0], "silent for 11s: 1 of its buckets") {
		t.Errorf("notes %v", notes)
	}
	if body := call(e, "GET", "/v1/config", "").Body.String(); !strings.Contains(body, `"loop":{"heard":true,"silent_seconds":11,"buckets":1,"local":1}`) {
		t.Errorf("/v1/config says %s", body)
	}
}

func TestLoopLimits(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	if _, ok := e.LoopLimit(ratioName, loop.Place{}); ok {
		t.Error("a limit without a snapshot")
	}
	load(t, e, snap(1, policy("s", "buckets:\n"+ratioBucket+"  - {name: all, role: cap, scope: zone, algorithm: drop_ratio, limit: {rate: 500, burst: 500}}\n  - {name: other, role: cap, limit: {rate: 1, burst: 1}}\n")))
	for name, want := range map[string]loop.Setting{
		ratioName:        {Rate: 100},
		asIf + ratioName: {Rate: 100},
		capName:          {Rate: 500, Scope: loop.Zone},
	} {
		if got, ok := e.LoopLimit(name, loop.Place{Zone: "z", Region: "r"}); !ok || got != want {
			t.Errorf("%q: %+v (%v), want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "s", "s\x00b", "no\x00b\x00b", "s\x00no\x00no", "s\x00other\x00other", "\x00override gone\x00s"} {
		if got, ok := e.LoopLimit(name, loop.Place{}); ok && name != "s\x00b" {
			t.Errorf("%q: %+v, want none", name, got)
		}
	}
}

// Without a shared store, a limit that an override sets is shared over the
// loop: on each enforcer for itself it would be as many times too high.
func TestLimitOverridesGoByTheLoop(t *testing.T) {
	c := loop.NewClient(loop.ClientConfig{Node: "n"})
	e, _ := start(t, enforcer.Config{Loop: c})
	load(t, e, snap(1, policy("s", "buckets:\n"+tokenBucket)))
	overlay(t, e, 1, override("o1", limited(5, 5)))
	const name = "\x00override o1\x00s"
	if got, ok := e.LoopLimit(name, loop.Place{}); !ok || got != (loop.Setting{Rate: 5}) {
		t.Errorf("limit %+v (%v), want 5/s", got, ok)
	}
	if got := enforcer.ParseLoopName(asIf + name); got.Service != "s" || got.Bucket != enforcer.Overridden || got.Key["override"] != "o1" || !got.AsIf {
		t.Errorf("name read as %+v", got)
	}
	ask(e, 1, "s", search)
	c.Apply(told(1, map[string]float64{name: 0.4}), time.Second)
	near(t, "dropped at 0.6", share(e, 5000, enforcer.Drop), 0.6)
}

func TestARatioDecisionDoesNotAllocate(t *testing.T) {
	e, c := onLoop(t, "defaults: {mode: enforce}\nbuckets:\n"+ratioBucket+ratioCap)
	r := enforcer.Request{Service: "s", Attributes: search}
	e.Decide(r)
	c.Apply(told(1, map[string]float64{ratioName: 0.5, capName: 0.9}), time.Second)
	if n := testing.AllocsPerRun(1000, func() { e.Decide(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkDecideByRatio is the full match of 10,000 keys, by the ratio and, for
// comparison in the same pass, by token buckets in process.
func BenchmarkDecideByRatio(b *testing.B) {
	for _, c := range []struct{ name, bucket string }{{"ratio", ratioBucket}, {"token bucket", tokenBucket}} {
		b.Run(c.name, func(b *testing.B) {
			client := loop.NewClient(loop.ClientConfig{Node: "n"})
			e, err := enforcer.New(enforcer.Config{Loop: client})
			if err != nil {
				b.Fatal(err)
			}
			if err := e.Load(snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+c.bucket))); err != nil {
				b.Fatal(err)
			}
			requests := make([]enforcer.Request, 10_000)
			keep := map[string]float64{}
			for i := range requests {
				caller := "caller-" + strconv.Itoa(i)
				requests[i] = enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": caller}}
				keep["s\x00b\x00b/caller="+caller] = 0.9
				e.Decide(requests[i])
			}
			client.Apply(told(1, keep), time.Second)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				e.Decide(requests[i])
				if i++; i == len(requests) {
					i = 0
				}
			}
		})
	}
}

// Enforcers on which the loop says nothing, though it is there, admit the limit
// together and not each.
func TestEnforcersWithoutTheLoopsWordShareByHead(t *testing.T) {
	admitted := func(peers int) (n int) {
		c := loop.NewClient(loop.ClientConfig{Node: "n"})
		e, err := enforcer.New(enforcer.Config{Name: "e", Loop: c})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if err := e.Load(rlc.Snapshot{Version: rlc.Version{Number: 1}, Files: rlc.Files{"services/s/policy.yaml": []byte(
			"apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\nbuckets:\n  - {name: callers, each: [caller], mode: enforce, algorithm: drop_ratio, limit: {rate: 1, burst: 100}}\n")}}); err != nil {
			t.Fatal(err)
		}
		ask := func() {
			if e.Decide(enforcer.Request{Service: "s", Caller: "a"}).Outcome == enforcer.Admit {
				n++
			}
		}
		ask()
		c.SetPeers(peers)
		for at := range 4 {
			c.Tick(time.Duration(at) * time.Second)
		}
		n = 0
		for range 300 {
			ask()
		}
		return n
	}
	if alone, shared := admitted(0), admitted(10); alone < 99 || shared < 9 || shared > 30 {
		t.Errorf("admitted %d alone and %d as one of ten, want the 99 that are left of the whole limit, and about 10", alone, shared)
	}
}
