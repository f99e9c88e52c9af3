package backtest_test

import (
	"math"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

// level is two hours of minutes at a rate, the second hour at another.
func level(first, second float64) rlc.History {
	values := make([]float64, 120)
	for i := range values {
		values[i] = first
		if i >= 60 {
			values[i] = second
		}
	}
	return summarise(time.Minute, monday, values, 0)
}

func TestStreamsShareACapInProportion(t *testing.T) {
	// In the second hour a sends 100 and is held to 60 by its quota; b sends 30.
	// Of the 90 that come to the cap it admits 45, half of each.
	streams := []backtest.Stream{{History: level(10, 100), Counters: []int{0, 2}}, {History: level(10, 30), Counters: []int{1, 2}}}
	got := backtest.ReplayTogether(time.Minute, monday, monday.Add(2*time.Hour), streams, []backtest.Counter{{Limit: rlc.Limit{Rate: 60, Burst: 1}}, {Limit: rlc.Limit{Rate: 50, Burst: 1}}, {Limit: rlc.Limit{Rate: 45, Burst: 1}}})
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 3 { // the bursts of 1
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	near("offered", got.Offered, 20*3600+130*3600)
	near("refused", got.Refused, (130-45)*3600)
	near("a by its quota", got.Streams[0].By[0], 40*3600)
	near("a by the cap", got.Streams[0].By[1], 30*3600)
	near("b by the cap", got.Streams[1].By[1], 15*3600)
	near("b by its quota", got.Streams[1].By[0], 0)
	near("the cap", got.Counters[2].Refused, 45*3600)
	second := monday.Add(time.Hour)
	if s := got.Streams[1]; !s.First.Equal(second) || !s.Last.Equal(monday.Add(2*time.Hour)) || s.Steps != 60 || s.Worst == nil || s.Worst.Rate != 30 {
		t.Errorf("b is refused from %s to %s in %d steps, worst %+v", s.First, s.Last, s.Steps, s.Worst)
	}
	if len(got.Hours) != 2 || math.Abs(got.Hours[1].Admitted-45*3600) > 3 || !got.Highest.At.Equal(second) {
		t.Errorf("hours %+v, highest %+v", got.Hours, got.Highest)
	}
}

// A stream alone with its quota loses what its own replay says.
func TestAloneTogetherIsTheReplay(t *testing.T) {
	h := spiky(3, 2)
	limit := rlc.Limit{Rate: 1.1 * h.TailFloor, Burst: 200}
	got := backtest.ReplayTogether(time.Minute, monday, monday.Add(48*time.Hour), []backtest.Stream{{History: h, Counters: []int{0}}}, []backtest.Counter{{Limit: limit}})
	want := backtest.FromHistory(h, limit)
	if want.Drops == 0 || want.AtLeast || math.Abs(got.Refused-want.Drops) > 1e-6*want.Drops || math.Abs(got.Offered-want.Requests) > 1e-6*want.Requests {
		t.Errorf("refused %g of %g, the replay drops %g of %g", got.Refused, got.Offered, want.Drops, want.Requests)
	}
}

func TestACounterWithHoursIsThatOfTheHourOfTheWeek(t *testing.T) {
	// 100/s for two hours; last week's hours gave 90 to the first and 60 to the
	// second: 10 and 40 are refused, but for the bursts of 90 and 60, of which the
	// second is gone already.
	hours := &rlc.QuotaHours{From: monday.Add(-7 * 24 * time.Hour), Rates: make([]rlc.Rate, 168)}
	hours.Rates[0], hours.Rates[1] = 90, 60
	streams := []backtest.Stream{{History: level(100, 100), Counters: []int{0}}}
	got := backtest.ReplayTogether(time.Minute, monday, monday.Add(2*time.Hour), streams, []backtest.Counter{{Limit: rlc.Limit{Rate: 100, Burst: 100}, Timed: rlc.Timed{Hours: hours}}})
	if want := (10+40)*3600.0 - 90; math.Abs(got.Refused-want) > 1e-6*want {
		t.Errorf("refused %g, want %g", got.Refused, want)
	}
}

func TestOnlyTheWindowIsReplayed(t *testing.T) {
	streams := []backtest.Stream{{History: level(10, 100)}}
	got := backtest.ReplayTogether(time.Minute, monday.Add(30*time.Minute), monday.Add(90*time.Minute), streams, nil)
	if want := 30*60*10.0 + 30*60*100.0; math.Abs(got.Offered-want) > 1e-6*want || got.Refused != 0 {
		t.Errorf("offered %g, refused %g, want %g and 0", got.Offered, got.Refused, want)
	}
}
