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
	"strings"
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
	kept := func(m mark) bool { return m == counts }
	counted := f.of(w, kept)
	all := f.of(w, func(m mark) bool { return m == counts || m == drops || m == unhealthy })
	if counted.rate == 0 && (in.Current == nil || all.rate == 0) {
		return est, fmt.Errorf("%w: every hour with traffic was left out (%s)", rlc.ErrAbstain, w.leftOut())
	}

	est.Peak = w.highest(kept)
	est.Flags = w.flags(in.Exclude, func(only func(mark, int) bool) rlc.Rate { return f.ofHours(w, only).rate })
	est.Shadow = f.days < fullDays
	if est.Shadow {
		est.NoDecrease = fmt.Sprintf("%.0f of %d days of history", f.days, fullDays)
	}
	rate := counted.rate
	est.Why = f.why(counted)
	est.Steps = f.steps(counted, w, raw, in)

	switch current := in.Current; {
	case current != nil && counted.rate < current.Rate && all.rate > counted.rate:
		// What enforcement or a failing service distorted neither raises a
		// quota nor lowers it: those hours carry it up to what is in force.
		rate = min(current.Rate, all.rate)
		why := fmt.Sprintf("hours with enforced drops or failing answers would make it %s: they hold the quota in force and do not raise it", stat.RateText(all.rate))
		est.Steps = append(est.Steps, rlc.Reason{Rule: "kept_in_force", Detail: why, Rate: rate, Acted: true})
		est.Why = fmt.Sprintf("%s; kept at %s by hours with enforced drops or failing answers", est.Why, stat.RateText(rate))
	case current != nil && w.clippedAt(*current, in.History.Step):
		rate = current.Rate * (1 + clippedRise)
		est.NoDecrease = "censored: admitted traffic reaches the limit in force, what was asked for is not known"
		est.Look = est.NoDecrease
		est.Steps = append(est.Steps, rlc.Reason{Rule: "censored", Detail: est.NoDecrease + fmt.Sprintf("; +%.0f %% suggested", 100*clippedRise), Rate: rate, Acted: true})
		est.Why = fmt.Sprintf("quota in force %s × %.2f as traffic reaches it", stat.RateText(current.Rate), 1+clippedRise)
	}
	if w.young {
		if in.Current == nil { // the cap has nothing else to hold on to
			before := f.ofHours(w, func(m mark, i int) bool { return kept(m) && !w.risen(i) })
			if capped := before.rate * (1 + youngRise); before.rate > 0 && capped < rate {
				rate = capped
				est.Steps = append(est.Steps, rlc.Reason{Rule: "max_increase", Rate: rate, Acted: true,
					Detail: fmt.Sprintf("at most +%.0f %% on what it would be without the rise", 100*youngRise)})
				est.Why = fmt.Sprintf("%s × %.2f for a rise less than a day old", f.why(before), 1+youngRise)
			}
		}
		est.MaxIncrease = youngRise
		est.Look = fmt.Sprintf("traffic rose at %s, less than a day ago: a storm or a new level, nobody can tell yet", stat.TimeText(w.since))
	}
	if n := w.count(drops); n > 0 && in.Current != nil && all.rate > in.Current.Rate && est.Look == "" {
		est.Look = fmt.Sprintf("%d hours with enforced drops were left out; counted, they would make the quota %s", n, stat.RateText(all.rate))
	}

	est.Limit = rlc.Limit{Rate: rate, Burst: Burst(rate, est.Peak.Rate, in.History.Step)}
	est.Steps = append(est.Steps, rlc.Reason{
		Rule: "burst", Rate: rate,
		Detail: fmt.Sprintf("burst %d: 2 × the rate; bursts below the step of %s are not visible", est.Limit.Burst, stepText(in.History.Step)),
	})
	return est, nil
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

// product is the formula's result and its parts.
type product struct {
	peak   float64 // highest weekly peak of the hours that count
	growth float64 // above 1 where the newest week, grown, passes it
	rate   rlc.Rate
}

// of applies Q = max_w P_w × g × (1 + headroom) × confidence to the hours
// whose mark keep accepts. Growth is projected from the newest week: where an
// older week peaked higher than that, its peak stands as it was.
func (f factors) of(w *weeks, keep func(mark) bool) product {
	return f.ofHours(w, func(m mark, _ int) bool { return keep(m) })
}

func (f factors) ofHours(w *weeks, keep func(m mark, i int) bool) product {
	peaks := w.peaks(keep)
	p := product{growth: 1}
	for _, x := range peaks {
		p.peak = max(p.peak, x)
	}
	if p.peak > 0 {
		// Two digits, as people read it.
		p.growth = max(1, math.Round(100*w.growth(peaks)*peaks[0]/p.peak)/100)
	}
	p.rate = rlc.Rate(p.peak * p.growth * (1 + f.headroom) * f.confidence)
	return p
}

// why names every factor that is not 1.
func (f factors) why(p product) string {
	var b strings.Builder
	fmt.Fprintf(&b, "weekly peak %s", stat.RateText(rlc.Rate(p.peak)))
	if p.growth > 1 {
		fmt.Fprintf(&b, " × %.2f growth", p.growth)
	}
	if f.headroom != 0 {
		fmt.Fprintf(&b, " × %.2f headroom", 1+f.headroom)
	}
	if f.confidence != 1 {
		fmt.Fprintf(&b, " × %.2f for %.0f of %d days", f.confidence, f.days, fullDays)
	}
	return b.String()
}

// steps tells the way from the samples to the number.
func (f factors) steps(p product, w *weeks, raw rlc.Peak, in rlc.Input) []rlc.Reason {
	steps := []rlc.Reason{{
		Rule: "highest_step", Rate: raw.Rate, Acted: true,
		Detail: fmt.Sprintf("highest step (%s) of the window, at %s", stepText(in.History.Step), stat.TimeText(raw.At)),
	}}
	peak := rlc.Rate(p.peak)
	add := func(rule string, rate rlc.Rate, acted bool, format string, args ...any) {
		steps = append(steps, rlc.Reason{Rule: rule, Detail: fmt.Sprintf(format, args...), Rate: rate, Acted: acted})
	}
	if w.recurrent > 0 {
		add("recurrent", raw.Rate, false, "%d hours far above usual count as traffic: three peaks at least 24 h apart reached half their size", w.recurrent)
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
	add("weekly_peak", peak, peak != raw.Rate, "highest weekly peak of the hours that count; %s", left)
	g := peak * rlc.Rate(p.growth)
	add("growth", g, p.growth > 1, "× %.2f: the newest week's peak grown by the usual step from week to week (at most × %.2f)", p.growth, maxGrowth)
	h := g * rlc.Rate(1+f.headroom)
	add("headroom", h, f.headroom != 0, "× %.2f headroom", 1+f.headroom)
	add("confidence", p.rate, f.confidence != 1, "× %.2f for %.0f of %d days of history", f.confidence, min(f.days, fullDays), fullDays)
	return steps
}

// stepText is a duration without trailing zero units: "1m", "15s".
func stepText(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if s == "" {
		return "0s"
	}
	if strings.HasSuffix(s, "h0m") {
		return strings.TrimSuffix(s, "0m")
	}
	if last := s[len(s)-1]; last >= '0' && last <= '9' { // "10s" lost its unit
		return d.String()
	}
	return s
}
