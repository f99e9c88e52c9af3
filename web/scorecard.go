package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// scoreWindows are the windows of the scorecard, in days with today.
var scoreWindows = []int{1, 7, 28, 90}

// scorecard is what /scorecard shows, of the fleet or of one owner: each day,
// and the newest day with the window's counts in it.
type scorecard struct {
	days   int // of the window
	from   time.Time
	owner  string // "" for the fleet; unowned for services without one
	per    []rlc.Score
	sum    rlc.Score
	owners []rlc.Score // each with the window's counts
}

// unowned names the services without an owner in addresses.
const unowned = "unowned"

// gatherScores reads the days of the window that the address names.
func (s *server) gatherScores(v *visit) (c scorecard, err error) {
	q := v.r.URL.Query()
	c.days, c.owner = 7, q.Get("owner")
	if text := q.Get("days"); text != "" {
		n, _ := positive(text)
		if !slices.Contains(scoreWindows, n) {
			return c, invalid("days must be 1, 7, 28 or 90")
		}
		c.days = n
	}
	c.from = s.Now().UTC().Truncate(day).AddDate(0, 0, 1-c.days)
	all, err := s.Records.Scores(v.ctx(), c.from)
	if err != nil {
		return c, err
	}
	owners := map[string]rlc.Score{}
	last := map[string]time.Time{}
	for _, x := range all {
		name := cmp.Or(x.Owner, unowned)
		if x.Fleet && c.owner == "" || !x.Fleet && name == c.owner {
			c.per = append(c.per, x)
			c.sum = since(c.sum, x)
		}
		if !x.Fleet {
			owners[name], last[name] = since(owners[name], x), x.Day
		}
	}
	if len(c.per) == 0 && c.owner != "" && len(all) > 0 {
		return c, missing("owner", c.owner)
	}
	for name, x := range owners {
		if x.Owner = name; last[name].Equal(all[len(all)-1].Day) { // others own nothing any more
			c.owners = append(c.owners, x)
		}
	}
	return c, c.order(q.Get("sort"), q.Get("dir") == "desc")
}

// since is a day with the counts of the days before it added.
func since(before, day rlc.Score) rlc.Score {
	day.Counted += before.Counted
	day.Drops += before.Drops
	day.VirtualDrops += before.VirtualDrops
	day.Unmatched += before.Unmatched
	return day
}

// order sorts owners: without a word from the address the least share of
// traffic with a limit comes first, and what is unknown last.
func (c *scorecard) order(by string, desc bool) error {
	number := map[string]func(rlc.Score) float64{
		"":          func(x rlc.Score) float64 { return known(x.Limited, x.Requests) },
		"services":  func(x rlc.Score) float64 { return float64(x.Services) },
		"limited":   func(x rlc.Score) float64 { return known(x.Limited, x.Requests) },
		"fitting":   func(x rlc.Score) float64 { return known(float64(x.Fitting), float64(x.Known)) },
		"drops":     func(x rlc.Score) float64 { return x.Drops },
		"virtual":   func(x rlc.Score) float64 { return x.VirtualDrops },
		"unmatched": func(x rlc.Score) float64 { return known(x.Unmatched, x.Counted) },
		"open":      func(x rlc.Score) float64 { return float64(x.Open) },
		"oldest": func(x rlc.Score) float64 {
			if x.Oldest.IsZero() {
				return 1e300
			}
			return float64(x.Oldest.Unix())
		},
		"owner": func(rlc.Score) float64 { return 0 },
	}[by]
	if number == nil {
		return invalid("owners cannot be sorted by %q", by)
	}
	slices.SortFunc(c.owners, func(a, b rlc.Score) int {
		byName := strings.Compare(a.Owner, b.Owner)
		order := cmp.Or(cmpFloat(number(a), number(b)), map[bool]int{true: byName}[by == "owner"])
		if desc {
			order = -order
		}
		return cmp.Or(order, byName)
	})
	return nil
}

// known is a share to sort by; an unknown one is above all others.
func known(part, whole float64) float64 {
	if whole <= 0 {
		return 2
	}
	return part / whole
}

// shareText is a share, or a dash where its whole is nothing.
func shareText(part, whole float64) string {
	if whole <= 0 {
		return "—"
	}
	return percent(part / whole)
}

