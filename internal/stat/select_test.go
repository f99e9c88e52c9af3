package stat

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSelectIsTheSortedValueAtItsIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := rapid.IntRange(1, 1000).Draw(t, "levels")
		values := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 {
			return float64(rapid.IntRange(0, levels).Draw(t, "value"))
		}), 1, 200).Draw(t, "values")
		k := rapid.IntRange(0, len(values)-1).Draw(t, "k")
		sorted := slices.Sorted(slices.Values(values))
		if got := Select(values, k); got != sorted[k] {
			t.Fatalf("Select(…, %d) = %g, want %g", k, got, sorted[k])
		}
		slices.Sort(values)
		if !slices.Equal(values, sorted) {
			t.Fatal("values were lost")
		}
	})
}

// The floor by its definition, over a sorted day.
func TestTheFloorLiesJustAboveTheHighestSampleLeftOut(t *testing.T) {
	above := func(sorted []float64, v float64) int {
		i, _ := slices.BinarySearch(sorted, math.Nextafter(v, math.Inf(1)))
		return i
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3*tailMax).Draw(t, "steps")
		levels := rapid.IntRange(1, 5000).Draw(t, "levels")
		running := float64(rapid.IntRange(0, levels).Draw(t, "running"))
		r := rapid.Uint32().Draw(t, "seed")
		values := make([]float64, n)
		for i := range values {
			r = r*1664525 + 1013904223
			values[i] = float64(int(r>>8) % levels)
		}
		sorted := slices.Sorted(slices.Values(values))
		out := n
		if running > 0 {
			out = above(sorted, running)
		}
		own := sorted[n-int(math.Ceil(tailShare*float64(n)))]
		first, _ := slices.BinarySearch(sorted, own)
		if n-first > int(math.Ceil(tailTies*float64(n))) {
			first = above(sorted, own)
		}
		if out = min(out, first); n-out > tailMax {
			out = above(sorted, sorted[n-tailMax-1])
		}
		want := 0.0
		if out > 0 {
			want = math.Nextafter(sorted[out-1], math.Inf(1))
		}
		if floor, kept := tailFloor(values, running); floor != want || kept != n-out {
			t.Fatalf("floor %g with %d samples, want %g with %d", floor, kept, want, n-out)
		}
	})
}
