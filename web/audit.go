package web

import (
	"net/http"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// auditPage reads the filters of the address and the page that they select.
func (s *server) auditPage(v *visit) (rlc.AuditFilter, rlc.Page, []rlc.AuditEntry, int, error) {
	q := v.r.URL.Query()
	f := rlc.AuditFilter{Actor: q.Get("actor"), Action: q.Get("action"), Object: q.Get("q")}
	page, err := v.page()
	if err != nil {
		return f, page, nil, 0, err
	}
	for name, into := range map[string]*time.Time{"from": &f.From, "until": &f.Until} {
		if *into, err = v.day(q.Get(name), name == "until"); err != nil {
			return f, page, nil, 0, invalid("%s must be a day such as 2026-12-02, or an RFC 3339 time", name)
		}
	}
	all, total, err := s.Identities.AuditLog(v.ctx(), f, page)
	return f, page, all, total, err
}

// day reads a day in the viewer's zone or an instant; "" is the zero time. As
// an end a day is included whole.
func (v *visit) day(text string, end bool) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseInLocation(time.DateOnly, text, v.zone); err == nil {
		if end {
			d = d.AddDate(0, 0, 1)
		}
		return d, nil
	}
	return time.Parse(time.RFC3339, text)
}

// audit is /audit.
func (s *server) audit(v *visit) error {
	filter, page, all, total, err := s.auditPage(v)
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Audit", "audit")
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	view := ui.Audit{Actor: filter.Actor, Action: filter.Action, Text: filter.Object, From: q.Get("from"), Until: q.Get("until"), Pager: v.pager(page, len(all), total)}
	for _, kind := range [][2]string{{"", "every act"}, {"proposal.", "proposals"}, {"override.", "overrides"}, {"run.", "runs"}, {"verdict.", "verdicts"}, {"session.", "sign-ins"}, {"promotion.", "promotions"}, {"rollback", "rollbacks"}, {"pin.", "pins"}, {"quota.", "asks for more"}, {"token.", "tokens"}, {"access.", "refusals"}} {
		view.Actions = append(view.Actions, ui.Choice{Value: kind[0], Label: kind[1], On: kind[0] == filter.Action})
	}
	for _, e := range all {
		view.Rows = append(view.Rows, ui.AuditRow{At: v.timeAs(e.At, "2 Jan 15:04:05"), Actor: ui.Link{Text: e.Actor, URL: v.with("actor", e.Actor)}, Action: e.Action, Object: e.Object, Detail: e.Detail})
	}
	if filter == (rlc.AuditFilter{}) {
		view.Verdict = []ui.Part{{Text: plural(total, "act", "acts"), Bold: true}, {Text: " on record."}}
	} else {
		view.Verdict = []ui.Part{{Text: plural(total, "act", "acts"), Bold: true}, {Text: " fit. "}, {Text: "Show all", URL: "/audit"}}
	}
	if len(all) == 0 {
		view.Empty = &ui.Empty{Title: "No act yet", Reason: "Whatever somebody does here, or RLC by itself, is written in the transaction that carries it out, and stays.", Fix: ui.Link{Text: "Runs", URL: "/runs"}}
	}
	if len(all) == 0 && filter != (rlc.AuditFilter{}) {
		view.Empty = &ui.Empty{Title: "No act fits", Reason: "Acts are written here in the transaction that carries them out, and stay.", Fix: ui.Link{Text: "Show all", URL: "/audit"}}
	}
	return s.render(v, http.StatusOK, ui.AuditPage(f, view))
}

func (s *server) apiAudit(v *visit) error {
	_, page, all, total, err := s.auditPage(v)
	if err != nil {
		return err
	}
	if all == nil {
		all = []rlc.AuditEntry{}
	}
	return answer(v, http.StatusOK, paged("audit", all, page, total))
}

// auditCSV exports at most 1000 acts at a time, as ?page and ?per_page say.
func (s *server) auditCSV(v *visit) error {
	_, _, all, _, err := s.auditPage(v)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, e := range all {
		rows = append(rows, []string{e.ID, stamp(e.At), e.Actor, e.Action, e.Object, e.Detail})
	}
	return sheet(v, "audit", []string{"id", "at", "actor", "action", "object", "detail"}, rows)
}
