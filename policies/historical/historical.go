// Package historical turns weeks of offered traffic into a quota: the highest
// step of the hours that count, times growth, headroom and a factor for thin
// evidence. Hours that look like incidents are left out and shown as flags.
//
// The formula is that of policies.md 3; docs/policies/historical.md explains
// it with an example.
package historical

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// The constants of the formula (policies.md 3).
const (
	spike        = 1.8  // an hour above spike × usual is flagged
	shifted      = 1.5  // a median this far above usual is a new level
	recurrence   = 0.5  // a peak that reached this share of another supports it
	maxGrowth    = 1.15 // from one week to the next
	fullDays     = 14   // valid days that give full confidence
	thin         = 0.5  // added to the factor where there is no evidence at all
	maxDrops     = 0.01 // share of an hour's requests that enforcement may drop
	youngRise    = 0.25 // increase for a level that is younger than a day
	clipped      = 0.98 // share of the limit in force that admitted traffic reaches where it is clipped
	clippedRise  = 0.20 // increase suggested then
	sparseBurst  = 10   // requests of one step that a burst admits at least
	pause        = 4 * time.Hour
	day          = 24 * time.Hour
	week         = 7 * day
	growthWeeks  = 3
	fullWeek     = 6 * 24 // hours with samples that make a week comparable
	fineStep     = 15 * time.Second
	fineHeadroom = 0.20
	headroom     = 0.30
)

// DefaultWindow is how far back a policy looks where its configuration is
// silent.
const DefaultWindow = 4 * week

// Config tunes the policy. Its zero value is the default.
type Config struct {
	// Headroom is the fraction added above what was observed. Nil means 0.30,
	// and 0.20 where the step is at most 15 s, which sees shorter peaks.
	Headroom *float64
	// Window is how far back the policy looks, DefaultWindow by default.
	Window time.Duration
}

// Policy estimates from history. It is safe for concurrent use.
type Policy struct {
	headroom *float64
	window   time.Duration
}

// New returns a policy.
func New(c Config) *Policy {
	p := &Policy{headroom: c.Headroom, window: c.Window}
	if p.window <= 0 {
		p.window = DefaultWindow
	}
	return p
}

// Needs asks for the window.
func (p *Policy) Needs() rlc.Needs { return rlc.Needs{Lookback: p.window} }

// Propose estimates a limit. It abstains below 24 hours of data, where no
// request was ever seen, and where no hour counts.
func (p *Policy) Propose(_ context.Context, in rlc.Input) (rlc.Estimate, error) {
	return p.propose(in, weeklyPeak)
}

// Base is what a rule makes of the hours that count, before headroom.
type Base struct {
	Rate  float64
	Why   string       // "weekly peak 323/s × 1.04 growth"
	Steps []rlc.Reason // from the weekly peak to Rate
	// Keeps is the rate, before headroom, down to which the hours hold a quota
	// in force whatever Rate is; 0 for none.
	Keeps float64
}

// ProposeBy is Propose with another rule for the rate. It leaves out the same
// hours, adds the same headroom and cautions, and abstains alike. rule is asked
// for the hours for which counts is true, first for those that count, then for
// what the rate would be were others counted as well; hours are ascending and
// have samples.
func (p *Policy) ProposeBy(in rlc.Input, rule func(hours []rlc.Hour, counts func(i int) bool) Base) (rlc.Estimate, error) {
	return p.propose(in, func(w *weeks, keep func(m mark, i int) bool) Base {
		return rule(w.hours, func(i int) bool { return keep(w.marks[i], i) })
	})
}

// weeklyPeak is this policy's own rule: the highest weekly peak, and growth
// projected from the newest week. Where an older week peaked higher than that,
// its peak stands as it was.
func weeklyPeak(w *weeks, keep func(m mark, i int) bool) Base {
	peaks := w.peaks(keep)
	peak, growth := 0.0, 1.0
	for _, x := range peaks {
		peak = max(peak, x)
	}
	if peak > 0 {
		// Two digits, as people read it.
		growth = max(1, math.Round(100*w.growth(peaks)*peaks[0]/peak)/100)
	}
	b := Base{Rate: peak * growth, Why: "weekly peak " + stat.RateText(rlc.Rate(peak))}
	if growth > 1 {
		b.Why += fmt.Sprintf(" × %.2f growth", growth)
	}
	b.Steps = []rlc.Reason{{
		Rule: "growth", Rate: rlc.Rate(b.Rate), Acted: growth > 1,
		Detail: fmt.Sprintf("× %.2f: the newest week's peak grown by the usual step from week to week (at most × %.2f)", growth, maxGrowth),
	}}
	return b
}

