package web

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// 168 hours are 56 groups of three: the highest of each is drawn, wherever in its
// group it lies; 10 req/s are at y 23 − 10/40 × 21.5 = 17.6, the limit's 40 at 1.5.
func TestASparkKeepsTheHighestHourAndMarksWhatWasDropped(t *testing.T) {
	r := &row{mode: rlc.Shadow, live: &rlc.Limit{Rate: 40}}
	from := time.Date(2026, 11, 25, 6, 0, 0, 0, time.UTC)
	var hours []rlc.Hour
	for i := range 7 * 24 {
		h := rlc.Hour{Start: from.Add(time.Duration(i) * time.Hour), Max: 10, Present: 60}
		switch {
		case i == 31:
			h.Max = 80 // above the limit, at 1.5
		case i == 61:
			h.Drops = .01 // counted by enforcers, below the limit
		case i >= 90 && i < 96: // two groups are not known
			continue
		}
		hours = append(hours, h)
	}
	got := sparkOf(weekOf(r, hours, from))
	// Group 10 is at 21, group 20 at 41; the scale is 80's: 10 lies at 20.3, drawn at
	// 20.5, the limit at 12.25.
	want := []ui.Box{{X: "19.5", Y: "1", W: "3", H: "11.3"}, {X: "39.5", Y: "20", W: "3", H: "3.5", Real: true}}
	if len(got.Over) != 2 || got.Over[0] != want[0] || got.Over[1] != want[1] {
		t.Errorf("marks %+v, want %+v", got.Over, want)
	}
	if !strings.HasPrefix(got.Line, "M1 20.5l2 0l2 0") || strings.Count(got.Line, "l2-19l2 19") != 1 || got.Limit != "M0 12.3H112" {
		t.Errorf("the highest hour or the limit is not drawn: %s, %s", got.Line, got.Limit)
	}
	if strings.Count(got.Line, "M") != 2 || strings.Count(got.Area, "V24Z") != 2 {
		t.Errorf("hours that are not known are no gap: %s", got.Area)
	}
	if n := strings.Count(got.Line, "l") + strings.Count(got.Line, "M"); n != 54 {
		t.Errorf("%d points, want 54", n)
	}
	r.mode = rlc.Enforce
	if got := sparkOf(weekOf(r, hours, from)); len(got.Over) != 1 || !got.Over[0].Real {
		t.Errorf("what enforcers did not count as dropped is marked: %+v", got.Over)
	}
}
