package web_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// A number is called proposed while a review holds it; else it is the limit in force,
// or one that was computed and that nobody took.
func TestTheWaterfallSaysWhatBecameOfItsNumber(t *testing.T) {
	const page = "/services/checkout/buckets/mobile-create"
	f := newFixture(t)
	only := func(want string, words ...string) {
		t.Helper()
		got := holds(t, f.handler(t), page, words...)
		for _, other := range []string{"is proposed", "was computed", "Proposed limit", "Computed limit"} {
			if strings.Contains(got, other) != strings.Contains(want, other) {
				t.Errorf("want %q; it has %q: %v", want, other, strings.Contains(got, other))
			}
		}
	}
	only("is proposed, Proposed limit", "Why 3,000 is proposed", "In force is 1,900")
	p, err := f.db.ProposalByID(t.Context(), "cron-2026-12-02T060000Z-checkout")
	if err != nil {
		t.Fatal(err)
	}
	p.State, p.Decided, p.Actor = rlc.Rejected, now, "ana"
	if err := f.db.SetProposal(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	only("was computed, Computed limit", "Why 3,000 was computed", "In force is 1,900")
	var computed *rlc.Limit
	for i := range p.Changes {
		if p.Changes[i].Bucket == "mobile-create" {
			computed = p.Changes[i].New
		}
	}
	for _, config := range []*quotafile.Config{f.desired, f.live} {
		for i := range config.Quotas["checkout"] {
			if q := &config.Quotas["checkout"][i]; q.Bucket == "mobile-create" {
				q.Limit = *computed
			}
		}
	}
	only("", "Why 3,000</h2>")
}
