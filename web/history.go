package web

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/web/ui"
)

// past is what the page History shows.
type past struct {
	page       rlc.Page
	revisions  []rollout.Revision // all of them
	compared   rollout.Comparison // zero where there is one revision only
	promotions []rollout.Promotion
	pins       []rollout.Pin
}

func (s *server) past(v *visit, name string) (p past, err error) {
	if p.page, err = v.page(); err != nil {
		return p, err
	}
	if p.revisions, err = s.Rollouts.Revisions(v.ctx(), name); err != nil {
		return p, err
	}
	if p.promotions, err = s.Rollouts.Promotions(v.ctx(), name); err != nil {
		return p, err
	}
	if p.pins, err = s.Rollouts.Pins(v.ctx(), name); err != nil {
		return p, err
	}
	from, to := v.r.URL.Query().Get("from"), v.r.URL.Query().Get("to")
	if len(p.revisions) > 1 || from+to != "" {
		p.compared, err = s.Rollouts.Compare(v.ctx(), name, from, to)
	}
	return p, err
}

// history is /services/{service}/history.
func (s *server) history(v *visit) error {
	name := v.r.PathValue("service")
	t, err := s.truth(v.ctx(), name)
	if err != nil {
		return err
	}
	p, err := s.past(v, name)
	if err != nil {
		return err
	}
	f, err := s.frame(v, name+" / history", "services")
	if err != nil {
		return err
	}
	rows := cut(p.revisions, p.page)
	at := serviceURL(name)
	view := ui.History{
		Head: s.tabbed(t, "history"), Pager: v.pager(p.page, len(rows), len(p.revisions)),
		Post: at + "/rollback", SignIn: !v.may(),
	}
	sheets := func(table string) ui.Pager {
		return ui.Pager{CSV: withTable(v.as(".csv"), table), JSON: v.as(".json")}
	}
	view.PromotionSheets, view.PinSheets, view.DiffSheets = sheets("promotions"), sheets("pins"), sheets("differences")
	for i, r := range rows {
		view.Rows = append(view.Rows, ui.RevisionRow{
			At: v.time(r.At), Hash: shortHash(r.Hash), By: by(r), Subject: r.Subject, Full: r.Hash,
			From: r.Hash == p.compared.Before.Hash, To: r.Hash == p.compared.After.Hash, Newest: i == 0 && p.page.Offset() == 0,
			Back: v.with("from", p.revisions[0].Hash, "to", r.Hash) + "#diff",
		})
	}
	if len(p.revisions) > 0 && p.compared.Before.Hash == p.revisions[0].Hash && p.compared.After.Hash != p.revisions[0].Hash {
		view.Back, view.BackHash = p.compared.After.Hash, shortHash(p.compared.After.Hash)
	}
	view.BeforeAt, view.AfterAt = v.time(p.compared.Before.At), v.time(p.compared.After.At)
	view.BeforeBy, view.AfterBy = by(p.compared.Before), by(p.compared.After)
	view.Before, view.After = shortHash(p.compared.Before.Hash), shortHash(p.compared.After.Hash)
	for _, d := range p.compared.Differences {
		view.Diff = append(view.Diff, differenceRow(d))
	}
	view.Policy = policyDiff(p.compared.Policy)
	for _, one := range p.promotions[:min(len(p.promotions), 10)] {
		row := promotionRow(v, at, one)
		if t.service == nil || t.service.Bucket(one.Bucket) == nil {
			row.Bucket.URL, row.Growing = "", false // it is no longer in the policy
		}
		view.Promotions = append(view.Promotions, row)
	}
	for _, pin := range p.pins {
		view.Pins = append(view.Pins, ui.PinRow{Quota: pin.Quota, Limit: limitText(&pin.Limit), By: pin.Actor, Reason: pin.Reason, At: v.time(pin.At), Post: at + "/pins/" + pin.ID + "/lift"})
	}
	view.Shadow = checklists(t)
	return s.render(v, http.StatusOK, ui.HistoryPage(f, view))
}

