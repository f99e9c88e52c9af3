package backtest

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

func TestHoursAreReplayedAgainstTheSameHoursOfTheWeek(t *testing.T) {
	// 100/s by day and 40/s at night for four weeks, one night hour at 70/s and
	// the one after it at 50/s.
	noon := time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC)
	busy := func(at time.Time) bool { return at.Hour() >= 8 && at.Hour() < 20 }
	values := make([]float64, 28*24*60)
	start := noon.Add(-28 * 24 * time.Hour)
	for i := range values {
		at := start.Add(time.Duration(i) * time.Minute)
		values[i] = 40
		switch {
		case busy(at):
			values[i] = 100
		case at.Truncate(time.Hour).Equal(noon.Add(-10 * time.Hour)):
			values[i] = 70
		case at.Truncate(time.Hour).Equal(noon.Add(-9 * time.Hour)):
			values[i] = 50
		}
	}
	h := stat.Summarise(time.Minute, start, values)
	limit := rlc.Limit{Rate: 100, Burst: 600}
	hours := rlc.QuotaHours{From: noon, Rates: make([]rlc.Rate, 7*24)}
	for i := range hours.Rates {
		hours.Rates[i] = 45
		if busy(noon.Add(time.Duration(i) * time.Hour)) {
			hours.Rates[i] = 100
		}
	}
	// The sketches tell of a night only that it dropped: 70 and 50 lie below the
	// tail. What an hour cannot have admitted is dropped at least; the burst is 45 ×
	// 600/100 = 270, and each hour may have had it.
	flat, timed := FromHistory(h, limit), FromTimed(h, limit, rlc.Timed{Hours: &hours})
	if want := 3600.0*(70-45) - 270 + 3600*(50-45) - 270; flat.Drops != 0 || timed.Drops != want || !timed.AtLeast || timed.Requests != flat.Requests {
		t.Errorf("one rate: %v of %v dropped; hours: %v of %v, at least %v, want %v", flat.Drops, flat.Requests, timed.Drops, timed.Requests, timed.AtLeast, want)
	}
	// With every step in the tail it is exact: nothing of the burst is left for the
	// second hour.
	h.TailFloor, h.Tail = 0, nil
	for x := range Samples(time.Minute, start, values) {
		h.Tail = append(h.Tail, x)
	}
	timed = FromTimed(h, limit, rlc.Timed{Hours: &hours})
	if want := 3600.0*(70-45) - 270 + 3600*(50-45); timed.Drops != want || timed.AtLeast {
		t.Errorf("%v dropped, at least %v, want %v", timed.Drops, timed.AtLeast, want)
	}
	if len(timed.Episodes) != 1 || timed.Episodes[0].Limit != 45 || timed.Episodes[0].Until.Sub(timed.Episodes[0].From) != 2*time.Hour {
		t.Errorf("episodes %+v", timed.Episodes)
	}
}
