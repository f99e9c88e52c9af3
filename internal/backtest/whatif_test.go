package backtest_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/internal/stat"
)

// A statistic from the sketches is the nearest-rank percentile of the samples,
// or a bound that it does not lie above.
func TestAStatisticFromTheTailIsTheSamplesOwnOrABound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := someValues(t)
		floor := rapid.Float64Range(0, 130).Draw(t, "floor")
		choice := backtest.Choice{Stat: rapid.SampledFrom(backtest.Stats()).Draw(t, "stat")}
		got, atMost, ok := backtest.Statistic(summarise(time.Minute, monday, values, floor), choice)
		var sorted []float64
		for _, v := range values {
			if !math.IsNaN(v) {
				sorted = append(sorted, v)
			}
		}
		slices.Sort(sorted)
		if len(sorted) == 0 {
			if ok {
				t.Fatal("a statistic of nothing")
			}
			return
		}
		want := stat.Quantile(sorted, map[string]float64{"max": 1, "p99.9": 0.999, "p99": 0.99}[choice.Stat])
		if !ok || atMost && float64(got) < want || !atMost && float64(got) != want {
			t.Fatalf("%s is %g, at most %v, want %g", choice.Stat, got, atMost, want)
		}
	})
}

// Two days at 10, the first with an hour at 90, the second with one at 40.
func twoDays() rlc.History {
	values := make([]float64, 48*60)
	for i := range values {
		switch hour := i / 60; hour {
		case 12:
			values[i] = 90
		case 36:
			values[i] = 40
		default:
			values[i] = 10
		}
	}
	return summarise(time.Minute, monday, values, 20)
}

func TestAChoiceMakesALimit(t *testing.T) {
	h := twoDays()
	storm := rlc.Window{From: monday.Add(12*time.Hour + 30*time.Minute), Until: monday.Add(12*time.Hour + 40*time.Minute)}
	for _, c := range []struct {
		name   string
		choice backtest.Choice
		want   rlc.Limit
		drops  float64
	}{
		{"max × 1.3", backtest.Choice{Stat: "max", Headroom: 0.3}, rlc.Limit{Rate: 117, Burst: 234}, 0},
		// 90 − 52 = 38 req/s over 3600 s, less the 104 of the burst.
		{"the storm left out: 40 × 1.3", backtest.Choice{Stat: "max", Headroom: 0.3, Exclude: []rlc.Window{storm}}, rlc.Limit{Rate: 52, Burst: 104}, 38*3600 - 104},
		{"the last day only", backtest.Choice{Stat: "max", Window: 24 * time.Hour}, rlc.Limit{Rate: 40, Burst: 80}, 50*3600 - 80},
		// 120 of 2,880 steps lie above 10, of them 60 at 90: 29 steps are 1 %.
		{"p99", backtest.Choice{Stat: "p99", Seconds: 1}, rlc.Limit{Rate: 90, Burst: 90}, 0},
		{"a floor", backtest.Choice{Stat: "max", Window: 6 * time.Hour, Floor: 200}, rlc.Limit{Rate: 200, Burst: 400}, 0},
	} {
		value, _, ok := backtest.Statistic(h, c.choice)
		limit := c.choice.Limit(value)
		if !ok || limit != c.want {
			t.Errorf("%s: %+v of %g, want %+v", c.name, limit, value, c.want)
		}
		if got := backtest.FromHistory(h, limit).Drops; got != c.drops {
			t.Errorf("%s drops %g, want %g", c.name, got, c.drops)
		}
	}
	if _, _, ok := backtest.Statistic(h, backtest.Choice{Stat: "max", Exclude: []rlc.Window{{From: monday, Until: monday.Add(72 * time.Hour)}}}); ok {
		t.Error("a statistic of an excluded history")
	}
}

