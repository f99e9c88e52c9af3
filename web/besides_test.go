package web_test

import (
	"encoding/json"
	"html"
	"regexp"
	"strings"
	"testing"
)

var sheetLinks = regexp.MustCompile(`href="([^"]*\.(csv|json)[^"]*)"`)

// Each table has its sheet and its JSON beside it, and both answer.
func TestEveryTableHasBothSheets(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, target := range []string{
		"/", "/services", "/services/checkout", "/services/checkout/shadow", "/services/checkout/whatif", "/services/checkout/replay", "/services/checkout/history", "/services/checkout/export",
		"/services/checkout/buckets/mobile-create", "/services/checkout/buckets/callers", "/services/checkout/buckets/callers?key=caller%3Dsearch", "/services/checkout/buckets/callers/promote",
		"/proposals", "/proposals/cron-2026-12-02T060000Z-checkout", "/runs", "/runs/cron-2026-12-02T060000Z", "/audit", "/settings", "/scorecard", "/emergency", "/callers/search", "/why?service=checkout&caller=search",
	} {
		page := get(h, target).Body.String()
		tables, sheets := strings.Count(page, "<caption"), map[string]int{}
		for _, m := range sheetLinks.FindAllStringSubmatch(page, -1) {
			sheets[m[2]]++
			if w := get(h, html.UnescapeString(m[1])); w.Code != 200 || m[2] == "json" && !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s: %s answers %d", target, m[1], w.Code)
			}
		}
		if sheets["csv"] < tables || sheets["json"] < tables {
			t.Errorf("%s: %d tables with %d sheets and %d JSON", target, tables, sheets["csv"], sheets["json"])
		}
	}
}

// The changes of a quota and the comparison of shadow are there for programs, too.
func TestChangesAndComparisonAreThereForPrograms(t *testing.T) {
	h := newFixture(t).handler(t)
	read := func(target string, into any) {
		t.Helper()
		w := get(h, target)
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %v", target, w.Code, err)
		}
	}
	var changes struct {
		Total   int
		Changes []struct {
			At, Why, Run string
			Old, New     struct{ Rate float64 }
		}
	}
	read("/services/checkout/buckets/mobile-create.json?table=history", &changes)
	if len(changes.Changes) == 0 || changes.Total != len(changes.Changes) || changes.Changes[0].Old.Rate != 1900 || changes.Changes[0].New.Rate != 3000 {
		t.Errorf("%+v", changes)
	}
	var apart struct {
		Quotas []struct {
			Bucket                string
			Key                   map[string]string
			Backtest_drops        float64
			Counted_virtual_drops float64
			Apart                 *float64
		}
	}
	read("/services/checkout/shadow.json?table=compare", &apart)
	for _, q := range apart.Quotas {
		if q.Key["caller"] == "search" {
			if q.Counted_virtual_drops <= q.Backtest_drops || q.Apart == nil || *q.Apart < .98 {
				t.Errorf("%+v", q)
			}
			return
		}
	}
	t.Errorf("search is not compared: %+v", apart)
}