// scorecard is /scorecard.
func (s *server) scorecard(v *visit) error {
	c, err := s.gatherScores(v)
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Scorecard", "overview")
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	view := ui.Scorecard{
		Head:    ui.Head{Margin: "Of all services", Title: "Scorecard", Facts: []ui.Link{{Text: "days of UTC"}}},
		Owners:  ui.Grid{Caption: "Scores by owner", Columns: scoreColumns(v, q.Get("sort"), q.Get("dir") == "desc", "Owner")},
		ByDay:   ui.Grid{Caption: "Scores by day", Columns: scoreColumns(nil, "", false, "Day")},
		Pager:   v.pager(page, len(cut(c.owners, page)), len(c.owners)),
		DaysCSV: "/scorecard.csv?" + url.Values{"by": {"day"}, "days": {strconv.Itoa(c.days)}, "owner": {c.owner}}.Encode(),
	}
	if c.owner != "" {
		view.Head = ui.Head{Margin: "Of one owner", Parent: ui.Link{Text: "Scorecard", URL: "/scorecard"}, Title: c.owner, Facts: []ui.Link{{Text: "its services", URL: ownerURL(c.owner)}, {Text: "days of UTC"}}}
	}
	for _, n := range scoreWindows {
		view.Windows = append(view.Windows, ui.Choice{Label: map[int]string{1: "today"}[n] + map[bool]string{true: plural(n, "day", "days")}[n > 1], URL: v.with("days", strconv.Itoa(n)), On: n == c.days})
	}
	if len(c.per) == 0 {
		view.Empty = &ui.Empty{Title: "No score yet", Reason: "The leading replica computes one within seconds of the first run, then every five minutes, where the counters can be read. It keeps a hundred days.", Fix: ui.Link{Text: "Runs", URL: "/runs"}}
		return s.render(v, http.StatusOK, ui.ScorecardPage(f, view))
	}
	view.At, view.Verdict, view.Tiles = v.timeAs(c.sum.At, "15:04"), scoreVerdict(v, c), scoreTiles(v, c)
	window := url.Values{"days": {strconv.Itoa(c.days)}}
	if c.owner != "" {
		window.Set("owner", c.owner)
	}
	view.Multiples = multiples(v, c.sum, ui.Pager{CSV: "/scorecard.csv?by=multiple&" + window.Encode(), JSON: "/scorecard.json?" + window.Encode()})
	for _, x := range cut(c.owners, page) {
		url := v.with("owner", x.Owner)
		view.Owners.Rows = append(view.Owners.Rows, scoreRow(v, ui.Cell{Text: x.Owner, URL: url}, x))
	}
	for i := len(c.per) - 1; i >= 0; i-- {
		view.ByDay.Rows = append(view.ByDay.Rows, scoreRow(v, ui.Cell{Text: c.per[i].Day.Format("Mon 2 Jan")}, c.per[i]))
	}
	return s.render(v, http.StatusOK, ui.ScorecardPage(f, view))
}

// ownerURL lists an owner's services.
func ownerURL(owner string) string {
	if owner == unowned {
		return "/services?show=unowned"
	}
	return "/services?owner=" + query(owner)
}

// scoreColumns head owners, which can be sorted, or with a nil visit days.
func scoreColumns(v *visit, by string, desc bool, first string) []ui.Column {
	all := [][3]string{{first, "owner", ""}, {"Services", "services", "num"}, {"Traffic with a limit", "limited", "num"}, {"Limits 1.3–3× of the peak that counts", "fitting", "num"}, {"Dropped", "drops", "num"}, {"Would have dropped", "virtual", "num"}, {"In no bucket", "unmatched", "num"}, {"Open proposals", "open", "num"}, {"Oldest", "oldest", "num"}}
	if v != nil {
		return v.sorted(by, desc, all...)
	}
	out := make([]ui.Column, len(all))
	for i, c := range all {
		out[i] = ui.Column{Label: c[0], Class: c[2]}
	}
	return out
}

