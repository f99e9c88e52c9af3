package web

import (
	"errors"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// days sums hours up to the table behind the chart, in the viewer's zone.
func days(v *visit, h rlc.History) []ui.Day {
	var out []ui.Day
	for _, d := range dayStats(h, v.zone) {
		out = append(out, ui.Day{
			Day: d.at.Format("Mon 2 Jan"), Mean: rate(d.mean()), P99: rate(float64(d.p99)), Max: rate(float64(d.max)),
			Coverage: percent(share(float64(d.present), float64(d.expected))),
		})
	}
	return out
}

type dayStat struct {
	at                time.Time
	sum               float64
	p99, max          rlc.Rate
	present, expected int
}

func (d dayStat) mean() float64 { return share(d.sum, float64(d.present)) }

func dayStats(h rlc.History, zone *time.Location) []dayStat {
	var out []dayStat
	for _, hour := range h.Hours {
		l := hour.Start.In(zone)
		at := time.Date(l.Year(), l.Month(), l.Day(), 0, 0, 0, 0, zone)
		if len(out) == 0 || !out[len(out)-1].at.Equal(at) {
			out = append(out, dayStat{at: at})
		}
		d := &out[len(out)-1]
		d.sum += float64(hour.Mean) * float64(hour.Present)
		d.present += hour.Present
		d.expected += hour.Expected
		d.max = max(d.max, hour.Max)
		d.p99 = max(d.p99, hour.P99)
	}
	return out
}

func (s *server) daysCSV(v *visit, t *truth, r *row) error {
	h, err := s.stored(v.ctx(), t, r, s.Now().UTC())
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return err
	}
	var rows [][]string
	for _, d := range dayStats(h, time.UTC) {
		rows = append(rows, []string{t.name, r.name, r.key.String(), d.at.Format("2006-01-02"), float(d.mean()), float(float64(d.p99)), float(float64(d.max)), strconv.Itoa(d.present), strconv.Itoa(d.expected)})
	}
	return sheet(v, t.name+"-"+r.id(), []string{"service", "bucket", "key", "day", "mean", "highest_hourly_p99", "highest_step", "steps", "expected_steps"}, rows)
}
