package web_test

import (
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

// What stands between a bucket and enforce is one click from where its owner looks at
// shadow: from the bucket, from its keys, and from the page Shadow.
func TestTheChecklistIsFoundFromShadow(t *testing.T) {
	f := newFixture(t)
	for _, mode := range []rlc.Mode{rlc.Shadow, rlc.Enforce} {
		f.desired.Service("checkout").Bucket("callers").Mode = mode
		h := f.handler(t)
		for _, page := range []string{"/services/checkout/shadow", "/services/checkout/buckets/callers", "/services/checkout/buckets/callers?key=caller%3Dsearch"} {
			leads := strings.Contains(holds(t, h, page), `href="/services/checkout/buckets/callers/promote"`)
			if leads != (mode == rlc.Shadow) {
				t.Errorf("%s, in %s: leads to the checklist: %v", page, mode, leads)
			}
		}
	}
}
