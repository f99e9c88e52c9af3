package web

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// mostHeldShown bounds the held quotas beside the services of a run.
const mostHeldShown = 10

// run is /runs/{id}, with its endings .json and .csv: its services and the first
// of what is held, or, where the address says show, its quotas.
func (s *server) run(v *visit) error {
	id, ending := format(v.r.PathValue("id"), func(id string) bool {
		_, err := s.Records.RunByID(v.ctx(), id)
		return err == nil
	})
	r, err := s.Records.RunByID(v.ctx(), id)
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	show, filter, err := runQuotaFilter(v)
	if err != nil {
		return err
	}
	switch ending {
	case ".json":
		return s.answerRun(v, r, filter, page)
	case ".csv":
		changes, _, err := s.Records.RunQuotas(v.ctx(), id, filter, page)
		if err != nil {
			return err
		}
		return sheet(v, "run-"+id, changeHeader, changeRows(changes))
	}
	f, err := s.frame(v, "Run "+id, "runs")
	if err != nil {
		return err
	}
	view := s.runView(v, r)
	if show == "" {
		if view.Services, err = s.runServices(v, r, page); err != nil {
			return err
		}
		if r.Held > 0 {
			view.Quotas, err = s.runHeld(v, r)
		}
	} else {
		view.Quotas, err = s.runQuotas(v, r, show, filter, page)
	}
	if err != nil {
		return err
	}
	return s.render(v, http.StatusOK, ui.RunPage(f, view))
}

// runView is what the page says of the run as a whole.
func (s *server) runView(v *visit, r rlc.Run) ui.Run {
	view := ui.Run{
		CanAct: v.who.role == actor, SignIn: "/login?next=" + query(runURL(r.ID)), Again: runsURL(r.Service),
		Head: ui.Head{Margin: "Run", Title: v.timeAs(r.Now, "2 Jan 2006 15:04").Text + " " + zoneName(v.zone, r.Now), Facts: []ui.Link{{Text: triggerText(r)}, {Text: "id " + r.ID}}},
	}
	if r.Commit != "" {
		view.Head.Facts = append(view.Head.Facts, ui.Link{Text: "policies at " + short(r.Commit)})
	}
	if r.Service != "" {
		view.Head.Facts = append(view.Head.Facts, ui.Link{Text: "only " + r.Service, URL: serviceURL(r.Service)})
	}
	view.Verdict, view.More = runVerdict(r)
	took, tookFrom := "—", "not over"
	if !r.Finished.IsZero() {
		took, tookFrom = span(r.Finished.Sub(r.Started)), "ended "+v.timeAs(r.Finished, "15:04:05").Text
	}
	view.Tiles = []ui.Tile{
		{Label: "Quotas looked at", Figure: count(float64(r.Total)), From: count(float64(r.Total-r.Held)) + " decided"},
		{Label: "Held", Figure: count(float64(r.Held)), From: "their quotas in force stand"},
		{Label: "Changed", Figure: count(float64(r.Changed)), From: "in proposals, its own or earlier ones"},
		{Label: "Took", Figure: took, From: tookFrom},
	}
	return view
}

// runQuotaFilter reads what of a run's quotas is asked for: show is held,
// changed, all, or "" where the address does not say.
func runQuotaFilter(v *visit) (show string, f rlc.RunFilter, err error) {
	q := v.r.URL.Query()
	show, f.Service = q.Get("show"), q.Get("service")
	switch show {
	case "", "all":
	case "held", "changed":
		f.Only = show
	default:
		return "", f, invalid("show must be held, changed or all")
	}
	if show == "" && f.Service != "" {
		show = "all"
	}
	return show, f, nil
}

// runHeld are the first of a run's held quotas.
func (s *server) runHeld(v *visit, r rlc.Run) (*ui.RunQuotas, error) {
	changes, total, err := s.Records.RunQuotas(v.ctx(), r.ID, rlc.RunFilter{Only: "held"}, rlc.Page{Size: mostHeldShown})
	if err != nil {
		return nil, err
	}
	all := runURL(r.ID) + "?show=held"
	out := &ui.RunQuotas{Title: "Held", About: "Held means: the quota in force stands, and here is why.", Pager: ui.Pager{
		Range: "1–" + count(float64(len(changes))) + " of " + count(float64(total)), CSV: runURL(r.ID) + ".csv?show=held", JSON: runURL(r.ID) + ".json?show=held"}}
	if total > len(changes) {
		out.More = ui.Link{Text: "All " + count(float64(total)) + " that are held", URL: all}
	}
	for _, c := range changes {
		out.Rows = append(out.Rows, runChange(c))
	}
	if len(changes) == 0 {
		out.Pager = ui.Pager{}
		out.Empty = &ui.Empty{Title: "What was held is not recorded any more", Reason: "The run's results have been removed by age; a newer run has judged the same quotas."}
	}
	return out, nil
}

// runQuotas is the table of a run's quotas.
func (s *server) runQuotas(v *visit, r rlc.Run, show string, f rlc.RunFilter, page rlc.Page) (*ui.RunQuotas, error) {
	changes, total, err := s.Records.RunQuotas(v.ctx(), r.ID, f, page)
	if err != nil {
		return nil, err
	}
	out := &ui.RunQuotas{
		Title: "Quotas", About: "Held means: the quota in force stands, and here is why.", Pager: v.pager(page, len(changes), total),
		Back: ui.Link{Text: "By service", URL: runURL(r.ID)}, Service: f.Service,
	}
	if f.Service != "" {
		out.Title = "Quotas of " + f.Service
	}
	for _, name := range []string{"held", "changed", "all"} {
		out.Show = append(out.Show, ui.Choice{Label: name, URL: v.with("show", name), On: name == show})
	}
	for _, c := range changes {
		out.Rows = append(out.Rows, runChange(c))
	}
	if len(changes) == 0 {
		out.Empty = s.runQuotasEmpty(v, r, show, f)
	}
	return out, nil
}

