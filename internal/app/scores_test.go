package app

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestScoresAddUpServicesOfTheFleetAndOfEachOwner(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	old, young := at.AddDate(0, 0, -9), at.AddDate(0, 0, -1)
	rows := []rlc.ServiceSummary{
		{Name: "checkout", Owners: []string{"pay", "sre", "pay"}, Requests: 100, Limited: 90, Known: 10, Fitting: 7, OpenReview: "p1", ReviewSince: young},
		{Name: "billing", Owners: []string{"pay"}, Requests: 50, Limited: 10, Known: 2, Fitting: 1, OpenReview: "p2", ReviewSince: old},
		{Name: "media", Requests: 7},
	}
	counts := []rlc.Count{
		{Service: "checkout", Bucket: "callers", Offered: 80, Drops: 3, VirtualDrops: 4},
		{Service: "checkout", Bucket: "__unmatched__", Offered: 20},
		{Service: "media", Bucket: "callers", Offered: 5, Drops: 1},
		{Service: "nobody", Bucket: "callers", Offered: 1000}, // has no row
	}
	got := scoresOf(rows, counts, at)
	slices.SortFunc(got, func(a, b rlc.Score) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(len(rows)-a.Services, len(rows)-b.Services))
	})
	want := []rlc.Score{
		{Fleet: true, Services: 3, Requests: 157, Limited: 100, Known: 12, Fitting: 8, Counted: 105, Drops: 4, VirtualDrops: 4, Unmatched: 20, Open: 2, Oldest: old, Median: young, At: at},
		{Services: 1, Requests: 7, Counted: 5, Drops: 1, At: at},
		{Owner: "pay", Services: 2, Requests: 150, Limited: 100, Known: 12, Fitting: 8, Counted: 100, Drops: 3, VirtualDrops: 4, Unmatched: 20, Open: 2, Oldest: old, Median: young, At: at},
		{Owner: "sre", Services: 1, Requests: 100, Limited: 90, Known: 10, Fitting: 7, Counted: 100, Drops: 3, VirtualDrops: 4, Unmatched: 20, Open: 1, Oldest: young, Median: young, At: at},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestALimitFitsBetweenItsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, peak rlc.Rate
		want        bool
	}{{130, 100, true}, {129, 100, false}, {300, 100, true}, {301, 100, false}, {200, 100, true}, {100, 0, false}} {
		if got := rlc.Fits(c.limit, c.peak); got != c.want {
			t.Errorf("limit %g, peak %g: fits %v, want %v", c.limit, c.peak, got, c.want)
		}
	}
}
