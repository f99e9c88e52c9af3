package web

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/web/ui"
)

// explain fills the waterfall from the one explanation.
func explain(v *visit, t *truth, r *row, view *ui.Bucket) {
	view.WhyTitle = "Why this number"
	c := r.change
	if c == nil {
		view.WhyEmpty = &ui.Empty{Title: "No run has computed it", Reason: "The steps from samples to the number appear after the first run.", Fix: ui.Link{Text: "Runs", URL: "/runs"}}
		if r.bucket != nil && r.bucket.Limit != nil {
			view.WhyEmpty = &ui.Empty{Title: "A person wrote it", Reason: "The policy gives this bucket a limit of its own, so nothing is computed.", Query: policyPlace(t.name, r.bucket.Line)}
		}
		return
	}
	view.WhyRun = ui.Link{Text: "run of " + v.time(c.At).Text, URL: runURL(c.RunID)}
	view.Policy = "Policy " + c.Policy + "; " + trim(c.ValidDays, 1) + " valid days."
	if c.New != nil {
		view.WhyTitle = "Why " + limitText(c.New)
	}
	x := policies.Explain(*c)
	view.Outcome = capital(x.Verdict)
	standing := r.standing()
	if standing != "" {
		view.WhyTitle += " " + map[string]string{"proposed": "is proposed", "computed": "was computed"}[standing]
		if l := r.force(); l != nil { // the steps lead to another number
			view.Outcome += ". In force is " + timedText(l, r.forceTimed()) + ": " + cmp.Or(r.why, "no reason is written beside it")
		}
	}
	top := 0.0
	for _, l := range x.Lines {
		top = max(top, float64(l.Rate))
	}
	if c.New != nil {
		top = max(top, float64(c.New.Rate))
	}
	if top == 0 {
		top = 1
	}
	before := 0.0
	for _, l := range x.Lines {
		now := float64(l.Rate)
		step := ui.Step{Label: capital(l.Label), Detail: l.Detail, Rate: rate(now), Sign: "good"}
		switch {
		case now == 0:
			step.Sign = "note"
		case before == 0:
			step.Bar, step.X, step.W = "base", "0", coord(now/top*100)
		case now > before:
			step.Bar, step.X, step.W = "up", coord(before/top*100), coord((now-before)/top*100)
		case now < before:
			step.Bar, step.X, step.W = "down", coord(now/top*100), coord((before-now)/top*100)
		case l.Acted || l.Asks:
			step.Sign = "warn"
		}
		if now > 0 {
			before = now
		}
		view.Steps = append(view.Steps, step)
	}
	if c.New != nil {
		label := capital(strings.TrimSpace(standing + " limit"))
		view.Steps = append(view.Steps, ui.Step{Label: label, Detail: byHour(c.NewTimed, "burst "+count(float64(c.New.Burst))), Rate: limitText(c.New), Bar: "end", X: "0", W: coord(float64(c.New.Rate) / top * 100)})
	}
}

// standing says what has become of the number that the steps lead to: "" where
// it is in force, "proposed" where a review holds it, and "computed" where
// another number is in force or none, and no review would change that.
func (r *row) standing() string {
	c := r.change
	is := func(l *rlc.Limit, t rlc.Timed) bool { return l != nil && *l == *c.New && t.Equal(c.NewTimed) }
	switch {
	case c == nil || c.New == nil || is(r.force(), r.forceTimed()):
		return ""
	case is(r.proposed, r.timed.proposed):
		return "proposed"
	}
	return "computed"
}

// readAt names the commit at which the run that computed a number read the
// policies; nothing where no run did.
func (s *server) readAt(v *visit, r *row, view *ui.Bucket) error {
	if r.change == nil {
		return nil
	}
	run, err := s.Records.RunByID(v.ctx(), r.change.RunID)
	switch {
	case errors.Is(err, rlc.ErrNotFound): // it is older than what is kept
		return nil
	case err != nil:
		return err
	case run.Commit != "":
		view.Policy += " Policies read at commit " + short(run.Commit) + "."
	}
	return nil
}

func flagRows(v *visit, r *row, verdicts []rlc.Verdict) []ui.FlagRow {
	if r.change == nil {
		return nil
	}
	var out []ui.FlagRow
	for _, f := range r.change.Flags {
		row := ui.FlagRow{
			From: v.time(f.From), Until: v.time(f.Until), FromRaw: f.From.UTC().Format(time.RFC3339), UntilRaw: f.Until.UTC().Format(time.RFC3339),
			Lasted: span(f.Until.Sub(f.From)), Rule: ruleText(f.Rule), Reason: f.Reason, Peak: rate(float64(f.Peak)), With: "—", Declared: f.Rule == "excluded",
		}
		if f.With > 0 {
			row.With = rate(float64(stat.RoundUp(f.With))) // as the limit would be
		}
		for _, w := range verdicts {
			if w.Bucket == r.plain() && w.Key.Equal(r.key) && w.Overlaps(f.From, f.Until) {
				row.Word = "left out"
				if w.Count {
					row.Word = "counts"
				}
				row.Word += ", says " + w.Actor + " on " + v.time(w.At).Text
			}
		}
		out = append(out, row)
	}
	return out
}

