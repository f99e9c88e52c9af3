package policies

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Evidence is what the guards know besides the estimate.
type Evidence struct {
	Service string
	Bucket  string
	Key     rlc.Key
	Now     time.Time
	Step    time.Duration  // distance of two samples; zero: History.Step
	Zone    *time.Location // the service's; nil means UTC
	Current *rlc.Quota     // in force; nil for a quota that would be new

	// DayAgo and WeekAgo are the quotas in force 24 hours and 7 days ago. For a
	// quota that is younger it is the first one. Nil: Current is the measure of
	// a day, and a week has none.
	DayAgo, WeekAgo *rlc.Limit
	// DayAgoHours and WeekAgoHours are the hours in force beside them; nil where
	// the rate held for all.
	DayAgoHours, WeekAgoHours *rlc.QuotaHours `json:",omitempty"`
	// Recent are this policy's unclamped estimates of the last 7 days, and
	// RecentHours those of them that went hour by hour.
	Recent      []rlc.Limit
	RecentHours []rlc.QuotaHours `json:",omitempty"`
	// Lowered says that the quota, or an hour of it, was lowered in the last 24
	// hours. That it stands below DayAgo says the same.
	Lowered bool

	History  rlc.History
	Lookback time.Duration // hours before Now that count for coverage; 0: all of History
	Exclude  []rlc.Window  // declared incidents: neither expected nor present
	Guards   rlc.Guards
	Contract *rlc.Contract // what this caller was promised: a floor; nil for nothing
	Capacity *rlc.Capacity // the service's; nil for none declared

	// HumanEdit is who edited this quota by hand: it is held. "" for nobody.
	HumanEdit string
}

// staleAfter is how old the newest sample may be before the series counts as
// gone. Up to then only a decrease is blocked.
const staleAfter = time.Hour

// silentFor is how long a series may be without a request before its caller is
// taken for gone: that is no evidence for less traffic. A caller that comes once
// a week is not meant.
const silentFor = 8 * 24 * time.Hour

// resolve fills in the defaults.
func resolve(g rlc.Guards) rlc.Guards {
	d := rlc.DefaultGuards()
	or := func(v, def float64) float64 {
		if v > 0 {
			return v
		}
		return def
	}
	g.Floor = rlc.Rate(max(1, or(float64(g.Floor), float64(d.Floor))))
	g.Deadband = or(g.Deadband, d.Deadband)
	g.StepUp, g.StepDown = or(g.StepUp, d.StepUp), or(g.StepDown, d.StepDown)
	g.WeekUp, g.WeekDown = or(g.WeekUp, d.WeekUp), or(g.WeekDown, d.WeekDown)
	g.MinCoverage = rlc.Ratio(or(float64(g.MinCoverage), float64(d.MinCoverage)))
	if g.MinValidDays <= 0 {
		g.MinValidDays = d.MinValidDays
	}
	return g
}

// Guard turns an estimate into a change: it runs every guard of a single quota
// in the order of policies.md 4, and each leaves a reason. err is what the
// policy returned. Guard is a pure function; the fields of the change that it
// does not know (run, policy, backtest, …) are left to the caller.
func Guard(e Evidence, est rlc.Estimate, err error) rlc.Change {
	g := &guarding{e: e, est: est, guards: resolve(e.Guards), change: rlc.Change{
		Service: e.Service, Bucket: e.Bucket, Key: e.Key, At: e.Now,
		Look: est.Look, Peak: est.Peak, Flags: est.Flags,
		ValidDays: est.ValidDays, Coverage: est.Coverage, Answer: est.Answer,
		Reasons: append([]rlc.Reason(nil), est.Steps...),
	}}
	if e.Current != nil {
		old := e.Current.Limit
		g.change.Old, g.change.OldMode, g.change.Why = &old, e.Current.Mode, e.Current.Why
		g.change.OldTimed = e.Current.Timed()
		g.change.NewTimed = g.change.OldTimed
	}
	if g.e.Step <= 0 {
		g.e.Step = e.History.Step
	}
	if err == nil && g.implausible() == "" {
		l := est.Limit
		g.change.Estimate, g.change.Forecast = &l, tidied(est.Forecast)
	}
	g.run(err)
	if g.change.Estimate != nil {
		g.hours()
	}
	return g.change
}

