package web

import (
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// A capacity that is farAbove times what is offered would leave a flat line at the foot:
// it is named above the drawing, which then ends at headway times what is offered.
// chart.js goes by the same two.
const farAbove, headway = 4, 1.3

// serviceChart is the offered rate of a service over the last week, as the last
// summary has it, with what was dropped, the declared capacity and what
// happened; nil where no hour is known.
func (s *server) serviceChart(v *visit, t *truth, sum rlc.ServiceSummary) (*ui.Chart, error) {
	week := sum.Week
	if len(week.Mean) < 2 || week.Until.IsZero() {
		return nil, nil
	}
	until := week.Until.UTC()
	from := until.Add(-time.Duration(len(week.Mean)) * time.Hour)
	shown, beyond, err := spanOf(v, from, until)
	if err != nil {
		return nil, err
	}
	d := chartData{Step: 3600, Zone: v.zone.String(), Live: []segmentD{}, Excluded: []band{}, Sum: true, Dropped: rates(week.Dropped), Virtual: rates(week.Virtual)}
	highest, at := 0.0, from
	for i, mean := range week.Mean {
		hour := from.Add(time.Duration(i) * time.Hour)
		d.T, d.Mean, d.Max = append(d.T, hour.Unix()), append(d.Mean, (*float64)(mean)), append(d.Max, (*float64)(week.Most[i]))
		if inside := hour.Add(time.Hour).After(shown.From) && hour.Before(shown.Until); inside && mean != nil && float64(*week.Most[i]) > highest {
			highest, at = float64(*week.Most[i]), hour
		}
	}
	top, far := max(highest, 1), ""
	if t.service != nil && t.service.Capacity != nil && t.service.Capacity.Rate > 0 {
		rate := float64(t.service.Capacity.Rate)
		d.Capacity = &rate
		if rate > farAbove*top {
			far, top = " The capacity, "+limitText(&rlc.Limit{Rate: t.service.Capacity.Rate})+" req/s, lies above the drawing.", headway*top
		} else {
			top = max(top, rate)
		}
	}
	for _, w := range windows(t, nil) {
		if w.Until.After(from) && w.From.Before(until) {
			d.Excluded = append(d.Excluded, band{max(w.From.Unix(), from.Unix()), min(w.Until.Unix(), until.Unix())})
		}
	}
	happened, err := s.serviceMarks(v, t, rlc.Window{From: from, Until: until})
	if err != nil {
		return nil, err
	}
	if shown.From.After(from) || shown.Until.Before(until) {
		d.View = &band{shown.From.Unix(), shown.Until.Unix()}
	}
	d.Marks = marks(happened)
	c := d.within(shown).draw(v, t.name, highest, at, top*1.04)
	c.Idle = weekSays(v, week, shown, highest, at) + far + " Drag to zoom, arrow keys to read."
	c.Series, c.Happened = "highest step, at most, and mean per hour, over quota buckets", markTable(v, happened)
	c.Data, c.Spans, c.Beyond, c.Days = d, spans(v, shown, from, until), beyond, weekTable(v, week)
	c.MarksCSV, c.MarksJSON = serviceURL(t.name)+".csv?table=marks", serviceURL(t.name)+".json?table=marks"
	c.DaysCSV, c.DaysJSON = serviceURL(t.name)+".csv?table=week", serviceURL(t.name)+".json?table=week"
	return c, nil
}

// serviceMarks are what the chart of a service marks.
func (s *server) serviceMarks(v *visit, t *truth, w rlc.Window) ([]happening, error) {
	proposals, _, err := s.Records.Proposals(v.ctx(), "", t.name, rlc.Page{Number: 1, Size: 20})
	if err != nil {
		return nil, err
	}
	promotions, err := s.Rollouts.Promotions(v.ctx(), t.name)
	if err != nil {
		return nil, err
	}
	return s.happenings(v, t, nil, w, proposals, promotions)
}

// weekSays is what the shown part of a week comes to, in words. What was
// dropped is a count; what would have been is at most that: the highest step
// stands for its hour.
func weekSays(v *visit, week rlc.Trend, shown rlc.Window, highest float64, at time.Time) string {
	var dropped float64
	unknown, over := 0, 0
	for i, mean := range week.Mean {
		hour := week.Until.Add(-time.Duration(len(week.Mean)-i) * time.Hour)
		if !hour.Add(time.Hour).After(shown.From) || !hour.Before(shown.Until) {
			continue
		}
		if mean == nil {
			unknown++
		}
		if week.Dropped != nil {
			dropped += float64(week.Dropped[i]) * 3600
		}
		if week.Virtual != nil && week.Virtual[i] > 0 {
			over++
		}
	}
	out := "Highest step at most " + rate(highest) + " req/s, in the hour of " + v.time(at).Text + "."
	if dropped >= 1 {
		out += " Dropped: " + count(dropped) + " requests."
	}
	if over > 0 {
		out += " Above a limit in shadow: " + plural(over, "hour", "hours") + "."
	}
	if unknown > 0 {
		out += " Unknown: " + plural(unknown, "hour", "hours") + "."
	}
	return out
}

// weekTable is a week by the day, in the viewer's zone.
func weekTable(v *visit, week rlc.Trend) ui.Grid {
	g := ui.Grid{Caption: "Offered rate by day, req/s", Columns: []ui.Column{{Label: "Day"}, {Label: "Mean", Class: "num"}, {Label: "Highest step, at most", Class: "num"},
		{Label: "Dropped", Class: "num"}, {Label: "Hours above a limit in shadow", Class: "num"}, {Label: "Hours known", Class: "num"}}}
	type sums struct {
		day                  string
		mean, most, dropped  float64
		hours, known, shadow int
	}
	var days []sums
	for i, mean := range week.Mean {
		day := week.Until.Add(-time.Duration(len(week.Mean)-i) * time.Hour).In(v.zone).Format("Mon 2 Jan")
		if len(days) == 0 || days[len(days)-1].day != day {
			days = append(days, sums{day: day})
		}
		d := &days[len(days)-1]
		if d.hours++; mean == nil {
			continue
		}
		d.known++
		d.mean += float64(*mean)
		d.most = max(d.most, float64(*week.Most[i]))
		if week.Dropped != nil {
			d.dropped += float64(week.Dropped[i]) * 3600
		}
		if week.Virtual != nil && week.Virtual[i] > 0 {
			d.shadow++
		}
	}
	for _, d := range days {
		row := []ui.Cell{{Text: d.day}, {Text: rate(share(d.mean, float64(d.known)))}, {Text: rate(d.most)}, {Text: digits(d.dropped)}, {Text: digits(float64(d.shadow))}, {Text: count(float64(d.known)) + " of " + count(float64(d.hours))}}
		if d.known == 0 {
			row = []ui.Cell{row[0], {Text: "—"}, {Text: "—"}, {Text: "—"}, {Text: "—"}, row[5]}
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func rates(all []rlc.Rate) []float64 {
	var out []float64
	for _, r := range all {
		out = append(out, float64(r))
	}
	return out
}
