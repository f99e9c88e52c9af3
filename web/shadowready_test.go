package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// The page says which buckets could be promoted, and where.
func TestShadowSaysWhatIsReadyToEnforce(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	text := func() string {
		page := get(h, "/services/checkout/shadow").Body.String()
		return strings.Join(strings.Fields(strings.ReplaceAll(page, "\u00a0", " ")), " ")
	}
	// callers, whole-service and health are in shadow; mobile-create enforces.
	if page := text(); !strings.Contains(page, `<dt>Ready to enforce</dt><dd>0 <small> of 3 buckets</small></dd>`) || strings.Contains(page, "Ready to enforce: ") {
		t.Error("nothing is ready, and the page says otherwise")
	}
	sum, err := f.db.Summary(t.Context(), "checkout")
	if err != nil {
		t.Fatal(err)
	}
	sum.Ready = []rlc.ReadyBucket{{Bucket: "callers", Since: now.Add(-14 * 24 * time.Hour)}, {Bucket: "a/b", Since: now.Add(-9 * 24 * time.Hour)}}
	if err := f.db.SaveSummaries(t.Context(), []rlc.ServiceSummary{sum}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<dt>Ready to enforce</dt><dd>2 <small> of 3 buckets</small></dd>`,
		`Ready to enforce: <a href="/services/checkout/buckets/callers/promote">callers</a>, <a href="/services/checkout/buckets/a%2Fb/promote">a/b</a>.`,
	} {
		if page := text(); !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
