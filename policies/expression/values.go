package expression

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// meanings are the variables of an expression, all of them numbers. Rates are
// in requests per second; what does not exist (a capacity, a contract, a quota
// in force) is 0.
var meanings = map[string]string{
	"weekly_peak":   "highest step of the hours that count: incidents are left out as the historical policy does",
	"peak_7d":       "highest step of the last 7 days, incidents included",
	"peak_28d":      "highest step of the last 28 days, incidents included",
	"p99":           "99th percentile of the steps of 28 days, incidents included",
	"p999":          "99.9th percentile of the steps of 28 days, incidents included",
	"mean":          "mean of the steps of 28 days",
	"planned":       "the parameter planned: growth that is known to come",
	"capacity":      "the service's declared capacity less its reserve",
	"days":          "days with data in the window",
	"current_rate":  "rate of the quota in force",
	"current_burst": "burst of the quota in force, in requests",
	"contract":      "rate promised to the caller",
}

// Variables lists the variables with their meanings, by name, for help texts.
func Variables() map[string]string {
	out := make(map[string]string, len(meanings))
	for k, v := range meanings {
		out[k] = v
	}
	return out
}

// values gives every variable its value.
func (p *Policy) values(in rlc.Input, est rlc.Estimate) map[string]any {
	v := map[string]any{
		"weekly_peak": float64(est.Peak.Rate), "planned": p.planned, "days": est.ValidDays,
		"capacity": 0.0, "contract": 0.0, "current_rate": 0.0, "current_burst": 0.0,
	}
	if c := in.Capacity; c != nil {
		v["capacity"] = float64(stat.Tidy(c.Rate * rlc.Rate(1-c.Reserve)))
	}
	if c := in.Contract; c != nil {
		v["contract"] = float64(c.Limit.Rate)
	}
	if c := in.Current; c != nil {
		v["current_rate"], v["current_burst"] = float64(c.Rate), float64(c.Burst)
	}
	var peak7, peak28, sum float64
	steps := 0
	for _, h := range in.History.Hours {
		if h.Present == 0 || math.IsInf(float64(h.Max), 0) || !h.Start.Before(in.Now) {
			continue
		}
		peak28 = max(peak28, float64(h.Max))
		if in.Now.Sub(h.Start) <= 7*24*time.Hour {
			peak7 = max(peak7, float64(h.Max))
		}
		sum += float64(h.Mean) * float64(h.Present)
		steps += h.Present
	}
	v["peak_7d"], v["peak_28d"], v["mean"] = peak7, peak28, 0.0
	if steps > 0 {
		v["mean"] = sum / float64(steps)
	}
	v["p99"], v["p999"] = upper(in.History, steps, 0.01), upper(in.History, steps, 0.001)
	return v
}

// upper is the (1 − share) quantile of the window's steps by nearest rank. The
// tail holds every step of the top 1 % of each day; where ties keep it shorter
// than the rank, its floor is the answer: the steps left out lie below it.
func upper(h rlc.History, steps int, share float64) float64 {
	if steps == 0 {
		return 0
	}
	tail := slices.Clone(h.Tail)
	slices.SortFunc(tail, func(a, b rlc.Sample) int { return cmp.Compare(b.Rate, a.Rate) })
	above := int(math.Floor(share*float64(steps) + 1e-9))
	if above < len(tail) {
		return float64(tail[above].Rate)
	}
	return float64(h.TailFloor)
}
