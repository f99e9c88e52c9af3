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

func compileWindow(t interface{ Fatal(...any) }, algorithm string, w rlc.WindowLimit) gcra.Limit {
	l, err := gcra.CompileWindow(algorithm, w)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A daily quota of 10,000 that resets at midnight in Paris, an hour before that
// of UTC: 1/s makes 86,400 a day, and the first 10,000 s of each are admitted.
func TestADailyQuotaIsReplayedExactlyByTheHours(t *testing.T) {
	values := make([]float64, 2*24*60)
	for i := range values {
		values[i] = 1
	}
	limit := compileWindow(t, rlc.FixedWindow, rlc.WindowLimit{Requests: 10_000, Per: rlc.PerDay, Calendar: true, Location: "Europe/Paris"})
	h := summarise(time.Minute, monday, values, 0)
	got := backtest.FromHistoryCounted(h, limit)
	// From Monday 0:00 UTC (1:00 in Paris) on: 23 h, 24 h and 1 h of three days.
	// Hours 0 to 2 use 10,000 (the third 2,800 of 3,600), as do 23 to 25; the
	// last hour, 47, is within its quota.
	rate := rlc.Rate(1)
	day := func(from, until time.Duration, drops float64, offered float64) rlc.Episode {
		return rlc.Episode{From: monday.Add(from), Until: monday.Add(until), Peak: rate, Limit: rlc.Rate(10_000.0 / 86_400), Drops: drops, Share: rlc.Ratio(drops / offered)}
	}
	want := rlc.Backtest{
		Requests: 172_800, Drops: 72_800 + 76_400, Share: 149_200.0 / 172_800, Step: 3600,
		Worst: &rlc.Peak{Rate: rate, At: monday.Add(3 * time.Hour)},
		Episodes: []rlc.Episode{
			day(2*time.Hour, 23*time.Hour, 72_800, 21*3600),
			day(25*time.Hour, 47*time.Hour, 76_400, 22*3600),
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// The replay of the samples drops the same, right to a request a day.
	samples := backtest.ReplayCounted(time.Minute, backtest.Samples(time.Minute, monday, values), limit)
	if d := samples.Drops - want.Drops; d < -3 || d > 3 || samples.AtLeast {
		t.Errorf("by samples %g, by hours %g", samples.Drops, want.Drops)
	}
}

// What is said to be a lower bound is one, for any window.
func TestAWindowDropsAtLeastWhatItsHistorySays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		algorithm := rapid.SampledFrom([]string{rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog}).Draw(t, "algorithm")
		w := rlc.WindowLimit{
			Requests: rapid.Int64Range(1, 500).Draw(t, "requests"),
			Length:   time.Duration(rapid.Int64Range(1, 300).Draw(t, "length")) * time.Second,
			Calendar: algorithm == rlc.FixedWindow && rapid.Bool().Draw(t, "calendar"),
		}
		limit := compileWindow(t, algorithm, w)
		values := rapid.SliceOfN(rapid.Float64Range(0, 4), 1, 90).Draw(t, "values") // at most 240 a step
		exact := backtest.ReplayCounted(time.Minute, backtest.Samples(time.Minute, monday, values), limit)
		bound := backtest.FromHistoryCounted(summarise(time.Minute, monday, values, 0), limit)
		if !bound.AtLeast || bound.Drops > exact.Drops+1 {
			t.Fatalf("%s: at least %g drops (%v), replayed %g", limit.String(), bound.Drops, bound.AtLeast, exact.Drops)
		}
		if !near(bound.Requests, exact.Requests) || exact.Drops > exact.Requests+1 {
			t.Fatalf("%g requests, replayed %g with %g drops", bound.Requests, exact.Requests, exact.Drops)
		}
	})
}

// 600 in ten minutes of the calendar admits 600 in the last minute of one window
// and 600 in the first of the next; a token bucket that holds 600 would drop 480
// of them.
func TestTheBoundOfAFixedWindowAllowsForItsEdge(t *testing.T) {
	limit := compileWindow(t, rlc.FixedWindow, rlc.WindowLimit{Requests: 600, Length: 10 * time.Minute, Calendar: true})
	values := make([]float64, 20)
	values[9], values[10] = 10, 10
	if got := backtest.FromHistoryCounted(summarise(time.Minute, monday, values, 0), limit); got.Drops != 0 {
		t.Errorf("at least %g drops, and there are none", got.Drops)
	}
}

func TestABucketsHistoryIsReplayedByTheLaw(t *testing.T) {
	values := []float64{5, 15, 15, gap, 20}
	limit := rlc.Limit{Rate: 10, Burst: 120}
	compiled, err := gcra.Compile(limit)
	if err != nil {
		t.Fatal(err)
	}
	h := summarise(time.Minute, monday, values, 0)
	if got, want := backtest.FromHistoryCounted(h, compiled), backtest.FromHistory(h, limit); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func BenchmarkReplayCounted(b *testing.B) {
	values := month()
	limit := compileWindow(b, rlc.SlidingLog, rlc.WindowLimit{Requests: 2000, Per: rlc.PerMinute})
	for b.Loop() {
		backtest.ReplayCounted(time.Minute, backtest.Samples(time.Minute, monday, values), limit)
	}
}
