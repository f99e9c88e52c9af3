package web

import (
	"slices"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// nights are hours of a week: 100 from 8 to 20 o'clock, else 40.
func nights(from time.Time) *rlc.QuotaHours {
	h := &rlc.QuotaHours{From: from, Rates: make([]rlc.Rate, 168)}
	for i := range h.Rates {
		h.Rates[i] = 40
		if k := from.Add(time.Duration(i) * time.Hour).Hour(); k >= 8 && k < 20 {
			h.Rates[i] = 100
		}
	}
	return h
}

func TestTheChartsLimitFollowsHoursAndWindows(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	at := func(k int) time.Time { return noon.Add(time.Duration(k) * time.Hour) }
	flat, limit := rlc.Limit{Rate: 130, Burst: 260}, rlc.Limit{Rate: 100, Burst: 200}
	c := rlc.Change{Bucket: "callers", Old: &flat, New: &limit}
	c.NewTimed.Hours = nights(noon)
	r := &row{name: "callers", mode: rlc.Enforce, live: &limit}
	r.timed.live = rlc.Timed{Hours: nights(noon), Windows: []rlc.QuotaWindow{{From: at(30), Until: at(31), Limit: rlc.Limit{Rate: 300, Burst: 600}}}}
	h := stat.Summarise(time.Minute, at(-2), make([]float64, 36*60)) // until 22:00 of the next day
	got := limitLines([]rlc.Proposal{{State: rlc.Accepted, Decided: at(0).Add(30 * time.Minute), Changes: []rlc.Change{c}}}, nil, r, h)
	want := []segmentD{
		{at(-2).Unix(), 130, rlc.Enforce}, {at(0).Unix() + 1800, 100, rlc.Enforce}, {at(8).Unix(), 40, rlc.Enforce},
		{at(20).Unix(), 100, rlc.Enforce}, {at(30).Unix(), 300, rlc.Enforce}, {at(31).Unix(), 100, rlc.Enforce}, {at(32).Unix(), 40, rlc.Enforce},
	}
	if !slices.Equal(got, want) {
		t.Errorf("live lines\n%v, want\n%v", got, want)
	}
	d := chartData{Step: 3600, Live: got}
	for k, want := range map[int]float64{7: 100, 8: 40, 30: 300, 33: 40} {
		if limit, _ := d.limit(at(k).Unix()); limit != want {
			t.Errorf("hour %d is judged by %v, want %v", k, limit, want)
		}
	}
	// Where nothing was live, desired would have had the same hours of the week.
	d = chartData{Step: 3600, Desired: &[]float64{100}[0], DesiredBy: ofWeek(&limit, nights(noon), at(-40), at(0))}
	if limit, mode := d.limit(at(-12).Unix()); limit != 40 || mode != rlc.Shadow {
		t.Errorf("at midnight desired is %v in %s, want 40 in shadow", limit, mode)
	}
	if limit, _ := d.limit(at(-25).Unix()); limit != 100 {
		t.Errorf("at 11:00 desired is %v, want 100", limit)
	}
}

func TestTodaysHoursAreReplayedHourByHour(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	values := make([]float64, 48*60)
	for i := range values {
		values[i] = 60 // above the nights' 40
	}
	h := stat.Summarise(time.Minute, noon.Add(-48*time.Hour), values)
	limit := rlc.Limit{Rate: 100, Burst: 100}
	r := &row{name: "callers", live: &limit, timed: rowTimed{live: rlc.Timed{Hours: nights(noon)}}}
	got, err := today(r, h, limit)
	// Two nights of twelve hours, each hour at least 3600 × 20 less a burst of 40.
	if want := " Today’s 40 to 100/s by the hour would have dropped at least 1.73 million."; err != nil || len(got) != 1 || got[0].Text != want {
		t.Errorf("%v, %v, want %q", got, err, want)
	}
	r.timed = rowTimed{}
	if got, _ := today(r, h, limit); got != nil {
		t.Errorf("one rate that was asked about: %v", got)
	}
}
