package stat

import "slices"

// Median is the middle of values, the mean of the two middle ones where their
// number is even, and 0 for none. It leaves values as they are.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	var room [64]float64 // few values need no memory
	v := append(room[:0], values...)
	slices.Sort(v)
	m := len(v) / 2
	if len(v)%2 == 1 {
		return v[m]
	}
	return (v[m-1] + v[m]) / 2
}
