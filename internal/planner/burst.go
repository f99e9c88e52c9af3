package planner

import (
	"fmt"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/internal/stat"
)

const (
	// A burst may lie below what it would be unseen once so many days, and such a
	// share of their hours, were counted by the second.
	witnessDays  = 14
	witnessShare = 0.95
)

// witness lets a burst rest on the highest second that enforcers counted, where
// the policy could only guess because bursts below the step are not visible to
// it: that second times the rate's own factor over its peak, at least a second of
// the rate. While little was counted it only raises the guess. Hours that the
// estimate left out, unhealthy ones and those with drops above 1 % say nothing
// here either.
func witness(est *rlc.Estimate, in rlc.Input) {
	at := slices.IndexFunc(est.Steps, func(r rlc.Reason) bool { return r.Rule == "burst" })
	if at < 0 || !est.BurstUnseen || est.Fixed || est.Limit.Rate <= 0 {
		return
	}
	var top rlc.Hour
	counted, busy := 0, 0
	for _, h := range in.History.Hours {
		if h.Max > 0 {
			busy++
		}
		if h.Second <= 0 {
			continue
		}
		counted++
		if h.Second > top.Second && !leftOut(est, in, h) {
			top = h
		}
	}
	if top.Second <= 0 {
		return
	}
	factor := 1.0
	if est.Peak.Rate > 0 {
		factor = backtest.Over(float64(est.Limit.Rate / est.Peak.Rate))
	}
	burst := backtest.BurstOf(top.Second, factor, est.Limit.Rate)
	seen := fmt.Sprintf("the highest second that enforcers counted, %s in the hour of %s", stat.RateText(top.Second), stat.TimeText(top.Start))
	step := est.Steps[at]
	step.Detail = fmt.Sprintf("burst %s: %s, × %.2f as the rate is of its peak", rlc.Number(burst), seen, factor)
	if float64(top.Second)*factor < float64(est.Limit.Rate) {
		step.Detail = fmt.Sprintf("burst %s: a second of the rate; %s, lies below", rlc.Number(burst), seen)
	}
	if whole := est.ValidDays >= witnessDays && float64(counted) >= witnessShare*float64(busy); !whole && burst < est.Limit.Burst {
		burst = est.Limit.Burst
		step.Detail += fmt.Sprintf("; %s until %d days were counted by the second (%d of %d hours were)", rlc.Number(burst), witnessDays, counted, busy)
	}
	est.Steps = slices.Clone(est.Steps)
	est.Steps[at] = step
	est.Limit.Burst = burst
}

// leftOut reports whether an hour says nothing about the traffic that is to be
// admitted.
func leftOut(est *rlc.Estimate, in rlc.Input, h rlc.Hour) bool {
	end := h.Start.Add(time.Hour)
	for _, w := range in.Exclude {
		if w.Overlaps(h.Start, end) {
			return true
		}
	}
	for _, f := range est.Flags {
		if f.Overlaps(h.Start, end) {
			return true
		}
	}
	return h.Unhealthy || h.Drops > 0.01
}
