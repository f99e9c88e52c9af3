package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// Enforcers count a drop under the quota bucket whoever dropped the request: an
// override's is not put on the quota in shadow below it, also once it is over.
func TestAnOverridesDropsAreNotPutOnTheQuotaBelowIt(t *testing.T) {
	f := newFixture(t)
	f.counts = []rlc.Count{{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "batch-reports"}, Offered: 1000, Drops: 240, VirtualDrops: 60}}
	set := func(o rlc.Override) {
		t.Helper()
		if err := f.db.SetOverride(t.Context(), o, rlc.AuditEntry{Actor: o.Actor, Action: "override", Object: o.ID, At: now}); err != nil {
			t.Fatal(err)
		}
	}
	set(override("long-ago", func(o *rlc.Override) { o.From, o.Until = now.Add(-50*time.Hour), now.Add(-49*time.Hour) }))
	set(override("another", func(o *rlc.Override) { o.Match = map[string][]string{"caller": {"search"}} }))
	h := calmly(t, f)
	quota := "/services/checkout/buckets/callers?key=caller%3Dbatch-reports"
	why, caller := "/why?service=checkout&caller=batch-reports", "/callers/batch-reports"
	holds(t, h, why, "it would have refused <b>30 %</b> of its requests; 24 % were refused while it enforced, or by a cap")
	holds(t, h, quota, "Counted live in 24 h, of 1,000 requests <b>60</b> would have been dropped; <b>240</b> were dropped, while it enforced, or by a cap.")
	set(override("held", func(o *rlc.Override) { o.From, o.Until = now.Add(-2*time.Hour), now.Add(-time.Hour) }))
	for path, want := range map[string]string{
		quota:  "of 1,000 requests <b>60</b> would have been dropped; <b>240</b> were dropped, by the override ",
		why:    "it would have refused <b>6 %</b> of its requests; 24 % were refused by the override ",
		caller: "of what batch-reports sent in 24 h, by the override ",
	} {
		page := holds(t, h, path, want, "checkout ← caller=batch-reports held to 120 req/s", " (2 Dec 04:04–05:04 UTC, set by ana: INC-944 runaway export)")
		if strings.Contains(page, "while it enforced") {
			t.Errorf("%s puts it on the quota, too", path)
		}
	}
	f.desired.Service("checkout").Bucket("callers").Mode = rlc.Enforce
	holds(t, h, why, "of its requests were refused, by it or by the override ")
	holds(t, h, quota, "<b>240</b> were dropped, by it or by the override ")
}
