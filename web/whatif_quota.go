package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/web/ui"
)

// whatIfURLs are where a quota's what-if is answered alone, without all else
// that its page reads, and the sheets of its curve.
func whatIfURLs(v *visit, r *row) (alone string, sheets ui.Pager) {
	q := url.Values{}
	for _, name := range []string{"stat", "window", "headroom", "floor", "burst", "exclude"} {
		if all := v.r.URL.Query()[name]; len(all) > 0 {
			q[name] = all
		}
	}
	if len(r.key) > 0 {
		q.Set("key", r.key.String())
	}
	at := serviceURL(v.r.PathValue("service")) + "/buckets/" + segment(r.name) + "/whatif"
	ask := ""
	if len(q) > 0 {
		ask = "?" + q.Encode()
	}
	return at, ui.Pager{CSV: at + ".csv" + ask, JSON: at + ".json" + ask}
}

// quotaWhatIf is /services/{service}/buckets/{bucket}/whatif, with its endings:
// the what-if of one quota alone.
func (s *server) quotaWhatIf(v *visit) error { return s.oneWhatIf(v, "") }

func (s *server) quotaWhatIfJSON(v *visit) error { return s.oneWhatIf(v, ".json") }

func (s *server) quotaWhatIfCSV(v *visit) error { return s.oneWhatIf(v, ".csv") }

func (s *server) oneWhatIf(v *visit, ending string) error {
	t, err := s.truth(v.ctx(), v.r.PathValue("service"))
	if err != nil {
		return err
	}
	name := v.r.PathValue("bucket")
	key, err := rlc.ParseKey(v.r.URL.Query().Get("key"))
	if err != nil {
		return err
	}
	r := t.row(name, key)
	switch rows := t.ofBucket(name); {
	case len(rows) == 0:
		return t.noBucket(name)
	case r == nil && len(key) == 0:
		return invalid("bucket %s counts per key: name one with ?key=", name)
	case r == nil:
		return t.noQuota(name, key)
	}
	if err := s.complete(v.ctx(), t, r); err != nil {
		return err
	}
	h, err := s.stored(v.ctx(), t, r, s.Now().UTC())
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return err
	}
	if ending != "" {
		return whatIfSheet(v, t, r, h, ending)
	}
	f, err := s.frame(v, t.name+" / "+quotaName(r.name, r.key)+" / what if", "services")
	if err != nil {
		return err
	}
	view := ui.QuotaWhatIf{Head: s.bucketHead(t, r)}
	view.Head.Facts = append([]ui.Link{{Text: "chart, reasons and history", URL: bucketURL(t.name, r.name, r.key)}}, view.Head.Facts...)
	if len(h.Hours) < 2 {
		view.None = noChart(t, r, nil)
		return s.render(v, http.StatusOK, ui.QuotaWhatIfPage(f, view))
	}
	if view.WhatIf, err = whatIf(v, t, r, h); err != nil {
		return err
	}
	return s.render(v, http.StatusOK, ui.QuotaWhatIfPage(f, view))
}

// whatIfSheet answers the curve of a choice.
func whatIfSheet(v *visit, t *truth, r *row, h rlc.History, ending string) error {
	a, err := choiceOf(v.r.URL.Query(), policyChoice(r))
	if err != nil {
		return err
	}
	if ending == ".json" {
		out, err := whatIfJSON(h, a)
		if err != nil {
			return err
		}
		out["service"], out["bucket"], out["key"] = t.name, r.name, r.key
		return answer(v, http.StatusOK, out)
	}
	curve := backtest.Curve(h, a.Choice, curveAt)
	name := t.name + "-" + r.id() + "-whatif"
	switch table := v.r.URL.Query().Get("table"); table {
	case "":
	case "choices":
		return changedCSV(v, name+"-choices", oneChanged(h, a, curve))
	default:
		return invalid("table must be choices, or be left out for the curve")
	}
	var rows [][]string
	for _, p := range curve {
		rows = append(rows, []string{float(p.Headroom), float(float64(p.Rate)), whole(p.Drops), float(float64(p.Share)), strconv.FormatBool(p.AtLeast)})
	}
	return sheet(v, name, []string{"headroom", "limit_rate", "drops", "share", "at_least"}, rows)
}
