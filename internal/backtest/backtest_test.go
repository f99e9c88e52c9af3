package backtest_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

var (
	monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	gap    = math.NaN()
)

func at(minute int) time.Time { return monday.Add(time.Duration(minute) * time.Minute) }

func replay(values []float64, limit rlc.Limit) rlc.Backtest {
	return backtest.Replay(time.Minute, backtest.Samples(time.Minute, monday, values), limit)
}

// The limit is 10/s with burst 120 throughout, the step one minute: a minute at
// r offers 60·r, admits 600 and takes what it can from the tokens.
func TestReplayFollowsTheLaw(t *testing.T) {
	tests := map[string]struct {
		values []float64
		drops  []float64 // by minute
	}{
		"at the limit nothing drops":                        {[]float64{10, 10, 10}, []float64{0, 0, 0}},
		"an excess within the burst is admitted":            {[]float64{12}, []float64{0}},                // 720 − 600 = 120 tokens
		"an excess beyond the burst drops":                  {[]float64{15}, []float64{180}},              // 900 − 600 − 120
		"tokens spent are not there a minute later":         {[]float64{12, 11}, []float64{0, 60}},        // 660 − 600 − 0
		"a quiet minute refills what it leaves free":        {[]float64{12, 9, 13}, []float64{0, 0, 120}}, // 60 tokens: 780 − 600 − 60
		"tokens never exceed the burst":                     {[]float64{0, 0, 15}, []float64{0, 0, 180}},
		"a gap refills":                                     {[]float64{12, gap, 12}, []float64{0, 0, 0}},
		"a gap is no traffic, so nothing drops in it":       {[]float64{15, gap, 15}, []float64{180, 0, 180}},
		"without the gap the second burst is not there":     {[]float64{12, 10, 12}, []float64{0, 0, 120}},
		"negative and infinite values are missing samples":  {[]float64{12, -5, 12, math.Inf(1), 12}, []float64{0, 0, 0, 0, 0}},
		"an overload that goes on drops all of the surplus": {[]float64{20, 20}, []float64{480, 600}}, // 1200 − 600 − 120, then 1200 − 600
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			limit := rlc.Limit{Rate: 10, Burst: 120}
			got := replay(tt.values, limit)
			var drops, requests float64
			var worst *rlc.Peak
			most := 0.0
			for i, d := range tt.drops {
				drops += d
				if d > most {
					most, worst = d, &rlc.Peak{Rate: rlc.Rate(tt.values[i]), At: at(i)}
				}
				if v := tt.values[i]; v >= 0 && !math.IsInf(v, 0) {
					requests += v * 60
				}
			}
			if got.Drops != drops || got.Requests != requests {
				t.Errorf("drops %g of %g, want %g of %g", got.Drops, got.Requests, drops, requests)
			}
			if want := rlc.Ratio(drops / requests); got.Share != want {
				t.Errorf("share %g, want %g", got.Share, want)
			}
			if (got.Worst == nil) != (worst == nil) || worst != nil && *got.Worst != *worst {
				t.Errorf("worst %v, want %v", got.Worst, worst)
			}
			if got.Step != 60 || got.AtLeast {
				t.Errorf("step %g, at least %t; want 60, exact", got.Step, got.AtLeast)
			}
		})
	}
}

func TestAZeroLimitDropsEverything(t *testing.T) {
	got := replay([]float64{1, 2}, rlc.Limit{})
	if got.Drops != 180 || got.Share != 1 {
		t.Errorf("drops %g, share %g; want 180, 1", got.Drops, got.Share)
	}
}

func TestNoTrafficHasNoShare(t *testing.T) {
	got := replay([]float64{0, gap}, rlc.Limit{Rate: 1, Burst: 1})
	if got.Requests != 0 || got.Share != 0 || got.Worst != nil || got.Episodes == nil || len(got.Episodes) != 0 {
		t.Errorf("got %+v, want zeros and an empty list of episodes", got)
	}
}

// Dropping minutes at 0–1, then one 9 whole minutes later (11), then one 10
// minutes after that (22): the first pause joins, the second parts.
func TestPausesUnderTenMinutesJoinAnEpisode(t *testing.T) {
	values := slices.Repeat([]float64{5}, 24)
	values[0], values[1], values[11], values[22] = 20, 30, 15, 15
	got := replay(values, rlc.Limit{Rate: 10, Burst: 120})
	want := []rlc.Episode{
		// Drops 480 + 1200 + 180 of (20 + 30 + 9·5 + 15) · 60 offered.
		{From: at(0), Until: at(12), Peak: 30, Limit: 10, Drops: 1860, Share: rlc.Ratio(1860.0 / 6600)},
		{From: at(22), Until: at(23), Peak: 15, Limit: 10, Drops: 180, Share: 0.2},
	}
	if !slices.EqualFunc(got.Episodes, want, equalEpisode) {
		t.Errorf("got  %+v\nwant %+v", got.Episodes, want)
	}
}

func equalEpisode(a, b rlc.Episode) bool {
	return a.From.Equal(b.From) && a.Until.Equal(b.Until) && a.Peak == b.Peak && a.Limit == b.Limit &&
		near(a.Drops, b.Drops) && near(float64(a.Share), float64(b.Share))
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1) }

// A higher limit never drops more, and what a limit admits never exceeds what
// it refills and its bursts.
func TestAHigherLimitNeverDropsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := someValues(t)
		low := someLimit(t)
		high := rlc.Limit{Rate: low.Rate + rlc.Rate(rapid.Float64Range(0, 20).Draw(t, "more rate")), Burst: low.Burst + rlc.Burst(rapid.IntRange(0, 500).Draw(t, "more burst"))}
		a, b := replay(values, low), replay(values, high)
		if b.Drops > a.Drops*(1+1e-9) {
			t.Fatalf("%+v drops %g, the higher %+v drops %g", low, a.Drops, high, b.Drops)
		}
		var sum float64
		for _, e := range a.Episodes {
			sum += e.Drops
		}
		if !near(sum, a.Drops) {
			t.Fatalf("episodes add up to %g of %g drops", sum, a.Drops)
		}
	})
}

func someLimit(t *rapid.T) rlc.Limit {
	return rlc.Limit{
		Rate:  rlc.Rate(rapid.Float64Range(0, 120).Draw(t, "rate")),
		Burst: rlc.Burst(rapid.SampledFrom([]int{1, 10, 100, 2000, 20000}).Draw(t, "burst")),
	}
}

// someValues are up to nine hours of minutes: a level with noise, peaks, gaps
// and silence.
func someValues(t *rapid.T) []float64 {
	value := rapid.Custom(func(t *rapid.T) float64 {
		switch rapid.IntRange(0, 19).Draw(t, "kind") {
		case 0, 1:
			return gap
		case 2:
			return 0
		case 3, 4:
			return rapid.Float64Range(50, 150).Draw(t, "peak")
		}
		return rapid.Float64Range(0, 50).Draw(t, "value")
	})
	return rapid.SliceOfN(value, rapid.IntRange(1, 200).Draw(t, "at least"), 540).Draw(t, "values")
}
