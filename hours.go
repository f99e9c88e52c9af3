package rlc

import (
	"math"
	"slices"
	"time"
)

// Until is the end of the last hour.
func (h *QuotaHours) Until() time.Time {
	return h.From.Add(time.Duration(len(h.Rates)) * time.Hour)
}

// At is the rate in force at t; ok is false before and after the hours, and
// where h is nil.
func (h *QuotaHours) At(t time.Time) (rate Rate, ok bool) {
	if h == nil || t.Before(h.From) || !t.Before(h.Until()) {
		return 0, false
	}
	return h.Rates[t.Sub(h.From)/time.Hour], true
}

// OfWeek is the rate that the hours have at t's hour of the week, whether t lies
// among them or not: how a past or a later week is measured against them. Hours
// of less than a week have the highest of the same hour of the day where they
// lack one. ok is false where they lack that too, and where h is nil.
func (h *QuotaHours) OfWeek(t time.Time) (rate Rate, ok bool) {
	if h == nil {
		return 0, false
	}
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	since := t.Sub(h.From)
	if k := int((since%week + week) % week / time.Hour); k < len(h.Rates) {
		return h.Rates[k], true
	}
	for k := int((since%day + day) % day / time.Hour); k < len(h.Rates); k += 24 {
		rate, ok = max(rate, h.Rates[k]), true
	}
	return rate, ok
}

// WithRate is l at another rate, with a burst in the same proportion: at least 1,
// and 0 where the rate is.
func (l Limit) WithRate(rate Rate) Limit {
	switch {
	case rate <= 0:
		return Limit{}
	case rate == l.Rate:
		return l
	}
	seconds := 1.0
	if l.Rate > 0 {
		seconds = float64(l.Burst) / float64(l.Rate)
	}
	return Limit{Rate: rate, Burst: Burst(min(max(math.Ceil(float64(rate)*seconds), 1), MaxRate))}
}

// Of is l at t, where t may lie before or after the hours: that of a window that
// contains t, else the rate of the same hour of the week with a burst in the same
// proportion, else l. So replays and pages measure past traffic; what is in force
// at a moment is Quota.At.
func (x Timed) Of(l Limit, t time.Time) Limit {
	for _, w := range x.Windows {
		if !t.Before(w.From) && t.Before(w.Until) {
			return w.Limit
		}
	}
	if rate, ok := x.Hours.OfWeek(t); ok {
		return l.WithRate(rate)
	}
	return l
}

// Edges are the moments after from and before until at which a window begins or
// ends, ascending.
func (x Timed) Edges(from, until time.Time) (edges []time.Time) {
	for _, w := range x.Windows {
		for _, at := range []time.Time{w.From, w.Until} {
			if at.After(from) && at.Before(until) && (len(edges) == 0 || !at.Equal(edges[len(edges)-1])) {
				edges = append(edges, at)
			}
		}
	}
	return edges
}

// Rates are the lowest and the highest rate of l by the hour, its windows aside.
func (x Timed) Rates(l Limit) (lowest, highest Rate) {
	if x.Hours == nil || len(x.Hours.Rates) == 0 {
		return l.Rate, l.Rate
	}
	return slices.Min(x.Hours.Rates), slices.Max(x.Hours.Rates)
}

// Headroom is the fraction that l adds above a peak, at the time of that peak:
// (limit − peak) / peak, as a policy's parameter of that name. It is below zero
// where the peak lies above the limit; ok is false where either is not known.
func (x Timed) Headroom(l *Limit, p Peak) (share float64, ok bool) {
	if l == nil || p.Rate <= 0 {
		return 0, false
	}
	rate := x.Of(*l, p.At).Rate
	return float64((rate - p.Rate) / p.Rate), rate > 0
}

// At is q's limit at t: that of a window that contains it, else the hour's rate
// with a burst in the same proportion, else its own.
func (q *Quota) At(t time.Time) Limit {
	for _, w := range q.Windows {
		if !t.Before(w.From) && t.Before(w.Until) {
			return w.Limit
		}
	}
	if rate, ok := q.Hours.At(t); ok {
		return q.Limit.WithRate(rate)
	}
	return q.Limit
}