func scoreRow(v *visit, first ui.Cell, x rlc.Score) []ui.Cell {
	drops, virtual := ui.Cell{Text: "—"}, ui.Cell{Text: "—"}
	if x.Counted > 0 {
		drops.Text, virtual.Text = digits(x.Drops), digits(x.VirtualDrops)
	}
	if x.Drops >= 0.5 {
		drops.Kind = "bad"
	}
	if x.VirtualDrops >= 0.5 {
		virtual.Kind = "violet"
	}
	oldest := "—"
	if !x.Oldest.IsZero() {
		oldest = span(x.At.Sub(x.Oldest))
	}
	return []ui.Cell{first, {Text: count(float64(x.Services))}, {Text: shareText(x.Limited, x.Requests)}, {Text: shareText(float64(x.Fitting), float64(x.Known))}, drops, virtual, {Text: shareText(x.Unmatched, x.Counted)}, {Text: count(float64(x.Open))}, {Text: oldest}}
}

func scoreVerdict(v *visit, c scorecard) []ui.Part {
	x := c.sum
	var say []ui.Part
	add := func(p ...ui.Part) { say = append(say, p...) }
	switch {
	case x.Requests <= 0:
		add(ui.Part{Text: "No run has read traffic yet, so that nobody knows what share of it has a limit. "})
	default:
		add(ui.Part{Text: shareText(x.Limited, x.Requests), Bold: true}, ui.Part{Text: " of the traffic that policies read has a limit"})
		if x.Known > 0 {
			add(ui.Part{Text: "; "}, ui.Part{Text: shareText(float64(x.Fitting), float64(x.Known)), Bold: true}, ui.Part{Text: " of " + plural(x.Known, "limit", "limits") + " with a known peak that counts lie at 1.3 to 3 times of it"})
		}
		add(ui.Part{Text: ". "})
	}
	switch {
	case x.Counted <= 0:
		add(ui.Part{Text: "Enforcers have counted no request" + strings.TrimSuffix(c.sinceText(), ",") + ". "})
	default:
		add(ui.Part{Text: "Of " + count(x.Counted) + " requests" + c.sinceText() + " enforcers dropped " + count(x.Drops) + " (" + shareText(x.Drops, x.Counted) + ") and would have dropped " + count(x.VirtualDrops) + " (" + shareText(x.VirtualDrops, x.Counted) + "). "})
	}
	if x.Open > 0 {
		url := "/proposals?state=open"
		add(ui.Part{Text: plural(x.Open, "proposal is", "proposals are") + " open", URL: url}, ui.Part{Text: ", the oldest for " + span(x.At.Sub(x.Oldest)) + "."})
	}
	return say
}

// sinceText says since when the window's counts are, where that is not its
// whole.
func (c scorecard) sinceText() string {
	first := c.per[0].Day
	switch {
	case c.days == 1:
		return " since midnight UTC"
	case first.After(c.from):
		return " since " + first.Format("2 January") + ", the first day that is recorded,"
	}
	return " in " + plural(c.days, "day", "days")
}

func scoreTiles(v *visit, c scorecard) []ui.Tile {
	x, first := c.sum, c.per[0]
	line := func(of func(rlc.Score) (part, whole float64)) ui.Spark {
		var all []*rlc.Rate
		for _, d := range c.per {
			part, whole := of(d)
			r := rlc.Rate(share(part, whole))
			all = append(all, &r)
		}
		return spark(all)
	}
	limited := func(d rlc.Score) (float64, float64) { return d.Limited, d.Requests }
	fitting := func(d rlc.Score) (float64, float64) { return float64(d.Fitting), float64(d.Known) }
	tiles := []ui.Tile{
		{Label: "Traffic with a limit", Figure: shareText(limited(x)), From: "of what policies read" + moved(first, x, limited), Spark: line(limited)},
		{Label: "Limits 1.3–3× of the peak that counts", Figure: shareText(fitting(x)), From: count(float64(x.Fitting)) + " of " + count(float64(x.Known)) + moved(first, x, fitting), Spark: line(fitting)},
		{Label: "Dropped", Figure: "—", From: "no enforcer has counted a request", Spark: line(func(d rlc.Score) (float64, float64) { return d.Drops, d.Counted })},
		{Label: "Would have dropped", Figure: "—", From: "no enforcer has counted a request", Spark: line(func(d rlc.Score) (float64, float64) { return d.VirtualDrops, d.Counted })},
		{Label: "Open proposals", Figure: count(float64(x.Open)), From: "none waits"},
	}
	if x.Counted > 0 {
		tiles[2].Figure, tiles[2].From = count(x.Drops), shareText(x.Drops, x.Counted)+" of "+count(x.Counted)+" requests"
		tiles[3].Figure, tiles[3].From = count(x.VirtualDrops), shareText(x.VirtualDrops, x.Counted)+"; "+shareText(x.Unmatched, x.Counted)+" in no bucket"
	}
	if x.Drops >= 0.5 {
		tiles[2].Level = "bad"
	}
	if x.Open > 0 {
		tiles[4].From = "the oldest for " + span(x.At.Sub(x.Oldest)) + ", half for more than " + span(x.At.Sub(x.Median))
	}
	return tiles
}

