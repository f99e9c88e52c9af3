package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// A lift makes the verdicts of quotas virtual and touches no other override: what it
// admits is what enforcing quotas drop, as far as those have room.
func TestALiftAdmitsOnlyWhatNothingElseDrops(t *testing.T) {
	counted := []rlc.Count{ // 300 s: 40 req/s offered, 30 of them dropped
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "batch-reports"}, Offered: 12_000, Drops: 9_000},
	}
	held, wide := rlc.Rate(12), rlc.Rate(100)
	for name, c := range map[string]struct {
		mode   rlc.Mode
		others []rlc.Override
		want   float64
		says   string
	}{
		"a quota in shadow drops nothing": {"shadow", nil, 0, "This would admit nothing"},
		"an enforcing quota":              {"enforce", nil, 30, "This would admit about 30 req/s"},
		// 10 of 40 are admitted; a limit of 12 has room for 2 more.
		"below a limit":        {"enforce", []rlc.Override{override("o1", func(o *rlc.Override) { o.Rate = &held })}, 2, "rlc lift o1"},
		"below a wide limit":   {"enforce", []rlc.Override{override("o1", func(o *rlc.Override) { o.Rate = &wide })}, 30, "rlc lift o1"},
		"below a block":        {"enforce", []rlc.Override{override("o1", func(o *rlc.Override) { o.Action, o.Rate = "block", nil })}, 0, "goes on dropping"},
		"below a drop by half": {"enforce", []rlc.Override{override("o1", func(o *rlc.Override) { o.Action, o.Rate, o.DropRatio = "drop", nil, 0.5 })}, 10, "50 % dropped"},
		"another's override": {"enforce", []rlc.Override{override("o1", func(o *rlc.Override) {
			o.Action, o.Rate, o.Match = "block", nil, map[string][]string{"caller": {"search"}}
		})}, 30, "This would admit about 30 req/s"},
		"one that is over": {"enforce", []rlc.Override{override("o1", func(o *rlc.Override) { o.Action, o.Rate, o.Until = "block", nil, now.Add(-time.Second) })}, 30, "This would admit about 30 req/s"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.counts, f.overrides = counted, c.others
			f.desired.Service("checkout").Bucket("callers").Mode = c.mode
			out := body(t, post(calmly(t, f), "/api/v1/overrides?preview=true",
				`{"service":"checkout","match":{"caller":"batch-reports"},"action":"lift","ttl_seconds":600,"reason":"x"}`, bearer), 200)
			if says := out["says"].(string); out["returns"] != c.want || !strings.Contains(says, c.says) {
				t.Errorf("returns %v, want %v: %s", out["returns"], c.want, says)
			}
		})
	}
}

// "Sends 0 req/s" is said only where enforcers count: a Prometheus that does not
// scrape them knows nothing of it.
func TestWithoutEnforcersCountsAPreviewSaysThatNothingIsKnown(t *testing.T) {
	in := `{"service":"checkout","match":{"caller":"batch-reports"},"action":"limit","rate":1,"ttl_seconds":600,"reason":"x"}`
	f := newFixture(t)
	f.counts = nil
	out := body(t, post(f.handler(t), "/api/v1/overrides?preview=true", in, bearer), 200)
	if says := out["says"].(string); out["known"] != false || !strings.Contains(says, "not known: no enforcer's counters are in Prometheus") {
		t.Errorf("nothing is scraped: %v", out)
	}
	f.counts = []rlc.Count{{Service: "__other__", Bucket: "__unmatched__", Offered: 0}}
	out = body(t, post(f.handler(t), "/api/v1/overrides?preview=true", in, bearer), 200)
	if says := out["says"].(string); out["known"] != false || !strings.Contains(says, "not known: no enforcer has counted a request of checkout") {
		t.Errorf("enforcers that never saw the service: %v", out)
	}
}

// The end of an override does not end the others that hold the same requests.
func TestTheEndOfAnOverrideNamesTheOneThatGoesOn(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("first", nil), override("second", func(o *rlc.Override) { o.Action, o.Rate = "block", nil })}
	all := body(t, get(calmly(t, f), "/api/v1/overrides"), 200)["overrides"]
	if says, _ := first(t, all, map[string]any{"id": "first"})["returns_says"].(string); !strings.Contains(says, "goes on dropping; it ends with rlc lift second.") {
		t.Errorf("says %q", says)
	}
}
