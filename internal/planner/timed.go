package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// timed gives a quota the windows of the service's events: its rate and burst
// times the event's factor, rounded up, and never below its floor or what its
// caller was promised. They are reviewed when the event is
// declared and left alone from then on, unless what is declared or the quota
// moves by more than the deadband before the event begins. No step guard holds
// them, either way. A window stays in the file as long as its event is declared:
// it is the reference for the next one of that name.
func (j *job) timed(c *rlc.Change) {
	t := j.targets[c.Bucket]
	if t == nil || c.New == nil {
		return
	}
	if c.NewTimed.Hours != nil && c.Held == "" { // the capacity fit may have cut the rate
		c.NewTimed.Hours = within(*c.NewTimed.Hours, c.New.Rate)
	}
	if !j.multiplies(t, c) {
		return
	}
	band := t.bucket.Guards.Deadband
	if band <= 0 {
		band = rlc.DefaultGuards().Deadband
	}
	var windows []rlc.QuotaWindow
	before := map[string]rlc.Rate{} // what the last event of a name had
	for _, e := range sortedEvents(j.service.Events) {
		w := rlc.QuotaWindow{From: e.From.UTC(), Until: e.Until.UTC(), Limit: multiplied(*c.New, e.Multiply)}
		lowest := j.lowest(t, c, w)
		w.Limit = rlc.Limit{Rate: max(w.Rate, lowest.Rate), Burst: max(w.Burst, lowest.Burst)}
		detail := fmt.Sprintf("event %s: × %s from %s to %s", e.Name, rlc.Number(e.Multiply), stat.TimeText(e.From), stat.TimeText(e.Until))
		if room := j.room(); room > 0 && w.Rate > room {
			w.Limit = rlc.Limit{Rate: max(stat.RoundDown(room), lowest.Rate), Burst: max(min(w.Burst, multiplied(*c.New, float64(room/c.New.Rate)).Burst), lowest.Burst)}
			detail += ", no more than the capacity"
		}
		if old, ok := standing(c.OldTimed.Windows, w); ok && (!j.run.Now.Before(w.From) || apart(float64(old.Rate), float64(w.Rate)) < band && apart(float64(old.Burst), float64(w.Burst)) < band) {
			w = old
		} else if !j.run.Now.Before(w.Until) {
			continue // it was over before the quota knew of it
		}
		if n := len(windows); n > 0 && w.From.Before(windows[n-1].Until) {
			c.Look = joined(c.Look, "event "+e.Name+" overlaps another one, which wins")
			continue
		}
		windows = append(windows, w)
		if r := before[e.Name]; r > 0 {
			detail += "; the one before had " + stat.RateText(r)
		}
		before[e.Name] = w.Rate
		c.Reasons = append(c.Reasons, rlc.Reason{Rule: "event", Detail: detail, Rate: w.Rate})
	}
	c.NewTimed.Windows = windows
}

// within keeps hours at or below a rate.
func within(h rlc.QuotaHours, most rlc.Rate) *rlc.QuotaHours {
	if slices.Max(h.Rates) <= most {
		return &h
	}
	cut := rlc.QuotaHours{From: h.From, Rates: slices.Clone(h.Rates)}
	for i, r := range cut.Rates {
		cut.Rates[i] = min(r, most)
	}
	return &cut
}

// standing is the window over the same span that is in force.
func standing(all []rlc.QuotaWindow, w rlc.QuotaWindow) (rlc.QuotaWindow, bool) {
	for _, old := range all {
		if old.From.Equal(w.From) && old.Until.Equal(w.Until) {
			return old, true
		}
	}
	return rlc.QuotaWindow{}, false
}

func multiplied(l rlc.Limit, by float64) rlc.Limit {
	return rlc.Limit{
		Rate:  stat.RoundUp(rlc.Rate(min(float64(l.Rate)*by, rlc.MaxRate))),
		Burst: rlc.Burst(max(1, math.Ceil(min(float64(l.Burst)*by, rlc.MaxRate)-1e-9))),
	}
}

// room is what the service's capacity leaves to all quotas, 0 where none is
// known.
func (j *job) room() rlc.Rate {
	c := j.service.Capacity
	if c == nil {
		return 0
	}
	return stat.Tidy(c.Rate * rlc.Rate(1-c.Reserve))
}

func sortedEvents(all []rlc.Event) []rlc.Event {
	return slices.SortedFunc(slices.Values(all), func(a, b rlc.Event) int {
		return cmp.Or(a.From.Compare(b.From), a.Until.Compare(b.Until), cmp.Compare(a.Name, b.Name))
	})
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
