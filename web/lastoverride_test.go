package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// Where no override stands, a quota's page says which one stood last, and lists those
// that touched it; another quota's does not.
func TestAQuotaSaysWhichOverrideStoodLast(t *testing.T) {
	f := newFixture(t)
	five := rlc.Rate(500)
	for _, o := range []rlc.Override{
		{ID: "old", Service: "checkout", Action: "block", From: now.Add(-50 * time.Hour), Until: now.Add(-49 * time.Hour), Actor: "ana", Reason: "INC-11"},
		{ID: "last", Service: "checkout", Match: map[string][]string{"caller": {"mobile-gateway"}}, Action: "limit", Rate: &five, From: now.Add(-2 * time.Hour), Until: now.Add(-90 * time.Minute), Actor: "sue", Reason: "INC-902 retry storm"},
	} {
		if err := f.db.SetOverride(t.Context(), o, rlc.AuditEntry{Actor: o.Actor, Action: "override", Object: o.ID, At: now}); err != nil {
			t.Fatal(err)
		}
	}
	h := f.handler(t)
	text := func(target string) string {
		page := get(h, target).Body.String()
		return strings.Join(strings.Fields(strings.ReplaceAll(page[strings.Index(page, "<main"):], "\u00a0", " ")), " ")
	}
	page := text("/services/checkout/buckets/mobile-create")
	// It began two hours before 06:04 and ran for half an hour.
	for _, want := range []string{`last: held to 500 req/s for 30 min, <a href="#overridden">2 Dec 04:04, sue</a>`, `<h3 id="overridden">`, "INC-902 retry storm", "INC-11"} {
		if !strings.Contains(page, want) {
			t.Errorf("mobile-create lacks %q", want)
		}
	}
	page = text("/services/checkout/buckets/callers?key=caller%3Dsearch")
	if strings.Contains(page, "INC-902") || !strings.Contains(page, `last: blocked for 60 min, <a href="#overridden">30 Nov 04:04, ana</a>`) {
		t.Error("callers / search names an override that did not touch it, or lacks the one that did")
	}
	if page := text("/services/geo/buckets/callers?key=caller%3Dweb"); strings.Contains(page, "overridden") || !strings.Contains(page, "none stands; the limits hold as they are") {
		t.Error("geo has had no override, and its page says otherwise")
	}
}

// One that stands and is not stored yet is no reason to say that there was none.
func TestRecentOverridesAreThoseOnRecord(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("o1", nil)}
	holds(t, f.handler(t), "/emergency", "None is on record yet.")
}
