package web_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// storms are changes of the fixture's checkout whose policy left out a step above
// the peak that counts.
func storms(t *testing.T, f *fixture) (all, left []rlc.Change) {
	t.Helper()
	all, err := f.db.LatestChanges(t.Context(), "checkout")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for _, flag := range c.Flags {
			if flag.Peak > c.Peak.Rate {
				left = append(left, c)
				break
			}
		}
	}
	if len(left) == 0 {
		t.Fatal("no quota of the fixture has a storm that is left out")
	}
	return all, left
}

func TestPeakMeansTheOneThatCountsAndAHigherStepStandsBesideIt(t *testing.T) {
	f := newFixture(t)
	_, left := storms(t, f)
	h := f.handler(t)
	page := holds(t, h, "/services/checkout", "Peak that counts")
	lacks(t, page, "above the highest step")
	rows := map[string]map[string]any{}
	for _, b := range body(t, get(h, "/api/v1/services/checkout/buckets?per_page=1000"), 200)["buckets"].([]any) {
		b := b.(map[string]any)
		rows[fmt.Sprint(b["bucket"], b["key"])] = b
	}
	for _, c := range left {
		highest := 0.0
		for _, flag := range c.Flags {
			highest = max(highest, float64(flag.Peak))
		}
		key := map[string]string(c.Key)
		if key == nil {
			key = map[string]string{}
		}
		got := rows[fmt.Sprint(c.Bucket, key)]
		if got == nil || got["peak"].(map[string]any)["rate"] != float64(c.Peak.Rate) || got["highest_step"] != highest || got["read_at"] != "2026-12-02T06:00:00Z" {
			t.Errorf("%s: peak %v, want %g; highest step %v, want %g; read at %v", c.ID(), got["peak"], c.Peak.Rate, got["highest_step"], highest, got["read_at"])
		}
		holds(t, h, "/services/checkout", "highest step "+commas(highest))
	}
}

// The run after reads nothing: peaks and headroom are those of the run before,
// and the page says of when they are.
func TestARunWithoutHistoryLeavesThePeaksOfTheOneBefore(t *testing.T) {
	f := newFixture(t)
	before, _ := storms(t, f)
	var blank []rlc.Change
	known := 0
	for _, c := range before {
		if c.Peak.Rate > 0 {
			known++
		}
		blank = append(blank, rlc.Change{RunID: "away", Service: c.Service, Bucket: c.Bucket, Key: c.Key, At: runAt.Add(time.Hour), Old: c.Old, New: c.Old, Held: "failed", HeldWhy: "connect: connection refused", Failed: true})
	}
	h := f.handler(t)
	was := body(t, get(h, "/api/v1/services/checkout/buckets?per_page=1000"), 200)["buckets"].([]any)
	f.run(t, rlc.Run{ID: "away", Trigger: rlc.ByPerson, Service: "checkout", Now: runAt.Add(time.Hour), Stage: rlc.Finished, Result: rlc.ResultDegraded, Total: len(blank)}, blank, nil)
	for i, b := range body(t, get(h, "/api/v1/services/checkout/buckets?per_page=1000"), 200)["buckets"].([]any) {
		b, was := b.(map[string]any), was[i].(map[string]any)
		for _, field := range []string{"peak", "highest_step", "headroom", "read_at"} {
			if fmt.Sprint(b[field]) != fmt.Sprint(was[field]) {
				t.Errorf("%v %v: %s is %v, was %v", b["bucket"], b["key"], field, b[field], was[field])
			}
		}
	}
	holds(t, h, "/services/checkout", fmt.Sprintf("The last run read no traffic for %d quotas: what is shown of it was read", known))
	holds(t, h, "/services/checkout/buckets/callers?key=caller%3Dgeo", "the last run read no traffic to replay it over.")
}

// What no run could read is unknown, not 0; what an earlier one read has its age.
func TestOfferedIsUnknownWhereNobodyReadIt(t *testing.T) {
	f := newFixture(t)
	sum, err := f.db.Summary(t.Context(), "checkout")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offered *rlc.Rate
		at      time.Time
		want    []string
	}{
		{new(rlc.Rate(82)), time.Time{}, []string{"Offered, last closed hour", "82 <small> req/s"}},
		{new(rlc.Rate(82)), runAt, []string{"Offered, last known hour", "82 <small> req/s", "as read "}},
		{nil, time.Time{}, []string{"Offered, last closed hour", "<dd>unknown </dd>"}},
	} {
		sum.Offered, sum.SeenAt = c.offered, c.at
		if err := f.db.SaveSummaries(t.Context(), []rlc.ServiceSummary{sum}); err != nil {
			t.Fatal(err)
		}
		holds(t, f.handler(t), "/services/checkout", c.want...)
	}
}

func TestAVerdictOverAFilterIsAboutTheFilter(t *testing.T) {
	f := newFixture(t)
	half, none := rlc.Ratio(0.5), rlc.ServiceSummary{Name: "quiet-b", Updated: runAt}
	if err := f.db.SaveSummaries(t.Context(), []rlc.ServiceSummary{{Name: "quiet-a", Headroom: &half, Updated: runAt}, none}); err != nil {
		t.Fatal(err)
	}
	h := f.handler(t)
	for _, c := range []struct{ page, want string }{
		{"/services?q=zzz", "No service matching the filter."},
		{"/services?q=quiet-a", "Every service matching the filter has at least 10 % headroom"},
		{"/services?q=quiet-b", "Of no service matching the filter a limit and the peak that counts are known, so neither is its headroom"},
		{"/services?q=quiet", "Every service matching the filter whose peak that counts is known has at least 10 % headroom (1 of 2)"},
	} {
		holds(t, h, c.page, c.want)
	}
	lacks(t, holds(t, newFresh(t, nil), "/services", "No service is there yet."), "10 % headroom")
}

// commas is a whole number of at most six digits as pages write it.
func commas(n float64) string {
	if n < 1000 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%d,%03d", int(n)/1000, int(n)%1000)
}
