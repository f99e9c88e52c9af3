// Package predictive forecasts what a caller will ask for: the middle and the
// 99 % quantile of the steps of every hour to come. It blends a few simple models
// by how well each would have forecast the last days of the very same series.
//
// The cautions around the number are those of package historical: the same hours
// are left out, and thin evidence, young rises and what enforcement distorts are
// treated alike. docs/policies/predictive.md explains it with an example.
package predictive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/historical"
)

const (
	upper        = 0.99   // the quantile that a limit stands for
	week         = 7 * 24 // hours
	fullWeek     = 6 * 24 // hours with samples that make a week comparable
	maxGrowth    = 1.15   // from one week to the next
	hourTimes    = 1.2    // what the hour-of-week maximum is multiplied with
	returning    = 0.95   // share of the hours with requests that come back where batches are regular
	mostTimes    = 1.5    // of the highest step seen, that a model may forecast
	mostLift     = 1.1    // what limits that covered too little are multiplied with, at most
	backtestDays = 7      // that a series' models are compared on
	leastPast    = 3 * 24 // hours that a forecast needs
)

// DefaultHorizon is how far ahead a policy looks where its configuration is
// silent.
const DefaultHorizon = 7 * 24 * time.Hour

// Config tunes the policy. Its zero value is the default.
type Config struct {
	// Headroom is the fraction added above the forecast. Nil means what
	// historical adds: 0.30, and 0.20 where the step is at most 15 s.
	Headroom *float64
	// Horizon is how far ahead it looks, in whole hours; DefaultHorizon by
	// default.
	Horizon time.Duration
	// Hourly publishes a limit for each hour instead of the highest for all.
	Hourly bool
	// Planned is growth that history cannot know, as a fraction on top; 0 for
	// none.
	Planned float64
}

// Policy estimates from a forecast. It is safe for concurrent use.
type Policy struct {
	cautious *historical.Policy
	ahead    int // hours
	hourly   bool
	planned  float64
}

// New returns a policy.
func New(c Config) *Policy {
	if c.Horizon <= 0 {
		c.Horizon = DefaultHorizon
	}
	return &Policy{
		cautious: historical.New(historical.Config{Headroom: c.Headroom}),
		ahead:    max(1, int(c.Horizon/time.Hour)),
		hourly:   c.Hourly,
		planned:  c.Planned,
	}
}

// Needs asks for four weeks.
func (p *Policy) Needs() rlc.Needs { return p.cautious.Needs() }

// Propose forecasts, and proposes the highest hour of the forecast, with
// headroom, as one number. It abstains as historical does. Four weeks cost about
// 2 ms and 0.8 MB of short-lived memory, whatever the step.
func (p *Policy) Propose(_ context.Context, in rlc.Input) (rlc.Estimate, error) {
	var out *outlook
	var base historical.Base
	asked := false
	est, err := p.cautious.ProposeBy(in, func(hours []rlc.Hour, counts func(i int) bool) historical.Base {
		if asked { // what it would be with other hours: by the same models
			_, b := p.base(in, hours, counts, out)
			return b
		}
		asked = true
		out, base = p.base(in, hours, counts, nil)
		return base
	})
	if err != nil || out == nil {
		return est, err
	}
	est.Forecast = &rlc.Forecast{From: in.Now.UTC().Truncate(time.Hour), Q50: rates(out.q50, 1, rlc.MaxRate), Q99: rates(out.q99, 1, rlc.MaxRate)}
	if out.days > 0 {
		coverage := rlc.Ratio(min(1, out.coverage))
		est.Forecast.Coverage = &coverage
	}
	multiply(&est, in.Events)
	share := float64(est.Limit.Rate) / base.Rate * (1 + p.planned) // of a forecast rate
	capped(&est, in)
	if p.hourly {
		r := rates(out.q99, share, est.Limit.Rate)
		est.Forecast.Rates = r
		est.Steps = append(est.Steps, rlc.Reason{
			Rule: "hourly", Rate: est.Limit.Rate,
			Detail: fmt.Sprintf("published hour by hour, from %s to %s", stat.RateText(slices.Min(r)), stat.RateText(slices.Max(r))),
		})
	}
	return est, nil
}

// multiply multiplies the forecast of the hours that a declared event touches.
// The limit is left alone: an event's is a window of its own, switched at the
// hour.
func multiply(est *rlc.Estimate, events []rlc.Event) {
	f := est.Forecast
	for _, e := range events {
		touched := 0
		for i := range f.Q99 {
			at := f.From.Add(time.Duration(i) * time.Hour)
			if !(rlc.Window{From: e.From, Until: e.Until}).Overlaps(at, at.Add(time.Hour)) {
				continue
			}
			touched++
			f.Q50[i] = min(f.Q50[i]*rlc.Rate(e.Multiply), rlc.MaxRate)
			f.Q99[i] = min(f.Q99[i]*rlc.Rate(e.Multiply), rlc.MaxRate)
		}
		if touched > 0 {
			est.Steps = append(est.Steps, rlc.Reason{Rule: "event", Rate: est.Limit.Rate,
				Detail: fmt.Sprintf("event %s: the forecast of %s × %s; its limit is a window of its own", e.Name, rlc.Plural(touched, "hour"), rlc.Number(e.Multiply))})
		}
	}
}

