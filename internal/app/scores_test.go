package app

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

func TestScoresAddUpServicesOfTheFleetAndOfEachOwner(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	old, young := at.AddDate(0, 0, -9), at.AddDate(0, 0, -1)
	rows := []rlc.ServiceSummary{
		{Name: "checkout", Owners: []string{"pay", "sre", "pay"}, Requests: 100, Limited: 90, Known: 10, Fitting: 7, Spread: []int{0, 3, 7}, OpenReview: "p1", ReviewSince: young},
		{Name: "billing", Owners: []string{"pay"}, Requests: 50, Limited: 10, Known: 2, Fitting: 1, Spread: []int{1, 0, 1}, OpenReview: "p2", ReviewSince: old},
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
		{Fleet: true, Services: 3, Requests: 157, Limited: 100, Known: 12, Fitting: 8, Spread: []int{1, 3, 8}, Counted: 105, Drops: 4, VirtualDrops: 4, Unmatched: 20, Open: 2, Oldest: old, Median: young, At: at},
		{Services: 1, Requests: 7, Counted: 5, Drops: 1, At: at},
		{Owner: "pay", Services: 2, Requests: 150, Limited: 100, Known: 12, Fitting: 8, Spread: []int{1, 3, 8}, Counted: 100, Drops: 3, VirtualDrops: 4, Unmatched: 20, Open: 2, Oldest: old, Median: young, At: at},
		{Owner: "sre", Services: 1, Requests: 100, Limited: 90, Known: 10, Fitting: 7, Spread: []int{0, 3, 7}, Counted: 100, Drops: 3, VirtualDrops: 4, Unmatched: 20, Open: 1, Oldest: young, Median: young, At: at},
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

// The classes from 1.3 to 3 hold just what fits, whatever is rounded, and a limit
// is never in a class beside the one that its multiple is in.
func TestTheClassesOfASpreadHoldWhatFits(t *testing.T) {
	t.Parallel()
	edges := rlc.Multiples()
	least, most := slices.Index(edges, rlc.FitLeast), slices.Index(edges, rlc.FitMost)
	if least < 0 || most < 0 {
		t.Fatal("the band has no edge of its own")
	}
	rapid.Check(t, func(t *rapid.T) {
		peak := rlc.Rate(rapid.Float64Range(0.01, 1e6).Draw(t, "peak"))
		multiple := rapid.Float64Range(0, 6).Draw(t, "multiple")
		if rapid.Bool().Draw(t, "near an edge") {
			multiple = rapid.SampledFrom([]float64{0.5, 1, rlc.FitLeast, rlc.FitLeast, 2, rlc.FitMost, rlc.FitMost, 4}).Draw(t, "edge") * (1 + rapid.Float64Range(-.002, .002).Draw(t, "off"))
		}
		limit := peak * rlc.Rate(multiple)
		class := rlc.Multiple(limit, peak)
		if in := class > least && class <= most; in != rlc.Fits(limit, peak) {
			t.Fatalf("%g times %g is in class %d and fits %v", multiple, peak, class, !in)
		}
		if class > 0 && multiple < edges[class-1]*.998 || class < len(edges) && multiple > edges[class]*1.002 {
			t.Fatalf("%g times is in class %d", multiple, class)
		}
	})
}
