package app

import (
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/scheduler"
)

func TestSilenceIsSaidAfterTwoIntervals(t *testing.T) {
	t.Parallel()
	hourly, err := scheduler.ParseSchedule("17 * * * *")
	if err != nil {
		t.Fatal(err)
	}
	at := func(h, m int) time.Time { return time.Date(2026, 11, 29, h, m, 0, 0, time.UTC) }
	s := status{started: at(9, 0)}
	s.good(at(12, 18)) // the slot of 12:17; due again at 13:17 and 14:17
	for _, c := range []struct {
		now  time.Time
		want time.Time
	}{{at(13, 30), time.Time{}}, {at(14, 30), time.Time{}}, {at(15, 18), at(12, 18)}} {
		if got := s.silence(c.now, hourly); !got.Equal(c.want) {
			t.Errorf("at %s: silent since %v, want %v", c.now, got, c.want)
		}
	}
}
