package web_test

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestACounterYoungerThanADaySaysSinceWhen(t *testing.T) {
	f := newFixture(t)
	f.since = time.Date(2026, 12, 2, 3, 10, 0, 0, time.UTC)
	h := f.handler(t)
	const since = "since 2 Dec 03:10"
	search := "/services/checkout/buckets/callers?key=caller%3Dsearch"
	for target, want := range map[string][]string{
		"/":                          {"requests " + since, "Dropped " + since},
		"/services":                  {"Would drop " + since, "Dropped " + since},
		"/services/checkout":         {"requests " + since, "Since 2 Dec 03:10 until", "Drops " + since, since + ", by quotas that enforce, caps and overrides"},
		search:                       {"Counted live " + since},
		"/services/checkout/shadow":  {"Live " + since + " <b>196,007</b>", "Counted by enforcers " + since, "Offered " + since},
		"/services/checkout?tz=utc":  {since},
		"/services/geo/shadow":       {"Live " + since + " nothing would have been dropped."},
		"/services/checkout?q=nobdy": {since},
	} {
		if page := holds(t, h, target, want...); strings.Contains(page, "in 24 h") {
			t.Errorf("%s speaks of 24 h", target)
		}
	}
}

func TestWhereNobodyCountsNothingIsSaidToBeZero(t *testing.T) {
	h := newFresh(t, firstPolicy)
	home := holds(t, h, "/", "No enforcer has counted a request in 24 h", "What is dropped is not known", "No run has proposed anything yet")
	if strings.Contains(home, "Nothing was dropped") || strings.Contains(home, "No quota is held") {
		t.Error("the overview of a server that has just started claims what nobody knows")
	}
	page := holds(t, h, "/services/checkout", "<dd>— </dd><dd>no enforcer has counted a request in 24 h</dd>", "no run has read its history yet")
	if strings.Contains(page, "<dd>0") {
		t.Error("a figure that nobody counted is 0")
	}
	holds(t, h, "/services/checkout/shadow", "<dd>— </dd><dd>no enforcer has counted a request in 24 h</dd>")
}

func TestTheOverviewIsASheetToo(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("o1", nil)}
	h := f.handler(t)
	holds(t, h, "/", `href="/overview.csv"`, `href="/overview.json"`, `href="/services.csv?sort=headroom&amp;per_page=6"`, "1 override stands", "of the traffic that policies read has a limit")
	rows, err := csv.NewReader(get(h, "/overview.csv").Body).ReadAll()
	if err != nil || len(rows) < 5 || strings.Join(rows[1], "|") != "drops|checkout|dropped 362,880 requests in 24 h, 0.19\u00a0% of its requests|/services/checkout" {
		t.Errorf("%v: %q", err, rows)
	}
	out := body(t, get(h, "/overview.json"), 200)
	if first(t, out["needs_you"], map[string]any{"kind": "review", "service": "checkout"}) == nil || !strings.HasPrefix(out["verdict"].(string), "The 06:02 run of geo failed; quotas stay as they are. checkout dropped 362,880 requests") {
		t.Errorf("%v", out)
	}
	first(t, out["state"], map[string]any{"level": "warn", "url": "/emergency"})
	if got := holds(t, h, "/services", "unowned"); strings.Count(got, `data-mode="override"`) != 2 { // the legend, and checkout's
		t.Errorf("%d chips of overrides", strings.Count(got, `data-mode="override"`))
	}
	holds(t, h, "/services?owner=team-maps", "Only those that team-maps owns", "geo", "1–1 of 1")
}
