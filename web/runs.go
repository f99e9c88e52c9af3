package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// runs is /runs.
func (s *server) runs(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	all, total, err := s.Records.Runs(v.ctx(), page)
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Runs", "runs")
	if err != nil {
		return err
	}
	view := ui.Runs{CanAct: v.who.role == actor, SignIn: "/login?next=%2Fruns", Pager: v.pager(page, len(all), total)}
	for _, r := range all {
		row := ui.RunRow{
			Link: ui.Link{Text: r.ID, URL: runURL(r.ID)}, At: v.time(r.Started), Trigger: triggerText(r), Scope: "all services", Took: "—",
			Total: count(float64(r.Total)), Held: count(float64(r.Held)), HeldSome: r.Held > 0, Changed: count(float64(r.Changed)),
			Sign: ui.Sign{Level: runLevel(r.Result), After: resultText(r)},
		}
		if r.Service != "" {
			row.Scope = r.Service
		}
		if !r.Finished.IsZero() {
			row.Took = span(r.Finished.Sub(r.Started))
		}
		view.Rows = append(view.Rows, row)
	}
	if len(all) == 0 {
		view.Verdict = []ui.Part{{Text: "No run yet."}}
		view.Empty = &ui.Empty{Title: "Nothing has run", Reason: "A run starts by the schedule, after a person's change of the config repository, or when somebody asks.", Fix: ui.Link{Text: "Sign in and press Run now."}}
	} else {
		view.Verdict = runsVerdict(all)
	}
	return s.render(v, http.StatusOK, ui.RunsPage(f, view))
}

func runsVerdict(all []rlc.Run) []ui.Part {
	bad := 0
	for _, r := range all {
		if r.Result == rlc.ResultFailed || r.Result == rlc.ResultRefused || r.Result == rlc.ResultDegraded {
			bad++
		}
	}
	last := all[0]
	say := []ui.Part{{Text: "The newest run "}}
	switch last.Result {
	case "":
		say = append(say, ui.Part{Text: "is under way."})
	case rlc.ResultOK:
		say = append(say, ui.Part{Text: "went well: "}, ui.Part{Text: count(float64(last.Changed)), Bold: true}, ui.Part{Text: " changed, "}, ui.Part{Text: count(float64(last.Held)), Bold: true}, ui.Part{Text: " held."})
	default:
		say = append(say, ui.Part{Text: "ended " + string(last.Result) + "."})
	}
	if bad > 0 && len(all) > 1 {
		say = append(say, ui.Part{Text: fmt.Sprintf(" %d of these %d had trouble.", bad, len(all))})
	}
	return say
}

func triggerText(r rlc.Run) string {
	switch r.Trigger {
	case rlc.ByCron:
		return "schedule"
	case rlc.ByConfig:
		return "config change"
	}
	if r.Actor != "" {
		return "asked by " + r.Actor
	}
	return "asked"
}

func resultText(r rlc.Run) string {
	if r.Result == "" {
		return "under way"
	}
	return string(r.Result)
}

// run is /runs/{id}, with its endings .json and .csv.
func (s *server) run(v *visit) error {
	id, ending := format(v.r.PathValue("id"), func(id string) bool {
		_, err := s.Records.RunByID(v.ctx(), id)
		return err == nil
	})
	r, err := s.Records.RunByID(v.ctx(), id)
	if err != nil {
		return err
	}
	if ending == ".json" {
		return answer(v, http.StatusOK, runJSON(r))
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	show := v.r.URL.Query().Get("show")
	if show != "" && show != "held" && show != "all" {
		return invalid("show must be held or all")
	}
	heldOnly := show == "held" || (show == "" && r.Held > 0 && ending == "")
	changes, total, err := s.Records.RunChanges(v.ctx(), id, heldOnly, page)
	if err != nil {
		return err
	}
	if ending == ".csv" {
		return sheet(v, "run-"+id, changeHeader, changeRows(changes))
	}
	f, err := s.frame(v, "Run "+id, "runs")
	if err != nil {
		return err
	}
	view := ui.Run{
		CanAct: v.who.role == actor, SignIn: "/login?next=" + query(runURL(id)), Again: runsURL(r.Service), Pager: v.pager(page, len(changes), total),
		Head: ui.Head{Margin: "Run", Title: v.timeAs(r.Now, "2 Jan 2006 15:04").Text + " " + zoneName(v.zone, r.Now), Facts: []ui.Link{{Text: triggerText(r)}, {Text: "id " + r.ID}}},
		Show: []ui.Choice{
			{Label: "held " + count(float64(r.Held)), URL: v.with("show", "held"), On: heldOnly},
			{Label: "all " + count(float64(r.Total)), URL: v.with("show", "all"), On: !heldOnly},
		},
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
		{Label: "Changed", Figure: count(float64(r.Changed)), From: "in its proposals"},
		{Label: "Took", Figure: took, From: tookFrom},
	}
	for _, c := range changes {
		view.Rows = append(view.Rows, runChange(c))
	}
	if len(changes) == 0 {
		view.Empty = &ui.Empty{Title: "Nothing to show", Reason: "No quota fits: the run has not stored its results yet, or they have been removed by age.", Fix: ui.Link{Text: "Show all", URL: v.with("show", "all")}}
		if heldOnly && r.Held == 0 {
			view.Empty = &ui.Empty{Title: "Nothing was held", Reason: "Every quota was decided.", Fix: ui.Link{Text: "Show all", URL: v.with("show", "all")}}
		}
	}
	return s.render(v, http.StatusOK, ui.RunPage(f, view))
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
	scope := "all services"
	if r.Service != "" {
		scope = r.Service
	}
	switch r.Result {
	case "":
		say = []ui.Part{{Text: "Under way, at stage " + string(r.Stage) + ": " + scope + "."}}
		more = "Load the page again to see how it ends."
	case rlc.ResultFailed:
		say = []ui.Part{{Text: "The run failed. Every quota stays as it is."}}
	case rlc.ResultRefused:
		say = []ui.Part{{Text: "The fleet breaker stopped the run. Nothing was published."}}
	default:
		say = []ui.Part{
			{Text: plural(r.Total, "quota", "quotas") + " of " + scope + ": "}, {Text: count(float64(r.Changed)) + " changed", Bold: true},
			{Text: ", " + count(float64(max(r.Total-r.Changed-r.Held, 0))) + " unchanged, "}, {Text: count(float64(r.Held)) + " held", Bold: true}, {Text: "."},
		}
		if r.Result == rlc.ResultDegraded {
			more = "At least one was held by a read that failed or was incomplete. "
		}
	}
	if r.Detail != "" {
		more += r.Detail
	}
	if r.Reused != "" {
		more += " It resumed the stored result of run " + r.Reused + "."
	}
	return say, more
}

func (s *server) runsCSV(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	all, _, err := s.Records.Runs(v.ctx(), page)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, r := range all {
		rows = append(rows, []string{r.ID, string(r.Trigger), r.Service, stamp(r.Now), stamp(r.Started), stamp(r.Finished), string(r.Result), strconv.Itoa(r.Total), strconv.Itoa(r.Held), strconv.Itoa(r.Changed), r.Actor, r.Detail})
	}
	return sheet(v, "runs", []string{"id", "trigger", "service", "now", "started_at", "finished_at", "result", "quotas", "held", "changed", "actor", "detail"}, rows)
}

// parseNow reads an RFC 3339 instant; "" is the zero time.
func parseNow(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, invalid("now must be an RFC 3339 time such as 2026-12-02T06:00:00Z")
	}
	return t.UTC(), nil
}
