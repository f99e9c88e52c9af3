package predictive

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

func TestQuantileIsTheLeastValueWithEnoughWeightAtOrBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) weighted {
			// Few values, so that many are equal; whole weights, so that sums are
			// exact in any order.
			return weighted{float64(rapid.IntRange(-5, 20).Draw(t, "value")), float64(rapid.IntRange(0, 9).Draw(t, "weight"))}
		}), 1, 60).Draw(t, "all")
		q := rapid.Float64Range(0.01, 0.999).Draw(t, "q")
		sorted := slices.SortedFunc(slices.Values(all), func(a, b weighted) int { return cmp.Compare(a.value, b.value) })
		total, below, want := 0.0, 0.0, sorted[len(sorted)-1].value
		for _, x := range sorted {
			total += x.weight
		}
		for _, x := range sorted {
			if below += x.weight; below >= q*total*(1-1e-9) {
				want = x.value
				break
			}
		}
		if got := quantile(all, q); total > 0 && got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
	if got := quantile(nil, 0.99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestTheStepsOfAnHourKeepItsMeanAndHighest(t *testing.T) {
	for _, n := range []int{1, 2, 3, 12, 60, 240, 3600} {
		s := newShape(n)
		var value, weight [levels]float64
		mean := 80.0
		if n == 1 {
			mean = 100
		}
		s.spread(value[:], weight[:], 100, mean, 1)
		sum, total := 0.0, 0.0
		for i := range levels {
			sum += value[i] * weight[i]
			total += weight[i]
		}
		if math.Abs(sum-mean) > 1e-9 || math.Abs(total-1) > 1e-12 || value[0] != 100 || n > 1 && weight[0] != 1/float64(n) {
			t.Errorf("%d steps: %v with weights %v", n, value, weight)
		}
		if n > 2 && !slices.IsSortedFunc(value[:], func(a, b float64) int { return cmp.Compare(b, a) }) {
			t.Errorf("%d steps: %v are not descending", n, value)
		}
	}
}

func TestGapsAndHoursThatDoNotCountAreNotZeros(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var hours []rlc.Hour
	for i := range 96 {
		if i%7 != 3 { // a gap
			hours = append(hours, rlc.Hour{Start: start.Add(time.Duration(i) * time.Hour), Max: 10, Mean: 10, Present: 60})
		}
	}
	hours[5].Max = 1000 // does not count
	w := newWindow(hours, func(i int) bool { return i != 5 }, time.Minute, start.Add(96*time.Hour), 24, nil)
	p := w.until(w.n, &scratch{})
	for _, m := range models() {
		out := make([]float64, 24)
		m.within(p, out)
		for i, v := range out {
			if v < 9.999 || v > 12.001 {
				t.Errorf("%s: hour %d is %v", m.name, i, v)
			}
		}
	}
}

func TestSharesFallWithTheCubeOfTheLoss(t *testing.T) {
	got := shares([]float64{1, 2, 4}, 0)
	want := []float64{64.0 / 73, 8.0 / 73, 1.0 / 73} // 1, 1/8, 1/64
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("shares %v, want %v", got, want)
		}
	}
	if got := shares([]float64{0, 0}, 0); got[0] != 0.5 || got[1] != 0.5 {
		t.Errorf("without a loss: %v", got)
	}
}

func TestAnOutlooksModelsAreTakenOverWhateverTheOtherSeriesIsLike(t *testing.T) {
	start := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	series := func(rate func(h int) rlc.Rate) *window {
		var hours []rlc.Hour
		for i := range 3 * week {
			hours = append(hours, rlc.Hour{Start: start.Add(time.Duration(i) * time.Hour), Max: rate(i), Mean: rate(i) / 2, Present: 60})
		}
		return newWindow(hours, func(int) bool { return true }, time.Minute, start.Add(3*week*time.Hour), 24, nil)
	}
	steady := func() *window { return series(func(int) rlc.Rate { return 10 }) }
	batch := func() *window {
		return series(func(h int) rlc.Rate {
			if h == 200 {
				return 10
			}
			return 0
		})
	}
	s, b := steady().look(nil), batch().look(nil)
	if s.batches || len(s.blend) != 4 || !b.batches || len(b.blend) != 1 {
		t.Fatalf("steady %+v, batch %+v", s, b)
	}
	if got := steady().look(&b); !got.batches || got.q99[0] != 10 {
		t.Errorf("the highest step of a steady series: %v", got.q99)
	}
	if got := batch().look(&s); got.batches || len(got.blend) != 4 || !(got.q99[0] <= 10) {
		t.Errorf("a batch by a steady series' models: %v", got.q99)
	}
}

func TestTheHoursOfTheWeekAreLocal(t *testing.T) {
	slots := func(zone string, start time.Time) []int {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Skip("no time zone data")
		}
		return newWindow([]rlc.Hour{{Start: start}}, func(int) bool { return true }, time.Minute, start.Add(time.Hour), 2, loc).slot
	}
	// New York's summer ends on Sunday, 1 November 2026, 06:00 UTC: one o'clock
	// comes twice.
	if got := slots("America/New_York", time.Date(2026, 11, 1, 5, 0, 0, 0, time.UTC)); !slices.Equal(got, []int{1, 1, 2}) {
		t.Errorf("New York: %v", got)
	}
	// Half past five on a Monday in Kolkata counts as five.
	if got := slots("Asia/Kolkata", time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)); !slices.Equal(got, []int{29, 30, 31}) {
		t.Errorf("Kolkata: %v", got)
	}
}

func TestNoModelForecastsFarAboveWhatWasSeen(t *testing.T) {
	wild := model{"wild", func(_ *past, out []float64) { fill(out, 1e9) }}
	out := make([]float64, 3)
	wild.within(&past{highest: 10}, out)
	if !slices.Equal(out, []float64{15, 15, 15}) {
		t.Errorf("%v, want 1.5 × the highest step", out)
	}
}

func TestTheSmoothedLevelJudgesTheHoursAtTheirOwnLevel(t *testing.T) {
	// From 10 to 20 in four weeks: usual is about 15, its level now about 1.3,
	// and no hour was far above the level of its day.
	start := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	var hours []rlc.Hour
	for i := range 4 * week {
		rate := rlc.Rate(10 + 10*float64(i)/(4*week))
		hours = append(hours, rlc.Hour{Start: start.Add(time.Duration(i) * time.Hour), Max: rate, Mean: rate, Present: 60})
	}
	w := newWindow(hours, func(int) bool { return true }, time.Minute, start.Add(4*week*time.Hour), 24, nil)
	out := make([]float64, 24)
	smoothedLevel(w.until(w.n, &scratch{}), out)
	for i, v := range out {
		if v < 20 || v > 20.8 {
			t.Errorf("hour %d: %v, want 20 to 20.8", i, v)
		}
	}
}
