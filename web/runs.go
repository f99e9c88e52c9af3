package web

import (
	"fmt"
	"net/http"
	"strconv"
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
		say = append(say, ui.Part{Text: ended(last.Result) + "."})
	}
	if bad > 0 && len(all) > 1 {
		say = append(say, ui.Part{Text: fmt.Sprintf(" %d of these %d had trouble.", bad, len(all))})
	}
	return say
}

// ended says how a run that did not go well ended.
func ended(r rlc.Result) string {
	switch r {
	case rlc.ResultRefused:
		return "was refused"
	case rlc.ResultFailed:
		return "failed"
	}
	return "ended " + string(r)
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
