package web

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// spark draws a week of rates, hours that are unknown as gaps; 112 × 24 units.
func spark(values []*rlc.Rate) ui.Spark { return sparkOf(week{most: values}) }

// week is what a spark draws: each hour's highest step, nil where unknown.
type week struct {
	most    []*rlc.Rate
	limit   rlc.Rate // the line; 0 for none
	dropped []bool   // hours in which something was dropped; nil for none
	virtual []bool   // hours in which something would have been; nil for none
}

// place is a coordinate with a digit after the point where it has one.
func place(x float64) string { return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64) }

// sparkPoints are what 112 pixels can show.
const sparkPoints = 56

// sparkOf keeps the highest of each group of hours. A limit above three times the
// highest value is left out: the week would be flat below it. Groups in which
// something was dropped, or would have been, have a mark.
func sparkOf(w week) ui.Spark {
	top := 0.0
	for _, v := range w.most {
		if v != nil {
			top = max(top, float64(*v))
		}
	}
	if top <= 0 || len(w.most) < 2 {
		return ui.Spark{}
	}
	drawn := float64(w.limit)
	if drawn > 3*top {
		drawn = 0
	}
	top = max(top, drawn)
	at := func(rate float64) float64 { return 23 - rate/top*21.5 }
	out := ui.Spark{}
	if drawn > 0 {
		out.Limit = "M0 " + place(at(drawn)) + "H112"
	}
	var line, area strings.Builder
	n := min(sparkPoints, len(w.most))
	x, step := 0.0, 112/float64(n-1)
	if n == sparkPoints {
		x, step = 1, 2 // whole, which compresses to little
	}
	was, gap := [2]float64{}, true
	for i := range n {
		from, until := i*len(w.most)/n, (i+1)*len(w.most)/n
		high := -1.0
		for _, v := range w.most[from:until] {
			if v != nil {
				high = max(high, float64(*v))
			}
		}
		here := [2]float64{math.Round(10*(x+float64(i)*step)) / 10, math.Round(2*at(high)) / 2}
		switch {
		case high < 0:
			if !gap {
				area.WriteString("V24Z")
			}
			gap = true
			continue
		case gap:
			line.WriteString("M" + place(here[0]) + " " + place(here[1]))
			area.WriteString("M" + place(here[0]) + " 24V" + place(here[1]))
		default:
			to := place(here[1] - was[1])
			if !strings.HasPrefix(to, "-") {
				to = " " + to
			}
			line.WriteString("l" + place(here[0]-was[0]) + to)
			area.WriteString("l" + place(here[0]-was[0]) + to)
		}
		was, gap = here, false
		if dropped := marked(w.dropped, from, until); dropped || marked(w.virtual, from, until) {
			foot := here[1] + 3
			if drawn > 0 && high > drawn {
				foot = max(foot, at(drawn))
			}
			out.Over = append(out.Over, ui.Box{X: place(here[0] - 1.5), Y: place(here[1] - .5), W: "3", H: place(foot - here[1] + .5), Real: dropped})
		}
	}
	if !gap {
		area.WriteString("V24Z")
	}
	out.Line, out.Area = line.String(), area.String()
	return out
}

// marked reports whether one of all[from:until] is set; none is where all is nil.
func marked(all []bool, from, until int) bool {
	for i := from; i < until && i < len(all); i++ {
		if all[i] {
			return true
		}
	}
	return false
}

// positives says which are above zero; nil for nil.
func positives(all []rlc.Rate) []bool {
	var out []bool
	for _, r := range all {
		out = append(out, r > 0)
	}
	return out
}

// serviceSpark is a service's last week as its summary has it.
func serviceSpark(r rlc.ServiceSummary) ui.Spark {
	return sparkOf(week{most: r.Week.Most, limit: limitOfAll(r), dropped: positives(r.Week.Dropped), virtual: positives(r.Week.Virtual)})
}

// quotaSparks are the seven days of rows until the newest run that looked at one
// of them, by the row's ID: their stored hours, held against the limits that are in
// force. Rows without stored hours are not in it.
func (s *server) quotaSparks(ctx context.Context, t *truth, rows []row) (map[string]ui.Spark, error) {
	var ids []string
	of := map[string][]*row{} // by series: an "each" bucket and its region share none
	until := time.Time{}
	for i := range rows {
		r := &rows[i]
		if r.change == nil {
			continue // no run has looked at it
		}
		if r.change.At.After(until) {
			until = r.change.At
		}
		id := r.seriesID()
		if of[id] == nil {
			ids = append(ids, id)
		}
		of[id] = append(of[id], r)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	until = until.UTC().Truncate(time.Hour)
	from := until.Add(-7 * day)
	out := map[string]ui.Spark{}
	return out, s.History.StoredEach(ctx, t.name, ids, from, until, func(id string, h rlc.History) error {
		for _, r := range of[id] {
			out[r.id()] = sparkOf(weekOf(r, h.Hours, from))
		}
		return nil
	})
}

// weekOf lays hours out from a time on, with what was dropped in them, and, of a
// quota in shadow, what lies above its limit.
func weekOf(r *row, hours []rlc.Hour, from time.Time) week {
	const n = 7 * 24
	w := week{most: make([]*rlc.Rate, n), dropped: make([]bool, n), virtual: make([]bool, n)}
	limit := r.force()
	if limit != nil {
		w.limit = limit.Rate
	}
	for i := range hours {
		h := &hours[i]
		at := int(math.Floor(h.Start.Sub(from).Hours()))
		if at < 0 || at >= n || h.Present == 0 {
			continue
		}
		w.most[at] = &h.Max
		w.dropped[at] = h.Drops > 0
		w.virtual[at] = r.mode == rlc.Shadow && limit != nil && h.Max > r.forceTimed().Of(*limit, h.Start).Rate
	}
	return w
}
