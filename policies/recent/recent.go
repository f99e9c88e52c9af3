// Package recent follows traffic that changes faster than weeks: the highest
// step of the last 24 hours, times headroom. It only ever raises.
package recent

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/historical"
)

// DefaultHeadroom is the fraction added where the configuration is silent.
const DefaultHeadroom = 0.30

const (
	window   = 24 * time.Hour
	lookback = 28 * 24 * time.Hour
	fullDays = 14   // days of history below which a new quota is in shadow
	maxDrops = 0.01 // share of an hour's requests that enforcement may drop
)

// Config tunes the policy. Its zero value is the default.
type Config struct {
	Headroom *float64 // fraction added above the peak; nil: DefaultHeadroom
}

// Policy estimates from the last 24 hours. It is safe for concurrent use.
type Policy struct {
	headroom float64
}

// New returns a policy.
func New(c Config) *Policy {
	p := &Policy{headroom: DefaultHeadroom}
	if c.Headroom != nil {
		p.headroom = *c.Headroom
	}
	return p
}

// Needs asks for four weeks, which only tell how much evidence there is, and to
// run every hour.
func (p *Policy) Needs() rlc.Needs { return rlc.Needs{Lookback: lookback, Every: time.Hour} }

// Propose estimates a limit from the hours that overlap the last 24. Hours in
// which the service failed or enforcement dropped more than 1 % raise nothing:
// retries inflate what they show. It abstains below a day of history and where
// no such hour has traffic.
func (p *Policy) Propose(_ context.Context, in rlc.Input) (rlc.Estimate, error) {
	cover := stat.Cover(in.History, in.Location, in.Exclude)
	est := rlc.Estimate{
		ValidDays: cover.Days, Coverage: cover.Least(), Shadow: cover.Days < fullDays-0.05,
		NoDecrease: "a recent policy only raises",
	}
	if cover.Days < 1 {
		return est, fmt.Errorf("%w: %.1f h of history, 24 h needed", rlc.ErrAbstain, cover.Days*24)
	}
	raw, left := p.peak(in, &est)
	if est.Peak.Rate == 0 {
		return est, fmt.Errorf("%w: no traffic that counts in the last 24 h%s", rlc.ErrAbstain, left)
	}
	rate := est.Peak.Rate * rlc.Rate(1+p.headroom)
	est.Limit, est.BurstUnseen = rlc.Limit{Rate: rate, Burst: historical.Burst(rate, est.Peak.Rate, in.History.Step)}, true
	est.Why = fmt.Sprintf("peak of 24 h %s", stat.RateText(est.Peak.Rate))
	if p.headroom != 0 {
		est.Why += fmt.Sprintf(" × %.2f headroom", 1+p.headroom)
	}
	est.Steps = []rlc.Reason{
		{Rule: "highest_step", Rate: raw.Rate, Acted: true, Detail: fmt.Sprintf("highest step of the last 24 h, in the hour of %s", stat.TimeText(raw.At))},
		{Rule: "recent_peak", Rate: est.Peak.Rate, Acted: est.Peak.Rate != raw.Rate, Detail: "highest step of the hours that count" + left},
		{Rule: "headroom", Rate: rate, Acted: p.headroom != 0, Detail: fmt.Sprintf("× %.2f headroom", 1+p.headroom)},
		{Rule: "burst", Rate: rate, Detail: fmt.Sprintf("burst %s: 2 × the rate; bursts below the step are not visible", rlc.Number(est.Limit.Burst))},
	}
	return est, nil
}

// peak finds the highest step of the last 24 hours, flags the hours that do not
// count and sets the estimate's peak from the rest. left names what was left
// out, "" for nothing.
func (p *Policy) peak(in rlc.Input, est *rlc.Estimate) (raw rlc.Peak, left string) {
	from := in.Now.Add(-window)
	rules := map[string]int{}
	for _, h := range in.History.Hours {
		// An hour of which a part is older is part of the last 24.
		if h.Present == 0 || !h.Start.Add(time.Hour).After(from) || !h.Start.Before(in.Now) || math.IsInf(float64(h.Max), 0) {
			continue
		}
		if h.Max > raw.Rate {
			raw = rlc.Peak{Rate: h.Max, At: h.Start}
		}
		rule, why := ignored(in, h)
		if rule == "" {
			if h.Max > est.Peak.Rate {
				est.Peak = rlc.Peak{Rate: h.Max, At: h.Start}
			}
			continue
		}
		rules[rule]++
		w := rlc.Window{From: h.Start, Until: h.Start.Add(time.Hour), Reason: why}
		if n := len(est.Flags); n > 0 && est.Flags[n-1].Rule == rule && est.Flags[n-1].Until.Equal(w.From) {
			est.Flags[n-1].Until, est.Flags[n-1].Peak = w.Until, max(est.Flags[n-1].Peak, h.Max)
			continue
		}
		est.Flags = append(est.Flags, rlc.Flag{Window: w, Rule: rule, Peak: h.Max})
	}
	for i := range est.Flags {
		est.Flags[i].With = max(est.Flags[i].Peak, est.Peak.Rate) * rlc.Rate(1+p.headroom)
	}
	var parts []string
	for _, rule := range []string{"unhealthy", "enforced_drops", "excluded"} {
		if n := rules[rule]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d h %s left out", n, strings.ReplaceAll(rule, "_", " ")))
		}
	}
	if len(parts) > 0 {
		left = "; " + strings.Join(parts, ", ")
	}
	return raw, left
}

// ignored says why an hour does not count, "" where it does. A person's word
// that it is traffic wins over what the hour shows.
func ignored(in rlc.Input, h rlc.Hour) (rule, why string) {
	for _, w := range in.Exclude {
		if w.Overlaps(h.Start, h.Start.Add(time.Hour)) {
			if w.Reason == "" {
				return "excluded", "declared"
			}
			return "excluded", w.Reason
		}
	}
	switch {
	case stat.Overlaps(in.Count, h.Start):
		return "", ""
	case h.Drops > maxDrops:
		return "enforced_drops", fmt.Sprintf("enforcement dropped %.0f %%", 100*float64(h.Drops))
	case h.Unhealthy:
		return "unhealthy", "the service was failing"
	}
	return "", ""
}
