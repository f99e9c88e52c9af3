package web

import (
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

const day = 24 * time.Hour

// format splits a name from the ending that asks for JSON or CSV, unless a
// thing of the whole name exists.
func format(name string, exists func(string) bool) (base, ending string) {
	for _, e := range []string{".json", ".csv"} {
		if b, ok := strings.CutSuffix(name, e); ok && b != "" && !exists(name) {
			return b, e
		}
	}
	return name, ""
}

func (s *server) serviceExists(name string) bool {
	_, err := s.known(name)
	return err == nil
}

// service is /services/{service}, with its endings .json and .csv.
func (s *server) service(v *visit) error {
	name, ending := format(v.r.PathValue("service"), s.serviceExists)
	t, err := s.truth(v.ctx(), name)
	if err != nil {
		return err
	}
	if table := v.r.URL.Query().Get("table"); table != "" && ending != "" {
		return s.serviceTable(v, t, table, ending)
	}
	page, err := v.page()
	if err != nil {
		return err
	}
	if ending == ".json" {
		return s.answerBuckets(v, t)
	}
	sum, err := s.Records.Summary(v.ctx(), name)
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return err
	}
	now := s.Now()
	counted, countErr := s.History.Counts(v.ctx(), name, day, now)
	seen, age := countsOf(counted), s.counting(v, name)
	if countErr != nil {
		seen = nil
	}
	q := v.r.URL.Query()
	by, desc := q.Get("sort"), q.Get("dir") == "desc"
	rows, err := arrange(t.rows, seen, q.Get("q"), q.Get("mode"), by, desc)
	if err != nil {
		return err
	}
	if ending == ".csv" {
		return sheet(v, name+"-quotas", bucketHeader, bucketRows(rows, seen))
	}
	f, err := s.frame(v, name, "services")
	if err != nil {
		return err
	}
	view := ui.Service{
		Head: s.tabbed(t, "quotas"), Name: name, Recalculate: runsURL(name), WhatIf: serviceURL(name) + "/whatif", Replay: serviceURL(name) + "/replay", Why: "/why?service=" + query(name), Emergency: "/emergency?service=" + query(name), Until: v.timeAs(now, "15:04"), Counted: capital(strings.TrimPrefix(age.text, "in ")),
		Query: q.Get("q"), Sort: by, Dir: q.Get("dir"),
		Pager:   v.pager(page, len(cut(rows, page)), len(rows)),
		Columns: quotaColumns(v, by, desc, age.label), Drops: "Drops " + age.label,
	}
	for _, m := range []string{"", "shadow", "enforce", "held"} {
		label := m
		if m == "" {
			label = "any"
		}
		view.Modes = append(view.Modes, ui.Choice{Value: m, Label: label, On: q.Get("mode") == m})
	}
	for _, p := range t.problems {
		if !p.Warning {
			view.Problems = append(view.Problems, p.String())
		}
	}
	inRows := seen
	if age.none {
		inRows = nil // a 0 would be a claim
	}
	if view.Rows, err = s.quotaTable(v.ctx(), t, cut(rows, page), inRows); err != nil {
		view.Notes = append(view.Notes, unreadWeek(err))
	}
	if view.Chart, err = s.serviceChart(v, t, sum); err != nil {
		return err
	}
	f.Chart = view.Chart != nil
	view.Verdict, view.More = serviceVerdict(t, seen, age)
	if note := staleNote(v, t); note != "" {
		view.Notes = append(view.Notes, note)
	}
	view.Tiles = serviceTiles(v, t, sum, seen, age)
	if countErr != nil {
		view.Notes = append(view.Notes, "What enforcers counted cannot be read: "+plain(countErr)+".")
	}
	if view.Asks, err = s.askRows(v, name, ""); err != nil {
		return err
	}
	if len(rows) == 0 {
		view.Empty = quotasEmpty(t, q.Get("q") != "" || q.Get("mode") != "")
	}
	return s.render(v, http.StatusOK, ui.ServicePage(f, view))
}

func quotasEmpty(t *truth, filtered bool) *ui.Empty {
	switch {
	case filtered:
		return &ui.Empty{Title: "No quota fits the filter", Reason: "The bucket or key must contain the text.", Fix: ui.Link{Text: "Show all", URL: serviceURL(t.name)}}
	case t.broken:
		return &ui.Empty{Title: "The policy cannot be read", Reason: "What is live stays in force. Mend the file and commit it to the base branch.", Query: firstProblem(t.problems)}
	}
	return &ui.Empty{Title: "No buckets", Reason: "The policy lists none.", Query: "buckets:\n  - {name: callers, each: [caller]}", Fix: ui.Link{Text: "Add one to policy.yaml."}}
}

func firstProblem(all []rlc.Problem) string {
	for _, p := range all {
		if !p.Warning {
			return p.String()
		}
	}
	return ""
}

