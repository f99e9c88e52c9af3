package policies

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

const (
	uncounted    = "a decrease without a count of the targets that report: a person must approve it"
	loweredToday = "lowered in the last 24 h already; at most one decrease a day"
)

// evidence is guard 2. A decrease needs coverage by samples and targets, a
// fresh sample and enough valid days, happens at most once a day, and goes no
// lower than the highest estimate of the last 7 days. It reports whether the
// quota is held.
func (g *guarding) evidence() bool {
	cur := g.e.Current.Rate
	cover := g.cover()
	g.change.ValidDays = min(g.est.ValidDays, cover.Days)
	g.change.Coverage = min(g.est.Coverage, cover.Least())
	days := g.change.ValidDays + 0.05 // a handful of lost samples takes no day away

	// A quota that once had its evidence is kept while its series is young
	// again (a rename, a lost history), unless what was seen passes it.
	if g.e.Current.Mode != rlc.Shadow && days < float64(g.guards.MinValidDays) && g.est.Peak.Rate <= cur {
		g.hold("valid_days", fmt.Sprintf("%.0f of %d days of history; the quota in force is kept", math.Floor(days), g.guards.MinValidDays))
		return true
	}
	if g.rate >= cur {
		g.reason("evidence", false, "no decrease: nothing to prove")
		return false
	}
	if rule, why := g.unproven(cover, days); rule != "" {
		g.hold(rule, why)
		return true
	}
	if !g.e.History.Targets {
		g.look = append(g.look, uncounted)
		g.ask("targets_unknown", "the profile has no query complete: no automatic decrease")
	}
	highest := g.rate
	for _, r := range g.e.Recent {
		highest = max(highest, r.Rate)
	}
	if highest = min(highest, cur); highest > g.rate {
		g.rate = highest
		g.reason("highest_of_week", true, "the highest estimate of the last 7 days")
		g.notes = append(g.notes, "highest estimate of 7 days "+stat.RateText(highest))
	} else {
		g.reason("evidence", false, "coverage %s, %.0f valid days", percent(g.change.Coverage), math.Floor(days))
	}
	return false
}

// cover measures the history itself, whatever the policy says of it.
func (g *guarding) cover() stat.Coverage {
	h := g.e.History
	if g.e.Lookback > 0 {
		from := g.e.Now.Add(-g.e.Lookback)
		for len(h.Hours) > 0 && h.Hours[0].Start.Before(from) {
			h.Hours = h.Hours[1:]
		}
	}
	return stat.Cover(h, g.e.Zone, g.e.Exclude)
}

// unproven finds what a decrease lacks; rule "" where it lacks nothing.
func (g *guarding) unproven(cover stat.Coverage, days float64) (rule, why string) {
	least := g.guards.MinCoverage
	age := g.e.Now.Sub(g.e.History.Newest)
	switch {
	case cover.Targets < least:
		return "coverage", fmt.Sprintf("targets %s < %s", percent(cover.Targets), percent(least))
	case cover.Share < least:
		return "coverage", fmt.Sprintf("coverage %s < %s", percent(cover.Share), percent(least))
	case cover.Busiest < least:
		return "coverage", fmt.Sprintf("coverage of the busiest hours %s < %s", percent(cover.Busiest), percent(least))
	case g.est.Coverage < least:
		return "coverage", fmt.Sprintf("coverage %s < %s", percent(g.est.Coverage), percent(least))
	case age > 2*g.e.Step:
		return "stale", fmt.Sprintf("newest sample at %s, more than 2 steps old", stat.TimeText(g.e.History.Newest))
	case days < float64(g.guards.MinValidDays):
		return "valid_days", fmt.Sprintf("%.0f of %d days of history", math.Floor(days), g.guards.MinValidDays)
	case g.est.NoDecrease != "":
		return "no_decrease", g.est.NoDecrease
	case !g.lastRequest().After(g.e.Now.Add(-silentFor)):
		return "vanished", fmt.Sprintf("no request since %s; kept until its removal is proposed", stat.TimeText(g.lastRequest()))
	case g.e.Lowered || g.e.DayAgo != nil && g.e.Current != nil && g.e.Current.Rate < g.e.DayAgo.Rate:
		return "lowered_today", loweredToday
	}
	return "", ""
}

