package web

import (
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// spanOf reads ?from= and ?to=, the part of a chart that is shown: an RFC 3339
// time, "now" or "now-14d" (also h). Now is the end of what the chart holds.
// Absent, or outside of from and until, they stand for all of it.
// Beyond says what of it is not there; "" where all is.
func spanOf(v *visit, from, until time.Time) (w rlc.Window, beyond string, err error) {
	q := v.r.URL.Query()
	w = rlc.Window{From: from, Until: until}
	for name, into := range map[string]*time.Time{"from": &w.From, "to": &w.Until} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		at, err := spanTime(text, until)
		if err != nil {
			return w, "", invalid("%s must be an RFC 3339 time, now, or now-14d", name)
		}
		*into = at
	}
	if !w.From.Before(w.Until) {
		return w, "", invalid("from must be before to")
	}
	holds := "The chart holds " + v.time(from).Text + " to " + v.time(until).Text
	switch {
	case !w.Until.After(from) || !w.From.Before(until):
		return rlc.Window{From: from, Until: until}, holds + "; the address asks for a time outside of it, so all of it is shown.", nil
	case w.From.Before(from) || w.Until.After(until):
		beyond = holds + "; the address asks for more."
	}
	w.From, w.Until = later(w.From, from), earlier(w.Until, until)
	if w.Until.Sub(w.From) < 2*time.Hour { // two steps make a line
		return rlc.Window{From: from, Until: until}, "The address asks for less than two hours, which a chart by the hour cannot show: all of it is shown.", nil
	}
	return w, beyond, nil
}

func spanTime(text string, now time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	ago, relative := strings.CutPrefix(text, "now-")
	if !relative {
		return time.Parse(time.RFC3339, text)
	}
	var unit time.Duration
	switch {
	case strings.HasSuffix(ago, "h"):
		unit = time.Hour
	case strings.HasSuffix(ago, "d"):
		unit = day
	}
	n, ok := positive(ago[:max(len(ago)-1, 0)])
	if unit == 0 || !ok || n > 10_000 {
		return time.Time{}, invalid("%q is no time", text)
	}
	return now.Add(-time.Duration(n) * unit), nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// spans are the windows that a link away a chart shows; none is on while
// somebody has zoomed.
func spans(v *visit, shown rlc.Window, from, until time.Time) []ui.Choice {
	all := []ui.Choice{}
	for _, c := range []struct {
		label, from string
		long        time.Duration
	}{{"24 h", "now-24h", day}, {"7 days", "now-7d", 7 * day}, {"All", "", until.Sub(from)}} {
		if c.from != "" && c.long >= until.Sub(from) {
			continue // all of it
		}
		at := v.with("from", c.from, "to", "", "page", "")
		all = append(all, ui.Choice{Label: c.label, URL: at + "#chart", On: shown.Until.Equal(until) && shown.Until.Sub(shown.From) == c.long})
	}
	return all
}

// within is the part of the chart that w shows.
func (d *chartData) within(w rlc.Window) *chartData {
	from, until := w.From.Unix(), w.Until.Unix()
	out := *d
	a, b := 0, len(d.T)
	for a < b && d.T[a]+d.Step <= from {
		a++
	}
	for b > a && d.T[b-1] >= until {
		b--
	}
	out.T, out.Mean, out.Max = d.T[a:b], d.Mean[a:b], d.Max[a:b]
	if d.Dropped != nil {
		out.Dropped = d.Dropped[a:b]
	}
	if d.Virtual != nil {
		out.Virtual = d.Virtual[a:b]
	}
	first, last := out.T[0], out.T[len(out.T)-1]+d.Step
	out.Live, out.DesiredBy, out.ProposedBy = inSpan(d.Live, first, last), inSpan(d.DesiredBy, first, last), inSpan(d.ProposedBy, first, last)
	out.Excluded = nil
	for _, e := range d.Excluded {
		if e.Until > first && e.From < last {
			out.Excluded = append(out.Excluded, band{max(e.From, first), min(e.Until, last)})
		}
	}
	return &out
}
