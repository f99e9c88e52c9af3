package web_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

// What a table of the shadow page leaves out is counted below it, and a tile
// counts among what can be compared.
func TestTheShadowPageCountsWhatItLeavesOut(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	holds(t, h, "/services/checkout/shadow", "quotas that can be compared")
	f.counts = []rlc.Count{{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "search"}, Offered: 5, VirtualDrops: 2}}
	page := holds(t, f.handler(t), "/services/checkout/shadow", "no quota can be compared yet", "in shadow without a request in 24 h not listed", "with fewer drops or none in both, not listed")
	if strings.Contains(page, "Diverging</dt><dd>0") {
		t.Error("none compared reads as none diverging")
	}
}
