package policies

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// leastAhead is how far hours in force must reach for them to be left as they
// are: two runs a day apart may fail.
const leastAhead = 48 * time.Hour

// hours are the guards of the rates that a quota gets hour by hour. They lie
// between its floor and its rate. An hour below what is in force at that time is
// a decrease: it takes the evidence of one, goes no lower than the highest
// estimate of that hour of the week in the last 7 days, and no further than the
// steps of a day and a week from what the same hour of the week had then. Where
// the evidence is missing hours may rise, and none falls. Those in force stay
// while they reach far enough ahead and no hour is off by the deadband.
//
// The way up needs no step of its own: no hour is above the quota's rate, which
// has one.
func (g *guarding) hours() {
	c := &g.change
	fresh := g.est.Forecast.Hours()
	switch {
	case c.New == nil || c.Held != "" && !blocksDecreases(c.Held):
		return
	case fresh == nil:
		if c.Held == "" {
			c.NewTimed.Hours = nil
		}
		return
	}
	w := g.wanted(*fresh)
	old := c.OldTimed.Hours
	next := &rlc.QuotaHours{From: fresh.From, Rates: w.rates}
	switch {
	case w.why != "" && g.e.Current == nil:
		g.hourReason(true, "one rate for all hours: %s", w.why)
		return
	case slices.Min(w.rates) >= c.New.Rate:
		next = nil
	}
	if old != nil && g.near(*old, w) || next == nil && old == nil {
		if w.why != "" {
			g.hourReason(true, "no hour falls: %s", w.why)
		}
		return
	}
	c.NewTimed.Hours = next
	g.hourReason(w.why != "" || w.stepped+w.highest > 0, "%s", w.text(g.guards))
	if !g.e.History.Targets && fallingHours(c) > 0 && !strings.Contains(c.Look, uncounted) {
		c.Look = joined([]string{c.Look, uncounted})
	}
}

func (g *guarding) hourReason(acted bool, format string, args ...any) {
	c := &g.change
	c.Reasons = append(c.Reasons, rlc.Reason{Rule: "hours", Detail: fmt.Sprintf(format, args...), Rate: c.New.Rate, Acted: acted})
}

// blocksDecreases reports whether a rule that holds a quota says nothing against
// an increase.
func blocksDecreases(rule string) bool {
	switch rule {
	case "coverage", "stale", "valid_days", "no_decrease", "vanished", "lowered_today":
		return true
	}
	return false
}

// wantedHours are an estimate's hours as the guards leave them.
type wantedHours struct {
	rates     []rlc.Rate
	unclamped []rlc.Rate // before the steps of a day and a week
	why       string     // some would fall and may not; "" where none would, or all may
	stepped   int        // hours that the steps kept higher
	highest   int        // hours that an estimate of the week kept higher
}

// wanted takes an estimate's hours through evidence and steps.
func (g *guarding) wanted(fresh rlc.QuotaHours) (w wantedHours) {
	c, most := &g.change, g.change.New.Rate
	floor := min(max(g.guards.Floor, g.promised()), most)
	day, week := g.hoursAgo()
	lacks := g.noLowerHour(day)
	for i, r := range fresh.Rates {
		at := fresh.From.Add(time.Duration(i) * time.Hour)
		r = min(max(stat.RoundUp(r), floor), most)
		if g.est.MaxIncrease > 0 && g.e.DayAgoHours != nil {
			r = min(r, max(floor, stat.RoundDown(day(at)*rlc.Rate(1+g.est.MaxIncrease))))
		}
		force := most // of a quota that is new
		if g.e.Current != nil {
			if force = c.Old.Rate; c.OldTimed.Hours != nil {
				if o, ok := c.OldTimed.Hours.At(at); ok {
					force = o
				}
			}
			force = min(force, most)
		}
		unclamped := r
		switch {
		case r >= force:
		case lacks != "":
			w.why, r, unclamped = lacks, force, force
		case g.e.Current != nil:
			if highest := min(g.highestOf(at), force); highest > r {
				r, unclamped = highest, highest
				w.highest++
			}
			least := max(float64(day(at))*(1-g.guards.StepDown), float64(week(at))*(1-g.guards.WeekDown))
			if least := min(stat.RoundUp(rlc.Rate(least)), force); least > r {
				r = least
				w.stepped++
			}
		}
		w.rates, w.unclamped = append(w.rates, r), append(w.unclamped, unclamped)
	}
	return w
}

// hoursAgo are the rates that were in force a day and a week ago, by hour of the
// week. 0: there is none to measure against.
func (g *guarding) hoursAgo() (day, week func(time.Time) rlc.Rate) {
	day, week = weekly(nil, 0, g.e.Now), weekly(nil, 0, g.e.Now)
	if q := g.e.Current; q != nil {
		day = weekly(q.Hours, q.Rate, g.e.Now)
	}
	if l := g.e.DayAgo; l != nil {
		day = weekly(g.e.DayAgoHours, l.Rate, g.e.Now.Add(-24*time.Hour))
	}
	if l := g.e.WeekAgo; l != nil {
		week = weekly(g.e.WeekAgoHours, l.Rate, g.e.Now.Add(-7*24*time.Hour))
	}
	return day, week
}

