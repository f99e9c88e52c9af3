package enforcer_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// Two a day and five a day: so slow that nothing comes back during the test.
const (
	twoADay   = "{rate: 0.0000231, burst: 2}"
	threeADay = "{rate: 0.0000347, burst: 3}"
	fiveADay  = "{rate: 0.0000579, burst: 5}"
	tenADay   = "{rate: 0.000116, burst: 10}"
)

func TestAShadowBucketNeverChangesWhatAnEnforcingOneDecides(t *testing.T) {
	shadow := "  - {name: tight, role: cap, mode: shadow, limit: " + twoADay + "}\n"
	enforce := "  - {name: wide, role: cap, mode: enforce, limit: " + fiveADay + "}\n"
	for name, body := range map[string]string{"shadow first": "buckets:\n" + shadow + enforce, "shadow last": "buckets:\n" + enforce + shadow} {
		t.Run(name, func(t *testing.T) {
			e, _ := start(t, enforcer.Config{})
			load(t, e, snap(1, policy("s", body)))
			// Two fit both; three more fit the enforcing one; 45 do not.
			wantOutcomes(t, "50 requests", ask(e, 50, "s", search), 2, 45, 3)
			wantMetrics(t, e, map[string]string{
				`rlc_enforcer_cap_requests_total{bucket="wide",outcome="admit",service="s"}`:                                          "5",
				`rlc_enforcer_cap_requests_total{bucket="wide",outcome="drop",service="s"}`:                                           "45",
				`rlc_enforcer_cap_requests_total{bucket="tight",outcome="admit",service="s"}`:                                         "2",
				`rlc_enforcer_cap_requests_total{bucket="tight",outcome="virtual_drop",service="s"}`:                                  "48",
				`rlc_enforcer_cap_requests_total{bucket="tight",outcome="drop",service="s"}`:                                          "0",
				`rlc_enforcer_requests_total{bucket="__unmatched__",caller="search",outcome="virtual_drop",procedure="",service="s"}`: "3",
			})
		})
	}
}

func TestARefusedRequestIsChargedToNoBucket(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: special, match: {caller: special}, limit: "+threeADay+"}\n"+
		"  - {name: group, role: cap, limit: "+tenADay+"}\n")))
	wantOutcomes(t, "8 on both", ask(e, 8, "s", rlc.Attributes{"caller": "special"}), 3, 5, 0)
	wantOutcomes(t, "the group alone", ask(e, 10, "s", rlc.Attributes{"caller": "other"}), 7, 3, 0)
}

func TestALimitChangeKeepsTheDebt(t *testing.T) {
	body := func(limit string) rlc.Files {
		return policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: b, match: {caller: search}, limit: "+limit+"}\n")
	}
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, body(twoADay)))
	wantOutcomes(t, "two a day", ask(e, 5, "s", search), 2, 3, 0)
	load(t, e, snap(2, body(fiveADay)))
	wantOutcomes(t, "raised to five: usable at once", ask(e, 5, "s", search), 3, 2, 0)

	e, _ = start(t, enforcer.Config{})
	load(t, e, snap(1, body(tenADay)))
	ask(e, 1, "s", search)
	load(t, e, snap(2, body(twoADay)))
	wantOutcomes(t, "lowered with one taken", ask(e, 5, "s", search), 1, 4, 0)
}

func TestManyCallersStayBoundedAndVisible(t *testing.T) {
	if testing.Short() {
		t.Skip("200,000 callers")
	}
	e, at := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\ncounters: {max: 1000}\nseries: {max: 50}\nbuckets:\n"+
		"  - {name: callers, each: [caller], new_key: {limit: {rate: 1000, burst: 1}}}\n")))
	const callers = 200_000
	for i := range callers {
		e.Decide(enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": fmt.Sprint("c", i)}})
		if i%1000 == 999 {
			at.advance(1100 * time.Millisecond) // by then the ones before are idle
		}
	}
	m := metrics(t, e)
	if n := series(m, "rlc_enforcer_peak_rate"); n != 51 {
		t.Errorf("%d series of peaks, want 50 callers and __other__", n)
	}
	if n := series(m, "rlc_enforcer_requests_total"); n != 51*3+1 {
		t.Errorf("%d series of requests, want 50 callers and __other__ with 3 outcomes each, and one for services without a policy", n)
	}
	if got := m[`rlc_enforcer_requests_total{bucket="callers",caller="__other__",outcome="admit",procedure="__other__",service="s"}`]; got != fmt.Sprint(callers-50) {
		t.Errorf("__other__: %s, want %d", got, callers-50)
	}
	if got := m["rlc_enforcer_counters"]; got != "1000" {
		t.Errorf("%s live counters, want 1000", got)
	}
	if got := m["rlc_enforcer_evictions_total"]; got != fmt.Sprint(callers-1000) {
		t.Errorf("%s evictions, want %d", got, callers-1000)
	}
	if got := m[`rlc_enforcer_fallbacks_total{bucket="callers",reason="counters_full",service="s"}`]; got != "" {
		t.Errorf("%s without a counter, want none: idle ones make room", got)
	}
}

