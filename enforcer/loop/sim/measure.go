package sim

import (
	"math"
	"time"
)

// limit is what the fleet is held to.
func (r Result) limit() float64 { return r.Config.Limits[Bucket] }

func total(per []float64, from, until time.Duration) (sum float64) {
	for i := int(max(from, 0) / Step); i < min(int(until/Step), len(per)); i++ {
		sum += per[i]
	}
	return sum
}

// Rate is the mean of a per-step count between two times, per second.
func Rate(per []float64, from, until time.Duration) float64 {
	return total(per, from, until) / (until - from).Seconds()
}

// Settled is the time after from since when every window of half a second has
// stayed in the band: 5 % of the limit, or 3.5 deviations where that is more.
// It looks 12 s ahead.
func (r Result) Settled(from time.Duration) time.Duration {
	const window, every, ahead = 500 * time.Millisecond, 50 * time.Millisecond, 12 * time.Second
	l := r.limit()
	band := max(0.05, 3.5*math.Sqrt(2/(l*window.Seconds())))
	last := time.Duration(0)
	for at := time.Duration(0); at+window <= ahead; at += every {
		if math.Abs(Rate(r.Admitted, from+at, from+at+window)/l-1) > band {
			last = at + every
		}
	}
	return last
}

// Excess is what was admitted above the limit between two times, in seconds of
// the limit.
func (r Result) Excess(from, until time.Duration) float64 {
	return total(r.Admitted, from, until)/r.limit() - (until - from).Seconds()
}

// Seconds are the admitted rates of the seconds between two times, as parts of
// the limit: each window that starts at a tenth of a second, so that no edge
// is missed.
func (r Result) Seconds(from, until time.Duration) (least, most float64) {
	least = math.Inf(1)
	for at := from; at+time.Second <= until; at += 100 * time.Millisecond {
		v := Rate(r.Admitted, at, at+time.Second) / r.limit()
		least, most = min(least, v), max(most, v)
	}
	return least, most
}

// Spread is the mean and the deviation of the seconds between two times, as
// parts of the limit.
func (r Result) Spread(from, until time.Duration) (mean, deviation float64) {
	n, squares := 0.0, 0.0
	for at := from; at+time.Second <= until; at += time.Second {
		v := Rate(r.Admitted, at, at+time.Second) / r.limit()
		n, mean, squares = n+1, mean+v, squares+v*v
	}
	mean /= n
	return mean, math.Sqrt(max(0, squares/n-mean*mean))
}

// Dropped is the share of the tries between two times that was refused.
func (r Result) Dropped(from, until time.Duration) float64 {
	offered := total(r.Offered, from, until)
	if offered == 0 {
		return 0
	}
	return 1 - total(r.Admitted, from, until)/offered
}

// Released is how long after from something was still refused in a tenth of a
// second (more than 0.1 % of its tries), looking ahead.
func (r Result) Released(from, ahead time.Duration) time.Duration {
	last := time.Duration(0)
	for at := time.Duration(0); at < ahead; at += 100 * time.Millisecond {
		if r.Dropped(from+at, from+at+100*time.Millisecond) > 0.001 {
			last = at + 100*time.Millisecond
		}
	}
	return last
}
