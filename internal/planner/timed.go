package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
)

// leastAhead is how far hours in force must reach for them to be left as they
// are: two runs a day apart may fail.
const leastAhead = 48 * time.Hour

// hourly are the hours that a quota gets from an estimate, kept between the
// quota's floor and its rate. Those in force stay where the quota is held, and
// where they reach far enough ahead and no hour of theirs is off by more than
// the deadband. An hour below the quota's rate is a decrease: it takes the
// evidence of one. Where the estimate caps its increase, each hour is held to
// that against the hours of a day ago, so that many runs are no way around it;
// was is nil where there were none then.
func hourly(c rlc.Change, e policies.Evidence, est rlc.Estimate, was *rlc.QuotaHours) *rlc.QuotaHours {
	old := c.OldTimed.Hours
	f := est.Forecast
	switch {
	case c.New == nil || c.Held != "":
		return old
	case f == nil || len(f.Rates) == 0 || est.Shadow || est.NoDecrease != "":
		return nil
	}
	floor := max(1, e.Guards.Floor)
	if policies.Lasts(e.Contract, e.Now) {
		floor = max(floor, e.Contract.Limit.Rate)
	}
	h := &rlc.QuotaHours{From: f.From.UTC(), Rates: make([]rlc.Rate, len(f.Rates))}
	for i, r := range f.Rates {
		h.Rates[i] = min(max(stat.RoundUp(r), floor), c.New.Rate)
		if est.MaxIncrease > 0 && was != nil {
			base := ofWeek(*was, h.From.Add(time.Duration(i)*time.Hour), c.New.Rate)
			h.Rates[i] = min(h.Rates[i], max(floor, stat.RoundDown(base*rlc.Rate(1+est.MaxIncrease))))
		}
	}
	band := e.Guards.Deadband
	if band <= 0 {
		band = rlc.DefaultGuards().Deadband
	}
	if old != nil && near(*old, *h, e.Now, c.New.Rate, band) {
		return old
	}
	return h
}

// near reports whether the hours of old that are still to come reach far enough,
// lie within the rate, and are apart from those of fresh by less than band.
func near(old, fresh rlc.QuotaHours, now time.Time, most rlc.Rate, band float64) bool {
	end := old.From.Add(time.Duration(len(old.Rates)) * time.Hour)
	if end.Sub(now) < leastAhead {
		return false
	}
	for i, r := range fresh.Rates {
		at := fresh.From.Add(time.Duration(i) * time.Hour)
		k := int(at.Sub(old.From) / time.Hour)
		if k < 0 || k >= len(old.Rates) {
			continue
		}
		if o := old.Rates[k]; o > most || o <= 0 || math.Abs(float64(r/o-1)) >= band {
			return false
		}
	}
	return true
}

// replayHours replays a history against rates hour by hour: each past hour
// against the rate that the same hour of the week has. Every hour begins with a
// full burst, so that it may miss up to a burst of drops an hour.
func replayHours(h rlc.History, limit rlc.Limit, hours rlc.QuotaHours) rlc.Backtest {
	out := rlc.Backtest{Step: h.Step.Seconds()}
	tail := h.Tail
	for _, x := range h.Hours {
		one := h
		one.From, one.Until = x.Start, x.Start.Add(time.Hour)
		one.Hours = []rlc.Hour{x}
		for len(tail) > 0 && tail[0].Time.Before(x.Start) {
			tail = tail[1:]
		}
		n := 0
		for n < len(tail) && tail[n].Time.Before(one.Until) {
			n++
		}
		one.Tail = tail[:n]
		rate := ofWeek(hours, x.Start, limit.Rate)
		b := backtest.FromHistory(one, rlc.Limit{Rate: rate, Burst: limit.Burst})
		out.Requests += b.Requests
		out.Drops += b.Drops
		out.AtLeast = out.AtLeast || b.AtLeast
		out.Episodes = append(out.Episodes, b.Episodes...)
		if b.Worst != nil && (out.Worst == nil || b.Worst.Rate > out.Worst.Rate) {
			out.Worst = b.Worst
		}
	}
	if out.Requests > 0 {
		out.Share = rlc.Ratio(out.Drops / out.Requests)
	}
	return out
}

// ofWeek is the rate at t's hour of the week; otherwise where hours are shorter
// than a week and do not have it.
func ofWeek(hours rlc.QuotaHours, t time.Time, otherwise rlc.Rate) rlc.Rate {
	const week = 7 * day
	k := int(((t.Sub(hours.From))%week + week) % week / time.Hour)
	if k < len(hours.Rates) {
		return hours.Rates[k]
	}
	return otherwise
}

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
		detail := fmt.Sprintf("event %s: × %g from %s to %s", e.Name, e.Multiply, stat.TimeText(e.From), stat.TimeText(e.Until))
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
