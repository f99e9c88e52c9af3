package backtest_test

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/backtest"
)

// counted is twoDays with seconds: of the second day alone, 80/s but for the hour
// of 40/s, which had 310/s.
func counted() rlc.History {
	h := twoDays()
	for i := range h.Hours {
		switch {
		case i == 36:
			h.Hours[i].Second = 310
		case i >= 24:
			h.Hours[i].Second = 80
		}
	}
	return h
}

func TestABacktestSaysWhetherTheBurstHeldTheSecondsThatWereCounted(t *testing.T) {
	h := counted()
	top := rlc.Peak{Rate: 310, At: h.Hours[36].Start}
	for name, c := range map[string]struct {
		limit rlc.Limit
		timed rlc.Timed
		want  rlc.Bursts
	}{
		// 310 ≤ 210 + 100.
		"just held": {rlc.Limit{Rate: 100, Burst: 210}, rlc.Timed{}, rlc.Bursts{Hours: 24, Unseen: 24, Highest: top, Holds: 210}},
		"one short": {rlc.Limit{Rate: 100, Burst: 209}, rlc.Timed{}, rlc.Bursts{Hours: 24, Unseen: 24, Over: 1, Highest: top, Holds: 210}},
		// 80 > 50 + 20 in every hour.
		"far below":       {rlc.Limit{Rate: 20, Burst: 50}, rlc.Timed{}, rlc.Bursts{Hours: 24, Unseen: 24, Over: 24, Highest: top, Holds: 290}},
		"no burst needed": {rlc.Limit{Rate: 400, Burst: 1}, rlc.Timed{}, rlc.Bursts{Hours: 24, Unseen: 24, Highest: top, Holds: 1}},
		// The hour of the peak has 50/s and a burst of 50 × 210/100 = 105, so that 205
		// of it are not held; at 50/s it takes 260, which is 520 at 100/s.
		"an hour's burst is in proportion": {rlc.Limit{Rate: 100, Burst: 210}, rlc.Timed{Hours: hourly(h, func(i int) rlc.Rate {
			if i == 36 {
				return 50
			}
			return 100
		})}, rlc.Bursts{Hours: 24, Unseen: 24, Over: 1, Highest: top, Holds: 520}},
		// The window's burst holds the hour of the peak; without it 210 would be needed.
		"a window's own": {rlc.Limit{Rate: 100, Burst: 10}, rlc.Timed{Windows: []rlc.QuotaWindow{{From: top.At, Until: top.At.Add(time.Hour), Limit: rlc.Limit{Rate: 100, Burst: 210}}}},
			rlc.Bursts{Hours: 24, Unseen: 24, Highest: top, Holds: 1}},
		// It begins within that hour: the second may have come before.
		"a window that begins too late": {rlc.Limit{Rate: 100, Burst: 10}, rlc.Timed{Windows: []rlc.QuotaWindow{{From: top.At.Add(time.Minute), Until: top.At.Add(time.Hour), Limit: rlc.Limit{Rate: 100, Burst: 210}}}},
			rlc.Bursts{Hours: 24, Unseen: 24, Over: 1, Highest: top, Holds: 210}},
		"admit nothing": {rlc.Limit{}, rlc.Timed{}, rlc.Bursts{Hours: 24, Unseen: 24, Over: 24, Highest: top, Holds: 310}},
	} {
		if got := backtest.FromTimed(h, c.limit, c.timed).Bursts; got == nil || *got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := backtest.FromHistory(twoDays(), rlc.Limit{Rate: 1, Burst: 1}).Bursts; got != nil {
		t.Errorf("nobody counted, and yet %+v", got)
	}
	window, err := gcra.CompileWindow(rlc.SlidingWindow, rlc.WindowLimit{Requests: 100, Per: rlc.PerMinute})
	if err != nil {
		t.Fatal(err)
	}
	if got := backtest.FromHistoryCounted(h, window).Bursts; got != nil {
		t.Errorf("a window has no burst, and yet %+v", got)
	}
}

// hourly are hours over all of h's.
func hourly(h rlc.History, rate func(int) rlc.Rate) *rlc.QuotaHours {
	out := &rlc.QuotaHours{From: h.Hours[0].Start}
	for i := range h.Hours {
		out.Rates = append(out.Rates, rate(i))
	}
	return out
}

// A burst of what holds them all holds them all, and none below it does.
func TestTheLeastBurstThatHoldsIsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := twoDays()
		for i := range h.Hours {
			h.Hours[i].Second = rlc.Rate(rapid.IntRange(0, 500).Draw(t, "second"))
		}
		limit := rlc.Limit{Rate: rlc.Rate(rapid.IntRange(1, 400).Draw(t, "rate")), Burst: 1}
		b := backtest.FromHistory(h, limit).Bursts
		if b == nil {
			return
		}
		limit.Burst = b.Holds
		if got := backtest.FromHistory(h, limit).Bursts; got.Over != 0 {
			t.Fatalf("%+v with a burst of %d", got, limit.Burst)
		}
		if limit.Burst--; limit.Burst > 0 && backtest.FromHistory(h, limit).Bursts.Over == 0 {
			t.Fatalf("a burst of %d holds them too: %+v", limit.Burst, b)
		}
	})
}

func TestASuggestedBurstRestsOnTheHoursThatAChoiceKeeps(t *testing.T) {
	h := counted()
	type suggestion struct {
		Burst  rlc.Burst
		Second rlc.Rate
		OK     bool
	}
	for name, c := range map[string]struct {
		choice backtest.Choice
		rate   rlc.Rate
		want   suggestion
	}{
		"the highest second and the headroom": {backtest.Choice{Headroom: 0.3}, 60, suggestion{403, 310, true}},
		"never more than twice it":            {backtest.Choice{Headroom: 5}, 60, suggestion{620, 310, true}},
		"left out":                            {backtest.Choice{Headroom: 0.3, Exclude: []rlc.Window{{From: h.Hours[36].Start, Until: h.Hours[37].Start}}}, 60, suggestion{104, 80, true}},
		"a second of the rate at least":       {backtest.Choice{}, 900, suggestion{900, 310, true}},
		"before the window":                   {backtest.Choice{Window: 6 * time.Hour}, 60, suggestion{80, 80, true}},
		"no rate":                             {backtest.Choice{}, 0, suggestion{}},
	} {
		var got suggestion
		if got.Burst, got.Second, got.OK = c.choice.Suggestion(h, c.rate); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if _, _, ok := (backtest.Choice{}).Suggestion(twoDays(), 60); ok {
		t.Error("a burst is suggested by seconds that nobody counted")
	}
}
