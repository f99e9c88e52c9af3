package stat

import "slices"

// Select is the value that would stand at index k were values ascending, found
// by partitions in a time that grows with their number. It reorders them; there
// are no NaN among them, and k is one of their indices.
func Select(values []float64, k int) float64 {
	lo, hi := 0, len(values)-1
	if k == hi {
		return slices.Max(values)
	}
	for round := 0; lo < hi; round++ {
		if hi-lo < 12 || round == 50 { // few values, or ones that lie badly
			slices.Sort(values[lo : hi+1])
			break
		}
		pivot := middle(values[lo], values[lo+(hi-lo)/2], values[hi])
		i, j := lo, hi
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for pivot < values[j] {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return values[k]
		}
	}
	return values[k]
}

// middle is the second largest of three.
func middle(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }
