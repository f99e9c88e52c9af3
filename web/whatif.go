package web

import (
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/web/ui"
)

// The curve that every what-if shows: headrooms from 0 to 60 % in 30 steps.
var curveAt = backtest.Headrooms(0.6, 30)

// whatIfWindows are the windows that a form offers.
var whatIfWindows = []string{"7d", "14d", "28d"}

// asked is a what-if as an address holds it. Without a stat it stands for what
// the policy does: its headroom, and without the windows it left out.
type asked struct {
	backtest.Choice
	windowText string
}

// choiceOf reads stat, window, headroom, floor, burst and exclude from a query.
// fall is what stands where a parameter is missing. An empty exclude leaves
// nothing out.
func choiceOf(q url.Values, fall backtest.Choice) (asked, error) {
	a := asked{Choice: fall, windowText: "28d"}
	if s := q.Get("stat"); s != "" {
		a.Stat = s
	}
	if w := q.Get("window"); w != "" {
		n, ok := positive(strings.TrimSuffix(w, "d"))
		if !ok || !strings.HasSuffix(w, "d") || n > 400 {
			return a, invalid("window must be a number of days such as 14d, at most 400d")
		}
		a.windowText, a.Window = w, time.Duration(n)*day
	}
	for name, into := range map[string]*float64{"headroom": &a.Headroom, "floor": (*float64)(&a.Floor), "burst": &a.Seconds} {
		if text := q.Get(name); text != "" {
			f, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return a, invalid("%s must be a number", name)
			}
			*into = f
		}
	}
	if q.Has("stat") || q.Has("exclude") { // a form has a stat: nothing ticked leaves nothing out
		a.Exclude = nil
		for _, text := range q["exclude"] {
			if text == "" {
				continue
			}
			w, err := windowOf(text)
			if err != nil {
				return a, err
			}
			a.Exclude = append(a.Exclude, w)
		}
	}
	if len(a.Exclude) > 100 {
		return a, invalid("at most 100 windows may be left out")
	}
	return a, a.Valid()
}

// windowOf reads from/until, two RFC 3339 times.
func windowOf(text string) (rlc.Window, error) {
	from, until, _ := strings.Cut(text, "/")
	a, err1 := time.Parse(time.RFC3339, from)
	b, err2 := time.Parse(time.RFC3339, until)
	if err1 != nil || err2 != nil || !a.Before(b) {
		return rlc.Window{}, invalid("exclude must be from/until, two RFC 3339 times")
	}
	return rlc.Window{From: a, Until: b}, nil
}

// defaultHeadroom is what policies add where the configuration is silent and
// the evidence is not fine.
const defaultHeadroom = 0.3

// policyChoice is the choice that comes nearest to what a bucket's policy does:
// predictive stands for 99 % of the steps, every other one for the highest that
// counts.
func policyChoice(r *row) backtest.Choice {
	c := backtest.Choice{Stat: backtest.StatMax, Headroom: defaultHeadroom, Floor: 1, Seconds: 2}
	if r.bucket != nil && r.bucket.Policy != nil {
		if r.bucket.Policy.Kind == "predictive" {
			c.Stat = backtest.StatP99
		}
		if h, ok := r.bucket.Policy.Params["headroom"].(float64); ok && h >= 0 && h <= 10 {
			c.Headroom = h
		}
	}
	if r.change != nil {
		for _, f := range r.change.Flags {
			c.Exclude = append(c.Exclude, f.Window)
		}
	}
	return c
}

// whatIfOf is what a choice would have done to one history.
func whatIfOf(h rlc.History, a asked) (limit rlc.Limit, atMost bool, b rlc.Backtest, points []backtest.Point, ok bool) {
	value, atMost, ok := backtest.Statistic(h, a.Choice)
	if !ok {
		return limit, false, b, nil, false
	}
	limit = a.Limit(value)
	return limit, atMost, backtest.FromHistory(h, limit), backtest.Curve(h, a.Choice, curveAt), true
}

// whatIf fills the what-if of a quota's page.
func whatIf(v *visit, t *truth, r *row, h rlc.History) (*ui.WhatIf, error) {
	a, err := choiceOf(v.r.URL.Query(), policyChoice(r))
	if err != nil {
		return nil, err
	}
	view := whatIfForm(a)
	if len(r.key) > 0 {
		view.Hidden = []ui.Field{{Name: "key", Value: r.key.String()}}
	}
	for _, name := range []string{"from", "to"} { // the chart's window stays
		if text := v.r.URL.Query().Get(name); text != "" {
			view.Hidden = append(view.Hidden, ui.Field{Name: name, Value: text})
		}
	}
	view.Exclude = picks(v, r, a)
	view.Live, view.Sheets = whatIfURLs(v, r)
	limit, atMost, b, points, ok := whatIfOf(h, a)
	if !ok {
		view.Empty = &ui.Empty{Title: "Nothing is left to ask about", Reason: "No hour of the window has a sample that is not left out.", Fix: ui.Link{Text: "The policy's own choice", URL: v.r.URL.Path + "?key=" + query(r.key.String())}}
		return view, nil
	}
	view.Answer = answerParts(v, limit, atMost, &b)
	now, err := today(r, h, limit)
	if err != nil {
		return nil, err
	}
	view.Answer = append(view.Answer, now...)
	view.Notes = []string{"Replayed over " + trim(float64(len(h.Hours))/24, 1) + " days of stored history. What is left out is left out of the statistic; the replay counts everything."}
	view.Notes = append(view.Notes, bursts(&b, h, a, limit)...)
	view.Take = takeUp(t, r, limit)
	view.Curve = frontier(points, a.Headroom, b.Share, false)
	view.Others, view.OthersCSV = others(v, oneChanged(h, a, points)), withTable(view.Sheets.CSV, "choices")
	return view, nil
}

// takeUp says how an asked limit gets in force: by the review that is open for its
// quota, or else by an edit of the policy.
func takeUp(t *truth, r *row, limit rlc.Limit) []ui.Part {
	number := rate(float64(limit.Rate))
	for _, p := range t.open {
		for i := range p.Changes {
			if c := &p.Changes[i]; r.is(c) && amendable(c) {
				at := proposalURL(p.ID) + "?" + url.Values{"edit": {c.ID()}, "rate": {float(float64(limit.Rate))}, "burst": {float(float64(limit.Burst))}}.Encode() + "#edit"
				return []ui.Part{{Text: "To put it in force, "}, {Text: "take " + number + " into the review", URL: at}, {Text: " that is open."}}
			}
		}
	}
	policy := serviceURL(t.name) + "/policy"
	if len(r.key) == 0 {
		return []ui.Part{{Text: "To put it in force, write limit: {rate: " + float(float64(limit.Rate)) + ", burst: " + float(float64(limit.Burst)) + "} into bucket " + r.plain() + " of "}, {Text: "the policy", URL: policy}, {Text: "."}}
	}
	return []ui.Part{{Text: "To put it in force, change what computes it, such as headroom, in "}, {Text: "the policy", URL: policy}, {Text: "; a run puts up what follows from that."}}
}

func whatIfForm(a asked) *ui.WhatIf {
	view := &ui.WhatIf{
		Floor: float(float64(a.Floor)), Headroom: float(a.Headroom), HeadroomText: percent(a.Headroom),
		Burst: float(a.Seconds), BurstText: trim(a.Seconds, 1), HeadroomMax: "0.6",
	}
	if a.Headroom > 0.6 {
		view.HeadroomMax = float(math.Ceil(a.Headroom))
	}
	for _, s := range backtest.Stats() {
		view.Stats = append(view.Stats, ui.Choice{Value: s, Label: statText(s), On: s == a.Stat})
	}
	listed := false
	for _, w := range whatIfWindows {
		view.Windows = append(view.Windows, ui.Choice{Value: w, Label: strings.TrimSuffix(w, "d") + " days", On: w == a.windowText})
		listed = listed || w == a.windowText
	}
	if !listed {
		view.Windows = append(view.Windows, ui.Choice{Value: a.windowText, Label: strings.TrimSuffix(a.windowText, "d") + " days", On: true})
	}
	return view
}

func statText(s string) string {
	if s == backtest.StatMax {
		return "highest step"
	}
	return s + " of the steps"
}

// picks are the windows that may be left out: those that the last run flagged,
// and any other that the address names.
func picks(v *visit, r *row, a asked) []ui.Pick {
	var out []ui.Pick
	seen := map[string]bool{}
	add := func(w rlc.Window, why string) {
		value := w.From.UTC().Format(time.RFC3339) + "/" + w.Until.UTC().Format(time.RFC3339)
		if seen[value] || len(out) >= 20 {
			return
		}
		seen[value] = true
		on := false
		for _, x := range a.Exclude {
			on = on || x.From.Equal(w.From) && x.Until.Equal(w.Until)
		}
		out = append(out, ui.Pick{Value: value, Label: "leave out " + v.time(w.From).Text + " – " + v.timeAs(w.Until, "15:04").Text + why, On: on})
	}
	if r.change != nil {
		for _, f := range r.change.Flags {
			why := ruleText(f.Rule)
			if f.Reason != "" {
				why = clip(f.Reason, 60)
			}
			add(f.Window, ", "+why)
		}
	}
	for _, w := range a.Exclude {
		add(w, "")
	}
	return out
}

func answerParts(v *visit, limit rlc.Limit, atMost bool, b *rlc.Backtest) []ui.Part {
	parts := []ui.Part{{Text: "A limit of "}, {Text: limitText(&limit) + " req/s", Bold: true}}
	if atMost {
		parts[0].Text = "A limit of at most "
	}
	if b.Drops == 0 {
		return append(parts, ui.Part{Text: " would have dropped nothing of " + count(b.Requests) + " requests."})
	}
	parts = append(parts, ui.Part{Text: " would have dropped "}, ui.Part{Text: atLeast(b), Bold: true},
		ui.Part{Text: " of " + count(b.Requests) + " requests (" + percent(float64(b.Share)) + ") in "}, ui.Part{Text: plural(len(b.Episodes), "episode", "episodes"), Bold: true})
	if b.Worst != nil {
		parts = append(parts, ui.Part{Text: "; the worst step was "}, dated(v.time(b.Worst.At)), ui.Part{Text: " at " + rate(float64(b.Worst.Rate)) + " req/s"})
	}
	return append(parts, ui.Part{Text: "."})
}

// changed is a choice that differs in one thing, and what comes of it.
type changed struct {
	asked
	name     string // of what differs
	limit    rlc.Limit
	backtest rlc.Backtest
}

// oneChanged are choices that differ from a in one thing.
func oneChanged(h rlc.History, a asked, curve []backtest.Point) []changed {
	var out []changed
	add := func(name string, b asked) {
		if value, _, ok := backtest.Statistic(h, b.Choice); ok {
			limit := b.Limit(value)
			out = append(out, changed{b, name, limit, backtest.FromHistory(h, limit)})
		}
	}
	if len(a.Exclude) > 0 {
		b := a
		b.Exclude = nil
		add("Nothing left out", b)
	}
	for _, s := range backtest.Stats() {
		if s != a.Stat {
			b := a
			b.Stat = s
			add(capital(statText(s)), b)
		}
	}
	if a.Window == 0 || a.Window > 7*day {
		b := a
		b.Window, b.windowText = 7*day, "7d"
		add("The last 7 days only", b)
	}
	if i, ok := backtest.Knee(curve); ok && curve[i].Headroom != a.Headroom {
		b := a
		b.Headroom = curve[i].Headroom
		add("Headroom "+percent(b.Headroom)+", at the bend", b)
	}
	return out
}

// others are the same as a page shows them.
func others(v *visit, all []changed) []ui.OneChange {
	var out []ui.OneChange
	for i := range all {
		b := &all[i]
		q, _ := url.Parse(v.with("stat", b.Stat, "window", b.windowText, "headroom", float(b.Headroom), "floor", float(float64(b.Floor)), "burst", float(b.Seconds)))
		values := q.Query()
		values.Del("exclude")
		for _, w := range b.Exclude {
			values.Add("exclude", w.From.UTC().Format(time.RFC3339)+"/"+w.Until.UTC().Format(time.RFC3339))
		}
		q.RawQuery = values.Encode()
		out = append(out, ui.OneChange{Link: ui.Link{Text: b.name, URL: q.String() + "#what-if"}, Limit: limitText(&b.limit),
			Drops: bounded(b.backtest.Drops, b.backtest.AtLeast), Share: percent(float64(b.backtest.Share)), Episodes: digits(float64(len(b.backtest.Episodes)))})
	}
	return out
}

// changedJSON is the same for programs.
func changedJSON(all []changed) []object {
	out := []object{}
	for i := range all {
		b := &all[i]
		o := object{"changed": b.name, "stat": b.Stat, "window": b.windowText, "headroom": b.Headroom, "exclude": list(b.Exclude), "limit": b.limit}
		o["requests"], o["drops"], o["share"], o["at_least"], o["episodes"] = b.backtest.Requests, b.backtest.Drops, b.backtest.Share, b.backtest.AtLeast, len(b.backtest.Episodes)
		out = append(out, o)
	}
	return out
}

// changedCSV is the same as a sheet.
func changedCSV(v *visit, name string, all []changed) error {
	var rows [][]string
	for i := range all {
		b := &all[i]
		rows = append(rows, []string{b.name, b.Stat, b.windowText, float(b.Headroom), strconv.Itoa(len(b.Exclude)), float(float64(b.limit.Rate)), whole(b.backtest.Drops), float(float64(b.backtest.Share)), strconv.FormatBool(b.backtest.AtLeast), strconv.Itoa(len(b.backtest.Episodes))})
	}
	return sheet(v, name, []string{"changed", "stat", "window", "headroom", "left_out", "limit_rate", "drops", "share", "at_least", "episodes"}, rows)
}

// frontier draws headroom against the share dropped: 520 × 170 units.
func frontier(points []backtest.Point, at float64, share rlc.Ratio, sum bool) *ui.Frontier {
	if len(points) < 2 {
		return nil
	}
	most, last := 0.0, points[len(points)-1].Headroom
	for _, p := range points {
		most = max(most, float64(p.Share))
	}
	x := func(h float64) string { return coord(44 + min(h/last, 1)*468) }
	y := func(s float64) string { return coord(150 - s/max(most, 1e-12)*130) }
	f := &ui.Frontier{Label: "Share of requests dropped by headroom: " + percent(float64(points[0].Share)) + " without, " + percent(float64(points[len(points)-1].Share)) + " at " + percent(last)}
	if most == 0 { // a line along the foot shows less than a word
		f.Flat = "With any headroom from none to " + percent(last) + ", nothing would have been dropped."
	}
	for _, t := range axis(most) {
		f.Grid = append(f.Grid, ui.Tick{D: "M44 " + y(t.share) + "H520", Y: y(t.share), TextY: coord(150 - t.share/max(most, 1e-12)*130 + 4), Text: t.text})
	}
	for i := range 7 {
		h := last * float64(i) / 6
		f.Marks = append(f.Marks, ui.Tick{X: x(h), Text: percent(h)})
	}
	var line strings.Builder
	for i, p := range points {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		line.WriteString(letter + x(p.Headroom) + " " + y(float64(p.Share)))
		if i%3 == 0 {
			f.Rows = append(f.Rows, ui.FrontierRow{Headroom: percent(p.Headroom), Rate: rate(float64(p.Rate)), Drops: bounded(p.Drops, p.AtLeast), Share: percent(float64(p.Share))})
		}
	}
	f.Line, f.Area = line.String(), line.String()+"L"+x(last)+" 150L44 150Z"
	if at <= last {
		f.At = &ui.Tick{X: x(at), Y: y(float64(min(share, rlc.Ratio(most)))), D: "M" + x(at) + " " + y(float64(min(share, rlc.Ratio(most)))) + "V150", Text: percent(at) + " → " + percent(float64(share))}
	}
	if i, ok := backtest.Knee(points); ok {
		f.Knee = bendText(points, i)
		f.Bend = &ui.Tick{X: x(points[i].Headroom), Y: y(float64(points[i].Share))}
	}
	if sum {
		f.RateLabel = "Σ limits, req/s"
	} else {
		f.RateLabel = "Limit, req/s"
	}
	return f
}

// bendText says what headroom buys before and after the bend of a curve.
func bendText(points []backtest.Point, at int) string {
	first, bend, last := points[0], points[at], points[len(points)-1]
	text := "The bend lies at " + percent(bend.Headroom) + ", " + rate(float64(bend.Rate)) + " req/s: "
	after := (bend.Drops - last.Drops) / (last.Headroom - bend.Headroom)
	if after <= 0 {
		return text + "more headroom than that saves nothing."
	}
	return text + "up to there a percent of headroom saves " + trim((first.Drops-bend.Drops)/(bend.Headroom-first.Headroom)/after, 1) + " times what one beyond it does."
}

type shareTick struct {
	share float64
	text  string
}

// axis are round shares from 0 to most, in five steps or less, each with as many
// digits as tell it from the others.
func axis(most float64) []shareTick {
	if most <= 0 {
		return nil
	}
	step := nice(most / 5)
	digits := max(0, int(math.Ceil(-math.Log10(step*100)-1e-9)))
	var out []shareTick
	for i := range int(most/step+1e-9) + 1 {
		s := step * float64(i)
		out = append(out, shareTick{s, strconv.FormatFloat(s*100, 'f', digits, 64) + "\u00a0%"})
	}
	return out
}

// nothingLeft is a what-if whose windows leave no sample. It is never a drop of 0.
func nothingLeft() error {
	return fault{status: http.StatusNotFound, detail: "No hour of the window has a sample that is not left out."}
}

// whatIfJSON answers a choice as the API does.
func whatIfJSON(h rlc.History, a asked) (object, error) {
	limit, atMost, b, points, ok := whatIfOf(h, a)
	if !ok {
		return nil, nothingLeft()
	}
	out := backtestJSON(&b).(object)
	out["limit"], out["limit_at_most"], out["stat"], out["headroom"], out["frontier"] = limit, atMost, a.Stat, a.Headroom, points
	out["choices"] = changedJSON(oneChanged(h, a, points))
	out["burst_suggested"] = nil
	if burst, _, ok := a.Suggestion(h, limit.Rate); ok {
		out["burst_suggested"] = burst
	}
	return out, nil
}

// choiceIn is a choice as POST backtest takes it.
type choiceIn struct {
	Stat     string       `json:"stat"`
	Window   string       `json:"window"`
	Headroom *float64     `json:"headroom"`
	Floor    *float64     `json:"floor"`
	Seconds  *float64     `json:"burst_seconds"`
	Exclude  []rlc.Window `json:"exclude"`
}

// query is c as an address holds it.
func (c choiceIn) query() (url.Values, error) {
	q := url.Values{"stat": {c.Stat}}
	if c.Window != "" {
		q.Set("window", c.Window)
	}
	for name, v := range map[string]*float64{"headroom": c.Headroom, "floor": c.Floor, "burst": c.Seconds} {
		if v != nil {
			q.Set(name, float(*v))
		}
	}
	if c.Exclude != nil && len(c.Exclude) == 0 { // said, not forgotten: nothing is left out
		q.Set("exclude", "")
	}
	for _, w := range c.Exclude {
		if !w.From.Before(w.Until) {
			return nil, invalid("exclude: from must lie before until")
		}
		q.Add("exclude", w.From.UTC().Format(time.RFC3339)+"/"+w.Until.UTC().Format(time.RFC3339))
	}
	return q, nil
}

// apiWhatIf answers POST backtest where a stat is given in place of a rate.
func apiWhatIf(v *visit, h rlc.History, in choiceIn) error {
	q, err := in.query()
	if err != nil {
		return err
	}
	a, err := choiceOf(q, backtest.Choice{Seconds: 2})
	if err != nil {
		return err
	}
	out, err := whatIfJSON(h, a)
	if err != nil {
		return err
	}
	return answer(v, http.StatusOK, out)
}