func by(r rollout.Revision) string { return cmp.Or(r.Actor, r.Author) }

func shortHash(hash string) string { return hash[:min(len(hash), 10)] }

func differenceRow(d rollout.Difference) ui.DifferenceRow {
	row := ui.DifferenceRow{Quota: d.Quota, Old: "—", New: "—"}
	if d.What == "mode" {
		row.Old, row.New = cmp.Or(d.OldMode, "—"), cmp.Or(d.NewMode, "—")
		return row
	}
	if d.What == "written" {
		row.Quota += ", written by hand"
	}
	if d.Old != nil {
		row.Old = strings.TrimSpace(limitBurst(d.Old) + " " + d.OldMode)
	}
	if d.New != nil {
		row.New = strings.TrimSpace(limitBurst(d.New) + " " + d.NewMode)
	}
	row.Old, row.New = beside(row.Old, d.Old, d.OldText), beside(row.New, d.New, d.NewText)
	if d.Old != nil && d.New != nil && d.Old.Rate > 0 {
		row.Delta = signed(float64(d.New.Rate-d.Old.Rate) / float64(d.Old.Rate))
	}
	return row
}

// beside puts what holds at other times, or in place of a limit, to a limit.
func beside(limit string, l *rlc.Limit, text string) string {
	switch {
	case text == "":
		return limit
	case l == nil:
		return text
	}
	return limit + "; " + text
}

// limitBurst is a rate and its burst: two that are compared may differ in it
// alone.
func limitBurst(l *rlc.Limit) string { return limitText(l) + ", burst " + count(float64(l.Burst)) }

// policyDiff shows which lines of policy.yaml differ, as git would, at most 400.
func policyDiff(all []rollout.Line) (out []ui.DiffLine) {
	const most = 400
	kinds := map[string]string{"-": "del", "+": "ins", "@": "i"}
	for i, l := range all {
		if i == most {
			return append(out, ui.DiffLine{Kind: "i", Text: "   … " + count(float64(len(all)-most)) + " more lines"})
		}
		text := l.Kind + l.Text
		if l.Kind == "@" {
			text = "   …"
		}
		out = append(out, ui.DiffLine{Kind: kinds[l.Kind], Text: text})
	}
	return out
}

func promotionRow(v *visit, at string, p rollout.Promotion) ui.PromotionRow {
	row := ui.PromotionRow{Bucket: ui.Link{Text: p.Bucket, URL: at + "/buckets/" + segment(p.Bucket)}, By: p.Actor, At: v.time(p.Started), Why: p.Why, Level: "note", Post: at + "/buckets/" + segment(p.Bucket) + "/demote"}
	zones := p.Zones()
	row.Zones = "everywhere"
	if zones != nil {
		row.Zones = strings.Join(zones, ", ")
	}
	switch p.State {
	case rollout.Growing:
		row.State, row.Growing = "growing", true
	case rollout.Halted:
		row.State, row.Level = "halted", "warn"
	case rollout.RolledBack:
		row.State, row.Level, row.Zones = "rolled back", "bad", "nowhere"
	case rollout.Done:
		row.State, row.Level = "done", "good"
	}
	return row
}

func (s *server) apiHistory(v *visit) error {
	name := v.r.PathValue("service")
	p, err := s.past(v, name)
	if err != nil {
		return err
	}
	rows := cut(p.revisions, p.page)
	if rows == nil {
		rows = []rollout.Revision{}
	}
	if p.pins == nil {
		p.pins = []rollout.Pin{}
	}
	promotions := []object{}
	for _, one := range p.promotions {
		promotions = append(promotions, promotionJSON(one))
	}
	doc := paged("revisions", rows, p.page, len(p.revisions))
	doc["diff"] = object{"from": p.compared.Before.Hash, "to": p.compared.After.Hash, "differences": list(p.compared.Differences), "policy": list(p.compared.Policy)}
	doc["promotions"], doc["pins"] = promotions, p.pins
	return answer(v, http.StatusOK, doc)
}