func (s *server) serviceHead(t *truth, margin string, parent ui.Link, title string) ui.Head {
	h := ui.Head{Margin: margin, Parent: parent, Title: title}
	from := ", from policy.yaml"
	if t.broken {
		h.Chips = []ui.Chip{{Mode: "held", Text: "policy not read"}}
		from = ", as live"
	}
	if t.service == nil {
		return h
	}
	owner := "unowned"
	if len(t.service.Owners) > 0 {
		owner = "owner " + strings.Join(t.service.Owners, ", ")
	}
	h.Facts = []ui.Link{{Text: owner + from}, {Text: t.service.Timezone}, {Text: "profile " + t.service.Profile}}
	sync := "no snapshot in force yet"
	if t.hasLive {
		sync = "snapshot " + t.live.String()
		if t.live.Compare(t.commit.Version) < 0 {
			sync += ", behind the base branch"
		}
	}
	h.Facts = append(h.Facts, ui.Link{Text: sync})
	for i := range t.service.Buckets {
		if l, ok := loopOf(t.name, &t.service.Buckets[i]); ok {
			h.Facts = append(h.Facts, l)
			break
		}
	}
	return h
}

// tabbed heads one of a service's own pages: the tabs stand at the same place on
// each. The first is titled by the service, the others by their tab.
func (s *server) tabbed(t *truth, at string) ui.Head {
	parent, title := ui.Link{Text: t.name, URL: serviceURL(t.name)}, at
	if at == "quotas" {
		parent, title = ui.Link{}, t.name
	}
	h, tabs := s.serviceHead(t, "Service", parent, title), s.tabs(t, at)
	h.Tabs = &tabs
	return h
}

func (s *server) tabs(t *truth, at string) ui.Tabs {
	open := ""
	if n := len(t.open); n > 0 {
		open = count(float64(n))
	}
	return ui.Tabs{
		At:     at,
		Quotas: ui.Link{URL: serviceURL(t.name), Text: count(float64(len(t.rows)))}, Shadow: ui.Link{URL: serviceURL(t.name) + "/shadow"},
		Proposals: ui.Link{URL: "/proposals?service=" + query(t.name), Text: open}, History: ui.Link{URL: serviceURL(t.name) + "/history"},
		Policy: ui.Link{URL: serviceURL(t.name) + "/policy"}, Export: ui.Link{URL: serviceURL(t.name) + "/export"},
	}
}

func serviceVerdict(t *truth, seen counts, age counting) (say []ui.Part, more string) {
	say = t.invalid()
	if t.service == nil {
		return say, ""
	}
	total := seen.total()
	var worst, shadowed, small *row
	held := 0
	for i := range t.rows {
		r := &t.rows[i]
		c := seen[r.id()]
		if c.Drops > 0 && (worst == nil || c.Drops > seen[worst.id()].Drops) {
			worst = r
		}
		if share(c.VirtualDrops, c.Offered) > noticed && (shadowed == nil || c.VirtualDrops > seen[shadowed.id()].VirtualDrops) {
			shadowed = r
		}
		if h, ok := r.headroom(); ok && h < 0 {
			if small == nil {
				small = r
			} else if best, _ := small.headroom(); h < best {
				small = r
			}
		}
		if r.held() != "" {
			held++
		}
	}
	of := func(r *row) ui.Part {
		return ui.Part{Text: quotaName(r.name, r.key), URL: bucketURL(t.name, r.name, r.key)}
	}
	if seen == nil {
		say = append(say, ui.Part{Text: "What was dropped is unknown: the enforcers' counters cannot be read. "})
	}
	if worst != nil {
		c := seen[worst.id()]
		did := " dropped "
		if worst.mode == rlc.Shadow { // it drops nothing itself
			did = " is in shadow, and an override or a cap dropped "
		}
		say = append(say, of(worst), ui.Part{Text: did}, ui.Part{Text: count(c.Drops), Bold: true}, ui.Part{Text: " requests " + age.text + ", " + percent(share(c.Drops, c.Offered)) + " of what it was offered. "})
	}
	if shadowed != nil {
		c := seen[shadowed.id()]
		say = append(say, of(shadowed), ui.Part{Text: " would have dropped "}, ui.Part{Text: count(c.VirtualDrops), Bold: true}, ui.Part{Text: " requests " + age.text + ", " + percent(share(c.VirtualDrops, c.Offered)) + " of what it was offered. "})
	}
	switch {
	case worst != nil || shadowed != nil:
	case small != nil:
		say = append(say, of(small), ui.Part{Text: " has a limit below the peak that counts in the last run's window: "}, ui.Part{Text: limitText(small.force()), Bold: true}, ui.Part{Text: " against " + rate(float64(small.peak())) + " req/s."})
	case seen == nil: // said above
	case total.Offered > 0:
		say = append(say, ui.Part{Text: "Nothing was dropped " + age.text + quiet(t)})
	default:
		say = append(say, ui.Part{Text: "No enforcer has counted a request of " + t.name + " in 24 h."})
	}
	if len(t.open) > 0 {
		p := t.open[0]
		say = append(say, ui.Part{Text: " "}, ui.Part{Text: "A proposal", URL: proposalURL(p.ID)}, ui.Part{Text: " to change " + plural(len(p.Changes), "quota", "quotas") + " waits for review."})
	}
	if total.VirtualDrops >= 1 {
		more = "Shadow would have dropped " + count(total.VirtualDrops) + " requests " + age.text + ", " + percent(share(total.VirtualDrops, total.Offered)) + " of what was offered; it admitted them all. "
	}
	if held > 0 {
		more += plural(held, "quota is", "quotas are") + " held by the last run; the row says so, and the quota's page says why."
	}
	return say, more
}

