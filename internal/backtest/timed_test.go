package backtest_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

// byTheStep replays every sample against what holds when its step begins: the law,
// with what was taken of one burst taken of the next one's too.
func byTheStep(step time.Duration, start time.Time, values []float64, limit rlc.Limit, timed rlc.Timed) (requests, drops float64) {
	s := step.Seconds()
	now := timed.Of(limit, start)
	tokens := float64(now.Burst)
	for i, v := range values {
		if at := timed.Of(limit, start.Add(time.Duration(i)*step)); at != now {
			tokens = max(float64(at.Burst)-(float64(now.Burst)-tokens), 0)
			now = at
		}
		if math.IsNaN(v) {
			tokens = float64(now.Burst)
			continue
		}
		requests += v * s
		tokens += (float64(now.Rate) - v) * s
		if tokens < -1e-9*v*s {
			drops -= tokens
		}
		tokens = min(max(tokens, 0), float64(now.Burst))
	}
	return requests, drops
}

func someTimed(t *rapid.T) rlc.Timed {
	var out rlc.Timed
	if rapid.Bool().Draw(t, "hours") {
		out.Hours = &rlc.QuotaHours{From: monday.Add(2 * time.Hour)}
		for range rapid.IntRange(1, 30).Draw(t, "how many hours") {
			out.Hours.Rates = append(out.Hours.Rates, rlc.Rate(rapid.IntRange(1, 120).Draw(t, "hour's rate")))
		}
	}
	from := monday
	for range rapid.IntRange(0, 3).Draw(t, "windows") {
		from = from.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "apart")) * time.Minute)
		until := from.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute)
		out.Windows = append(out.Windows, rlc.QuotaWindow{From: from, Until: until, Limit: someLimit(t)})
		from = until
	}
	return out
}

func TestALimitThatDiffersByTimeIsReplayedByTheStepOrBoundedBelow(t *testing.T) {
	exact, bounded := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.SampledFrom([]time.Duration{15 * time.Second, time.Minute, 20 * time.Minute}).Draw(t, "step")
		values, limit, timed := someValues(t), someLimit(t), someTimed(t)
		floor := rapid.SampledFrom([]float64{0, 20, 60, 130}).Draw(t, "floor")
		got := backtest.FromTimed(summarise(step, monday, values, floor), limit, timed)
		requests, drops := byTheStep(step, monday, values, limit, timed)
		switch {
		case !near(got.Requests, requests):
			t.Fatalf("%g requests, want %g", got.Requests, requests)
		case got.AtLeast && got.Drops > drops+1e-6*(1+requests):
			t.Fatalf("at least %g, but only %g were dropped", got.Drops, drops)
		case !got.AtLeast && !near(got.Drops, drops):
			t.Fatalf("%g dropped, want %g", got.Drops, drops)
		case got.AtLeast:
			bounded++
		default:
			exact++
		}
	})
	if exact == 0 || bounded == 0 {
		t.Errorf("%d exact and %d bounded answers: the generator tries one side only", exact, bounded)
	}
}

// An event from 00:30 to 01:30 at 100/s against a quota of 60/s: of two hours at
// 90/s the first and the last half hour drop 30·1800, each less a burst of 60.
func TestAReplayOfAllTogetherFollowsWindows(t *testing.T) {
	values := make([]float64, 120)
	for i := range values {
		values[i] = 90
	}
	limit := rlc.Limit{Rate: 60, Burst: 60}
	timed := rlc.Timed{Windows: []rlc.QuotaWindow{{From: monday.Add(30 * time.Minute), Until: monday.Add(90 * time.Minute), Limit: rlc.Limit{Rate: 100, Burst: 60}}}}
	h := summarise(time.Minute, monday, values, 50)
	got := backtest.ReplayTogether(time.Minute, monday, monday.Add(2*time.Hour), []backtest.Stream{{History: h, Counters: []int{0}}}, []backtest.Counter{{Limit: limit, Timed: timed}})
	// In the window 10/s come back each second: the burst is full again by its end.
	want := 30.0*1800 - 60 + 30*1800 - 60
	if alone := backtest.FromTimed(h, limit, timed); got.Refused != want || alone.Drops != want || alone.AtLeast {
		t.Errorf("together %g, alone %g (at least %v), want %g", got.Refused, alone.Drops, alone.AtLeast, want)
	}
}
