package stat

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

// lawfulFloor is the tail law over all samples of a day at once.
func lawfulFloor(samples []float64, running float64) float64 {
	n := len(samples)
	sorted := slices.Sorted(slices.Values(samples))
	from := math.Inf(1)
	if running != 0 {
		from = math.Nextafter(running, from)
	}
	own := sorted[n-int(math.Ceil(tailShare*float64(n)))]
	if atLeast(sorted, own) > int(math.Ceil(tailTies*float64(n))) {
		own = math.Nextafter(own, math.Inf(1))
	}
	if from = min(from, own); atLeast(sorted, from) > tailMax {
		from = math.Nextafter(sorted[n-tailMax-1], math.Inf(1))
	}
	if i, _ := slices.BinarySearch(sorted, from); i > 0 {
		return math.Nextafter(sorted[i-1], math.Inf(1))
	}
	return 0
}

// foretold is sketch for a day that comes in chunks of some hours.
func (d *Day) foretold(midnight time.Time, step time.Duration, values []float64, running rlc.Rate, hours int) rlc.SeriesDay {
	d.Begin(midnight, step, running)
	for i := range values {
		at := time.Duration(i) * step
		hour := at / time.Hour
		if i > 0 && (at-step)/time.Hour == hour {
			continue
		}
		until := func(hour time.Duration) int { return min(len(values), int((hour*time.Hour+step-1)/step)) }
		if hour%time.Duration(hours) == 0 {
			d.Foresee(values[i:until(hour+time.Duration(hours))])
		}
		d.Add(at, step, values[i:until(hour+1)])
	}
	return d.Sketch("a", rlc.SeriesDay{})
}

// What a day forgets while it goes on changes nothing: its floor is that of all
// its samples, and its tail every sample from there on.
func TestADayForgetsOnlyWhatCannotBelongToItsTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.SampledFrom([]time.Duration{time.Hour, 7 * time.Minute, time.Minute, time.Minute, 15 * time.Second, 2 * time.Second}).Draw(t, "step")
		n := rapid.IntRange(1, int(day/step)).Draw(t, "steps")
		levels := rapid.SampledFrom([]int{1, 2, 20, 1000, 1 << 20}).Draw(t, "levels")
		trend := rapid.SampledFrom([]float64{-1, 0, 1}).Draw(t, "trend") * float64(levels) / float64(n)
		running := rlc.Rate(rapid.IntRange(0, levels).Draw(t, "running"))
		r := rapid.Uint32().Draw(t, "seed")
		values := make([]float64, n)
		var samples []float64
		for i := range values {
			r = r*1664525 + 1013904223
			values[i] = math.Floor(max(0, float64(int(r>>8)%levels)+trend*float64(i)))
			if r%17 == 0 {
				values[i] = math.NaN()
			} else {
				samples = append(samples, values[i])
			}
		}
		var d Day
		if before := values; rapid.Bool().Draw(t, "a day before") { // that is much like it
			if scale := rapid.SampledFrom([]float64{0.5, 1, 1, 1.05, 2}).Draw(t, "scale"); scale != 1 {
				before = slices.Clone(values)
				for i := range before {
					before[i] *= scale
				}
			}
			d.sketch("a", monday.Add(-day), 0, step, before, 0)
		}
		got := d.foretold(monday, step, values, running, rapid.IntRange(1, 24).Draw(t, "hours foreseen"))
		if len(samples) == 0 {
			return
		}
		floor := lawfulFloor(samples, float64(running))
		var tail []rlc.Sample
		for i, v := range values {
			if v >= floor {
				tail = append(tail, rlc.Sample{Time: monday.Add(time.Duration(i) * step), Rate: rlc.Rate(v)})
			}
		}
		if float64(got.TailFloor) != floor || !reflect.DeepEqual(got.Tail, tail) {
			t.Fatalf("floor %v with %d samples, want %v with %d", got.TailFloor, len(got.Tail), floor, len(tail))
		}
	})
}

// However far a day lies from the one before, what was guessed after that one
// changes nothing.
func TestAWrongGuessChangesNothing(t *testing.T) {
	values := make([]float64, 1440)
	r := uint32(1)
	for i := range values {
		r = r*1664525 + 1013904223
		values[i] = float64(r >> 8)
	}
	want := SketchDay("a", monday, time.Minute, values, 0)
	for percent := 50; percent <= 200; percent++ {
		before := slices.Clone(values)
		for i := range before {
			before[i] *= float64(percent) / 100
		}
		var d Day
		d.sketch("a", monday.Add(-day), 0, time.Minute, before, 0)
		if got := d.foretold(monday, time.Minute, values, 0, 24); !reflect.DeepEqual(got, want) {
			t.Errorf("after a day of %d %%: floor %v with %d samples, want %v with %d", percent, got.TailFloor, len(got.Tail), want.TailFloor, len(want.Tail))
		}
	}
}

func TestADayHoldsNoMoreAtAFinerStep(t *testing.T) {
	held := func(step time.Duration, running rlc.Rate) int {
		var d Day
		d.Begin(monday, step, running)
		r, most := uint32(1), 0
		for h := range 24 {
			values := make([]float64, time.Hour/step)
			for i := range values {
				r = r*1664525 + 1013904223
				values[i] = 1 + float64(r>>8)
			}
			d.Add(time.Duration(h)*time.Hour, step, values)
			most = max(most, cap(d.kept))
		}
		return most
	}
	// Room is doubled by whole size classes of the allocator.
	if n := held(time.Second, 0.95*(1<<24)); n > 2*tailMax*5/4 {
		t.Errorf("%d samples held of a day of seconds", n)
	}
	if n := held(15*time.Second, 0.95*(1<<24)); n > tailMax {
		t.Errorf("%d samples held of a day of quarter minutes", n)
	}
	if n := held(5*time.Second, 0.5); n > 2*tailMax*5/4 {
		t.Errorf("%d samples held of a day that lies above its past", n)
	}
}

func BenchmarkSketchOfADay(b *testing.B) {
	values := make([]float64, 1440)
	r := uint32(1)
	for i := range values {
		r = r*1664525 + 1013904223
		values[i] = 100 + 50*math.Sin(float64(i)/1440*2*math.Pi) + float64(r>>8%1000)/1e6
	}
	var running Running
	var one Day
	for i := range 28 {
		running.Add(one.sketch("a", monday.Add(time.Duration(i)*day), 0, time.Minute, values, running.Point()))
	}
	b.Run("sketch", func(b *testing.B) {
		b.ReportAllocs()
		p := running.Point()
		for b.Loop() {
			one.sketch("a", monday, 0, time.Minute, values, p)
		}
	})
	b.Run("point", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			running.Point()
		}
	})
}