// lastRequest is the end of the last hour with a request, zero for none.
func (g *guarding) lastRequest() time.Time {
	for _, h := range slices.Backward(g.e.History.Hours) {
		if h.Present > 0 && h.Max > 0 {
			return h.Start.Add(time.Hour)
		}
	}
	return time.Time{}
}

// percent is a share in whole percent, rounded down so that 94.9 % never reads
// as the 95 % it misses.
func percent(r rlc.Ratio) string { return fmt.Sprintf("%.0f %%", math.Floor(100*float64(r)+1e-9)) }

// deadband is guard 3, on the unclamped change. It reports whether the quota
// stays. A burst that is far too small is a change as well.
func (g *guarding) deadband() bool {
	cur := g.e.Current.Limit
	unclamped := math.Abs(float64(g.rate-cur.Rate)) / float64(cur.Rate)
	burst := g.est.Limit.Burst
	if unclamped >= g.guards.Deadband-1e-9 {
		g.reason("deadband", false, "%s against the quota in force", stat.ShareText(float64(g.rate/cur.Rate-1), 1))
		return false
	}
	change := stat.ShareText(float64(g.rate/cur.Rate-1), 1)
	g.rate = cur.Rate
	if float64(burst) >= float64(cur.Burst)*(1+g.guards.Deadband) {
		g.reason("deadband", true, "%s is inside the deadband of %.0f %%; the burst of %s is too small", change, 100*g.guards.Deadband, rlc.Number(cur.Burst))
		return true
	}
	g.kept = true
	g.reason("deadband", true, "%s is inside the deadband of %.0f %%", change, 100*g.guards.Deadband)
	return true
}

// round is guard 4: up to three significant digits.
func (g *guarding) round() {
	before := g.rate
	g.rate = stat.RoundUp(g.rate)
	g.reason("rounding", g.rate != before, "up to three significant digits")
}

// step is guard 5. It bounds how far the quota moves away from the one in
// force, against what was in force 24 h and 7 days ago; it never moves it the
// other way. A clamped value rounds towards the quota in force.
func (g *guarding) step() {
	cur := g.e.Current.Rate
	up, down := g.stepsOf(func(l rlc.Limit) float64 { return float64(l.Rate) })
	before := g.rate
	switch {
	case g.rate > cur && float64(g.rate) > up.value:
		g.rate = max(cur, stat.RoundDown(rlc.Rate(up.value)))
		g.reason(up.rule, true, "%s; the estimate asks for %s", up.text, stat.RateText(before))
		g.notes = append(g.notes, fmt.Sprintf("%s, towards %s", up.text, stat.RateText(before)))
	case g.rate < cur && float64(g.rate) < down.value:
		g.rate = min(cur, stat.RoundUp(rlc.Rate(down.value)))
		g.reason(down.rule, true, "%s; the estimate asks for %s", down.text, stat.RateText(before))
		g.notes = append(g.notes, fmt.Sprintf("%s, towards %s", down.text, stat.RateText(before)))
	default:
		g.reason("step", false, "within the steps of a day and a week")
	}
}

// bound is how far a value may go, and which rule says so.
type bound struct {
	value      float64
	rule, text string
}

// stepsOf bounds the rate or the burst.
func (g *guarding) stepsOf(of func(rlc.Limit) float64) (up, down bound) {
	day := g.e.Current.Limit
	if g.e.DayAgo != nil {
		day = *g.e.DayAgo
	}
	base := of(day)
	up = bound{base * (1 + g.guards.StepUp), "step_up", fmt.Sprintf("at most +%.0f %% in 24 h", 100*g.guards.StepUp)}
	down = bound{base * (1 - g.guards.StepDown), "step_down", fmt.Sprintf("at most −%.0f %% in 24 h", 100*g.guards.StepDown)}
	if g.e.WeekAgo != nil {
		week := of(*g.e.WeekAgo)
		if v := week * (1 + g.guards.WeekUp); v < up.value {
			up = bound{v, "week_up", fmt.Sprintf("at most +%.0f %% in 7 days", 100*g.guards.WeekUp)}
		}
		if v := week * (1 - g.guards.WeekDown); v > down.value {
			down = bound{v, "week_down", fmt.Sprintf("at most −%.0f %% in 7 days", 100*g.guards.WeekDown)}
		}
	}
	if g.est.MaxIncrease > 0 {
		if v := base * (1 + g.est.MaxIncrease); v < up.value {
			up = bound{v, "max_increase", fmt.Sprintf("at most +%.0f %% until a day has passed", 100*g.est.MaxIncrease)}
		}
	}
	return up, down
}