// base forecasts from the hours that count, and draws one number from it. There
// is no outlook where nothing ever came. as is that of look.
func (p *Policy) base(in rlc.Input, hours []rlc.Hour, counts func(i int) bool, as *outlook) (*outlook, historical.Base) {
	peak := 0.0
	for i, h := range hours {
		if counts(i) {
			peak = max(peak, float64(h.Max))
		}
	}
	if peak == 0 {
		return nil, historical.Base{Why: "forecast 0/s"}
	}
	w := newWindow(hours, counts, in.History.Step, in.Now, p.ahead, in.Location)
	out := w.look(as)
	// One request may always come, however sparse the series.
	one := 1 / max(in.History.Step.Seconds(), 1)
	for i := range out.q99 {
		out.q99[i] = max(out.q99[i], min(one, peak))
	}
	b := historical.Base{Rate: slices.Max(out.q99), Keeps: peak}
	b.Why = fmt.Sprintf("forecast 99 %% peak %s", stat.RateText(rlc.Rate(b.Rate)))
	rule := "forecast"
	switch {
	case out.batches:
		rule = "batches"
		b.Why = "highest batch " + stat.RateText(rlc.Rate(b.Rate))
	case out.fallback:
		rule = "hour_of_week_maximum"
		b.Why = fmt.Sprintf("hour-of-week maximum %s × %.2f", stat.RateText(rlc.Rate(b.Rate/(hourTimes*out.lift))), hourTimes*out.lift)
	}
	b.Steps = []rlc.Reason{{Rule: rule, Rate: rlc.Rate(b.Rate), Acted: true, Detail: out.text(p.ahead)}}
	if p.planned != 0 {
		b.Rate *= 1 + p.planned
		b.Why += fmt.Sprintf(" × %.2f planned", 1+p.planned)
		b.Steps = append(b.Steps, rlc.Reason{Rule: "planned", Rate: rlc.Rate(b.Rate), Acted: true, Detail: fmt.Sprintf("× %.2f planned growth", 1+p.planned)})
	}
	return &out, b
}

// capped holds the estimate within what the service can carry.
func capped(est *rlc.Estimate, in rlc.Input) {
	c := in.Capacity
	if c == nil || c.Rate <= 0 {
		return
	}
	most := stat.Tidy(c.Rate * rlc.Rate(1-c.Reserve))
	if est.Limit.Rate <= most {
		return
	}
	est.Limit = rlc.Limit{Rate: most, Burst: historical.Burst(most, min(most, est.Peak.Rate), in.History.Step)}
	est.Why += fmt.Sprintf("; at most the capacity of %s", stat.RateText(most))
	est.Steps = append(est.Steps, rlc.Reason{Rule: "capacity", Rate: most, Acted: true, Detail: "what the service can carry, less its reserve"})
}

// text says where the forecast comes from and how it did.
func (o *outlook) text(ahead int) string {
	var b strings.Builder
	switch {
	case o.batches:
		return "most hours are silent, and batches come at other hours than before: the highest step stands for every hour"
	case o.days == 0 && o.fallback:
		fmt.Fprintf(&b, "highest of the hours' own past × %.2f: too little history to test a forecast on", hourTimes)
		return b.String()
	case o.fallback:
		fmt.Fprintf(&b, "highest of the hours' own past × %.2f: over the last %d days the forecast lost %.2f × as much; this covered %.1f %% of the steps",
			hourTimes, o.days, o.relative, 100*o.coverage)
		return b.String() + o.lifted()
	}
	fmt.Fprintf(&b, "highest of the next %d hours' 99 %% quantiles, blended of", ahead)
	order := make([]int, len(o.blend))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(o.blend[y], o.blend[x]) })
	for i, m := range order {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s %.0f %%", o.models[m].name, 100*o.blend[m])
	}
	if o.growth > 1 {
		fmt.Fprintf(&b, "; every week grew, by %.0f %% at least", 100*(o.growth-1))
	}
	if o.days > 0 {
		fmt.Fprintf(&b, "; over the last %d days such forecasts covered %.1f %% of the steps and lost %.2f × as much as the hour-of-week maximum", o.days, 100*o.coverage, o.relative)
	}
	return b.String() + o.lifted()
}

// lifted says by what the limits were lifted, "" where they were not.
func (o *outlook) lifted() string {
	if o.lift < 1.005 {
		return ""
	}
	return fmt.Sprintf("; × %.2f, as more than %.0f %% of these steps lay above", o.lift, 100*(1-upper))
}

// rates are values × times, at most most.
func rates(values []float64, times float64, most rlc.Rate) []rlc.Rate {
	out := make([]rlc.Rate, len(values))
	for i, v := range values {
		out[i] = min(rlc.Rate(v*times), most)
	}
	return out
}
