package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// mostBecause bounds the reasons that a line of a run's services names.
const mostBecause = 3

// runServiceFilter reads which of a run's services are asked for.
func runServiceFilter(v *visit) (rlc.RunFilter, error) {
	q := v.r.URL.Query()
	f := rlc.RunFilter{Query: strings.TrimSpace(q.Get("q")), Only: q.Get("only")}
	if f.Only != "" && f.Only != "changed" && f.Only != "held" {
		return f, invalid("only must be changed or held")
	}
	return f, nil
}

// runServices is the table of a run's services.
func (s *server) runServices(v *visit, r rlc.Run, page rlc.Page) (*ui.RunServices, error) {
	f, err := runServiceFilter(v)
	if err != nil {
		return nil, err
	}
	totals, rows, total, err := s.runServicesOf(v, r.ID, f, page)
	if err != nil {
		return nil, err
	}
	out := &ui.RunServices{Query: f.Query, Only: f.Only, Pager: v.pager(page, len(rows), total), Show: []ui.Choice{
		{Label: "all " + count(float64(totals.Services)), URL: v.with("only", ""), On: f.Only == ""},
		{Label: "changed " + count(float64(totals.Changed)), URL: v.with("only", "changed"), On: f.Only == "changed"},
		{Label: "held " + count(float64(totals.Held)), URL: v.with("only", "held"), On: f.Only == "held"},
	}}
	sheets := v.r.URL.Query()
	sheets.Del("done")
	ask := ""
	if len(sheets) > 0 {
		ask = "?" + sheets.Encode()
	}
	out.Pager.CSV, out.Pager.JSON = runURL(r.ID)+"/services.csv"+ask, runURL(r.ID)+"/services.json"+ask
	for _, x := range rows {
		out.Rows = append(out.Rows, runServiceRow(r, x))
	}
	if len(rows) == 0 {
		out.Empty = runServicesEmpty(r, f, totals)
	}
	return out, nil
}

// runServicesOf reads a page of a run's services, and how many fit.
func (s *server) runServicesOf(v *visit, id string, f rlc.RunFilter, page rlc.Page) (totals rlc.RunTotals, rows []rlc.RunService, total int, err error) {
	if totals, err = s.Records.RunTotals(v.ctx(), id, f); err != nil {
		return totals, nil, 0, err
	}
	total = map[string]int{"": totals.Services, "changed": totals.Changed, "held": totals.Held}[f.Only]
	if total > 0 {
		rows, err = s.Records.RunServices(v.ctx(), id, f, page)
	}
	return totals, rows, total, err
}

// runServicesEmpty says why no service is listed: because of the filter, or of
// the run.
func runServicesEmpty(r rlc.Run, f rlc.RunFilter, totals rlc.RunTotals) *ui.Empty {
	all := ui.Link{Text: "Show all", URL: runURL(r.ID)}
	switch {
	case f.Query != "" && totals.Services == 0 && r.Total > 0 && r.Repeats() == "":
		return &ui.Empty{Title: "No service of this run fits the filter", Reason: "The name must contain the text. A service whose policy could not be read has no line: the verdict names it.", Query: "q=" + f.Query, Fix: all}
	case f.Only == "changed" && totals.Services > 0:
		return &ui.Empty{Title: "No service changed", Reason: "No quota should move by more than its deadband, or it is held.", Query: "only=changed", Fix: all}
	case f.Only == "held" && totals.Services > 0:
		return &ui.Empty{Title: "No service has a quota that is held", Reason: "Every quota was decided.", Query: "only=held", Fix: all}
	}
	return runEmpty(r)
}

// runServiceResult is what a run came to for one service: degraded where one of
// its quotas is held by a failed or partial read, refused where the fleet
// breaker holds it, else ok, as the results of runs are.
func runServiceResult(x rlc.RunService) rlc.Result {
	result := rlc.ResultOK
	for _, b := range x.Because {
		switch {
		case b.Rule == "fleet_breaker":
			return rlc.ResultRefused
		case b.Failed:
			result = rlc.ResultDegraded
		}
	}
	return result
}

// because is why quotas are held, in words.
func because(b rlc.HeldFor) string {
	if b.Why != "" {
		return b.Why
	}
	return capital(strings.ReplaceAll(b.Rule, "_", " "))
}