// moved is how many points a share has moved since the window's first day.
func moved(first, last rlc.Score, of func(rlc.Score) (part, whole float64)) string {
	a, all := of(first)
	b, whole := of(last)
	if all <= 0 || whole <= 0 || first.Day.Equal(last.Day) {
		return ""
	}
	points := (b/whole - a/all) * 100
	sign := "+"
	if points < 0 {
		sign = "−"
	}
	text := trim(max(points, -points), 1)
	if text == "0" {
		return ", as on " + first.Day.Format("2 Jan")
	}
	return ", " + sign + text + " points since " + first.Day.Format("2 Jan")
}

func (s *server) scorecardJSON(v *visit) error {
	c, err := s.gatherScores(v)
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	out := paged("owners", scoresJSON(cut(c.owners, page), false), page, len(c.owners))
	out["from"], out["until"], out["owner"] = c.from, timeJSON(c.sum.At), orNull(c.owner)
	out["total"], out["by_day"] = nil, scoresJSON(c.per, true)
	if len(c.per) > 0 {
		total := scoreJSON(c.sum)
		total["multiples"] = multiplesJSON(c.sum.Spread)
		out["total"] = total
	}
	return answer(v, http.StatusOK, out)
}

// scoreJSON is a score with its shares; one of nothing is null.
func scoreJSON(x rlc.Score) object {
	part := func(part, whole float64) any {
		if whole <= 0 {
			return nil
		}
		return part / whole
	}
	return object{
		"services": x.Services, "limited_share": part(x.Limited, x.Requests), "limits_known": x.Known, "limits_fitting": x.Fitting, "fitting_share": part(float64(x.Fitting), float64(x.Known)),
		"counted": x.Counted, "drops": x.Drops, "virtual_drops": x.VirtualDrops, "unmatched": x.Unmatched,
		"open_proposals": x.Open, "oldest_at": timeJSON(x.Oldest), "median_at": timeJSON(x.Median), "at": timeJSON(x.At),
	}
}

func scoresJSON(all []rlc.Score, days bool) []object {
	out := make([]object, 0, len(all))
	for _, x := range all {
		one := scoreJSON(x)
		if days {
			one["day"] = x.Day.UTC().Format(time.DateOnly)
		} else {
			one["owner"] = x.Owner
		}
		out = append(out, one)
	}
	return out
}

// scorecardCSV has a line for each owner; ?by=day one for each day, ?by=multiple
// one for each class of limits by their multiple of the peak that counts.
func (s *server) scorecardCSV(v *visit) error {
	c, err := s.gatherScores(v)
	if err != nil {
		return err
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	all, first := cut(c.owners, page), "owner"
	switch by := v.r.URL.Query().Get("by"); by {
	case "", "owner":
	case "day":
		all, first = c.per, "day"
	case "multiple":
		return multiplesCSV(v, c.sum.Spread)
	default:
		return invalid("by must be owner, day or multiple")
	}
	part := func(part, whole float64) string {
		if whole <= 0 {
			return ""
		}
		return float(part / whole)
	}
	var rows [][]string
	for _, x := range all {
		name := x.Owner
		if first == "day" {
			name = x.Day.UTC().Format(time.DateOnly)
		}
		rows = append(rows, []string{name, strconv.Itoa(x.Services), part(x.Limited, x.Requests), strconv.Itoa(x.Known), strconv.Itoa(x.Fitting), whole(x.Counted), whole(x.Drops), whole(x.VirtualDrops), whole(x.Unmatched), strconv.Itoa(x.Open), stamp(x.Oldest)})
	}
	return sheet(v, "scorecard", []string{first, "services", "limited_share", "limits_known", "limits_fitting", "counted", "drops", "virtual_drops", "unmatched", "open_proposals", "oldest_at"}, rows)
}
