package policies

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func replayedAt(step time.Duration, seen *rlc.Bursts) *rlc.Backtest {
	return &rlc.Backtest{Step: step.Seconds(), Bursts: seen}
}

func TestABurstIsToldByWhatWasCountedAndTheRestByWhatNobodySees(t *testing.T) {
	top := rlc.Peak{Rate: 310, At: monday}
	for name, c := range map[string]struct {
		b    *rlc.Backtest
		want string
	}{
		"nobody counts":          {replayedAt(time.Minute, nil), "Peaks below 60 s are not visible."},
		"nobody counts, finer":   {replayedAt(15*time.Second, nil), "Peaks below 15 s are not visible."},
		"a step is a second":     {replayedAt(time.Second, nil), ""},
		"held":                   {replayedAt(time.Minute, &rlc.Bursts{Hours: 672, Highest: top, Holds: 210}), "The burst would have held every second that enforcers counted, at most 310/s."},
		"not held":               {replayedAt(time.Minute, &rlc.Bursts{Hours: 672, Over: 3, Highest: top, Holds: 210}), "The burst would not have held the highest second of 3 of 672 hours, at most 310/s; 210 holds them all."},
		"some of it was counted": {replayedAt(time.Minute, &rlc.Bursts{Hours: 168, Unseen: 504, Highest: top, Holds: 210}), "The burst would have held every second that enforcers counted, at most 310/s; in 504 of 672 hours nobody counted seconds, and peaks below 60 s are not visible."},
	} {
		if got := BurstText(c.b); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestBurstsOfAProposalAreToldTogether(t *testing.T) {
	held := rlc.Change{Backtest: rlc.ChangeBacktest{New: replayedAt(time.Minute, &rlc.Bursts{Hours: 672, Highest: rlc.Peak{Rate: 310}, Holds: 210})}}
	over := rlc.Change{Backtest: rlc.ChangeBacktest{New: replayedAt(time.Minute, &rlc.Bursts{Hours: 672, Over: 1, Highest: rlc.Peak{Rate: 310}, Holds: 210})}}
	unseen := rlc.Change{Backtest: rlc.ChangeBacktest{New: replayedAt(time.Minute, nil)}}
	for name, c := range map[string]struct {
		changes []rlc.Change
		want    string
	}{
		"nothing was replayed": {[]rlc.Change{{}}, ""},
		"one":                  {[]rlc.Change{{}, over}, "The burst would not have held the highest second of 1 of 672 hours, at most 310/s; 210 holds them all."},
		"nobody counts":        {[]rlc.Change{unseen, unseen}, "Peaks below 60 s are not visible."},
		"all held":             {[]rlc.Change{held, held}, "2 of 2 bursts would have held every second that enforcers counted."},
		"some of each": {[]rlc.Change{held, held, over, unseen},
			"2 of 4 bursts would have held every second that enforcers counted; 1 of 4 would not have held the highest one; for 1 nobody counted, and peaks below 60 s are not visible."},
	} {
		if got := BurstsText(c.changes); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
