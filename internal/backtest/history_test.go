package backtest_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/internal/stat"
)

// summarise is a history with any floor of its tail, so that the replay is
// tried on tails that hold everything, little and nothing.
func summarise(step time.Duration, start time.Time, values []float64, floor float64) rlc.History {
	h := rlc.History{Step: step, From: start, Until: start.Add(time.Duration(len(values)) * step), TailFloor: rlc.Rate(floor)}
	for i, v := range values {
		x := start.Add(time.Duration(i) * step)
		if n := len(h.Hours); n == 0 || !h.Hours[n-1].Start.Equal(x.Truncate(time.Hour)) {
			h.Hours = append(h.Hours, rlc.Hour{Start: x.Truncate(time.Hour)})
		}
		hour := &h.Hours[len(h.Hours)-1]
		hour.Expected++
		if math.IsNaN(v) {
			continue
		}
		hour.Mean = (hour.Mean*rlc.Rate(hour.Present) + rlc.Rate(v)) / rlc.Rate(hour.Present+1)
		hour.Present++
		hour.Max = max(hour.Max, rlc.Rate(v))
		if v >= floor {
			h.Tail = append(h.Tail, rlc.Sample{Time: x, Rate: rlc.Rate(v)})
		}
	}
	h.Hours = slices.DeleteFunc(h.Hours, func(x rlc.Hour) bool { return x.Present == 0 })
	return h
}

// The property on which every change's evidence stands: a replay from the tail
// equals the replay of the samples, or says that it is a lower bound and is one.
func TestAReplayFromTheTailEqualsTheReplayOrIsALowerBound(t *testing.T) {
	exact, bounded := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.SampledFrom([]time.Duration{15 * time.Second, time.Minute, 7 * time.Minute, time.Hour}).Draw(t, "step")
		start := monday.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "offset")) * time.Second)
		values := someValues(t)
		limit := someLimit(t)
		floor := rapid.Float64Range(0, 130).Draw(t, "floor")
		if rapid.Bool().Draw(t, "limit above the floor") {
			limit.Rate = max(limit.Rate, rlc.Rate(floor*1.05))
		}
		got := backtest.FromHistory(summarise(step, start, values, floor), limit)
		want := backtest.Replay(step, backtest.Samples(step, start, values), limit)
		if got.AtLeast {
			bounded++
		} else {
			exact++
		}
		compare(t, got, want)
	})
	if exact == 0 || bounded == 0 {
		t.Errorf("%d exact and %d bounded answers: the generator tries one side only", exact, bounded)
	}
}

func compare(t interface{ Fatalf(string, ...any) }, got, want rlc.Backtest) {
	if !near(got.Requests, want.Requests) || got.Step != want.Step {
		t.Fatalf("requests %g in steps of %g s, want %g, %g", got.Requests, got.Step, want.Requests, want.Step)
	}
	if got.AtLeast {
		if got.Drops > want.Drops+1e-6*(1+want.Requests) {
			t.Fatalf("at least %g, but only %g were dropped", got.Drops, want.Drops)
		}
		return
	}
	if !near(got.Drops, want.Drops) || !near(float64(got.Share), float64(want.Share)) {
		t.Fatalf("drops %g (%g), want %g (%g)", got.Drops, got.Share, want.Drops, want.Share)
	}
	if (got.Worst == nil) != (want.Worst == nil) || got.Worst != nil && !near(float64(got.Worst.Rate), float64(want.Worst.Rate)) {
		t.Fatalf("worst %v, want %v", got.Worst, want.Worst)
	}
	same := func(a, b rlc.Episode) bool {
		a.Share, b.Share = 0, 0 // of a pause within it only the mean is known
		return equalEpisode(a, b)
	}
	if !slices.EqualFunc(got.Episodes, want.Episodes, same) {
		t.Fatalf("episodes\n%+v\nwant\n%+v", got.Episodes, want.Episodes)
	}
}

// The same over what the product keeps of a series.
func TestAReplayFromASketchEqualsTheReplayOrIsALowerBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := someValues(t)
		limit := someLimit(t)
		got := backtest.FromHistory(stat.Summarise(time.Minute, monday, values), limit)
		compare(t, got, replay(values, limit))
	})
}

// One quiet minute leaves (rate − r)·60 > 60·(105 − 100) = 300 ≥ burst: every
// limit 5 % above the tail with a burst of two seconds or so is exact.
func TestALimitAboveTheTailIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := someValues(t)
		limit := rlc.Limit{Rate: 105, Burst: 210}
		got := backtest.FromHistory(summarise(time.Minute, monday, values, 100), limit)
		if got.AtLeast {
			t.Fatalf("at least %g, want an exact answer", got.Drops)
		}
		compare(t, got, replay(values, limit))
	})
}