// noLowerHour says what lowering an hour lacks, "" where it lacks nothing. day is
// what was in force a day ago.
func (g *guarding) noLowerHour(day func(time.Time) rlc.Rate) string {
	cover := g.cover()
	if rule, why := g.unproven(cover, min(g.est.ValidDays, cover.Days)+0.05); rule != "" {
		return why
	}
	if q := g.e.Current; q != nil && fallen(g.e.Now, day, weekly(q.Hours, q.Rate, g.e.Now)) > 0 {
		return loweredToday
	}
	return ""
}

// highestOf is the highest estimate of an hour of the week in the last 7 days, 0
// for none.
func (g *guarding) highestOf(at time.Time) (highest rlc.Rate) {
	for _, h := range g.e.RecentHours {
		r, _ := h.OfWeek(at)
		highest = max(highest, r)
	}
	return stat.RoundUp(highest)
}

// near reports whether the hours of old that are still to come are apart from
// those wanted by less than the deadband, and none is above the rate. They must
// reach far enough ahead, unless none lower may follow them.
func (g *guarding) near(old rlc.QuotaHours, w wantedHours) bool {
	if w.why == "" && old.Until().Sub(g.e.Now) < leastAhead {
		return false
	}
	from := g.est.Forecast.From
	for i, r := range w.unclamped {
		o, ok := old.At(from.Add(time.Duration(i) * time.Hour))
		if !ok {
			continue
		}
		if o > g.change.New.Rate || o <= 0 || o != w.rates[i] && math.Abs(float64(r/o-1)) >= g.guards.Deadband-1e-9 {
			return false
		}
	}
	return true
}

// text says what became of the hours.
func (w *wantedHours) text(guards rlc.Guards) string {
	text := fmt.Sprintf("from %s to %s, hour by hour", stat.RateText(slices.Min(w.rates)), stat.RateText(slices.Max(w.rates)))
	if w.highest > 0 {
		text += "; " + rlc.Plural(w.highest, "hour") + " at the highest estimate of the last 7 days"
	}
	if w.stepped > 0 {
		text += fmt.Sprintf("; %s at most −%.0f %% in 24 h and −%.0f %% in 7 days, towards %s",
			rlc.Plural(w.stepped, "hour"), 100*guards.StepDown, 100*guards.WeekDown, stat.RateText(slices.Min(w.unclamped)))
	}
	if w.why != "" {
		text += "; no hour falls: " + w.why
	}
	return text
}

// weekly are the rates in force by hour of the week at a time: those of the hours
// that are not over by then, otherwise one for all.
func weekly(h *rlc.QuotaHours, otherwise rlc.Rate, at time.Time) func(time.Time) rlc.Rate {
	return func(t time.Time) rlc.Rate {
		if h != nil && h.Until().After(at) {
			if r, ok := h.OfWeek(t); ok {
				return r
			}
		}
		return otherwise
	}
}

// fallen counts the hours of the week after now that are lower than they were.
func fallen(now time.Time, was, is func(time.Time) rlc.Rate) (n int) {
	eachHour(now, func(t time.Time) {
		if is(t) < was(t)*(1-1e-9) {
			n++
		}
	})
	return n
}

// eachHour goes over the hours of the week from t on.
func eachHour(t time.Time, yield func(time.Time)) {
	for i := range 7 * 24 {
		yield(t.Truncate(time.Hour).Add(time.Duration(i) * time.Hour))
	}
}

// measuredAt is when a change is looked at: its run's now, and of a person's edit,
// which has none, when the later hours begin.
func measuredAt(c *rlc.Change) time.Time {
	at := c.At
	if at.IsZero() {
		for _, h := range []*rlc.QuotaHours{c.OldTimed.Hours, c.NewTimed.Hours} {
			if h != nil && h.From.After(at) {
				at = h.From
			}
		}
	}
	return at
}

// ofChange are the rates before and after a change, by hour of the week. Old and
// New must be there.
func ofChange(c *rlc.Change) (was, is func(time.Time) rlc.Rate) {
	at := measuredAt(c)
	return weekly(c.OldTimed.Hours, c.Old.Rate, at), weekly(c.NewTimed.Hours, c.New.Rate, at)
}

// fallingHours counts the hours of the week that a change lowers, whatever it
// does to the rate; 0 for a quota that is new or goes, and where there are no
// hours.
func fallingHours(c *rlc.Change) int {
	if c.Old == nil || c.New == nil || c.OldTimed.Hours == nil && c.NewTimed.Hours == nil {
		return 0
	}
	was, is := ofChange(c)
	return fallen(measuredAt(c), was, is)
}

// Lowers reports whether a change lowers a quota: its rate, its burst, or an hour
// of the week.
func Lowers(c *rlc.Change) bool {
	return LowersRate(c) || c.Old != nil && c.New != nil && c.New.Burst < c.Old.Burst
}