// guarding is one pass of the guards over one quota.
type guarding struct {
	e      Evidence
	est    rlc.Estimate
	guards rlc.Guards
	change rlc.Change
	rate   rlc.Rate // as amended so far
	notes  []string // amendments that belong into the quota's why
	kept   bool     // inside the deadband
	look   []string // why a person should look at a decrease
}

func (g *guarding) run(err error) {
	if g.person() || g.noData(err) {
		return
	}
	g.rate = g.est.Limit.Rate
	if g.est.Fixed {
		g.conclude(g.est.Limit)
		return
	}
	if g.e.Current == nil {
		g.reason("new", false, "no quota was in force: nothing to measure a step against")
		g.round()
		g.conclude(rlc.Limit{})
		return
	}
	if g.evidence() {
		return
	}
	if !g.deadband() {
		g.round()
		g.step()
	}
	g.conclude(rlc.Limit{})
}

// reason records a guard's word at the rate as it stands.
func (g *guarding) reason(rule string, acted bool, format string, args ...any) {
	g.change.Reasons = append(g.change.Reasons, rlc.Reason{Rule: rule, Detail: fmt.Sprintf(format, args...), Rate: g.rate, Acted: acted})
}

// ask leaves the number and wants a person to look at it.
func (g *guarding) ask(rule, why string) {
	g.reason(rule, false, "%s", why)
	g.change.Reasons[len(g.change.Reasons)-1].Asks = true
}

// hold leaves the quota as it is; a quota that would be new does not come to
// be.
func (g *guarding) hold(rule, why string) {
	c := &g.change
	c.Held, c.HeldWhy = rule, why
	c.New, c.NewMode = nil, c.OldMode
	g.rate = 0
	if c.Old != nil {
		same := *c.Old
		c.New, g.rate = &same, same.Rate
	}
	g.reason(rule, true, "%s", why)
}

// untilGone is how long a person's number is held, and how that ends.
const untilGone = "held until its line is removed from quotas.yaml"

// person: people win. What somebody wrote by hand stays until its line is removed,
// and a 0 is always a person's.
func (g *guarding) person() bool {
	switch cur := g.e.Current; {
	case g.e.HumanEdit != "":
		g.hold("human_edit", "edited by "+g.e.HumanEdit+"; "+untilGone)
	case cur != nil && cur.Rate == 0:
		g.hold("human_edit", "a person wrote 0; "+untilGone)
	default:
		return false
	}
	return true
}

// noData is guard 1: missing, stale, partial, warned or implausible data leaves
// the quota unchanged.
func (g *guarding) noData(err error) bool {
	if !g.est.Fixed {
		if rule, why, failed := g.distrust(); rule != "" {
			g.change.Failed = failed
			g.hold(rule, why)
			return true
		}
	}
	switch {
	case errors.Is(err, rlc.ErrAbstain):
		g.hold("abstained", strings.TrimPrefix(err.Error(), rlc.ErrAbstain.Error()+": "))
		return true
	case err != nil:
		g.change.Failed = true
		g.hold("policy_failed", err.Error())
		return true
	}
	if why := g.implausible(); why != "" {
		g.change.Failed = true
		g.hold("implausible", why)
		return true
	}
	if !g.est.Fixed {
		g.rate = g.est.Limit.Rate
		g.reason("data", false, "data as expected: newest sample at %s", stat.TimeText(g.e.History.Newest))
	}
	return false
}

// distrust finds why the history cannot be trusted; rule "" where it can.
func (g *guarding) distrust() (rule, why string, failed bool) {
	h, now := g.e.History, g.e.Now
	if len(h.Problems) > 0 {
		p := h.Problems[0]
		switch p.Rule {
		case "failed", "budget", "warning", "duplicate":
			failed = true
		}
		return p.Rule, p.Detail, failed
	}
	known := false
	for _, x := range h.Hours {
		known = known || x.Present > 0
	}
	switch age := now.Sub(h.Newest); {
	case !known || h.Newest.IsZero():
		return "no_data", "no sample in the window", false
	case age < -g.e.Step:
		return "clock_skew", fmt.Sprintf("newest sample at %s lies in the future", stat.TimeText(h.Newest)), false
	case age > max(staleAfter, 2*g.e.Step):
		return "no_data", "no data since " + stat.TimeText(h.Newest), false
	}
	if why := g.reportedZero(); why != "" {
		return "reported_zero", why, false
	}
	return "", "", false
}