func (p *Policy) propose(in rlc.Input, rule func(*weeks, func(mark, int) bool) Base) (rlc.Estimate, error) {
	hours := usable(in, p.window)
	known := in.History
	known.Hours = hours
	cover := stat.Cover(known, in.Location, in.Exclude)
	est := rlc.Estimate{ValidDays: cover.Days, Coverage: cover.Least()}
	if cover.Days < 1 {
		return est, fmt.Errorf("%w: %.1f h of history, 24 h needed", rlc.ErrAbstain, cover.Days*24)
	}
	w := clean(in, hours)
	raw := w.highest(func(mark) bool { return true })
	if raw.Rate == 0 {
		return est, fmt.Errorf("%w: no request in %.0f days", rlc.ErrAbstain, math.Ceil(cover.Days))
	}

	f := p.factors(in.History.Step, cover.Days)
	of := func(keep func(mark, int) bool) product { return f.of(rule(w, keep)) }
	counted := of(func(m mark, _ int) bool { return m == counts })
	all := counted // with the hours that must not feed back
	if w.count(drops)+w.count(unhealthy) > 0 {
		all = of(func(m mark, _ int) bool { return m == counts || m == drops || m == unhealthy })
	}
	if counted.rate == 0 && (in.Current == nil || all.rate == 0) {
		return est, fmt.Errorf("%w: every hour with traffic was left out (%s)", rlc.ErrAbstain, w.leftOut())
	}

	est.Peak = w.highest(func(m mark) bool { return m == counts })
	est.Flags = w.flags(in.Exclude, func(only func(mark, int) bool) rlc.Rate { return of(only).rate })
	est.Shadow = f.days < fullDays
	if est.Shadow {
		est.NoDecrease = fmt.Sprintf("%.0f of %d days of history", f.days, fullDays)
	}
	est.Limit.Rate = counted.rate
	est.Why = f.why(counted)
	est.Steps = f.steps(counted, w, raw, est.Peak, in)
	if p.window < fullDays*day {
		est.Steps = append(est.Steps, rlc.Reason{Rule: "window", Rate: counted.rate, Detail: fmt.Sprintf(
			"a window of %.0f days never holds the %d days that leaving shadow and a decrease take", math.Floor(p.window.Hours()/24), fullDays)})
	}
	if in.Current != nil {
		hold(&est, counted, all, w, in)
	}
	if w.young {
		caution(&est, w, in.Current, func() (rlc.Rate, string) {
			before := of(func(m mark, i int) bool { return m == counts && !w.risen(i) })
			return before.rate, f.why(before)
		})
	}
	if n := w.count(drops); n > 0 && in.Current != nil && all.rate > in.Current.Rate && est.Look == "" {
		est.Look = fmt.Sprintf("left out: %s with enforced drops; counted, the quota would be %s", rlc.Plural(n, "hour"), stat.RateText(all.rate))
	}

	est.Limit.Burst, est.BurstUnseen = Burst(est.Limit.Rate, est.Peak.Rate, in.History.Step), true
	est.Steps = append(est.Steps, rlc.Reason{
		Rule: "burst", Rate: est.Limit.Rate,
		Detail: fmt.Sprintf("burst %s: 2 × the rate; bursts below the step of %s are not visible", rlc.Number(est.Limit.Burst), rlc.DurationText(in.History.Step)),
	})
	return est, nil
}

// hold keeps a quota in force from being lowered by what says nothing about the
// traffic that was asked for.
func hold(est *rlc.Estimate, counted, all product, w *weeks, in rlc.Input) {
	current := *in.Current
	act := func(rule string, rate rlc.Rate, detail, why string) {
		est.Limit.Rate, est.Why = rate, why
		est.Steps = append(est.Steps, rlc.Reason{Rule: rule, Detail: detail, Rate: rate, Acted: true})
	}
	switch {
	case counted.rate < current.Rate && all.rate > counted.rate:
		// What enforcement or a failing service distorted neither raises a
		// quota nor lowers it: those hours carry it up to what is in force.
		rate := min(current.Rate, max(all.rate, counted.keeps))
		act("kept_in_force", rate,
			fmt.Sprintf("hours with enforced drops or failing answers would make it %s: they hold the quota in force and do not raise it", stat.RateText(all.rate)),
			fmt.Sprintf("%s; kept at %s by hours with enforced drops or failing answers", est.Why, stat.RateText(rate)))
	case w.clippedAt(current, in.History.Step):
		est.NoDecrease = "censored: admitted traffic reaches the limit in force, what was asked for is not known"
		est.Look = est.NoDecrease
		act("censored", current.Rate*(1+clippedRise),
			est.NoDecrease+fmt.Sprintf("; +%.0f %% suggested", 100*clippedRise),
			fmt.Sprintf("quota in force %s × %.2f as traffic reaches it", stat.RateText(current.Rate), 1+clippedRise))
	case counted.rate < current.Rate && counted.keeps > counted.rate:
		rate := min(current.Rate, counted.keeps)
		act("not_below_peaks", rate,
			fmt.Sprintf("a forecast alone lowers nothing: the peaks of the window, with headroom, hold the quota in force up to %s", stat.RateText(counted.keeps)),
			fmt.Sprintf("%s; kept at %s by the peaks of the window", est.Why, stat.RateText(rate)))
	}
}

