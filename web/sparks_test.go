package web_test

import (
	"strings"
	"testing"
)

// Each quota that a run has read has its last week beside it, on the service's
// page and on a bucket's; where history cannot be read the page says so.
func TestEveryQuotaOfAListHasItsLastWeek(t *testing.T) {
	h := newFixture(t).handler(t)
	for path, want := range map[string]int{"/services/checkout": 8, "/services/checkout/buckets/callers": 7} {
		page := holds(t, h, path, "7 days until the last run: the highest step of every three hours")
		_, table, _ := strings.Cut(page, `<table class="grid cards"`)
		if n := strings.Count(table, `class="spark"`); n != want {
			t.Errorf("%s: %d lines of a week, want %d", path, n, want)
		}
		if !strings.Contains(table, `<rect class="m-virt"`) {
			t.Errorf("%s marks nothing that would have been dropped", path)
		}
	}
	blind := worlds["blind"](t)
	holds(t, blind, "/services/checkout", "The last 7 days of these quotas cannot be read: ", "connection refused")
	holds(t, blind, "/services/checkout/buckets/callers", "The last 7 days of these quotas cannot be read: ")
}

// What a section says of another holds only while that other is on the page.
func TestLeftOutPointsToTheWhatIfOnlyWhereThereIsOne(t *testing.T) {
	const target, points = "/services/checkout/buckets/mobile-create", "The what-if above counts all windows at once"
	holds(t, newFixture(t).handler(t), target, `id="flags"`, points)
	if page := holds(t, worlds["blind"](t), target, `id="flags"`, "The stored history cannot be read", "connection refused. Limits in force stay as they are; the chart is back"); strings.Contains(page, points) {
		t.Error("the page points to a what-if that it does not have")
	}
}