// reportedZero: the last 24 hours are all zero while the same 24 hours of the
// week were not in two of the last three weeks (of those that are known, where
// fewer are), or every sample of the window is zero. Other zeros are data: a
// weekend-only caller has them every Monday.
func (g *guarding) reportedZero() string {
	var today, other bool // a request was seen
	var known [4]bool
	var busy [4]bool
	for _, h := range g.e.History.Hours {
		if h.Present == 0 {
			continue
		}
		other = other || h.Max > 0
		age := g.e.Now.Sub(h.Start)
		for week := range known {
			// The hour that began 24 h ago is still today's.
			if from := time.Duration(week) * 7 * 24 * time.Hour; age > from && age <= from+24*time.Hour {
				known[week] = true
				busy[week] = busy[week] || h.Max > 0
			}
		}
	}
	today = busy[0]
	if !other {
		return "every sample of the window is zero"
	}
	if today || !known[0] {
		return ""
	}
	weeks, were := 0, 0
	for week := 1; week < len(known); week++ {
		if known[week] {
			weeks++
		}
		if busy[week] {
			were++
		}
	}
	if weeks > 0 && were >= min(2, weeks) {
		return fmt.Sprintf("the last 24 h are all zero; the same hours had traffic in %d of the last %d weeks", were, weeks)
	}
	return ""
}

// implausible finds an estimate that no quota can be.
func (g *guarding) implausible() string {
	for _, f := range []float64{float64(g.est.Limit.Rate), float64(g.est.Limit.Burst), g.est.MaxIncrease} {
		if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 || f > rlc.MaxRate {
			return fmt.Sprintf("the estimate %s is not a possible limit", rlc.Number(g.est.Limit.Rate))
		}
	}
	if h := g.est.Forecast.Hours(); h != nil {
		for _, r := range h.Rates {
			if !(r >= 0 && r <= rlc.MaxRate) {
				return fmt.Sprintf("the estimate %s of an hour is not a possible rate", rlc.Number(r))
			}
		}
	}
	if cur := g.e.Current; cur != nil {
		if err := cur.Limit.Valid(); err != nil {
			return "the quota in force: " + err.Error()
		}
	}
	return ""
}

// conclude applies the invariants and sets the outcome. fixed is the limit as
// it stands for a fixed estimate, else zero.
func (g *guarding) conclude(fixed rlc.Limit) {
	if g.invariants() {
		return
	}
	c := &g.change
	limit := fixed
	if !g.est.Fixed {
		limit = g.promisedBurst(rlc.Limit{Rate: g.rate, Burst: g.burst()})
	}
	if err := limit.Valid(); err != nil || limit.Rate <= 0 {
		c.Failed = true
		g.hold("implausible", fmt.Sprintf("the result %s is not a possible limit", stat.RateText(limit.Rate)))
		return
	}
	c.New = &limit
	g.finalBurst(limit.Burst)
	c.NewMode = c.OldMode
	if g.e.Current == nil || c.OldMode == rlc.Shadow {
		// Thin evidence softens a quota that is new or still soft; it never
		// takes back what had its evidence.
		c.NewMode = ""
		if g.est.Shadow {
			c.NewMode = rlc.Shadow
		}
	}
	if c.Old == nil || c.Old.Rate != limit.Rate {
		c.Why = strings.Join(append([]string{g.est.Why}, g.notes...), "; ")
	}
	if c.Old != nil && limit.Rate < c.Old.Rate {
		c.Look = joined(append([]string{c.Look}, g.look...))
	}
}

// finalBurst adds to the estimate's word on the burst what became of it, where the
// guards left another: it follows the rate.
func (g *guarding) finalBurst(burst rlc.Burst) {
	if burst == g.est.Limit.Burst {
		return
	}
	for i := range g.change.Reasons {
		if r := &g.change.Reasons[i]; r.Rule == "burst" {
			r.Detail += fmt.Sprintf("; %s with the rate and the steps as the guards leave them", rlc.Number(burst))
			return
		}
	}
}

// joined joins the texts that are not empty.
func joined(texts []string) string {
	var out []string
	for _, t := range texts {
		if t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, "; ")
}
