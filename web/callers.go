package web

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/web/ui"
)

// mostCallees bounds the services whose records and counters one page reads.
const mostCallees = 20

// limitOn is one limit that a caller's requests are counted by.
type limitOn struct {
	service string
	row     row
	count   rlc.Count
	counted bool // the counters could be read, and somebody counts
	shared  bool // it counts other callers' requests in the same counter
	prefix  bool // a prefix picks the caller out, no name
	age     counting
	owners  string

	since    time.Time // the first episode of the last run's replay; zero for none
	episodes int
}

// limitsOn finds the limits that say something of one caller, by the configuration
// alone: quotas whose key names it, and those of buckets whose match picks it out, by
// name, in a list or by a prefix, unless another bucket counts its requests in their
// place. Sorted by service.
func (s *server) limitsOn(v *visit, caller string) []limitOn {
	_, desired := s.Truths.Desired()
	if desired == nil {
		return nil
	}
	var out []limitOn
	for _, svc := range desired.Services {
		if !s.maySee(v.who, svc.Name) && !s.owns(v.who, caller) {
			continue
		}
		has := map[string]bool{}
		owners := strings.Join(svc.Owners, ", ")
		add := func(bucket string, key rlc.Key) {
			if id := rlc.QuotaID(bucket, key); !has[id] {
				has[id] = true
				b := svc.Bucket(bucket)
				out = append(out, limitOn{service: svc.Name, row: row{name: bucket, key: key}, owners: owners, shared: b != nil && key["caller"] == "" && !only(b, caller)})
				out[len(out)-1].prefix = key["caller"] == "" && b != nil && b.Match["caller"].Kind == rlc.Prefix
			}
		}
		var counts map[string]bool
		picked := func(b *rlc.Bucket) bool {
			if only(b, caller) || !singles(b, caller) {
				return only(b, caller)
			}
			if counts == nil {
				counts = countedBy(svc, caller)
			}
			return counts[b.Name]
		}
		for _, q := range desired.Quotas[svc.Name] {
			b := svc.Bucket(q.Bucket)
			if q.Key["caller"] == caller || b != nil && q.Key["caller"] == "" && picked(b) {
				add(q.Bucket, q.Key)
			}
		}
		for i := range svc.Buckets {
			if b := &svc.Buckets[i]; len(b.Each) == 0 && picked(b) {
				add(b.Name, nil)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b limitOn) int {
		return cmpOr(strings.Compare(a.service, b.service), strings.Compare(a.row.id(), b.row.id()))
	})
	return out
}

// singles reports whether a bucket's match picks out some callers, this one among them.
func singles(b *rlc.Bucket, caller string) bool {
	p, ok := b.Match["caller"]
	return ok && (p.Kind == rlc.Exact || p.Kind == rlc.List || p.Kind == rlc.Prefix) && fits(p, caller)
}

// countedBy are the buckets of a service that pick out a caller and count some of its
// requests: of those that fit them, each by a request that it describes, the matcher
// that enforcers use says which counts it.
func countedBy(svc *rlc.Service, caller string) map[string]bool {
	out := map[string]bool{}
	m, _ := match.Compile(svc)
	if m == nil {
		return out
	}
	for i := range svc.Buckets {
		b := &svc.Buckets[i]
		if !singles(b, caller) {
			continue
		}
		for _, attrs := range described(b, caller) {
			res := m.Match(attrs)
			counts := res.Quota.Bucket == i
			for _, c := range res.Caps {
				counts = counts || c.Bucket == i
			}
			out[b.Name] = out[b.Name] || counts
		}
	}
	return out
}

// described are requests of a caller that a bucket's match describes: one for each
// value of a list.
func described(b *rlc.Bucket, caller string) []rlc.Attributes {
	out := []rlc.Attributes{{"caller": caller}}
	for name, p := range sortedMap(b.Match) {
		if name == "caller" || p.Kind == rlc.Absent {
			continue
		}
		values := p.Values
		switch p.Kind {
		case rlc.Present:
			values = []string{"any"}
		case rlc.Prefix:
			values = []string{p.Values[0] + "any"}
		}
		var more []rlc.Attributes
		for _, attrs := range out {
			for _, value := range values[:min(len(values), 20)] {
				one := maps.Clone(attrs)
				one[name] = value
				more = append(more, one)
			}
		}
		out = more[:min(len(more), 200)]
	}
	for _, name := range b.Each {
		for _, attrs := range out {
			if attrs[name] == "" {
				attrs[name] = "any"
			}
		}
	}
	return out
}

// only reports whether a bucket counts requests of this caller and of no other.
func only(b *rlc.Bucket, caller string) bool {
	p, ok := b.Match["caller"]
	return ok && p.Kind == rlc.Exact && len(p.Values) == 1 && p.Values[0] == caller
}

// fill reads records and counters of the limits shown; skipped is how many
// services were too many.
func (s *server) fill(v *visit, all []limitOn) (skipped int, err error) {
	ctx := v.ctx()
	read := map[string]*truth{}
	seen := map[string]counts{}
	ages := map[string]counting{}
	over := map[string]bool{}
	for i := range all {
		x := &all[i]
		if read[x.service] == nil {
			if len(read) == mostCallees {
				over[x.service] = true
				continue
			}
			t, err := s.truth(ctx, x.service)
			if err != nil && !errors.Is(err, rlc.ErrNotFound) {
				return 0, err
			}
			if err != nil {
				continue
			}
			read[x.service] = t
			if counted, err := s.History.Counts(ctx, x.service, day, s.Now()); err == nil {
				seen[x.service], ages[x.service] = countsOf(counted), s.counting(v, x.service)
			}
		}
		if r := read[x.service].row(x.row.name, x.row.key); r != nil {
			x.row = *r
		}
		x.age = ages[x.service]
		x.count, x.counted = seen[x.service][x.row.id()], seen[x.service] != nil && !x.age.none
	}
	return len(over), s.fillSince(ctx, all)
}

// ageOf says how far back the counts of limits reach: as of all of them where that
// is the same, else for a day at most.
func ageOf(shown []limitOn) counting {
	age, none := counting{}, true
	for _, x := range shown {
		switch {
		case x.age.label == "": // its counters were not read
			continue
		case age.label != "" && x.age.label != age.label:
			return counting{text: "in at most 24 h", label: "24 h at most"}
		}
		age, none = x.age, none && x.age.none
	}
	if age.label == "" {
		return counting{text: "in 24 h", label: "24 h"}
	}
	age.none = none
	return age
}

// fillSince finds, in one reading, since when each limit in force would have refused
// something, by the last run's replay.
func (s *server) fillSince(ctx context.Context, all []limitOn) error {
	var of []*limitOn
	var changes []rlc.Change
	for i := range all {
		if c := all[i].row.change; c != nil {
			of, changes = append(of, &all[i]), append(changes, *c)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	whole, err := s.Records.WithEpisodes(ctx, changes)
	if err != nil {
		return err
	}
	for i, x := range of {
		x.row.change = &whole[i]
		if b := x.row.inForce(); b != nil && len(b.Episodes) > 0 {
			x.since, x.episodes = b.Episodes[0].From, len(b.Episodes)
			for _, e := range b.Episodes {
				if e.From.Before(x.since) {
					x.since = e.From
				}
			}
		}
	}
	return nil
}

// caller is /callers/{caller}, with its endings .json and .csv.
func (s *server) caller(v *visit) error {
	name, ending := format(v.r.PathValue("caller"), func(n string) bool {
		return slices.ContainsFunc(s.limitsOn(v, n), func(x limitOn) bool { return !x.prefix }) // a prefix names nobody, search.csv among them
	})
	page, err := v.page()
	if err != nil {
		return err
	}
	all := s.limitsOn(v, name)
	over := s.overridesOn(v, name, all)
	shown := slices.Clone(cut(all, page))
	skipped, err := s.fill(v, shown)
	if err != nil {
		return err
	}
	switch ending {
	case ".json":
		return s.answerCaller(v, name, shown, over)
	case ".csv":
		return s.callerCSV(v, name, shown, over)
	}
	age := ageOf(shown)
	f, err := s.frame(v, name+" / caller", "why")
	if err != nil {
		return err
	}
	view := ui.Caller{
		Head: ui.Head{Margin: "Caller", Title: name}, Section: "Limits on its requests", About: "Counted by enforcers " + age.text + "; limits as live, else as desired. Since is the first of the episodes that the last run replayed.", Pager: v.pager(page, len(shown), len(all)),
		Grid: ui.Grid{Caption: "Limits on " + name, Columns: []ui.Column{{Label: "Service"}, {Label: "Quota"}, {Label: "Mode"}, {Label: "Limit", Class: "num"}, {Label: "Offered " + age.label, Class: "num"}, {Label: "Refused", Class: "num"}, {Label: "Would be", Class: "num"}, {Label: "Proposed", Class: "num"}, {Label: "Peak", Class: "num"}, {Label: "Since"}, {Label: "Owner"}, {Label: ""}, {Label: ""}}},
	}
	_, desired := s.Truths.Desired()
	if desired != nil && desired.Service(name) != nil {
		view.Head.Facts = []ui.Link{{Text: "its own limits", URL: serviceURL(name)}}
	}
	for i := range shown {
		cells := callerCells(v, &shown[i], name, age)
		if o := s.decider(over, &shown[i], name); o != nil && s.applied() {
			cells[3].Chip = ui.Chip{Mode: "override", Text: o.Does()}
		}
		view.Grid.Rows = append(view.Grid.Rows, cells)
	}
	view.Verdict, view.Tiles = callerVerdict(name, shown, len(all), age, func(x *limitOn) []ui.Part { return s.stoodFor(v, x.service, &x.row) })
	view.Verdict = append(s.overrideSays(v, over), view.Verdict...)
	if len(all) == 0 {
		view.Empty = &ui.Empty{Title: "No limit picks out " + name, Reason: "No quota has it as its key, and no bucket's match picks it out, by name, in a list or by a prefix. A bucket for all callers may still count its requests.", Query: "rlc why SERVICE --caller " + name, Fix: ui.Link{Text: "Explain a request", URL: "/why?caller=" + query(name)}}
	}
	if skipped > 0 {
		view.Note = "The counters of " + plural(skipped, "more service", "more services") + " were not read for this page; show fewer rows with per_page."
	}
	return s.render(v, http.StatusOK, ui.CallerPage(f, view))
}

func callerCells(v *visit, x *limitOn, caller string, age counting) []ui.Cell {
	cells := []ui.Cell{
		{Text: x.service, URL: serviceURL(x.service)}, {Text: quotaName(x.row.name, x.row.key), URL: bucketURL(x.service, x.row.name, x.row.key)},
		{Chip: modeChip(x.row.mode)}, {Text: limitText(x.row.force())},
		{Text: count(x.count.Offered)}, {Text: percent(share(x.count.Drops, x.count.Offered))}, {Text: percent(share(x.count.VirtualDrops, x.count.Offered))},
		{Text: limitText(x.row.proposed)}, {Text: "—"}, {Text: "no episode", Kind: "soft"},
		{Text: "unowned", Kind: "soft"}, {Text: "Why", URL: whyURL(x, caller)}, {Text: "Request more", URL: whyURL(x, caller) + "#more"},
	}
	if x.row.proposed != nil {
		cells[7].URL = proposalURL(x.row.proposal)
	}
	if p := x.row.peak(); p > 0 {
		cells[8].Text = rate(float64(p))
	}
	if !x.since.IsZero() {
		cells[9] = ui.Cell{At: v.time(x.since), Text: ", " + plural(x.episodes, "episode", "episodes")}
	} else if x.row.inForce() == nil {
		cells[9].Text = "not replayed"
	}
	if x.since.IsZero() && x.row.inForce() != nil && x.counted && x.count.Drops+x.count.VirtualDrops >= 0.5 {
		cells[9] = ui.Cell{Text: "none replayed"}
	}
	if x.count.Drops >= 0.5 {
		cells[5].Kind = "bad"
	}
	if x.count.VirtualDrops >= 0.5 {
		cells[6].Kind = "violet"
	}
	if x.age.label != age.label && x.counted {
		cells[4].Text += ", " + x.age.text
	}
	if x.shared {
		cells[4].Text += ", with other callers"
	}
	if !x.counted {
		for i := 4; i <= 6; i++ {
			cells[i] = ui.Cell{Text: unknown, Kind: "soft"}
		}
	}
	if o := x.owners; o != "" {
		cells[10] = ui.Cell{Text: o}
	}
	return cells
}

// whyURL explains a request of the caller that the limit counts.
func whyURL(x *limitOn, caller string) string { return requestURL(x.service, &x.row, caller) }

// requestURL explains a request that a limit counts; caller "" is the one that
// it counts, if it counts one alone.
func requestURL(service string, r *row, caller string) string {
	attrs := map[string]string{}
	if r.bucket != nil {
		for a, p := range r.bucket.Match {
			if p.Kind == rlc.Exact {
				attrs[a] = p.Values[0]
			}
		}
	}
	for a, value := range r.key {
		attrs[a] = value
	}
	q := "/why?service=" + query(service)
	if caller = cmp.Or(caller, attrs["caller"]); caller != "" {
		q += "&caller=" + query(caller)
	}
	delete(attrs, "caller")
	for a, value := range sortedMap(attrs) {
		q += "&" + query(a) + "=" + query(value)
	}
	return q
}

// callerVerdict is what was refused of a caller; stood names the override that may
// have done it in a limit's place.
func callerVerdict(name string, shown []limitOn, total int, age counting, stood func(*limitOn) []ui.Part) ([]ui.Part, []ui.Tile) {
	var sum rlc.Count
	var worst *limitOn
	services := map[string]bool{}
	known, shared := false, false
	for i := range shown {
		x := &shown[i]
		services[x.service] = true
		known, shared = known || x.counted, shared || x.shared
		sum.Offered += x.count.Offered
		sum.Drops += x.count.Drops
		sum.VirtualDrops += x.count.VirtualDrops
		if x.count.Drops >= 0.5 && (worst == nil || x.count.Drops > worst.count.Drops) {
			worst = x
		}
	}
	where, others := "", ""
	if len(shown) < total {
		where = ", on this page"
	}
	if shared {
		others = ", other callers' among them"
	}
	tiles := []ui.Tile{
		{Label: "Offered", Figure: count(sum.Offered), From: "requests " + age.text + ", by the limits below" + where + others},
		{Label: "Refused", Figure: percent(share(sum.Drops, sum.Offered)), From: count(sum.Drops) + " requests " + age.text + others},
		{Label: "Would have been", Figure: percent(share(sum.VirtualDrops, sum.Offered)), From: count(sum.VirtualDrops) + " requests " + age.text + ", in shadow" + others},
		{Label: "Limits", Figure: count(float64(total)), From: "of " + plural(len(services), "service", "services") + where},
	}
	if sum.Drops >= 0.5 {
		tiles[1].Level = "bad"
	}
	switch {
	case total == 0:
		return []ui.Part{{Text: "No limit picks out " + name + "."}}, nil
	case !known:
		why := "the enforcers' counters cannot be read"
		if age.none {
			why = noneCounted
		}
		for i := range 3 {
			tiles[i].Figure, tiles[i].From = unknown, why
		}
		return []ui.Part{{Text: "What was refused of " + name + " is unknown: " + why + "."}}, tiles
	case worst != nil:
		say := []ui.Part{{Text: worst.service + " refused "}, {Text: percent(share(worst.count.Drops, worst.count.Offered)), Bold: true}, {Text: " of what " + name + " sent " + age.text + ", by "}}
		if worst.shared {
			say[2].Text = " of what " + name + " and the other callers of the same counter sent " + age.text + ", by "
		}
		quota, by := ui.Part{Text: quotaName(worst.row.name, worst.row.key), URL: whyURL(worst, name)}, stood(worst)
		switch {
		case worst.row.mode != rlc.Shadow && by != nil:
			say = append(say, quota, ui.Part{Text: " or by "})
			fallthrough
		case by != nil:
			say = append(append(say, by...), ui.Part{Text: "."})
		case worst.row.mode == rlc.Shadow:
			say = append(say, quota, ui.Part{Text: " while it enforced, or by a cap."})
		default:
			say = append(say, quota, ui.Part{Text: "."})
		}
		return append(say, ui.Part{Text: rises(&worst.row)}), tiles
	case sum.VirtualDrops >= 0.5 && shared:
		return []ui.Part{{Text: "Nothing of " + name + " was refused " + age.text + "; enforced, "}, {Text: percent(share(sum.VirtualDrops, sum.Offered)), Bold: true}, {Text: " of what these limits count would have been."}}, tiles
	case sum.VirtualDrops >= 0.5:
		return []ui.Part{{Text: "Nothing of " + name + " was refused " + age.text + "; enforced, "}, {Text: percent(share(sum.VirtualDrops, sum.Offered)), Bold: true}, {Text: " of it would have been."}}, tiles
	}
	return []ui.Part{{Text: "Nothing of " + name + " was refused " + age.text + ", and nothing would have been."}}, tiles
}

// rises says that a higher limit is in review; "" where none is.
func rises(r *row) string {
	if r.proposed == nil || r.force() == nil || r.proposed.Rate <= r.force().Rate {
		return ""
	}
	return " A rise from " + limitText(r.force()) + " to " + limitText(r.proposed) + " req/s is in review."
}

func (s *server) answerCaller(v *visit, name string, all []limitOn, over []rlc.Override) error {
	rows := make([]object, 0, len(all))
	for i := range all {
		x := &all[i]
		o := rowJSON(&x.row)
		o["service"], o["owners"], o["since"], o["episodes"], o["counted_since"] = x.service, x.owners, timeJSON(x.since), x.episodes, timeJSON(x.age.since)
		o["shared"] = x.shared
		o["offered_24h"], o["drops_24h"], o["virtual_drops_24h"], o["override"] = nil, nil, nil, nil
		if d := s.decider(over, x, name); d != nil {
			o["override"] = d.ID
		}
		if x.counted {
			o["offered_24h"], o["drops_24h"], o["virtual_drops_24h"] = x.count.Offered, x.count.Drops, x.count.VirtualDrops
		}
		rows = append(rows, o)
	}
	return answer(v, http.StatusOK, object{"caller": name, "limits": rows, "overrides": s.overridesJSON(v, over), "overridden": len(over) > 0 && s.applied()})
}

func (s *server) callerCSV(v *visit, name string, all []limitOn, over []rlc.Override) error {
	var rows [][]string
	for i := range all {
		x := &all[i]
		row := []string{x.service, x.row.name, x.row.key.String(), string(x.row.mode), "", "", "", "", x.owners, stamp(x.since), strconv.FormatBool(x.shared), ""}
		if l := x.row.force(); l != nil {
			row[4] = float(float64(l.Rate))
		}
		if x.counted {
			row[5], row[6], row[7] = whole(x.count.Offered), whole(x.count.Drops), whole(x.count.VirtualDrops)
		}
		if d := s.decider(over, x, name); d != nil {
			row[11] = d.Does()
		}
		rows = append(rows, row)
	}
	return sheet(v, "caller-"+name, []string{"service", "bucket", "key", "mode", "rate", "offered_24h", "drops_24h", "virtual_drops_24h", "owners", "since", "shared", "override"}, rows)
}
