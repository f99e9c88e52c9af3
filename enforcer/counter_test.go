package enforcer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/countertest"
	"github.com/openrlc/rlc/enforcer/gcra"
)

func TestCountersInProcessPassTheSuite(t *testing.T) {
	countertest.Run(t, countertest.Options{New: func(*testing.T) enforcer.Counter { return enforcer.InProcess(nil) }})
}

// faulty wraps a counter and fails or panics for some buckets.
type faulty struct {
	enforcer.Counter
	fail    *error
	panicOn string // part of a bucket's name; "" for none
}

type faultySet struct {
	enforcer.Set
	f       faulty
	charges []gcra.Charge
}

func (f faulty) Set(charges []gcra.Charge) enforcer.Set {
	return faultySet{f.Counter.Set(charges), f, charges}
}

func (s faultySet) Take(ctx context.Context, now, cost int64) (gcra.Tally, error) {
	for _, c := range s.charges {
		if s.f.panicOn != "" && strings.Contains(c.Bucket, s.f.panicOn) {
			panic("bug in " + s.f.panicOn)
		}
	}
	if *s.f.fail != nil {
		return gcra.Tally{}, *s.f.fail
	}
	return s.Set.Take(ctx, now, cost)
}

func (s faultySet) Settle(ctx context.Context, at, by int64) error {
	if *s.f.fail != nil {
		return *s.f.fail
	}
	return s.Set.(enforcer.Settler).Settle(ctx, at, by)
}

func TestAPanicTurnsOneBucketOffAndNeverStopsTheProcess(t *testing.T) {
	var none error
	e, _ := start(t, enforcer.Config{Counter: faulty{enforcer.InProcess(nil), &none, "broken"}})
	body := "defaults: {mode: enforce}\nbuckets:\n" +
		"  - {name: broken, role: cap, match: {procedure: Get}, limit: " + twoADay + "}\n" +
		"  - {name: fine, match: {caller: search}, limit: " + fiveADay + "}\n"
	load(t, e, snap(1, policy("s", body)))
	// The first request meets the panic and is admitted unchecked; the others
	// are held to the bucket that works.
	wantOutcomes(t, "beside a broken cap", ask(e, 10, "s", search), 6, 4, 0)
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_fallbacks_total{bucket="broken",reason="panic",service="s"}`:                            "10",
		`rlc_enforcer_fallbacks_total{bucket="fine",reason="panic",service="s"}`:                              "",
		`rlc_enforcer_bucket_off{bucket="broken",service="s"}`:                                                "1",
		`rlc_enforcer_requests_total{bucket="fine",caller="search",outcome="admit",procedure="",service="s"}`: "6",
		`rlc_enforcer_requests_total{bucket="fine",caller="search",outcome="drop",procedure="",service="s"}`:  "4",
	})
	reasons, notes := e.Ready()
	if reasons != nil || len(notes) != 1 || !strings.Contains(notes[0], "s/broken is turned off") {
		t.Errorf("ready: %v, %v", reasons, notes)
	}
	// The next snapshot tries it again.
	load(t, e, snap(2, policy("s", body)))
	if _, notes := e.Ready(); notes != nil {
		t.Errorf("after a new snapshot: %v", notes)
	}
}

func TestAPanickingQuotaBucketAdmitsAndCounts(t *testing.T) {
	var none error
	e, _ := start(t, enforcer.Config{Counter: faulty{enforcer.InProcess(nil), &none, "broken"}})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: broken, each: [caller], limit: "+twoADay+"}\n  - {name: fine, match: {caller: a}, limit: "+twoADay+"}\n")))
	wantOutcomes(t, "the broken one", ask(e, 9, "s", search), 9, 0, 0)
	wantOutcomes(t, "its neighbour", ask(e, 9, "s", rlc.Attributes{"caller": "a"}), 2, 7, 0)
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_fallbacks_total{bucket="broken",reason="panic",service="s"}`:                              "9",
		`rlc_enforcer_requests_total{bucket="broken",caller="search",outcome="admit",procedure="",service="s"}`: "9",
	})
}

func TestAStoreThatDoesNotAnswerIsReplacedByLocalCounters(t *testing.T) {
	var fail error
	e, _ := start(t, enforcer.Config{Counter: faulty{enforcer.InProcess(nil), &fail, ""}})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: b, each: [caller], limit: "+twoADay+"}\n")))
	wantOutcomes(t, "the store answers", ask(e, 3, "s", search), 2, 1, 0)
	fail = errors.New("connection refused")
	wantOutcomes(t, "the store is away", ask(e, 3, "s", search), 2, 1, 0)
	fail = nil
	wantOutcomes(t, "the store is back", ask(e, 3, "s", search), 0, 3, 0)
	wantMetrics(t, e, map[string]string{`rlc_enforcer_fallbacks_total{bucket="b",reason="other",service="s"}`: "3"})
}

func TestARequestUnderManyCapsIsHeldToEachOfThem(t *testing.T) {
	body := "defaults: {mode: enforce}\nbuckets:\n"
	for i := range gcra.MaxCharges - 1 {
		body += fmt.Sprintf("  - {name: cap%d, role: cap, limit: {rate: 0.00001, burst: %d}}\n", i, 100-i)
	}
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", body)))
	// The last has 100 − 62 = 38 tokens.
	wantOutcomes(t, "63 caps", ask(e, 50, "s", search), 38, 12, 0)
	err := e.Load(snap(2, policy("s", body+"  - {name: more, role: cap, limit: {rate: 1, burst: 1}}\n")))
	if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "64 cap buckets") {
		t.Errorf("64 caps: %v", err)
	}
}