// historyCSV is /services/{service}/history.csv: the revisions, or with ?table= one
// of the page's other tables, whole.
func (s *server) historyCSV(v *visit) error {
	name := v.r.PathValue("service")
	p, err := s.past(v, name)
	if err != nil {
		return err
	}
	var rows [][]string
	switch v.r.URL.Query().Get("table") {
	case "":
	case "promotions":
		for _, one := range p.promotions {
			rows = append(rows, []string{one.ID, one.Bucket, string(one.State), strings.Join(one.Plan, " "), strconv.FormatBool(one.All), promotionRow(v, "", one).Zones, one.Actor, stamp(one.Started), stamp(one.Ended), one.Why})
		}
		return sheet(v, name+"-promotions", []string{"id", "bucket", "state", "plan", "all", "enforced", "actor", "started_at", "ended_at", "why"}, rows)
	case "pins":
		for _, pin := range p.pins {
			rows = append(rows, []string{pin.ID, pin.Quota, float(float64(pin.Limit.Rate)), strconv.FormatInt(int64(pin.Limit.Burst), 10), pin.Actor, stamp(pin.At), pin.Reason})
		}
		return sheet(v, name+"-pins", []string{"id", "quota", "rate", "burst", "actor", "at", "reason"}, rows)
	case "differences":
		for _, d := range p.compared.Differences {
			row := differenceRow(d)
			rows = append(rows, []string{d.Quota, d.What, row.Old, row.New, p.compared.Before.Hash, p.compared.After.Hash})
		}
		return sheet(v, name+"-differences", []string{"quota", "what", "old", "new", "from", "to"}, rows)
	default:
		return invalid("table must be promotions, pins or differences, or be left out for the revisions")
	}
	for _, r := range cut(p.revisions, p.page) {
		rows = append(rows, []string{r.Hash, stamp(r.At), r.Author, r.Actor, r.Subject, r.Run})
	}
	return sheet(v, name+"-history", []string{"commit", "at", "author", "actor", "subject", "run"}, rows)
}

// rollbackPage is where the page shows what a rollback would change, with its form.
func (s *server) rollbackPage(v *visit) string {
	at := page("/services/{service}/history")(v)
	if all, err := s.Rollouts.Revisions(v.ctx(), v.r.PathValue("service")); err == nil && len(all) > 0 {
		at += "?from=" + query(all[0].Hash) + "&to=" + query(v.r.PostForm.Get("to"))
	}
	return at
}

func (s *server) formRollback(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	reason, err := reasonOf(v.r.PostFormValue("reason"), rollbackNeeds)
	if err != nil {
		return err
	}
	name := v.r.PathValue("service")
	if _, err := s.Rollouts.Rollback(v.ctx(), name, v.r.PostFormValue("to"), v.who.name, reason); err != nil {
		return err
	}
	return v.back(serviceURL(name)+"/history", "rollback")
}

func (s *server) apiRollback(v *visit) error {
	var in struct {
		To     string `json:"to"`
		Reason string `json:"reason"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	reason, err := reasonOf(in.Reason, rollbackNeeds)
	if err != nil {
		return err
	}
	commit, err := s.Rollouts.Rollback(v.ctx(), v.r.PathValue("service"), in.To, v.who.name, reason)
	if err != nil {
		return err
	}
	return answer(v, http.StatusOK, object{"commit": commit.Hash, "snapshot": commit.Version.String()})
}

func (s *server) formLiftPin(v *visit) error {
	name := v.r.PathValue("service")
	if err := s.Rollouts.LiftPin(v.ctx(), name, v.r.PathValue("pin"), v.who.name); err != nil {
		return err
	}
	return v.back(serviceURL(name)+"/history", "lift")
}

func (s *server) apiLiftPin(v *visit) error {
	if err := s.Rollouts.LiftPin(v.ctx(), v.r.PathValue("service"), v.r.PathValue("pin"), v.who.name); err != nil {
		return err
	}
	v.w.WriteHeader(http.StatusNoContent)
	return nil
}
