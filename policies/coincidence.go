package policies

import (
	"context"
	"math"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/historical"
)

// Coincidence gathers κ, the peak of the sum of series divided by the sum of
// their peaks, one series at a time: its size does not grow with their number.
//
// Quotas are made of the hours that count, so κ is as well: a storm in one
// series would lift its peak and not the others' hour, and say of quotas that
// know no storm that they do not peak together. An hour that is left out stands
// for at most what the series did at that hour of other days. It works on hourly
// maxima, whose sum is at least the sum's peak, so κ of the traffic that counts
// is never too small. The zero value is ready.
type Coincidence struct {
	hours map[int64]float64 // by Unix hour
	peaks float64
}

// Add takes a series in, without the hours that touch one of left.
func (k *Coincidence) Add(h rlc.History, left []rlc.Window) {
	if k.hours == nil {
		k.hours = map[int64]float64{}
	}
	peak := 0.0
	usual := [24]float64{} // the highest that counts at each hour of the day, UTC
	known := [24]bool{}
	out := make([]bool, len(h.Hours))
	for i, x := range h.Hours {
		if x.Present == 0 || !(x.Max >= 0) || math.IsInf(float64(x.Max), 0) {
			continue
		}
		if out[i] = stat.Overlaps(left, x.Start); out[i] {
			continue
		}
		at := x.Start.Unix() / 3600 % 24
		known[at], usual[at] = true, max(usual[at], float64(x.Max))
		peak = max(peak, float64(x.Max))
		k.hours[x.Start.Unix()/3600] += float64(x.Max)
	}
	for i, x := range h.Hours {
		if !out[i] {
			continue
		}
		stands := peak
		if at := x.Start.Unix() / 3600 % 24; known[at] {
			stands = usual[at]
		}
		k.hours[x.Start.Unix()/3600] += min(float64(x.Max), stands)
	}
	k.peaks += peak
}

// Ratio is κ, 1 where nothing is known.
func (k *Coincidence) Ratio() rlc.Ratio {
	if k.peaks == 0 {
		return 1
	}
	top := 0.0
	for _, v := range k.hours {
		top = max(top, v)
	}
	return rlc.Ratio(min(1, top/k.peaks))
}

// Incidents are the windows of a history that the historical policy leaves out,
// for kinds that flag none of their own: nil where it abstains.
func Incidents(ctx context.Context, in rlc.Input) []rlc.Window {
	est, err := historical.Evidence(ctx, in)
	if err != nil {
		return nil
	}
	return WindowsOf(est.Flags)
}

// WindowsOf are the windows that flags leave out.
func WindowsOf(flags []rlc.Flag) []rlc.Window {
	windows := make([]rlc.Window, len(flags))
	for i, f := range flags {
		windows[i] = f.Window
	}
	return windows
}