// runQuotasEmpty says why no quota is listed.
func (s *server) runQuotasEmpty(v *visit, r rlc.Run, show string, f rlc.RunFilter) *ui.Empty {
	of := ""
	if f.Service != "" {
		of = " of " + f.Service
	}
	all := ui.Link{Text: "Show all", URL: v.with("show", "all")}
	switch {
	case show == "held" && (r.Held == 0 || of != ""):
		return &ui.Empty{Title: "Nothing" + of + " was held", Reason: "Every quota" + of + " that the run looked at was decided.", Query: "show=held", Fix: all}
	case show == "changed" && (r.Changed == 0 || of != ""):
		return &ui.Empty{Title: "Nothing" + of + " changed", Reason: "No quota" + of + " should move by more than its deadband, or it is held.", Query: "show=changed", Fix: all}
	case of != "" && r.Total > 0:
		return &ui.Empty{Title: "The run has no result" + of, Reason: "It did not look at that service: its policy was not there, could not be read, or the run was for another one.", Query: "service=" + f.Service, Fix: ui.Link{Text: "By service", URL: runURL(r.ID)}}
	}
	return runEmpty(r)
}

// runEmpty says why a run has no results, and what to do.
func runEmpty(r rlc.Run) *ui.Empty {
	again := ui.Link{Text: "Runs", URL: "/runs"}
	if old := r.Repeats(); old != "" {
		return &ui.Empty{Title: "It would only have repeated another run", Reason: "That one had read the same commit, over the same services: its results stand for this one.", Fix: ui.Link{Text: "The run with the results", URL: runURL(old)}}
	}
	switch {
	case r.Stage == rlc.Claimed && r.Result == "":
		return &ui.Empty{Title: "No results yet", Reason: "The run reads history. It stores all of its results at once; this page loads them by itself."}
	case r.Result == rlc.ResultFailed:
		return &ui.Empty{Title: "No service has a result", Reason: "The run ended before it stored any, for the reason in the verdict. Every quota stays as it is.", Fix: ui.Link{Text: "State of the parts", URL: "/settings"}}
	case r.Total == 0:
		return &ui.Empty{Title: "There was nothing to look at", Reason: "No service had a policy with a quota to compute at the commit that the run read.", Query: "services/checkout/policy.yaml", Fix: ui.Link{Text: "Services", URL: "/services"}}
	}
	return &ui.Empty{Title: "The results are not recorded any more", Reason: "They have been removed by age. What a newer run found of the same quotas is kept.", Fix: again}
}

func runChange(c rlc.Change) ui.RunChange {
	row := ui.RunChange{
		Service: ui.Link{Text: c.Service, URL: serviceURL(c.Service)}, Quota: ui.Link{Text: quotaName(c.Bucket, c.Key), URL: bucketURL(c.Service, c.Bucket, c.Key)},
		Old: limitText(c.Old), New: limitText(c.New), Because: c.Why, Chip: ui.Chip{Mode: "none", Text: "unchanged"},
	}
	switch {
	case c.Held != "":
		row.Chip, row.Because, row.New = ui.Chip{Mode: "held", Text: "held"}, c.HeldWhy, "—"
		row.Level = "note"
		if c.Failed {
			row.Level = "warn"
		}
		if row.Because == "" {
			row.Because = capital(strings.ReplaceAll(c.Held, "_", " "))
		}
	case c.Moves():
		row.Chip = ui.Chip{Mode: "new", Text: "changed"}
	}
	return row
}

func runVerdict(r rlc.Run) (say []ui.Part, more string) {
	scope, todo := cmp.Or(r.Service, "all services"), ""
	switch r.Result {
	case "":
		say = []ui.Part{{Text: "Under way, at stage " + string(r.Stage) + ": " + scope + "."}}
		more = "Load the page again to see how it ends."
	case rlc.ResultFailed:
		say = []ui.Part{{Text: "The run failed. Every quota stays as it is."}}
		todo = "Enforcers go on with the numbers in force. Mend that and run again; the next run by the schedule tries, too."
	case rlc.ResultRefused:
		say = []ui.Part{{Text: "The fleet breaker stopped the run. Nothing was published."}}
		todo = "So much at once is missing history rather than traffic that went: see whether Prometheus scrapes every target, then run again. A run of one service is judged by that service alone."
	default:
		say = []ui.Part{
			{Text: plural(r.Total, "quota", "quotas") + " of " + scope + ": "}, {Text: count(float64(r.Changed)) + " changed", Bold: true},
			{Text: ", " + count(float64(max(r.Total-r.Changed-r.Held, 0))) + " unchanged, "}, {Text: count(float64(r.Held)) + " held", Bold: true}, {Text: "."},
		}
		if r.Result == rlc.ResultDegraded {
			more = "At least one was held by a read that failed or was incomplete. "
			todo = "What was held stays in force. The next run reads it again by itself; until then mend what is named here and below."
		}
	}
	if r.Detail != "" {
		more += r.Detail
	}
	if r.Reused != "" {
		more += " It resumed the stored result of run " + r.Reused + "."
	}
	return say, joined(more, todo)
}

// joined are sentences one after the other, each with its full stop.
func joined(all ...string) string {
	var out []string
	for _, text := range all {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if !strings.ContainsAny(text[len(text)-1:], ".!?:") {
			text += "."
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}
