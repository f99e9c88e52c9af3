package web

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// A proposal that leaves the rate and lowers the nights: 84 of 168 hours fall from
// 100/s to 40/s. Its peak came at night.
func TestAProposalThatLowersHoursFalls(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	limit := rlc.Limit{Rate: 100, Burst: 200}
	c := rlc.Change{Bucket: "callers", At: noon, Old: &limit, New: &limit, Peak: rlc.Peak{Rate: 32, At: noon.Add(-12 * time.Hour)}}
	c.NewTimed.Hours = nights(noon)
	up, down, fresh := moves([]rlc.Change{c})
	if got := movesText(up, down, fresh); got != "↓1" {
		t.Errorf("moves %q, want ↓1", got)
	}
	row := moveRow("checkout", nil, c)
	// (40 − 32) / 32: at midnight the night's limit holds.
	if row.Delta != "84 h to −60 %" || row.Dir != "down" || row.Headroom != "+25\u00a0%" {
		t.Errorf("delta %q, %s, headroom %q; want 84 h to −60 %%, down and +25 %%", row.Delta, row.Dir, row.Headroom)
	}
	c.Old, c.NewTimed.Hours = &rlc.Limit{Rate: 100, Burst: 100}, nil
	if row := moveRow("checkout", nil, c); row.Delta != "burst only" || row.Dir != "same" {
		t.Errorf("delta %q, %s", row.Delta, row.Dir)
	}
}

// What is in force is the old quota until its hours are merged.
func TestAReplayIsOfTheHoursInForce(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	limit := rlc.Limit{Rate: 100, Burst: 200}
	c := &rlc.Change{Old: &limit, New: &limit, Backtest: rlc.ChangeBacktest{Old: &rlc.Backtest{}, New: &rlc.Backtest{Drops: 5}}, Peak: rlc.Peak{Rate: 32, At: noon.Add(-12 * time.Hour)}}
	c.NewTimed.Hours = nights(noon)
	r := &row{name: "callers", change: c, live: &limit}
	if b := r.inForce(); b != c.Backtest.Old {
		t.Errorf("before: %+v", b)
	}
	if h, ok := r.headroom(); !ok || h != 68.0/32 {
		t.Errorf("headroom before: %g", h)
	}
	r.timed.live.Hours = nights(noon)
	if b := r.inForce(); b != c.Backtest.New {
		t.Errorf("after: %+v", b)
	}
	if h, ok := r.headroom(); !ok || h != 0.25 {
		t.Errorf("headroom after: %g, want (40 − 32) / 32", h)
	}
}
