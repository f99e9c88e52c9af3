package policies

import (
	"fmt"
	"math"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// The fleet's bounds (policies.md 4, reliability.md invariant 4).
const (
	maxLost         = 0.10 // share of series that may lose half their data in a run
	minOffered      = 0.70 // of what is usual for the hour
	maxLowered      = 0.20 // share of a service's quotas
	maxFleetLowered = 0.05 // share of the fleet's total
)

// FleetSeries is what the fleet breaker knows of one series.
type FleetSeries struct {
	Before, After int          // steps present before and since the last run, over spans of equal length
	LastHour      *rlc.Rate    // mean of the last closed hour; nil where unknown
	Usual         [3]*rlc.Rate // mean of the same hour 1, 2 and 3 weeks before; nil where unknown
}

// SeriesOf takes a series' vital signs. since is when the last run was; zero or
// more than 24 h ago counts as 24 h, less than an hour as one: whole clock
// hours are compared.
func SeriesOf(h rlc.History, since, now time.Time) FleetSeries {
	var s FleetSeries
	end := now.Truncate(time.Hour)
	span := 24 * time.Hour
	if !since.IsZero() && now.Sub(since) < span {
		span = max(time.Hour, now.Sub(since).Truncate(time.Hour))
	}
	const week = 7 * 24 * time.Hour
	for i := range h.Hours {
		x := &h.Hours[i]
		if x.Present == 0 {
			continue
		}
		age := end.Sub(x.Start) // of an hour's start: 1 h for the last closed one
		switch {
		case age > 0 && age <= span:
			s.After += x.Present
		case age > span && age <= 2*span:
			s.Before += x.Present
		}
		if n := (age - time.Hour) / week; age == time.Hour+n*week && n >= 0 && int(n) <= len(s.Usual) {
			mean := x.Mean
			if n == 0 {
				s.LastHour = &mean
			} else {
				s.Usual[n-1] = &mean
			}
		}
	}
	return s
}

// FleetBreaker says why nothing of a run may be published; "" where it may.
// More than 10 % of the series (and more than one) lost half their data since
// the last run, or what all offered in the last closed hour is below 70 % of
// the median of the same hour of the three weeks before, each compared over
// the series that are present in both. It takes two known weeks to say so.
func FleetBreaker(all []FleetSeries) string {
	lost := 0
	var now, usual [3]float64
	for _, s := range all {
		if s.Before > 0 && 2*s.After < s.Before {
			lost++
		}
		for week, u := range s.Usual {
			if u != nil && s.LastHour != nil {
				now[week] += float64(*s.LastHour)
				usual[week] += float64(*u)
			}
		}
	}
	if lost > 1 && float64(lost) > maxLost*float64(len(all)) {
		return fmt.Sprintf("%d of %d series lost half their data since the last run", lost, len(all))
	}
	var shares []float64
	for week := range usual {
		if usual[week] > 0 {
			shares = append(shares, now[week]/usual[week])
		}
	}
	if share := stat.Median(shares); len(shares) >= 2 && share < minOffered {
		return fmt.Sprintf("the fleet offered %s of what is usual in the last closed hour, less than %s", percent(rlc.Ratio(share)), percent(minOffered))
	}
	return ""
}

// BlastGate says why a person must approve a run's changes; it only ever adds
// a reason to look. Add every change of every service, then ask. The zero value
// is ready.
type BlastGate struct {
	services map[string]*reach
	all      reach
}

// reach is how far changes go.
type reach struct {
	quotas, lowered int
	before, after   float64
}

func (r *reach) add(c rlc.Change) {
	if c.Old == nil {
		return
	}
	before := mean(*c.Old, c.OldTimed.Hours, c.At)
	after := before
	if c.New != nil {
		after = mean(*c.New, c.NewTimed.Hours, c.At)
	}
	r.quotas++
	if LowersRate(&c) {
		r.lowered++
	}
	r.before += before
	r.after += after
}

// Add counts a change. A quota that is new lowers nothing.
func (b *BlastGate) Add(c rlc.Change) {
	if b.services == nil {
		b.services = map[string]*reach{}
	}
	r := b.services[c.Service]
	if r == nil {
		r = &reach{}
		b.services[c.Service] = r
	}
	r.add(c)
	b.all.add(c)
}

// Why says why a service's changes wait for a person, "" where nothing speaks
// against them: more than 20 % of its quotas are lowered, in their rate or an hour
// of the week, or the fleet's total, as the mean over the week, by more than 5 %.
func (b *BlastGate) Why(service string) string {
	var why []string
	if r := b.services[service]; r != nil && float64(r.lowered) > maxLowered*float64(r.quotas) {
		why = append(why, fmt.Sprintf("%d of %s lowered, more than %s", r.lowered, rlc.Plural(r.quotas, "quota"), percent(maxLowered)))
	}
	if a := b.all; a.before > 0 && (a.before-a.after)/a.before > maxFleetLowered+1e-12 {
		why = append(why, fmt.Sprintf("the fleet's total is lowered by %.1f %%, more than %s", math.Floor(1000*(a.before-a.after)/a.before+1e-9)/10, percent(maxFleetLowered)))
	}
	return joined(why)
}

// Mark adds the gate's reason to every change that lowers a quota.
func (b *BlastGate) Mark(changes []rlc.Change) {
	for i := range changes {
		c := &changes[i]
		if !LowersRate(c) {
			continue
		}
		if why := b.Why(c.Service); why != "" {
			c.Reasons = append(c.Reasons, rlc.Reason{Rule: "blast_gate", Detail: why + ": a person must approve", Rate: c.New.Rate, Asks: true})
			c.Look = joined([]string{c.Look, why})
		}
	}
}
