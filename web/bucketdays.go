package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
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

// tableCSV is the address of a table of a quota's page as CSV; "" is the days
// behind its chart.
func tableCSV(v *visit, table string) string { return tableAs(v, ".csv", table) }

// tableAs is tableCSV with another ending.
func tableAs(v *visit, ending, table string) string {
	u, err := url.Parse(v.as(ending))
	if err != nil {
		return ""
	}
	q := u.Query()
	for _, own := range []string{"from", "to", "stat", "window", "headroom", "floor", "burst", "exclude"} { // the chart's and the what-if's
		q.Del(own)
	}
	u.RawQuery = q.Encode()
	return withTable(u.String(), table)
}

// withTable is the address of a sheet of a page's table; "" is its first.
func withTable(sheet, table string) string {
	u, err := url.Parse(sheet)
	if err != nil || table == "" {
		return sheet
	}
	q := u.Query()
	q.Set("table", table)
	u.RawQuery = q.Encode()
	return u.String()
}

// quotaCSV is a table of a quota's page, or by default the days behind the chart.
func (s *server) quotaCSV(v *visit, t *truth, r *row, table string) error {
	switch table {
	case "":
		return s.daysCSV(v, t, r)
	case "episodes":
		return s.episodesCSV(v, t, r)
	case "history":
		return s.changesCSV(v, t, r)
	case "steps":
		return s.stepsCSV(v, t, r)
	case "left_out":
		return s.leftOutCSV(v, t, r)
	}
	return invalid("table must be episodes, history, steps, left_out or marks, or be left out for the days")
}

// stepsCSV is how the last run came from history to the limit.
func (s *server) stepsCSV(v *visit, t *truth, r *row) error {
	if err := s.complete(v.ctx(), t, r); err != nil {
		return err
	}
	var rows [][]string
	if r.change != nil {
		for _, x := range r.change.Reasons {
			rows = append(rows, []string{x.Rule, x.Detail, float(float64(x.Rate)), strconv.FormatBool(x.Acted)})
		}
	}
	return sheet(v, t.name+"-"+r.id()+"-steps", []string{"rule", "detail", "rate", "acted"}, rows)
}

// leftOutCSV is what the last run's policy did not count, with what people said.
func (s *server) leftOutCSV(v *visit, t *truth, r *row) error {
	if err := s.complete(v.ctx(), t, r); err != nil {
		return err
	}
	verdicts, err := s.Records.Verdicts(v.ctx(), t.name)
	if err != nil {
		return err
	}
	var rows [][]string
	for i, shown := range flagRows(v, r, verdicts) {
		f, with := &r.change.Flags[i], ""
		if f.With > 0 {
			with = float(float64(stat.RoundUp(f.With)))
		}
		rows = append(rows, []string{stamp(f.From), stamp(f.Until), f.Rule, f.Reason, float(float64(f.Peak)), with, shown.Word})
	}
	return sheet(v, t.name+"-"+r.id()+"-left-out", []string{"from", "until", "rule", "reason", "highest_step", "limit_had_it_counted", "word"}, rows)
}

// episodesCSV is every episode that the last run's replay found, the newest
// first.
func (s *server) episodesCSV(v *visit, t *truth, r *row) error {
	if err := s.complete(v.ctx(), t, r); err != nil {
		return err
	}
	b := r.inForce()
	if b == nil && r.change != nil {
		b = r.change.Backtest.New
	}
	var rows [][]string
	if b != nil {
		for _, e := range slices.Backward(b.Episodes) {
			rows = append(rows, []string{r.name, r.key.String(), stamp(e.From), stamp(e.Until), float(float64(e.Peak)), float(float64(e.Limit)), whole(e.Drops), float(float64(e.Share)), string(r.mode)})
		}
	}
	return sheet(v, t.name+"-"+r.id()+"-episodes", []string{"bucket", "key", "from", "until", "peak", "limit", "drops", "share", "mode"}, rows)
}

// changesCSV is a page of what runs found for a quota.
func (s *server) changesCSV(v *visit, t *truth, r *row) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	log, _, err := s.Records.ChangeLog(v.ctx(), t.name, r.name, r.key, page)
	if err != nil {
		return err
	}
	limit := func(l *rlc.Limit) string {
		if l == nil {
			return ""
		}
		return float(float64(l.Rate))
	}
	var rows [][]string
	for _, c := range log {
		rows = append(rows, []string{stamp(c.At), limit(c.Old), limit(c.New), c.Held, c.HeldWhy, c.Why, c.RunID})
	}
	return sheet(v, t.name+"-"+r.id()+"-history", []string{"at", "old_rate", "new_rate", "held", "held_why", "why", "run"}, rows)
}

// changesJSON is a page of every change that runs proposed for a quota, the newest
// first.
func (s *server) changesJSON(v *visit, t *truth, r *row) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	log, total, err := s.Records.ChangeLog(v.ctx(), t.name, r.name, r.key, page)
	if err != nil {
		return err
	}
	changes := make([]object, 0, len(log))
	for _, c := range log {
		changes = append(changes, object{"at": timeJSON(c.At), "old": c.Old, "new": c.New, "held": orNull(c.Held), "held_why": orNull(c.HeldWhy), "why": c.Why, "run": c.RunID})
	}
	return answer(v, http.StatusOK, paged("changes", changes, page, total))
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
