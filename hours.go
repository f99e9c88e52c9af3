package rlc

import (
	"math"
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