func ruleText(rule string) string {
	switch rule {
	case "spike":
		return "looks like an incident"
	case "unhealthy":
		return "the service was failing"
	case "enforced_drops":
		return "enforcement dropped requests"
	case "excluded":
		return "declared"
	}
	return strings.ReplaceAll(rule, "_", " ")
}

func episodeRows(v *visit, t *truth, r *row, view *ui.Bucket) {
	b, of, timed := r.inForce(), r.force(), r.forceTimed()
	if b == nil && r.change != nil && r.change.Backtest.New != nil {
		b, of, timed = r.change.Backtest.New, r.change.New, r.change.NewTimed
	}
	if b == nil {
		view.NoEpisode = &ui.Empty{Title: "Nothing has been replayed yet", Reason: "Episodes come from the backtest of a run that read history for this quota.", Fix: ui.Link{Text: "Runs", URL: "/runs"}}
		return
	}
	rates := timedText(of, timed)
	if timed.Hours == nil {
		rates += " req/s"
	}
	view.EpisodeOf = "What " + rates + " would have done to past traffic. Dropping steps less than ten minutes apart are one episode."
	if len(b.Episodes) == 0 {
		view.NoEpisode = &ui.Empty{Title: "No episodes", Reason: "Replayed over " + count(b.Requests) + " requests at steps of " + stepText(time.Duration(b.Step*float64(time.Second))) + ", the limit would have dropped none."}
	}
	const most = 20
	for i := len(b.Episodes) - 1; i >= 0 && len(view.Episodes) < most; i-- {
		view.Episodes = append(view.Episodes, episodeRow(v, t.name, b.Episodes[i], r.mode, r.name, r.key))
	}
	view.EpisodeFt = []string{fmt.Sprintf("%d of %d", len(view.Episodes), len(b.Episodes))}
	if b.AtLeast {
		view.EpisodeFt = append(view.EpisodeFt, "The limit lies below what is stored in detail, so drops are at least these.")
	}
	if b.Worst != nil {
		view.EpisodeFt = append(view.EpisodeFt, "Worst step: "+rate(float64(b.Worst.Rate))+" req/s on "+v.time(b.Worst.At).Text)
	}
	if t := policies.BurstText(b); t != "" {
		view.EpisodeFt = append(view.EpisodeFt, t)
	}
}

func episodeRow(v *visit, service string, e rlc.Episode, mode rlc.Mode, bucket string, key rlc.Key) ui.EpisodeRow {
	row := ui.EpisodeRow{
		From: v.timeAs(e.From, "Mon 2 Jan 15:04"), Lasted: span(e.Until.Sub(e.From)), Quota: ui.Link{Text: quotaName(bucket, key), URL: bucketURL(service, bucket, key)},
		Chip: ui.Chip{Mode: "shadow", Text: "would drop"}, Peak: rate(float64(e.Peak)) + " / " + rate(float64(e.Limit)),
		Gauge: gauge(float64(e.Peak), float64(e.Limit), mode == rlc.Enforce), Drops: digits(e.Drops), Share: percent(float64(e.Share)),
	}
	if mode == rlc.Enforce {
		row.Chip, row.Real = ui.Chip{Mode: "enforce", Text: "drops"}, true
	}
	return row
}

// overriddenShown bounds the overrides that a quota's page lists: the newest.
const overriddenShown = 10

// overriddenGrid lists the overrides that touched a quota, the newest first.
func (s *server) overriddenGrid(v *visit, log []rlc.Override) ui.Grid {
	g := ui.Grid{Caption: "Overrides that touched this quota, the newest first", Columns: []ui.Column{{Label: "Began"}, {Label: "Whom"}, {Label: "What", Class: "num"}, {Label: "Stood", Class: "num"}, {Label: "By"}, {Label: "Reason", Class: "wide"}}}
	for _, o := range log[:min(len(log), overriddenShown)] {
		r := s.overrideRow(v, o)
		g.Rows = append(g.Rows, []ui.Cell{{At: r.From}, {Text: r.Subject}, {Text: r.Does}, {Text: r.Held}, {Text: r.By}, {Text: s.reasonFor(v, o)}})
	}
	return g
}

// historyRow is one change of a quota; answer is the proposal that put it up,
// nil where it is older than those that were read.
func historyRow(v *visit, c rlc.Change, answer *rlc.Proposal) ui.HistoryRow {
	row := ui.HistoryRow{At: v.time(c.At), Old: limitText(c.Old), Run: ui.Link{Text: "run", URL: runURL(c.RunID)}, Why: c.Why, Chip: ui.Chip{Mode: "none", Text: "unchanged"}}
	switch {
	case c.Held != "":
		row.Chip, row.Why = ui.Chip{Mode: "held", Text: "held"}, c.HeldWhy
	case c.Moves():
		row.New, row.Chip = limitText(c.New), ui.Chip{Mode: "new", Text: "proposed"}
		if answer == nil {
			break
		}
		row.Proposal = ui.Link{Text: "proposal", URL: proposalURL(answer.ID)}
		switch answer.State {
		case rlc.Accepted, rlc.Rejected:
			row.Chip, row.By = stateChip(answer.State), "by "+orNobody(answer.Actor)
			if answer.Reason != "" {
				row.Why = clip(answer.Reason, 200) + " · " + row.Why
			}
		case rlc.Superseded:
			row.Chip = stateChip(answer.State)
		}
	}
	return row
}
