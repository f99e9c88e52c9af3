package web

import (
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// An hour at 1 request/s: 3,600 requests, of which a limit of 1,000 a day leaves
// 2,600 out, and a bucket of 1,000 that earns them back in a day some fewer.
func TestTodaysWindowIsReplayedAsAWindow(t *testing.T) {
	from := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	h := rlc.History{
		From: from, Until: from.Add(time.Hour), Step: time.Minute,
		Hours: []rlc.Hour{{Start: from, Mean: 1, Max: 1, Present: 60, Expected: 60}}, TailFloor: 2,
	}
	daily := &rlc.Bucket{Name: "daily", Algorithm: rlc.FixedWindow, Window: &rlc.WindowLimit{Requests: 1000, Per: rlc.PerDay, Calendar: true}}
	live := &rlc.Limit{Rate: 2, Burst: 4}
	for _, c := range []struct {
		what string
		row  row
		want []ui.Part
	}{
		{"a window", row{bucket: daily}, []ui.Part{{Text: " Today’s 1,000 a day would have dropped 2,600 in 1 episode."}}},
		{"a bucket", row{live: live}, []ui.Part{{Text: " Today’s 2 would have dropped 0 in 0 episodes."}}},
		{"what was asked about", row{live: &rlc.Limit{Rate: 1, Burst: 2}}, nil},
		{"none", row{bucket: &rlc.Bucket{}}, nil},
	} {
		got, err := today(&c.row, h, rlc.Limit{Rate: 1, Burst: 2})
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.what, got, err, c.want)
		}
	}
}
