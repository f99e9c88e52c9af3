package web

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// marksSheet answers with what a chart marks, the newest first, as the address ends.
func marksSheet(v *visit, ending, name string, all []happening) error {
	if ending == ".json" {
		out := make([]object, 0, len(all))
		for _, h := range slices.Backward(all) {
			out = append(out, object{"at": timeJSON(h.at), "until": timeJSON(h.until), "kind": h.kind, "label": h.label, "text": h.what.Text, "url": orNull(h.what.URL)})
		}
		return answer(v, http.StatusOK, object{"marks": out})
	}
	var rows [][]string
	for _, h := range slices.Backward(all) {
		rows = append(rows, []string{stamp(h.at), stamp(h.until), h.kind, h.what.Text, h.what.URL})
	}
	return sheet(v, name+"-marks", []string{"at", "until", "kind", "text", "url"}, rows)
}

// quotaMarks is what the chart of a quota marks, as the address ends.
func (s *server) quotaMarks(v *visit, t *truth, r *row, ending string) error {
	h, err := s.stored(v.ctx(), t, r, s.Now().UTC())
	if err != nil {
		return err
	}
	var happened []happening
	if len(h.Hours) > 1 { // else there is no chart
		proposals, _, err := s.Records.Proposals(v.ctx(), "", t.name, rlc.Page{Number: 1, Size: 50})
		if err != nil {
			return err
		}
		promotions, err := s.Rollouts.Promotions(v.ctx(), t.name)
		if err != nil {
			return err
		}
		if happened, err = s.happenings(v, t, r, spanned(h), proposals, promotions); err != nil {
			return err
		}
	}
	return marksSheet(v, ending, t.name+"-"+r.id(), happened)
}

// spanned is from the first to the end of the last hour of a history that has some.
func spanned(h rlc.History) rlc.Window {
	return rlc.Window{From: h.Hours[0].Start, Until: h.Hours[len(h.Hours)-1].Start.Add(time.Hour)}
}

// serviceTable is one of the tables behind a service's chart, as the address ends:
// marks, or week, a line for each hour.
func (s *server) serviceTable(v *visit, t *truth, table, ending string) error {
	if table != "marks" && table != "week" {
		return invalid("table must be marks or week, or be left out for the quotas")
	}
	sum, err := s.Records.Summary(v.ctx(), t.name)
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return err
	}
	week := sum.Week
	from := week.Until.UTC().Add(-time.Duration(len(week.Mean)) * time.Hour)
	if table == "marks" {
		var happened []happening
		if len(week.Mean) > 1 { // else there is no chart
			if happened, err = s.serviceMarks(v, t, rlc.Window{From: from, Until: week.Until.UTC()}); err != nil {
				return err
			}
		}
		return marksSheet(v, ending, t.name, happened)
	}
	at := func(all []rlc.Rate, i int) rlc.Rate {
		if all == nil { // nothing was
			return 0
		}
		return all[i]
	}
	hours, rows := []object{}, [][]string{}
	for i, mean := range week.Mean {
		start := from.Add(time.Duration(i) * time.Hour)
		if mean == nil {
			hours = append(hours, object{"start": start, "mean": nil, "highest_step": nil, "dropped": nil, "above_shadow": nil})
			rows = append(rows, []string{stamp(start), "", "", "", ""})
			continue
		}
		most, dropped, virtual := *week.Most[i], at(week.Dropped, i), at(week.Virtual, i)
		hours = append(hours, object{"start": start, "mean": *mean, "highest_step": most, "dropped": dropped, "above_shadow": virtual})
		rows = append(rows, []string{stamp(start), float(float64(*mean)), float(float64(most)), float(float64(dropped)), float(float64(virtual))})
	}
	if ending == ".json" {
		return answer(v, http.StatusOK, object{"hours": hours})
	}
	return sheet(v, t.name+"-week", []string{"start", "mean", "highest_step", "dropped", "above_shadow"}, rows)
}
