package stat

import (
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