// burst follows the rate: as the estimate's where that is the rate, twice the
// rate at most where a guard raised it, in proportion where one lowered it.
// Against the quota in force it moves within the steps, and never falls while
// the rate does not.
func (g *guarding) burst() rlc.Burst {
	est := g.est.Limit
	want := float64(est.Burst)
	switch {
	case est.Rate <= 0:
		want = max(want, 2*float64(g.rate))
	case g.rate >= est.Rate:
		want = max(want, min(want/float64(est.Rate), 2)*float64(g.rate))
	default:
		want *= float64(g.rate / est.Rate)
	}
	b := rlc.Burst(max(1, math.Ceil(min(want, rlc.MaxRate)-1e-6)))
	cur := g.e.Current
	if cur == nil {
		return b
	}
	up, down := g.stepsOf(func(l rlc.Limit) float64 { return float64(l.Burst) })
	switch {
	case g.kept && g.rate == cur.Rate:
		return cur.Burst
	case b > cur.Burst:
		return max(cur.Burst, min(b, rlc.Burst(math.Floor(up.value+1e-9))))
	case g.rate >= cur.Rate:
		return cur.Burst
	default:
		return max(1, min(cur.Burst, max(b, rlc.Burst(math.Ceil(down.value-1e-9)))))
	}
}

// invariants is guard 7, last: floor and contract. A contract that does not
// fit the declared capacity is a conflict, which refuses the bucket. It reports
// whether the quota is held.
func (g *guarding) invariants() bool {
	promised := g.promised()
	if room, ok := room(g.e.Capacity); ok {
		switch {
		case promised > 0 && promised > room:
			g.change.Failed = true
			g.hold("conflict", fmt.Sprintf("the contract of %s does not fit the capacity of %s", stat.RateText(promised), stat.RateText(room)))
			return true
		case !g.est.Fixed && g.guards.Floor > room:
			g.change.Failed = true
			g.hold("conflict", fmt.Sprintf("the floor of %s does not fit the capacity of %s", stat.RateText(g.guards.Floor), stat.RateText(room)))
			return true
		}
	}
	if g.est.Fixed {
		g.reason("invariants", false, "a fixed limit: no deadband, step or rounding")
		return false
	}
	acted := false
	if g.rate < g.guards.Floor {
		g.rate, acted = g.guards.Floor, true
		g.reason("floor", true, "never below the floor of %s", stat.RateText(g.guards.Floor))
		g.notes = append(g.notes, "floor "+stat.RateText(g.guards.Floor))
	}
	if g.rate < promised {
		g.rate, acted = promised, true
		g.reason("contract", true, "never below the contract of %s", stat.RateText(promised))
		g.notes = append(g.notes, "contract "+stat.RateText(promised))
	}
	if !acted {
		g.reason("invariants", false, "floor and contract are kept")
	}
	return false
}

// promisedBurst raises a limit's burst to the contract's while it lasts: it is a
// floor as the rate is. A contract without a burst promises none.
func (g *guarding) promisedBurst(l rlc.Limit) rlc.Limit {
	c := g.e.Contract
	if !Lasts(c, g.e.Now) || l.Burst >= c.Limit.Burst {
		return l
	}
	l.Burst = c.Limit.Burst
	g.reason("contract", true, "never below the contract's burst of %s", rlc.Number(l.Burst))
	return l
}

// promised is a fixed estimate, or the contract's rate while it lasts; 0 for
// none.
func (g *guarding) promised() rlc.Rate {
	switch c := g.e.Contract; {
	case g.est.Fixed:
		return g.est.Limit.Rate
	case Lasts(c, g.e.Now):
		return c.Limit.Rate
	}
	return 0
}

// Lasts reports whether a contract, nil for none, holds at t.
func Lasts(c *rlc.Contract, t time.Time) bool {
	return c != nil && (c.From.IsZero() || !t.Before(c.From)) && (c.Until.IsZero() || t.Before(c.Until))
}

// room is what a declared capacity leaves to quotas; ok is false where none
// was declared.
func room(c *rlc.Capacity) (rate rlc.Rate, ok bool) {
	if c == nil || c.Rate <= 0 {
		return 0, false
	}
	return stat.Tidy(c.Rate * rlc.Rate(1-c.Reserve)), true
}
