package web

import (
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// serviceChart is the mean rate of a service over the last week, as the last
// summary has it, with the declared capacity and what happened; nil where no
// hour is known.
func (s *server) serviceChart(v *visit, t *truth, sum rlc.ServiceSummary) (*ui.Chart, error) {
	if len(sum.Trend) < 2 || sum.Updated.IsZero() {
		return nil, nil
	}
	until := sum.Updated.UTC().Truncate(time.Hour)
	from := until.Add(-time.Duration(len(sum.Trend)) * time.Hour)
	d := chartData{Step: 3600, Zone: v.zone.String(), Live: []segmentD{}, Excluded: []band{}}
	top, highest, at := 0.0, 0.0, from
	seen := false
	for i, x := range sum.Trend {
		hour := from.Add(time.Duration(i) * time.Hour)
		d.T = append(d.T, hour.Unix())
		if seen = seen || x > 0; !seen { // before the first sample
			d.Mean, d.Max = append(d.Mean, nil), append(d.Max, nil)
			continue
		}
		mean := round(float64(x))
		d.Mean, d.Max = append(d.Mean, &mean), append(d.Max, &mean)
		if mean > highest {
			highest, at = mean, hour
		}
	}
	if !seen {
		return nil, nil
	}
	top = highest
	if t.service != nil && t.service.Capacity != nil && t.service.Capacity.Rate > 0 {
		rate := float64(t.service.Capacity.Rate)
		d.Capacity = &rate
		top = max(top, rate)
	}
	for _, w := range windows(t, nil) {
		if w.Until.After(from) && w.From.Before(until) {
			d.Excluded = append(d.Excluded, band{max(w.From.Unix(), from.Unix()), min(w.Until.Unix(), until.Unix())})
		}
	}
	proposals, _, err := s.Records.Proposals(v.ctx(), "", t.name, rlc.Page{Number: 1, Size: 20})
	if err != nil {
		return nil, err
	}
	promotions, err := s.Rollouts.Promotions(v.ctx(), t.name)
	if err != nil {
		return nil, err
	}
	happened, err := s.happenings(v.ctx(), t, nil, rlc.Window{From: from, Until: until}, proposals, promotions)
	if err != nil {
		return nil, err
	}
	shown, beyond, err := spanOf(v, from, until)
	if err != nil {
		return nil, err
	}
	if shown.From.After(from) || shown.Until.Before(until) {
		d.View = &band{shown.From.Unix(), shown.Until.Unix()}
	}
	d.Marks = marks(happened)
	c := d.within(shown).draw(v, t.name, highest, at, top*1.04)
	c.Idle = "Highest hour " + rate(highest) + " req/s on " + v.time(at).Text + ". Drag to zoom, arrow keys to read."
	c.Series, c.Happened = "mean per hour, over quota buckets", markTable(v, happened)
	c.Data, c.Spans, c.Beyond = d, spans(v, shown, from, until), beyond
	return c, nil
}
