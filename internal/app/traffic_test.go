package app

import (
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Two quotas of 130/s: one was read by the last run, with a peak that counts of
// 100/s below a storm of 400/s; of the other that run read nothing, and the one a
// day before saw 65/s. Headroom is 30 % and 100 %, and both limits fit.
func TestARunThatReadsNothingLeavesWhatWasKnown(t *testing.T) {
	files := rlc.Files{
		"services/geo/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: geo\nbuckets:\n  - {name: callers, each: [caller]}\n"),
		quotafile.QuotasPath("geo"): quotafile.MarshalQuotas("geo", []rlc.Quota{
			{Bucket: "callers", Key: rlc.Key{"caller": "a"}, Limit: rlc.Limit{Rate: 130, Burst: 260}, Why: "x"},
			{Bucket: "callers", Key: rlc.Key{"caller": "b"}, Limit: rlc.Limit{Rate: 130, Burst: 260}, Why: "x"},
		}),
	}
	now := time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC)
	rate := func(r rlc.Rate) *rlc.Rate { return &r }
	read := rlc.Change{Service: "geo", Bucket: "callers", Key: rlc.Key{"caller": "a"}, At: now, Peak: rlc.Peak{Rate: 100}, Offered: 7e6, LastHour: rate(40), Flags: []rlc.Flag{{Rule: "spike", Peak: 400}}}
	away := rlc.Change{Service: "geo", Bucket: "callers", Key: rlc.Key{"caller": "b"}, At: now, Held: "failed", Failed: true,
		Seen: &rlc.Seen{At: now.AddDate(0, 0, -1), Peak: rlc.Peak{Rate: 65}, Offered: 3e6, LastHour: rate(42)}}
	got := rlc.ServiceSummary{Name: "geo"}
	addTraffic(&got, quotafile.Parse(files, nil), []rlc.Change{read, away})
	want := rlc.ServiceSummary{
		Name: "geo", Held: 1, Offered: rate(82), SeenAt: now.AddDate(0, 0, -1), Headroom: new(rlc.Ratio(0.3)), HeadroomAt: read.ID(),
		Known: 2, Fitting: 2, Requests: 1e7, Limited: 1e7,
	}
	want.Spread = make([]int, len(rlc.Multiples())+1)
	want.Spread[rlc.Multiple(130, 100)]++
	want.Spread[rlc.Multiple(130, 65)]++
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	never := away
	never.Seen = nil
	got = rlc.ServiceSummary{Name: "geo"}
	addTraffic(&got, quotafile.Parse(files, nil), []rlc.Change{never})
	if want := (rlc.ServiceSummary{Name: "geo", Held: 1}); !reflect.DeepEqual(got, want) { // unknown, not 0
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