func runServiceRow(r rlc.Run, x rlc.RunService) ui.RunService {
	quotas := runURL(r.ID) + "?service=" + query(x.Service)
	result := runServiceResult(x)
	row := ui.RunService{
		Service: ui.Link{Text: x.Service, URL: serviceURL(x.Service)}, Quotas: ui.Link{Text: count(float64(x.Quotas)), URL: quotas},
		Changed: ui.Link{Text: "0"}, Held: count(float64(x.Held)), Sign: ui.Sign{Level: runLevel(result), After: string(result)}, Proposal: ui.Link{Text: "—"},
	}
	if x.Changed > 0 {
		row.Changed = ui.Link{Text: count(float64(x.Changed)), URL: quotas + "&show=changed"}
		row.Proposal = ui.Link{Text: "put up before", URL: "/proposals?service=" + query(x.Service)}
	}
	if x.Proposal != "" {
		row.Proposal, row.Chip = ui.Link{Text: "proposal", URL: proposalURL(x.Proposal)}, stateChip(x.State)
	}
	for i, b := range x.Because {
		if i == mostBecause {
			row.Because = append(row.Because, ui.Link{Text: plural(len(x.Because)-i, "more reason", "more reasons"), URL: quotas + "&show=held"})
			break
		}
		text := because(b)
		if x.Held > 1 {
			text = count(float64(b.Quotas)) + " × " + text
		}
		row.Because = append(row.Because, ui.Link{Text: text, URL: quotas + "&show=held"})
	}
	return row
}

// --- its sheets

func runServiceJSON(x rlc.RunService) object {
	held := []object{}
	for _, b := range x.Because {
		held = append(held, object{"rule": b.Rule, "why": b.Why, "failed": b.Failed, "quotas": b.Quotas})
	}
	return object{
		"service": x.Service, "quotas": x.Quotas, "changed": x.Changed, "held": x.Held, "result": runServiceResult(x), "because": held,
		"proposal": orNull(x.Proposal), "proposal_state": orNull(string(x.State)),
	}
}

// askedServices reads the run of the address, what of its services is asked for, and
// those.
func (s *server) askedServices(v *visit) (id string, page rlc.Page, totals rlc.RunTotals, rows []rlc.RunService, total int, err error) {
	id = v.r.PathValue("id")
	f, err := runServiceFilter(v)
	if err != nil {
		return id, page, totals, nil, 0, err
	}
	if page, err = v.page(); err != nil {
		return id, page, totals, nil, 0, err
	}
	if _, err = s.Records.RunByID(v.ctx(), id); err != nil {
		return id, page, totals, nil, 0, err
	}
	totals, rows, total, err = s.runServicesOf(v, id, f, page)
	return id, page, totals, rows, total, err
}

// apiRunServices is GET /api/v1/runs/{id}/services, and /runs/{id}/services.json.
func (s *server) apiRunServices(v *visit) error {
	id, page, totals, rows, total, err := s.askedServices(v)
	if err != nil {
		return err
	}
	out := make([]object, 0, len(rows))
	for _, x := range rows {
		out = append(out, runServiceJSON(x))
	}
	doc := paged("services", out, page, total)
	doc["run"], doc["totals"] = id, object{"services": totals.Services, "changed": totals.Changed, "held": totals.Held}
	return answer(v, http.StatusOK, doc)
}

func (s *server) runServicesCSV(v *visit) error {
	id, _, _, rows, _, err := s.askedServices(v)
	if err != nil {
		return err
	}
	var lines [][]string
	for _, x := range rows {
		var why []string
		for _, b := range x.Because {
			why = append(why, strconv.Itoa(b.Quotas)+" "+b.Rule+": "+b.Why)
		}
		lines = append(lines, []string{x.Service, strconv.Itoa(x.Quotas), strconv.Itoa(x.Changed), strconv.Itoa(x.Held), string(runServiceResult(x)), strings.Join(why, "; "), x.Proposal, string(x.State)})
	}
	return sheet(v, "run-"+id+"-services", []string{"service", "quotas", "changed", "held", "result", "because", "proposal", "proposal_state"}, lines)
}

// apiRun answers a run with a page of what it found: ?held=true narrows it, as
// ?show and ?service do.
func (s *server) apiRun(v *visit) error {
	r, err := s.Records.RunByID(v.ctx(), v.r.PathValue("id"))
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	_, f, err := runQuotaFilter(v)
	if err != nil {
		return err
	}
	held, err := v.flag("held")
	if err != nil {
		return err
	}
	if held {
		f.Only = "held"
	}
	return s.answerRun(v, r, f, page)
}

// answerRun answers a run with a page of what it found for its quotas.
func (s *server) answerRun(v *visit, r rlc.Run, f rlc.RunFilter, page rlc.Page) error {
	changes, total, err := s.Records.RunQuotas(v.ctx(), r.ID, f, page)
	if err != nil {
		return err
	}
	rows := make([]object, 0, len(changes))
	for i := range changes {
		rows = append(rows, changeJSON(&changes[i]))
	}
	out := paged("changes", rows, page, total)
	for k, value := range runJSON(r) {
		out[k] = value
	}
	return answer(v, http.StatusOK, out)
}