func TestAFullBucketAdmitsOrShares(t *testing.T) {
	for onFull, want := range map[string][2]int{"admit": {30, 0}, "share": {12, 18}} {
		e, _ := start(t, enforcer.Config{})
		load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\ncounters: {max: 10, on_full: "+onFull+"}\nbuckets:\n"+
			"  - {name: callers, each: [caller], new_key: {limit: "+twoADay+"}}\n")))
		got := map[enforcer.Outcome]int{}
		for i := range 30 {
			for o, n := range ask(e, 1, "s", rlc.Attributes{"caller": fmt.Sprint("c", i)}) {
				got[o] += n
			}
		}
		// Ten counters of their own, then all admitted, or two from the shared one.
		wantOutcomes(t, onFull, got, want[0], want[1], 0)
		full := map[string]string{"admit": "20", "share": ""}[onFull]
		wantMetrics(t, e, map[string]string{`rlc_enforcer_fallbacks_total{bucket="callers",reason="counters_full",service="s"}`: full})
	}
}

func TestNoWindowHoldsMoreThanRateAndBurst(t *testing.T) {
	e, at := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: b, match: {caller: search}, limit: {rate: 100, burst: 100}}\n")))
	at.advance(999 * time.Millisecond)
	first := ask(e, 100, "s", search)[enforcer.Admit]
	at.advance(2 * time.Millisecond)
	second := ask(e, 100, "s", search)[enforcer.Admit]
	if first != 100 || second != 0 {
		t.Errorf("%d before the second's edge and %d after it, want 100 and 0", first, second)
	}

	var admitted []time.Time
	for range 20_000 {
		at.advance(time.Duration(rand.IntN(4000)) * time.Microsecond)
		if ask(e, 1, "s", search)[enforcer.Admit] == 1 {
			admitted = append(admitted, at.now())
		}
	}
	for i, from := range admitted {
		n := 0
		for _, t := range admitted[i:] {
			if t.Sub(from) > time.Second {
				break
			}
			n++
		}
		if n > 200 {
			t.Fatalf("%d admitted in a second, want at most rate + burst = 200", n)
		}
	}
}

func TestAKeyWithoutAQuotaIsAdmittedCountedAndVisibleWhileCapsHold(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("new", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: callers, each: [caller]}\n"+
		"  - {name: whole-service, role: cap, limit: {rate: 1000, burst: 4000}}\n")))
	wantOutcomes(t, "5,000 in one second on the first day", ask(e, 5000, "new", search), 4000, 1000, 0)
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_no_quota_total{bucket="callers",service="new"}`:                                              "5000",
		`rlc_enforcer_requests_total{bucket="callers",caller="search",outcome="admit",procedure="",service="new"}`: "4000",
		`rlc_enforcer_requests_total{bucket="callers",caller="search",outcome="drop",procedure="",service="new"}`:  "1000",
		`rlc_enforcer_cap_requests_total{bucket="whole-service",outcome="drop",service="new"}`:                     "1000",
	})
}

func TestWhatMatchesNothingIsCountedAndHeldToTheUnmatchedLimit(t *testing.T) {
	body := "buckets:\n  - {name: b, match: {caller: known}, limit: {rate: 1, burst: 1}}\n"
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("counted", body), policy("limited", body+"unmatched: {mode: enforce, limit: "+twoADay+"}\n"), policy("shadowed", body+"unmatched: {limit: "+twoADay+"}\n")))
	wantOutcomes(t, "no limit", ask(e, 9, "counted", search), 9, 0, 0)
	wantOutcomes(t, "a limit that enforces", ask(e, 9, "limited", search), 2, 7, 0)
	wantOutcomes(t, "a limit in shadow", ask(e, 9, "shadowed", search), 2, 0, 7)
	wantOutcomes(t, "no policy", ask(e, 9, "unheard-of", search), 9, 0, 0)
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_requests_total{bucket="__unmatched__",caller="search",outcome="admit",procedure="",service="counted"}`:         "9",
		`rlc_enforcer_requests_total{bucket="__unmatched__",caller="search",outcome="drop",procedure="",service="limited"}`:          "7",
		`rlc_enforcer_requests_total{bucket="__unmatched__",caller="search",outcome="virtual_drop",procedure="",service="shadowed"}`: "7",
		`rlc_enforcer_requests_total{bucket="__unmatched__",caller="",outcome="admit",procedure="",service="__other__"}`:             "9",
	})
	if d := e.Decide(enforcer.Request{Service: "limited", Attributes: search}); d.Bucket != enforcer.Unmatched || d.RetryAfter == 0 {
		t.Errorf("the refusal is %+v", d)
	}
}

