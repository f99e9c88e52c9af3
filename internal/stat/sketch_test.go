package stat

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func flat(n int, v float64) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func TestQuantileIsNearestRank(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct{ q, want float64 }{
		{0, 1}, {0.05, 1}, {0.1, 1}, {0.11, 2}, {0.5, 5}, {0.95, 10}, {0.9, 9}, {1, 10}, {2, 10}, {-1, 1},
	} {
		if got := Quantile(ten, c.q); got != c.want {
			t.Errorf("Quantile(1..10, %g) = %g, want %g", c.q, got, c.want)
		}
	}
	if got := Quantile(flat(20, 3), 0.95); got != 3 {
		t.Errorf("constant: %g", got)
	}
}

func TestAnHourIsSummarisedOverItsPresentSteps(t *testing.T) {
	values := flat(120, math.NaN())
	for i, v := range []float64{4, math.Inf(1), 10, -1, 1} {
		values[i] = v
	}
	d := SketchDay("a", monday, time.Minute, values, 0)
	// Present are 4, 10 and 1; the infinite and the negative are missing; the
	// second hour has no sample and is left out.
	want := []rlc.Hour{{Start: monday, Max: 10, P99: 10, Mean: 5, Present: 3, Expected: 60}}
	if !reflect.DeepEqual(d.Hours, want) {
		t.Errorf("hours %+v, want %+v", d.Hours, want)
	}
	if d.Series != "a" || !d.Day.Equal(monday) {
		t.Errorf("day is %v of %q", d.Day, d.Series)
	}
}

func TestAnOpenHourExpectsOnlyItsStepsSoFar(t *testing.T) {
	d := SketchDay("a", monday, time.Minute, flat(90, 2), 0)
	if n := len(d.Hours); n != 2 || d.Hours[1].Expected != 30 || d.Hours[1].Present != 30 {
		t.Errorf("hours %+v", d.Hours)
	}
}

func TestTheTailHoldsWhatTheLawAsks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 1440).Draw(t, "steps")
		levels := rapid.IntRange(1, 300).Draw(t, "levels")
		running := rlc.Rate(rapid.IntRange(0, levels).Draw(t, "running"))
		r := rapid.Uint32().Draw(t, "seed")
		values := make([]float64, n)
		for i := range values {
			r = r*1664525 + 1013904223
			values[i] = float64(int(r>>8) % levels)
		}
		d := SketchDay("a", monday, time.Minute, values, running)
		var want []rlc.Sample
		for i, v := range values {
			if v >= float64(d.TailFloor) {
				want = append(want, rlc.Sample{Time: monday.Add(time.Duration(i) * time.Minute), Rate: rlc.Rate(v)})
			} else if running > 0 && v > float64(running) {
				t.Fatalf("sample %g lies above the running point %g and below the floor %g", v, float64(running), float64(d.TailFloor))
			}
		}
		if !reflect.DeepEqual(d.Tail, want) {
			t.Fatal("the tail is not exactly the samples at or above its floor")
		}
		slices.Sort(values)
		top := values[n-int(math.Ceil(0.01*float64(n)))]
		ties := 0
		for _, v := range values {
			if v == top {
				ties++
			}
		}
		if d.TailFloor > rlc.Rate(top) && float64(ties) <= 0.05*float64(n) {
			t.Fatalf("the day's top 1 %% begins at %g, the floor is %g", top, float64(d.TailFloor))
		}
	})
}

func TestAConstantSeriesHasNoTail(t *testing.T) {
	h := Summarise(time.Minute, monday, flat(28*1440, 100.1))
	if len(h.Tail) != 0 {
		t.Errorf("%d samples in the tail of a constant series", len(h.Tail))
	}
	if h.TailFloor <= 100.1 || h.TailFloor > 100.2 {
		t.Errorf("floor %v, want just above the constant", h.TailFloor)
	}
}

func TestTheTailOfABatchIsTheBatch(t *testing.T) {
	values := flat(3*1440, 0)
	for _, at := range []int{100, 1500, 3000} {
		for i := range 30 {
			values[at+i] = 200
		}
	}
	h := Summarise(time.Minute, monday, values)
	if len(h.Tail) != 90 {
		t.Errorf("%d samples in the tail, want the 3 × 30 of the batches", len(h.Tail))
	}
}

func TestTheSizeOfAHistoryDoesNotGrowWithTheStep(t *testing.T) {
	size := func(step time.Duration) int {
		n := int(28 * day / step)
		values := make([]float64, n)
		r := uint32(1)
		for i := range values {
			r = r*1664525 + 1013904223
			hour := float64(i) * step.Hours()
			values[i] = 100 + 50*math.Sin(hour*math.Pi/12) + float64(r>>8%1000)/1e7
			if i > n/2 {
				values[i] *= 3 // a level shift: everything lies above the point
			}
		}
		return len(Summarise(step, monday, values).Tail)
	}
	minute, fine := size(time.Minute), size(5*time.Second)
	t.Logf("tail of 28 days: %d samples at 1 min, %d at 5 s", minute, fine)
	if minute > 28*1440/6 {
		t.Errorf("%d samples of 40,320 in the tail at one minute", minute)
	}
	if limit := 28 * tailMax; fine > limit {
		t.Errorf("%d samples in the tail at five seconds, bound %d", fine, limit)
	}
}

