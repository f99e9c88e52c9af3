package web

import (
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/policies"
)

// rowTimed is what a row's limits have beside them: rates by the hour, and
// windows.
type rowTimed struct{ desired, live, proposed rlc.Timed }

// counter is the limit that pages measure against, with what it has at times; nil
// for none.
func (r *row) counter() *backtest.Counter {
	switch {
	case r.live != nil:
		return &backtest.Counter{Limit: *r.live, Timed: r.timed.live}
	case r.desired != nil:
		return &backtest.Counter{Limit: *r.desired, Timed: r.timed.desired}
	}
	return nil
}

// headroom is what the limit in force leaves above the highest step, at the time of
// that step.
func (r *row) headroom() (share float64, known bool) {
	if r.change == nil {
		return 0, false
	}
	return r.forceTimed().Headroom(r.force(), r.seen().Peak)
}

// forceTimed is what force has at times.
func (r *row) forceTimed() rlc.Timed {
	if r.live != nil {
		return r.timed.live
	}
	return r.timed.desired
}

// timedText is a limit's rate in words: what it has by the hour, where it has hours.
func timedText(l *rlc.Limit, t rlc.Timed) string {
	if hours := policies.HoursText(t.Hours); hours != "" {
		return hours
	}
	return limitText(l)
}

// stretch is a limit in force from a moment on, with its hours and windows.
type stretch struct {
	from  time.Time
	limit rlc.Limit
	timed rlc.Timed
}

// byTime are the rates of stretches until a time, each where it begins: hour by
// hour where they have hours, and through their windows.
func byTime(all []stretch, until time.Time, mode rlc.Mode) []segmentD {
	var out []segmentD
	for i, s := range all {
		end := until
		if i+1 < len(all) {
			end = all[i+1].from
		}
		q := rlc.Quota{Limit: s.limit, Windows: s.timed.Windows, Hours: s.timed.Hours}
		edges := []time.Time{s.from}
		if h := s.timed.Hours; h != nil {
			for k := range len(h.Rates) + 1 {
				edges = append(edges, h.From.Add(time.Duration(k)*time.Hour))
			}
		}
		for _, w := range s.timed.Windows {
			edges = append(edges, w.From, w.Until)
		}
		slices.SortFunc(edges, time.Time.Compare)
		for _, at := range edges {
			if at.Before(s.from) || at.After(s.from) && !at.Before(end) {
				continue
			}
			out = step(out, segmentD{at.Unix(), float64(q.At(at).Rate), mode})
		}
	}
	return out
}

// ofWeek are the rates of hours between two times, each past hour at that of the
// same hour of the week; nil for no hours.
func ofWeek(limit *rlc.Limit, h *rlc.QuotaHours, from, until time.Time) (out []segmentD) {
	if limit == nil || h == nil {
		return nil
	}
	for at := from; at.Before(until); at = at.Add(time.Hour) {
		out = step(out, segmentD{at.Unix(), float64(rlc.Timed{Hours: h}.Of(*limit, at).Rate), ""})
	}
	return out
}

// step appends a segment where the rate changes.
func step(all []segmentD, s segmentD) []segmentD {
	if n := len(all); n > 0 && all[n-1].Rate == s.Rate && all[n-1].Mode == s.Mode {
		return all
	}
	return append(all, s)
}

// stairs draws segments from left to right; "" for none.
func stairs(all []segmentD, x func(int64) float64, y func(float64) float64) string {
	var b strings.Builder
	for i, l := range all {
		if i == 0 {
			b.WriteString("M" + coord(x(l.From)) + " " + coord(y(l.Rate)))
		} else {
			b.WriteString("H" + coord(x(l.From)) + "V" + coord(y(l.Rate)))
		}
	}
	if len(all) > 0 {
		b.WriteString("H" + coord(wide))
	}
	return b.String()
}

// inSpan are segments between two moments: one that came before stands at the
// left edge.
func inSpan(all []segmentD, first, last int64) (out []segmentD) {
	for i, l := range all {
		if i+1 < len(all) && all[i+1].From <= first || l.From >= last {
			continue
		}
		l.From = max(l.From, first)
		out = append(out, l)
	}
	return out
}

// validHours refuses hours that quotas.yaml cannot hold.
func validHours(h *rlc.QuotaHours) error {
	if h == nil {
		return nil
	}
	if len(h.Rates) == 0 || len(h.Rates) > 31*24 || !h.From.Equal(h.From.Truncate(time.Hour)) {
		return invalid("hours begin at a full hour and are 1 to 744 rates")
	}
	for _, r := range h.Rates {
		if !(r > 0 && r <= rlc.MaxRate) {
			return invalid("a rate of hours is above 0")
		}
	}
	return nil
}

// mostWindows is how many windows quotas.yaml holds for a quota.
const mostWindows = 50

// validTimed refuses what quotas.yaml cannot hold.
func validTimed(t rlc.Timed) error {
	if err := validHours(t.Hours); err != nil {
		return err
	}
	if len(t.Windows) > mostWindows {
		return invalid("at most %d windows", mostWindows)
	}
	var end time.Time
	for _, w := range t.Windows {
		if !w.From.Before(w.Until) || w.From.Before(end) {
			return invalid("windows are in order and apart from each other")
		}
		if err := w.Valid(); err != nil {
			return err
		}
		end = w.Until
	}
	return nil
}

// timedJSON is nil where a limit carries nothing beside it.
func timedJSON(t rlc.Timed) any {
	if len(t.Windows) == 0 && t.Hours == nil {
		return nil
	}
	return t
}

// lowestHour is the lowest rate of hours, for a sheet; "" without hours.
func lowestHour(t rlc.Timed) string {
	if t.Hours == nil {
		return ""
	}
	return float(float64(slices.Min(t.Hours.Rates)))
}

// byHour says in front of a text what a limit has hour by hour.
func byHour(t rlc.Timed, text string) string {
	if hours := policies.HoursText(t.Hours); hours != "" {
		return hours + ", " + text
	}
	return text
}