func TestValuesThatMeanNoIdentityAreNobody(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	profile := rlc.Files{"profiles/mine.yaml": []byte("apiVersion: rlc/v1\nkind: Profile\nname: mine\nattributes:\n  caller: {metric: client, descriptor: caller}\n" +
		"unknown: {caller: [\"\", nobody]}\nhistory:\n  step: 1m\n  sources: ['up{service=\"${service}\"}']\n")}
	load(t, e, snap(1, profile, policy("s", "profile: mine\nbuckets:\n  - {name: callers, each: [caller]}\n")))
	for _, caller := range []string{"", "nobody"} {
		if d := e.Decide(enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": caller}}); d.Bucket != enforcer.Unmatched {
			t.Errorf("caller %q is charged to %s", caller, d.Bucket)
		}
	}
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_requests_total{bucket="__unmatched__",caller="",outcome="admit",procedure="",service="s"}`: "2",
	})
}

func TestAQuotasOwnModeSoftensAndNeverHardens(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1,
		policy("hard", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller]}\n"),
		quotas("hard", quota("callers", "caller: old", 0.001, 2), quota("callers", "caller: young", 0.001, 2, "mode: shadow")),
		policy("soft", "buckets:\n  - {name: callers, each: [caller]}\n"),
		quotas("soft", quota("callers", "caller: old", 0.001, 2))))
	wantOutcomes(t, "enforce", ask(e, 5, "hard", rlc.Attributes{"caller": "old"}), 2, 3, 0)
	wantOutcomes(t, "softened", ask(e, 5, "hard", rlc.Attributes{"caller": "young"}), 2, 0, 3)
	wantOutcomes(t, "shadow", ask(e, 5, "soft", rlc.Attributes{"caller": "old"}), 2, 0, 3)
}

func TestTheMostSpecificBucketAloneIsCharged(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: callers, each: [caller], limit: "+twoADay+"}\n"+
		"  - {name: vip, match: {caller: vip}, limit: "+fiveADay+"}\n")))
	wantOutcomes(t, "an exact match beats each", ask(e, 9, "s", rlc.Attributes{"caller": "vip"}), 5, 4, 0)
	wantOutcomes(t, "each key has a counter", ask(e, 9, "s", rlc.Attributes{"caller": "a"}), 2, 7, 0)
	wantOutcomes(t, "of its own", ask(e, 9, "s", rlc.Attributes{"caller": "b"}), 2, 7, 0)
}

func TestADecisionSaysWhoRefusedAndForHowLong(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n"+
		"  - {name: callers, each: [caller], limit: {rate: 1, burst: 2}}\n"+
		"  - {name: all, role: cap, limit: {rate: 0.1, burst: 3}}\n")))
	limit := &rlc.Limit{Rate: 1, Burst: 2}
	d := e.Decide(enforcer.Request{Service: "s", Attributes: search})
	if d.Outcome != enforcer.Admit || d.Bucket != "callers" || d.Key["caller"] != "search" || *d.Limit != *limit || d.Remaining != 1 || d.RetryAfter != 0 {
		t.Errorf("admitted: %+v", d)
	}
	if d = e.Decide(enforcer.Request{Service: "s", Attributes: search, Cost: 2}); d.Bucket != "callers" || d.RetryAfter != time.Second || d.Remaining != 1 {
		t.Errorf("refused by its own quota: %+v", d)
	}
	ask(e, 2, "s", rlc.Attributes{"caller": "other"})
	// Now the cap is empty and gives one token in ten seconds; the quota has one.
	if d = e.Decide(enforcer.Request{Service: "s", Attributes: search, Cost: 2}); d.Bucket != "all" || d.RetryAfter != 20*time.Second {
		t.Errorf("refused by both, told the longer wait: %+v", d)
	}
	if d = e.Decide(enforcer.Request{Service: "s", Attributes: search, Cost: 99}); d.RetryAfter != gcra.Forever {
		t.Errorf("a cost above the burst: %+v", d)
	}
}

func TestAPeekChargesAndCountsNothing(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: "+twoADay+"}\n")))
	before := metrics(t, e)
	for i := range 10 {
		d := e.Decide(enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": fmt.Sprint("c", i%2)}, Peek: true})
		if d.Outcome != enforcer.Admit || d.Remaining != 2 {
			t.Fatalf("peek %d: %+v", i, d)
		}
	}
	e.Explain("s", rlc.Attributes{"caller": "c9"})
	if after := metrics(t, e); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("a peek changed the metrics\nbefore %v\nafter  %v", before, after)
	}
}