func TestTheRunningPointIsTheWindowsUpperFivePercent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.Uint32().Draw(t, "seed")
		var running Running
		var all [][]float64
		for n := range rapid.IntRange(1, 40).Draw(t, "days") {
			values := make([]float64, 288)
			for i := range values {
				r = r*1664525 + 1013904223
				values[i] = float64(r>>8)/1e4 + float64(n%7)*100
			}
			running.Add(SketchDay("a", monday.Add(time.Duration(n)*day), 5*time.Minute, values, running.Point()))
			all = append(all, values)
		}
		window := slices.Concat(all[max(0, len(all)-28):]...)
		slices.Sort(window)
		exact := window[len(window)-int(math.Ceil(0.05*float64(len(window))))]
		if got := float64(running.Point()); got > exact {
			t.Fatalf("point %g lies above the exact one, %g: tails would miss samples", got, exact)
		} else if got < 0.9*exact {
			t.Fatalf("point %g lies far below the exact one, %g", got, exact)
		}
	})
}

// Of days that have the same samples in another order the tails hold the upper 5 %
// of all, so that the point is exact but for its digits.
func TestTheRunningPointHasSevenDigitsAndIsNeverAboveTheTrueOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := math.Pow10(rapid.IntRange(-9, 12).Draw(t, "scale"))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		values := make([]float64, 288)
		for i := range values {
			values[i] = scale * (1 + r.Float64())
		}
		var running Running
		days := rapid.IntRange(1, 40).Draw(t, "days")
		for n := range days {
			r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
			running.Add(SketchDay("a", monday.Add(time.Duration(n)*day), 5*time.Minute, values, running.Point()))
		}
		kept := min(days, 28)
		k := int(math.Ceil(0.05*float64(kept*len(values)) - 1e-9))
		slices.Sort(values)
		exact := values[len(values)-(k+kept-1)/kept] // each stands there once a day
		if got := float64(running.Point()); got > exact || exact-got > 1.2e-7*exact {
			t.Fatalf("point %v, want %v to seven digits", got, exact)
		}
	})
}

func TestRunningForgetsAfter28Days(t *testing.T) {
	var r Running
	if p := r.Point(); p != 0 {
		t.Errorf("point without a past: %v", p)
	}
	high := flat(1440, 1)
	for i := range 200 {
		high[i] = 1000
	}
	r.Add(SketchDay("a", monday, time.Minute, high, 0))
	if p := r.Point(); p != 1000 {
		t.Errorf("point %v, want 1000: 200 of 1440 samples are", p)
	}
	r.Add(SketchDay("a", monday.Add(28*day), time.Minute, flat(1440, 7), 1000))
	if p := r.Point(); p != 7 {
		t.Errorf("point %v 28 days later, want 7", p)
	}
}

func TestSummariseStartsAndEndsAnywhere(t *testing.T) {
	start := monday.Add(22*time.Hour + 30*time.Minute)
	values := flat(180, 5) // 22:30 to 01:30
	values[179] = math.NaN()
	values[10] = 50
	h := Summarise(time.Minute, start, values)
	want := []rlc.Hour{
		{Start: monday.Add(22 * time.Hour), Max: 50, P99: 50, Mean: 6.5, Present: 30, Expected: 30}, // (29 × 5 + 50) / 30
		{Start: monday.Add(23 * time.Hour), Max: 5, P99: 5, Mean: 5, Present: 60, Expected: 60},
		{Start: monday.Add(24 * time.Hour), Max: 5, P99: 5, Mean: 5, Present: 60, Expected: 60},
		{Start: monday.Add(25 * time.Hour), Max: 5, P99: 5, Mean: 5, Present: 29, Expected: 30},
	}
	if !reflect.DeepEqual(h.Hours, want) {
		t.Errorf("hours %+v\nwant %+v", h.Hours, want)
	}
	if want := start.Add(179 * time.Minute); !h.Newest.Equal(want) {
		t.Errorf("newest %v, want %v", h.Newest, want)
	}
	if want := []rlc.Sample{{Time: start.Add(10 * time.Minute), Rate: 50}}; !reflect.DeepEqual(h.Tail, want) {
		t.Errorf("tail %v, want %v", h.Tail, want)
	}
}

func TestJoinKeepsTheWindowAndTheHighestFloor(t *testing.T) {
	quiet := SketchDay("a", monday, time.Minute, flat(1440, 1), 0)
	busy := make([]float64, 1440)
	for i := range busy {
		busy[i] = float64(i)
	}
	loud := SketchDay("a", monday.Add(day), time.Minute, busy, 0)
	from, until := monday.Add(23*time.Hour+10*time.Minute), monday.Add(48*time.Hour)
	h := Join([]rlc.SeriesDay{quiet, loud}, time.Minute, from, until)
	if n := len(h.Hours); n != 25 || !h.Hours[0].Start.Equal(monday.Add(23*time.Hour)) {
		t.Errorf("%d hours from %v, want 25 from 23:00", n, h.Hours[0].Start)
	}
	if h.TailFloor != loud.TailFloor || len(h.Tail) != 72 || h.Tail[0].Rate != 1368 {
		t.Errorf("floor %v, %d samples from %v; want the loud day's 5 %% = 72 from 1368", h.TailFloor, len(h.Tail), h.Tail[0].Rate)
	}
	if !h.Newest.Equal(until) {
		t.Errorf("newest %v", h.Newest)
	}
}

func TestNewestNeverLooksFresherThanItIs(t *testing.T) {
	values := flat(60, 3)
	for i := 40; i < 50; i++ {
		values[i] = math.NaN()
	}
	d := SketchDay("a", monday, time.Minute, values, 0)
	h := Join([]rlc.SeriesDay{d}, time.Minute, monday, monday.Add(day))
	if want := monday.Add(50 * time.Minute); !h.Newest.Equal(want) {
		t.Errorf("newest %v, want %v: ten of the hour's steps are missing, which is not known", h.Newest, want)
	}
	if h := Join(nil, time.Minute, monday, monday.Add(day)); !h.Newest.IsZero() || h.Hours != nil {
		t.Errorf("no days: %+v", h)
	}
}
