package stat_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

func at(r float64) *rlc.Rate { v := rlc.Rate(r); return &v }

func TestATrendAddsUpWhatIsKnownAndLeavesTheRestUnknown(t *testing.T) {
	from := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	hour := func(i int, mean, most rlc.Rate, drops rlc.Ratio) rlc.Hour {
		return rlc.Hour{Start: from.Add(time.Duration(i) * time.Hour), Mean: mean, Max: most, Present: 60, Expected: 60, Drops: drops}
	}
	parts := []stat.Part{
		// Enforced from the third hour: before it, what lay above 120 is virtual.
		{Limit: 120, Shadow: from.Add(2 * time.Hour), Hours: []rlc.Hour{hour(-1, 9, 9, 0), hour(0, 100, 150, 0), hour(1, 100, 110, 0), hour(2, 100, 150, .25), hour(3, 100, 100, 0)}},
		// A tenth of the traffic, missing in the second hour, and not there yet in the first.
		{Hours: []rlc.Hour{hour(1, 12, 20, 0), {Start: from.Add(2 * time.Hour), Expected: 60}, hour(3, 12, 30, 0)}},
		// Next to nothing: where it is missing, the hour stands.
		{Limit: 1, Shadow: from.Add(9 * time.Hour), Hours: []rlc.Hour{hour(0, 1, 1, 0), hour(3, 1, 3, 0)}},
	}
	got := stat.Trend(parts, from, from.Add(5*time.Hour))
	want := rlc.Trend{
		Until:   from.Add(5 * time.Hour),
		Mean:    []*rlc.Rate{at(101), at(112), nil, at(113), nil},
		Most:    []*rlc.Rate{at(151), at(130), nil, at(133), nil},
		Virtual: []rlc.Rate{30, 0, 0, 2, 0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// Without the small one the third hour is known, with its drops.
	got = stat.Trend(parts[:1], from, from.Add(5*time.Hour))
	want = rlc.Trend{
		Until:   from.Add(5 * time.Hour),
		Mean:    []*rlc.Rate{at(100), at(100), at(100), at(100), nil},
		Most:    []*rlc.Rate{at(150), at(110), at(150), at(100), nil},
		Dropped: []rlc.Rate{0, 0, 25, 0, 0}, Virtual: []rlc.Rate{30, 0, 0, 0, 0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := stat.Trend(parts, from.AddDate(0, 0, 9), from.AddDate(0, 0, 10)); !reflect.DeepEqual(got, rlc.Trend{}) {
		t.Errorf("a week of which nothing is known: %+v", got)
	}
}