// 08:00 and 08:02 at 20/s, between them a minute at 9/s or less. Limit 10/s:
// the first minute empties the tokens. The quiet one leaves 60 tokens or more,
// which a burst of 60 caps: exact. With a burst of 200 it depends.
func TestTokensBetweenTailStepsAreBounded(t *testing.T) {
	h := summarise(time.Minute, monday, []float64{20, 5, 20}, 9)
	if got := backtest.FromHistory(h, rlc.Limit{Rate: 10, Burst: 60}); got.AtLeast || got.Drops != 540+540 {
		t.Errorf("got at least %t, %g; want exactly 1080", got.AtLeast, got.Drops)
	}
	// Truly 1200−600−200 = 400, then 300 tokens at 5/s: 200 is the cap: 400.
	got := backtest.FromHistory(h, rlc.Limit{Rate: 10, Burst: 200})
	if !got.AtLeast || got.Drops != 400+400 {
		t.Errorf("got at least %t, %g; want at least 800", got.AtLeast, got.Drops)
	}
}

// Steps of a second, limit 10/s with burst 100. At 60/s 50 tokens stay; the
// second after it, at 2/s or less, leaves 58 to 60; at 200/s at least
// 200 − 10 − 60 = 130 drop. In an hour with a gap it might have refilled: 90.
func TestNoMoreIsRefilledThanTheStepsCanRefill(t *testing.T) {
	values := slices.Repeat([]float64{1}, 3600)
	values[10], values[12] = 60, 200
	limit := rlc.Limit{Rate: 10, Burst: 100}
	if got := backtest.FromHistory(summarise(time.Second, monday, values, 2), limit); !got.AtLeast || got.Drops != 130 {
		t.Errorf("a full hour: at least %t, %g; want at least 130", got.AtLeast, got.Drops)
	}
	values[3000] = gap
	if got := backtest.FromHistory(summarise(time.Second, monday, values, 2), limit); !got.AtLeast || got.Drops != 90 {
		t.Errorf("an hour with a gap: at least %t, %g; want at least 90", got.AtLeast, got.Drops)
	}
}

// Two hours at a steady 50/s with a tail from 60/s: the tail is empty, yet a
// limit of 20/s admits at most 72,000 an hour and its burst.
func TestALimitFarBelowTheTailIsBoundedByTheHoursMeans(t *testing.T) {
	h := summarise(time.Minute, monday, slices.Repeat([]float64{50}, 120), 60)
	got := backtest.FromHistory(h, rlc.Limit{Rate: 20, Burst: 40})
	if want := 2 * (50*3600 - 20*3600 - 40.0); !got.AtLeast || !near(got.Drops, want) {
		t.Errorf("at least %t, %g drops; want at least %g", got.AtLeast, got.Drops, want)
	}
	if got := backtest.FromHistory(h, rlc.Limit{Rate: 50, Burst: 1}); got.AtLeast || got.Drops != 0 {
		t.Errorf("at the hours' maximum: at least %t, %g drops; want none, exactly", got.AtLeast, got.Drops)
	}
}

func TestTheFrontierIsTheVolumeAboveARate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := someValues(t)
		floor := rapid.Float64Range(0, 130).Draw(t, "floor")
		rate := rapid.Float64Range(0, 130).Draw(t, "rate")
		f := backtest.NewFrontier(summarise(time.Minute, monday, values, floor))
		got, atLeast := f.Above(rlc.Rate(rate))
		var want, requests float64
		for _, v := range values {
			if v >= 0 {
				want += max(0, v-rate) * 60
				requests += v * 60
			}
		}
		switch {
		case !near(f.Requests, requests):
			t.Fatalf("%g requests, want %g", f.Requests, requests)
		case atLeast && got > want+1e-6*(1+requests):
			t.Fatalf("at least %g of %g", got, want)
		case !atLeast && math.Abs(got-want) > 1e-9*(1+requests):
			t.Fatalf("got %g, want %g", got, want)
		case rate >= floor && atLeast:
			t.Fatalf("rate %g is above the floor %g, yet only a bound", rate, floor)
		}
	})
}

// month is four weeks of minutes with a daily wave.
func month() []float64 {
	values := make([]float64, 28*1440)
	for i := range values {
		values[i] = 100 + 60*math.Sin(float64(i)/1440*2*math.Pi) + float64(i*7919%97)/10
	}
	return values
}

func p95(values []float64) float64 {
	s := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return s[len(s)*95/100]
}

func BenchmarkFromHistory(b *testing.B) {
	values := month()
	h := summarise(time.Minute, monday, values, p95(values))
	for b.Loop() {
		backtest.FromHistory(h, rlc.Limit{Rate: 160, Burst: 320})
	}
}

func BenchmarkReplay(b *testing.B) {
	values := month()
	for b.Loop() {
		replay(values, rlc.Limit{Rate: 160, Burst: 320})
	}
}

// 200 keys × 20 headrooms, the frontiers made beforehand and not.
func BenchmarkFrontier(b *testing.B) {
	values := month()
	h := summarise(time.Minute, monday, values, p95(values))
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			backtest.NewFrontier(h)
		}
	})
	b.Run("ask 200 keys x 20", func(b *testing.B) {
		f := backtest.NewFrontier(h)
		for b.Loop() {
			for i := range 200 * 20 {
				f.Above(rlc.Rate(100 + i%100))
			}
		}
	})
}