// LowersRate is Lowers but for the burst.
func LowersRate(c *rlc.Change) bool {
	return c.Old != nil && c.New != nil && (c.New.Rate < c.Old.Rate || fallingHours(c) > 0)
}

// Direction is which way a change moves a quota: 1 up, −1 down, 0 where neither its
// rate nor an hour of the week moves, and where it is new or goes. Where the rate
// stays, one hour that falls is down.
func Direction(c *rlc.Change) int {
	if c.Old == nil || c.New == nil || c.Remove {
		return 0
	}
	m, _ := MovedHours(c)
	switch {
	case c.New.Rate > c.Old.Rate:
		return 1
	case c.New.Rate < c.Old.Rate || m.Lower > 0:
		return -1
	case m.Higher > 0:
		return 1
	}
	return 0
}

// HoursDelta says how far a change moves the hours of the week, "" where none
// moves: ", 60 h to -40 %, 12 h to +8 %".
func HoursDelta(c *rlc.Change) string {
	m, _ := MovedHours(c)
	s := ""
	if m.Lower > 0 {
		s += fmt.Sprintf(", %d h to %s", m.Lower, stat.ShareText(-m.Down, 0))
	}
	if m.Higher > 0 {
		s += fmt.Sprintf(", %d h to %s", m.Higher, stat.ShareText(m.Up, 0))
	}
	return s
}

// HoursMoved is how a change moves the hours of the week.
type HoursMoved struct {
	Lower, Higher int     // how many of them
	Down, Up      float64 // the furthest moves, as shares of the rate before; 0 where none
}

// MovedHours compares a change's rates by hour of the week, before and after; ok
// is false for a quota that is new or goes, and where none has or had hours.
func MovedHours(c *rlc.Change) (m HoursMoved, ok bool) {
	if c.Old == nil || c.New == nil || c.Remove || c.OldTimed.Hours == nil && c.NewTimed.Hours == nil {
		return m, false
	}
	was, is := ofChange(c)
	eachHour(measuredAt(c), func(t time.Time) {
		switch a, b := was(t), is(t); {
		case b < a*(1-1e-9):
			m.Lower++
			m.Down = max(m.Down, apart(float64(a), float64(b)))
		case b > a*(1+1e-9):
			m.Higher++
			m.Up = max(m.Up, apart(float64(a), float64(b)))
		}
	})
	return m, true
}

// HoursText says what a quota has hour by hour, "" where its rate holds for all:
// "39 to 130/s by the hour".
func HoursText(h *rlc.QuotaHours) string {
	if h == nil || len(h.Rates) == 0 {
		return ""
	}
	return strings.TrimSuffix(stat.RateText(slices.Min(h.Rates)), "/s") + " to " + stat.RateText(slices.Max(h.Rates)) + " by the hour"
}

// hoursVerdict says what a change does to the hours, "" where it leaves them.
func hoursVerdict(c *rlc.Change) string {
	old, now := c.OldTimed.Hours, c.NewTimed.Hours
	if c.New == nil || c.Remove || (rlc.Timed{Hours: old}).Equal(rlc.Timed{Hours: now}) {
		return ""
	}
	text := "one rate for all hours again"
	if now != nil {
		text = HoursText(now)
	}
	m, _ := MovedHours(c)
	if m.Lower > 0 {
		text += fmt.Sprintf(", %d of 168 hours of the week lowered (−%.0f %% at most)", m.Lower, math.Ceil(100*m.Down-1e-9))
	}
	if m.Higher > 0 {
		text += fmt.Sprintf(", %d raised (+%.0f %% at most)", m.Higher, math.Ceil(100*m.Up-1e-9))
	}
	if m.Lower+m.Higher == 0 && old != nil {
		text += ", renewed until " + stat.TimeText(now.Until())
	}
	return text
}

// mean is the mean rate over the hours of the week.
func mean(l rlc.Limit, h *rlc.QuotaHours, at time.Time) (sum float64) {
	if h == nil {
		return float64(l.Rate)
	}
	of := weekly(h, l.Rate, at)
	eachHour(at, func(t time.Time) { sum += float64(of(t)) / (7 * 24) })
	return sum
}

// tidied is a forecast as it is kept: to three significant digits, its limits
// rounded up as quotas are.
func tidied(f *rlc.Forecast) *rlc.Forecast {
	if f == nil {
		return nil
	}
	of := func(all []rlc.Rate, round func(rlc.Rate) rlc.Rate) []rlc.Rate {
		if all == nil {
			return nil
		}
		out := make([]rlc.Rate, len(all))
		for i, r := range all {
			out[i] = round(r)
		}
		return out
	}
	return &rlc.Forecast{From: f.From.UTC(), Q50: of(f.Q50, stat.RoundUp), Q99: of(f.Q99, stat.RoundUp), Coverage: f.Coverage, Rates: of(f.Rates, stat.RoundUp)}
}