// noticed is the share of would-be drops from which a page speaks of them
// first.
const noticed = 0.001

// quiet ends the sentence of a service that dropped nothing and has no limit
// below a known peak that counts.
func quiet(t *truth) string {
	known, limits := 0, 0
	var storms []*row // whose limit lies below what was left out
	for i := range t.rows {
		r := &t.rows[i]
		if r.force() == nil {
			continue
		}
		limits++
		if _, ok := r.headroom(); ok {
			known++
			if r.seen().Highest() > r.force().Rate {
				storms = append(storms, r)
			}
		}
	}
	switch {
	case known == 0:
		return "; no peak that counts is known to set its limits against."
	case known < limits:
		return ", and every limit whose peak that counts is known lies above it in the last run's window." + above(storms)
	}
	return ", and every limit lies above the peak that counts in the last run's window." + above(storms)
}

func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

func serviceTiles(v *visit, t *truth, sum rlc.ServiceSummary, seen counts, age counting) []ui.Tile {
	total := seen.total()
	var limits float64
	var least *row
	for i := range t.rows {
		r := &t.rows[i]
		if r.bucket != nil && r.bucket.Role == rlc.QuotaRole && r.force() != nil {
			limits += float64(r.force().Rate)
		}
		if h, ok := r.headroom(); ok {
			if least == nil {
				least = r
			} else if b, _ := least.headroom(); h < b {
				least = r
			}
		}
	}
	tiles := []ui.Tile{
		{Label: "Offered, last closed hour", Figure: unknown, From: "mean over quota buckets; " + count(total.Offered) + " requests counted " + age.text},
		{Label: "Σ limits", Figure: rate(limits), Unit: "req/s", From: "no capacity is declared"},
		{Label: "Dropped", Figure: count(total.Drops), From: age.text + ", by quotas that enforce, caps and overrides"},
		{Label: "Would have dropped", Figure: count(total.VirtualDrops), From: age.text + ", counted in shadow"},
		{Label: "Least headroom", Figure: "—", From: "no limit whose peak that counts is known"},
	}
	if t.service != nil && t.service.Capacity != nil && t.service.Capacity.Rate > 0 {
		c := t.service.Capacity
		tiles[1].Unit = "/ " + rate(float64(c.Rate))
		tiles[1].From = percent(limits/float64(c.Rate)) + " of capacity; " + percent(float64(c.Reserve)) + " kept free"
	}
	if total.Drops > 0 {
		tiles[2].Level = "bad"
	}
	if seen == nil || t.broken && total.Offered == 0 {
		tiles[2].Figure, tiles[3].Figure = unknown, unknown
		tiles[0].From = "mean over quota buckets; no count of the last 24 h is at hand"
	}
	if sum.Offered != nil {
		tiles[0].Figure, tiles[0].Unit = rate(float64(*sum.Offered)), "req/s"
	}
	switch {
	case seen == nil || t.broken:
	case total.Offered == 0:
		none := "no enforcer has counted a request in 24 h"
		tiles[2].Figure, tiles[2].From, tiles[3].Figure, tiles[3].From = "—", none, "—", none
		tiles[0].From = "mean over quota buckets; " + none
	}
	if sum.Updated.IsZero() && !t.broken {
		tiles[0].Figure, tiles[0].Unit, tiles[0].From = "—", "", "no run has read its history yet"
	}
	if t.service == nil || t.broken && limits == 0 {
		tiles[1].Figure, tiles[1].Unit, tiles[1].From = unknown, "", "no limit is live"
	}
	if !sum.SeenAt.IsZero() {
		tiles[0].Label = "Offered, last known hour"
		tiles[0].From = "as read " + v.time(sum.SeenAt).Text + ", the last run read none; " + count(total.Offered) + " requests counted " + age.text
	}
	if least != nil {
		h, _ := least.headroom()
		tiles[4] = ui.Tile{Label: "Least headroom", Figure: signed(h), From: quotaName(least.name, least.key)}
		if h < 0 {
			tiles[4].Level = "bad"
		}
	}
	return tiles
}

func brokenCount(c *quotafile.Config) int {
	if c == nil {
		return 0
	}
	return len(c.Broken)
}

// sortedMap walks a map by its keys in order.
func sortedMap[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