func TestAChoiceOutsideItsRangesIsRefused(t *testing.T) {
	for _, c := range []backtest.Choice{{}, {Stat: "p50"}, {Stat: "max", Window: -1}, {Stat: "max", Headroom: -0.1}, {Stat: "max", Headroom: math.NaN()}, {Stat: "max", Floor: -1}, {Stat: "max", Floor: rlc.Rate(math.Inf(1))}, {Stat: "max", Seconds: -1}} {
		if c.Valid() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if err := (backtest.Choice{Stat: "max"}).Valid(); err != nil {
		t.Error(err)
	}
}

// The curve of many series is what each loses above its own limit, which the
// replay of each, with a burst, does not exceed.
func TestTheFleetsCurveIsNoLessThanTheReplays(t *testing.T) {
	choice := backtest.Choice{Stat: "p99", Seconds: 1e-9} // bursts of 1
	var all []backtest.Prepared
	var replayed float64
	headrooms := backtest.Headrooms(0.6, 30)
	for i := range 5 {
		h := spiky(uint64(i), 3)
		p, ok := backtest.Prepare(rlc.Series{Bucket: "callers", History: h}, choice)
		if !ok {
			t.Fatal("nothing prepared")
		}
		all = append(all, p)
		replayed += backtest.Curve(h, choice, headrooms)[10].Drops
	}
	got := backtest.Fleet(all, choice, headrooms)
	if len(got) != 31 || got[10].Headroom != 0.2 {
		t.Fatalf("%d points, the eleventh at %g", len(got), got[10].Headroom)
	}
	if got[10].Drops < replayed || got[10].Drops > 1.05*replayed {
		t.Errorf("the curve says %g, the replays %g", got[10].Drops, replayed)
	}
	for i := 1; i < len(got); i++ {
		if got[i].Drops > got[i-1].Drops || got[i].Rate < got[i-1].Rate {
			t.Errorf("the curve rises at %+v after %+v", got[i], got[i-1])
		}
	}
}

func TestTheKneeIsTheBend(t *testing.T) {
	points := []backtest.Point{{Headroom: 0, Drops: 100}, {Headroom: .1, Drops: 40}, {Headroom: .2, Drops: 10}, {Headroom: .3, Drops: 8}, {Headroom: .4, Drops: 5}, {Headroom: .5, Drops: 0}}
	// Distance below the line: .1 → .4, .2 → .5, .3 → .32.
	if at, ok := backtest.Knee(points); !ok || at != 2 {
		t.Errorf("the knee is at %d, %v", at, ok)
	}
	if _, ok := backtest.Knee([]backtest.Point{{Headroom: 0}, {Headroom: .1}, {Headroom: .2}}); ok {
		t.Error("a flat curve has a knee")
	}
	// 0.82 % to 0.61 % of the requests, the middle a tenth of the fall below the line.
	straight := []backtest.Point{{Headroom: 0, Drops: 8200}, {Headroom: .3, Drops: 6940}, {Headroom: .6, Drops: 6100}}
	if at, ok := backtest.Knee(straight); ok {
		t.Errorf("a nearly straight curve has a knee at %d", at)
	}
	straight[1].Drops = 7150 - 0.2*2100 // a fifth
	if at, ok := backtest.Knee(straight); !ok || at != 1 {
		t.Errorf("a curve that bends by a fifth has its knee at %d, %v", at, ok)
	}
}

// spiky is days of minutes with a daily curve and a few storms.
func spiky(seed uint64, days int) rlc.History {
	values := make([]float64, days*1440)
	x := seed*2862933555777941757 + 3037000493
	for i := range values {
		x = x*6364136223846793005 + 1442695040888963407
		noise := float64(x>>40) / float64(1<<24)
		values[i] = 100 * (1.2 + math.Sin(float64(i%1440)/1440*2*math.Pi)) * (0.85 + 0.3*noise)
		if x>>33%997 == 0 {
			values[i] *= 1.5
		}
	}
	return stat.Summarise(time.Minute, monday, values)
}

// A what-if over 200 keys, 28 days of minutes and 30 steps of headroom: cold,
// with every series prepared anew, and warm, as a slider moves.
func BenchmarkWhatIf(b *testing.B) {
	var series []rlc.Series
	for i := range 200 {
		series = append(series, rlc.Series{Bucket: "callers", History: spiky(uint64(i), 28)})
	}
	choice := backtest.Choice{Stat: "p99.9"}
	headrooms := backtest.Headrooms(0.6, 30)
	prepare := func() []backtest.Prepared {
		out := make([]backtest.Prepared, 0, len(series))
		for _, s := range series {
			if p, ok := backtest.Prepare(s, choice); ok {
				out = append(out, p)
			}
		}
		return out
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			backtest.Fleet(prepare(), choice, headrooms)
		}
	})
	ready := prepare()
	b.Run("warm", func(b *testing.B) {
		for b.Loop() {
			backtest.Fleet(ready, choice, headrooms)
		}
	})
	b.Run("one-quota-exact", func(b *testing.B) {
		for b.Loop() {
			backtest.Curve(series[0].History, choice, headrooms)
		}
	})
}

func TestStatisticsAreEachStatistic(t *testing.T) {
	h := spiky(3, 28)
	h.Until = monday.AddDate(0, 0, 28)
	for _, days := range []int{0, 7, 14} {
		c := backtest.Choice{Window: time.Duration(days) * 24 * time.Hour, Exclude: []rlc.Window{{From: monday.AddDate(0, 0, 25), Until: monday.AddDate(0, 0, 26)}}}
		all := backtest.Statistics(h, c)
		for _, c.Stat = range backtest.Stats() {
			if value, atMost, ok := backtest.Statistic(h, c); !ok || all[c.Stat] != (backtest.Value{Rate: value, AtMost: atMost}) {
				t.Errorf("%s over %d days: %v, alone %v %v", c.Stat, days, all[c.Stat], value, atMost)
			}
		}
	}
	if got := backtest.Statistics(rlc.History{}, backtest.Choice{}); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}