// caution bounds what a rise younger than a day may do. before is the rate
// without the rise, and why.
func caution(est *rlc.Estimate, w *weeks, current *rlc.Limit, before func() (rlc.Rate, string)) {
	if current == nil { // the cap has nothing else to hold on to
		rate, why := before()
		if capped := rate * (1 + youngRise); rate > 0 && capped < est.Limit.Rate {
			est.Limit.Rate = capped
			est.Why = fmt.Sprintf("%s × %.2f for a rise less than a day old", why, 1+youngRise)
			est.Steps = append(est.Steps, rlc.Reason{Rule: "max_increase", Rate: capped, Acted: true,
				Detail: fmt.Sprintf("at most +%.0f %% on what it would be without the rise", 100*youngRise)})
		}
	}
	est.MaxIncrease = youngRise
	est.Look = fmt.Sprintf("traffic rose at %s, less than a day ago: a storm or a new level, nobody can tell yet", stat.TimeText(w.since))
}

// Burst is what every kind gives a rate that comes with no burst of its own:
// twice the rate. A sparse series sends all requests of a step at once, so a few
// of them are admitted together whatever the rate; peak is its highest step.
func Burst(rate, peak rlc.Rate, step time.Duration) rlc.Burst {
	sparse := min(math.Ceil(float64(peak)*step.Seconds()-1e-9), sparseBurst)
	return rlc.Burst(max(1, sparse, math.Ceil(min(2*float64(rate), rlc.MaxRate)-1e-9)))
}

// factors are what the peak is multiplied with.
type factors struct {
	headroom   float64
	confidence float64
	days       float64 // whole valid days
}

func (p *Policy) factors(step time.Duration, days float64) factors {
	// A handful of lost samples does not take a day away.
	f := factors{headroom: headroom, confidence: 1, days: math.Floor(days + 0.05)}
	switch {
	case p.headroom != nil:
		f.headroom = *p.headroom
	case step <= fineStep:
		f.headroom = fineHeadroom
	}
	if f.days < fullDays {
		f.confidence = 1 + thin*(fullDays-f.days)/fullDays
	}
	return f
}

// product is a base times the factors: Q = base × (1 + headroom) × confidence.
type product struct {
	base  Base
	rate  rlc.Rate
	keeps rlc.Rate
}

func (f factors) of(b Base) product {
	times := func(x float64) rlc.Rate { return rlc.Rate(x * (1 + f.headroom) * f.confidence) }
	return product{base: b, rate: times(b.Rate), keeps: times(b.Keeps)}
}

// why names every factor that is not 1.
func (f factors) why(p product) string {
	why := p.base.Why
	if f.headroom != 0 {
		why += fmt.Sprintf(" × %.2f headroom", 1+f.headroom)
	}
	if f.confidence != 1 {
		why += fmt.Sprintf(" × %.2f for %.0f of %d days", f.confidence, f.days, fullDays)
	}
	return why
}

// steps tells the way from the samples to the number.
func (f factors) steps(p product, w *weeks, raw, peak rlc.Peak, in rlc.Input) []rlc.Reason {
	steps := []rlc.Reason{{
		Rule: "highest_step", Rate: raw.Rate, Acted: true,
		Detail: fmt.Sprintf("highest step (%s) of the window, at %s", rlc.DurationText(in.History.Step), stat.TimeText(raw.At)),
	}}
	add := func(rule string, rate rlc.Rate, acted bool, format string, args ...any) {
		steps = append(steps, rlc.Reason{Rule: rule, Detail: fmt.Sprintf(format, args...), Rate: rate, Acted: acted})
	}
	if w.recurrent > 0 {
		add("recurrent", raw.Rate, false, "far above usual and yet counted as traffic: %s; three peaks at least 24 h apart reached half their size", rlc.Plural(w.recurrent, "hour"))
	}
	if !w.since.IsZero() && !w.young {
		add("level_shift", raw.Rate, false, "level shift since %s: the new level counts", stat.TimeText(w.since))
	}
	if w.young {
		add("young_level", raw.Rate, false, "traffic rose at %s: nothing of the last 24 h is left out, the increase is capped at +%.0f %%", stat.TimeText(w.since), 100*youngRise)
	}
	left := w.leftOut()
	if left == "" {
		left = "nothing left out"
	}
	add("weekly_peak", peak.Rate, peak.Rate != raw.Rate, "highest weekly peak of the hours that count; %s", left)
	steps = append(steps, p.base.Steps...)
	add("headroom", rlc.Rate(p.base.Rate*(1+f.headroom)), f.headroom != 0, "× %.2f headroom", 1+f.headroom)
	add("confidence", p.rate, f.confidence != 1, "× %.2f for %.0f of %d days of history", f.confidence, min(f.days, fullDays), fullDays)
	return steps
}
