package web

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/match"
	"github.com/openrlc/rlc/web/ui"
)

// explained is what happens to one request, by the matcher that enforcers use.
type explained struct {
	truth  *truth
	attrs  rlc.Attributes
	quota  *row  // nil: no quota bucket counts it
	caps   []row // that count it besides
	others []other
	over   []rlc.Override // that stand for it; the first decides before every bucket
	stood  []ui.Part      // the newest that may have dropped of what its quota counted; see stoodFor
	// unheard is the request's caller where no quota and nothing counted names it,
	// and meant the one that was probably meant; "" for neither.
	unheard, meant string
}

// other is a bucket that does not count a request.
type other struct {
	bucket *rlc.Bucket
	reason string
	fits   bool // it would, if no other fitted more closely
	row    *row // its quota for the request; nil where that cannot be told: see other
}

// explain reads service and attributes from the address: every query parameter
// but service, a page's own settings and empty ones is an attribute.
func (s *server) explain(v *visit) (*explained, error) {
	q := v.r.URL.Query()
	t, err := s.truth(v.ctx(), q.Get("service"))
	if err != nil {
		return nil, err
	}
	if t.service == nil {
		return nil, fault{status: http.StatusConflict, detail: "The policy of this service cannot be read: " + firstProblem(t.problems)}
	}
	attrs := rlc.Attributes{}
	for name, values := range q {
		own := name == "service" || !strings.HasPrefix(v.r.URL.Path, "/api/") && slices.Contains([]string{"tz", "theme", "done"}, name)
		if !own && values[0] != "" {
			attrs[name] = values[0]
		}
	}
	m, problems := match.Compile(t.service)
	if m == nil {
		return nil, fault{status: http.StatusConflict, detail: "The buckets of this service cannot be told apart: " + firstProblem(problems)}
	}
	out := &explained{truth: t, attrs: attrs, over: s.overridesOf(t.service, attrs)}
	res := m.Match(attrs)
	hit := map[int]bool{}
	winner := ""
	if res.Quota.Bucket >= 0 {
		hit[res.Quota.Bucket] = true
		r := t.hit(res.Quota, attrs["region"])
		out.quota, winner = &r, r.name
	}
	for _, c := range res.Caps {
		hit[c.Bucket] = true
		out.caps = append(out.caps, t.hit(c, attrs["region"]))
	}
	for i := range t.service.Buckets {
		if !hit[i] {
			out.others = append(out.others, t.other(i, attrs, winner))
		}
	}
	return out, nil
}

// hit is the quota that counts a request from a region, "" where nobody said from
// which: the region's own, else the one over all, else what new_key gives.
func (t *truth) hit(h match.Hit, region string) row {
	b := &t.service.Buckets[h.Bucket]
	if r := t.row(rlc.Quota{Bucket: b.Name, Region: region}.Place(), h.Key); r != nil {
		return *r
	}
	if r := t.row(b.Name, h.Key); r != nil {
		return *r
	}
	r := row{bucket: b, name: b.Name, key: h.Key, mode: b.Mode, desired: keyless(b), why: "a value without a quota of its own: new_key applies"}
	if t.liveService != nil {
		r.live = keyless(t.liveService.Bucket(b.Name))
	}
	if t.broken { // what is known of it is live
		r.live, r.desired = r.desired, nil
	}
	return r
}

// keyless is the limit of a bucket's values that have no quota of their own; nil for
// none.
func keyless(b *rlc.Bucket) *rlc.Limit {
	switch {
	case b == nil:
		return nil
	case b.Limit != nil:
		return b.Limit
	}
	return b.NewKey.Limit
}

// why is /why: which bucket counts a request, what that refused, and why the
// others do not.
func (s *server) why(v *visit) error {
	f, err := s.frame(v, "Why", "why")
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	view := ui.Why{JSON: "/why.json?" + q.Encode(), CSV: "/why.csv?" + q.Encode()}
	names := []string{"service", "caller", "procedure"}
	if q.Get("service") == "" {
		view.Empty = &ui.Empty{Title: "Name a service", Reason: "Say who calls what, and this page says which limit counts it, and why the others do not.", Query: "rlc why checkout --caller etl-nightly", Fix: ui.Link{Text: "Services", URL: "/services"}}
		if c := q.Get("caller"); c != "" {
			view.Empty.Fix = ui.Link{Text: "All limits on " + c, URL: "/callers/" + segment(c)}
		}
		for _, n := range names {
			view.Fields = append(view.Fields, ui.Field{Name: n, Label: capital(n), Value: q.Get(n)})
		}
		return s.render(v, http.StatusOK, ui.WhyPage(f, view))
	}
	e, err := s.explain(v)
	if err != nil {
		return err
	}
	var more []string
	for _, b := range e.truth.service.Buckets {
		for a := range b.Match {
			more = append(more, a)
		}
		more = append(more, b.Each...)
	}
	for a := range e.attrs {
		more = append(more, a)
	}
	slices.Sort(more)
	for _, a := range more {
		if !slices.Contains(names, a) && len(names) < 20 {
			names = append(names, a)
		}
	}
	for _, n := range names {
		view.Fields = append(view.Fields, ui.Field{Name: n, Label: capital(n), Value: q.Get(n)})
	}
	seen, age := s.countedFor(v, e)
	view.Verdict, view.Grid = append(append(s.overrideSays(v, e.over), e.unheardSays(v, age)...), e.verdict(seen, age)...), s.whyGrid(v, e, seen, age)
	if c := e.attrs["caller"]; c != "" {
		view.Verdict = append(view.Verdict, ui.Part{Text: " "}, ui.Part{Text: "All limits on " + c, URL: "/callers/" + segment(c)}, ui.Part{Text: "."})
	}
	if e.quota != nil {
		if view.Tiles, err = s.refusedTiles(v, e, seen, age); err != nil {
			return err
		}
		view.Ask = e.form(v)
		if len(e.over) > 0 && s.applied() {
			view.Ask.Because = "An override decides now, " + s.overrideTerms(v, e.over[0]) + ". A higher limit counts once that has ended. " + view.Ask.Because
		}
		if view.Asks, err = s.askRows(v, e.truth.name, e.quota.id()); err != nil {
			return err
		}
	}
	return s.render(v, http.StatusOK, ui.WhyPage(f, view))
}

// unheardSays says that nothing names the caller, and who was probably meant.
func (e *explained) unheardSays(v *visit, age counting) []ui.Part {
	if e.unheard == "" {
		return nil
	}
	say := []ui.Part{{Text: "No quota of " + e.truth.name + " and no request counted " + age.text + " names a caller " + e.unheard}}
	if e.meant == "" {
		return append(say, ui.Part{Text: ". "})
	}
	return append(say, ui.Part{Text: "; did you mean "}, ui.Part{Text: e.meant, URL: v.with("caller", e.meant)}, ui.Part{Text: "? "})
}

// verdict says what the winning bucket did to such requests.
func (e *explained) verdict(seen counts, age counting) []ui.Part {
	if e.quota == nil {
		return []ui.Part{{Text: "No quota bucket of " + e.truth.name + " counts this request: no quota refuses it."}}
	}
	r := e.quota
	lead := "It is counted by "
	if len(e.over) > 0 {
		lead = "Below that the request is counted by "
	}
	say := []ui.Part{{Text: lead}, {Text: quotaName(r.name, r.key), URL: quotaLink(e.truth, r)}}
	if l := r.force(); l == nil {
		say = append(say, ui.Part{Text: ", which has no limit yet. "})
	} else {
		say = append(say, ui.Part{Text: ": "}, ui.Part{Text: limitText(l) + " req/s", Bold: true}, ui.Part{Text: ", " + string(r.mode) + ". "})
	}
	c, when := seen[r.id()], capital(age.text)
	switch {
	case seen == nil:
		say = append(say, ui.Part{Text: "What it refused is unknown: the enforcers' counters cannot be read."})
	case age.none:
		say = append(say, ui.Part{Text: "What it refused is not known: " + noneCounted + "."})
	case r.mode == rlc.Shadow:
		say = append(say, shadowSays(c, when, e.stood)...)
	case c.Drops >= 0.5 && e.stood != nil:
		say = append(say, ui.Part{Text: when + " "}, ui.Part{Text: percent(share(c.Drops, c.Offered)), Bold: true}, ui.Part{Text: " of its requests were refused, "})
		say = append(append(say, droppedBy(r.mode, e.stood)...), ui.Part{Text: "."})
	case c.Drops >= 0.5:
		say = append(say, ui.Part{Text: when + " it refused "}, ui.Part{Text: percent(share(c.Drops, c.Offered)), Bold: true}, ui.Part{Text: " of its requests."})
	case c.VirtualDrops >= 0.5:
		say = append(say, ui.Part{Text: when + " nothing was refused; enforced, " + percent(share(c.VirtualDrops, c.Offered)) + " of its requests would have been."})
	default:
		say = append(say, ui.Part{Text: when + " it refused nothing."})
	}
	return say
}

// shadowSays is what a quota in shadow, which refuses nothing, would have
// refused. What was refused in the same time an override dropped, where one stood;
// else it is of when, or where, the quota enforced, or of a cap.
func shadowSays(c rlc.Count, when string, stood []ui.Part) []ui.Part {
	would := wouldRefuse(c, stood)
	if would < 0.5 && c.Drops < 0.5 {
		return []ui.Part{{Text: when + " it would have refused nothing."}}
	}
	say := []ui.Part{{Text: when + " it would have refused "}, {Text: percent(share(would, c.Offered)), Bold: true}, {Text: " of its requests"}}
	if c.Drops >= 0.5 {
		say = append(append(say, ui.Part{Text: "; " + percent(share(c.Drops, c.Offered)) + " were refused "}), droppedBy(rlc.Shadow, stood)...)
	}
	return append(say, ui.Part{Text: "."})
}

// droppedBy says what dropped of the requests that a quota counts, where that need
// not be the quota; nothing where it is.
func droppedBy(mode rlc.Mode, stood []ui.Part) []ui.Part {
	switch {
	case mode == rlc.Shadow && stood == nil:
		return []ui.Part{{Text: "while it enforced, or by a cap"}}
	case mode == rlc.Shadow:
		return append([]ui.Part{{Text: "by "}}, stood...)
	case stood == nil:
		return nil
	}
	return append([]ui.Part{{Text: "by it or by "}}, stood...)
}

// wouldRefuse is what a quota refused or would have refused of what it counted, as
// far as no override may have dropped it.
func wouldRefuse(c rlc.Count, stood []ui.Part) float64 {
	if stood != nil {
		return c.VirtualDrops
	}
	return c.VirtualDrops + c.Drops
}

// overrideTile is the limit of a request that an override decides, with the one that
// holds below it.
func overrideTile(o *rlc.Override, below ui.Tile, v *visit) ui.Tile {
	t := ui.Tile{Label: "Limit", Figure: o.Does(), From: "the override's, until " + v.timeAs(o.Until, "15:04").Text + "; below it "}
	switch {
	case o.Action == "limit":
		t.Figure, t.Unit = rate(float64(heldTo(*o))), "req/s"
	case o.Action == "block":
		t.Figure, t.Unit = "0", "req/s"
	}
	t.From += strings.TrimSpace(below.Figure+" "+below.Unit) + ", " + below.From
	return t
}

// quotaLink is the page of a quota: of its bucket where it has none of its own.
func quotaLink(t *truth, r *row) string {
	if t.row(r.name, r.key) == nil {
		return bucketURL(t.name, r.name, nil)
	}
	return bucketURL(t.name, r.name, r.key)
}

// refusedTiles are offered, limit, what was refused and since when the limit
// stands.
func (s *server) refusedTiles(v *visit, e *explained, seen counts, age counting) ([]ui.Tile, error) {
	r := e.quota
	c := seen[r.id()]
	limit := ui.Tile{Label: "Limit", Figure: limitText(r.force()), Unit: "req/s", From: "desired, not live yet"}
	switch {
	case r.force() == nil:
		limit = ui.Tile{Label: "Limit", Figure: "—", From: "none yet: nothing is refused"}
	case r.live != nil:
		limit.From = "live in snapshot " + e.truth.live.String()
	}
	if len(e.over) > 0 && s.applied() {
		limit = overrideTile(&e.over[0], limit, v)
	}
	tiles := []ui.Tile{
		{Label: "Offered", Figure: count(c.Offered), From: "requests " + age.text + ", counted by enforcers"}, limit,
		{Label: "Refused", Figure: percent(share(c.Drops, c.Offered)), From: count(c.Drops) + " requests " + age.text},
		{Label: "Would have been", Figure: percent(share(c.VirtualDrops, c.Offered)), From: count(c.VirtualDrops) + " requests " + age.text + ", in shadow"},
		{Label: "Since", Figure: "—", From: "no refusal in the last run's four weeks"},
	}
	if seen == nil || age.none {
		from := "the counters cannot be read"
		if seen != nil {
			from = noneCounted
		}
		for _, i := range []int{0, 2, 3} {
			tiles[i].Figure, tiles[i].From = unknown, from
		}
	}
	if c.Drops >= 0.5 {
		tiles[2].Level = "bad"
	}
	if e.truth.row(r.name, r.key) == nil || r.change == nil {
		tiles[4].From = "no run has replayed it yet"
		return tiles, nil
	}
	full, err := s.Records.LatestChange(v.ctx(), e.truth.name, r.name, r.key)
	if err != nil {
		return nil, err
	}
	if b := (&row{live: r.live, desired: r.desired, change: &full}).inForce(); b == nil {
		tiles[4].From = "the last run replayed another limit"
	} else if would := wouldRefuse(c, e.stood); len(b.Episodes) == 0 && seen != nil && !age.none && would >= 0.5 {
		tiles[4].Figure, tiles[4].From = age.text, "enforcers count them; the last run's replay of four weeks, by the minute, has none"
	} else if len(b.Episodes) > 0 {
		var first, last time.Time
		for _, x := range b.Episodes {
			if first.IsZero() || x.From.Before(first) {
				first = x.From
			}
			if x.Until.After(last) {
				last = x.Until
			}
		}
		tiles[4].At = v.timeAs(first, "2 Jan 15:04")
		tiles[4].Figure = tiles[4].At.Text
		tiles[4].From = "the first of " + plural(len(b.Episodes), "episode", "episodes") + " that this limit has in four weeks; the last ended " + v.timeAs(last, "2 Jan 15:04").Text
	}
	return tiles, nil
}

// other says why the bucket with this index does not count a request: the first
// attribute that keeps the request out, or that another bucket fits more
// closely. A bucket that fits has a quota for the request, and so has one that
// counts without a key.
func (t *truth) other(i int, attrs rlc.Attributes, winner string) other {
	b := &t.service.Buckets[i]
	o := other{bucket: b, reason: whyNot(t.service, b, attrs)}
	if o.fits = o.reason == ""; o.fits {
		o.reason = "it fits too, but " + winner + " fits more closely"
	}
	if !o.fits && len(b.Each) > 0 {
		return o
	}
	var key rlc.Key
	for _, a := range b.Each {
		if key == nil {
			key = rlc.Key{}
		}
		if key[a] = attrs[a]; slices.Contains(t.service.Unknown[a], attrs[a]) {
			key[a] = ""
		}
	}
	r := t.hit(match.Hit{Bucket: i, Key: key}, attrs["region"])
	o.row = &r
	return o
}

// whyNot names the first attribute that keeps a request out of a bucket; "" where
// none does.
func whyNot(svc *rlc.Service, b *rlc.Bucket, attrs rlc.Attributes) string {
	names := slices.Clone(b.Each)
	for a := range b.Match {
		if !slices.Contains(names, a) {
			names = append(names, a)
		}
	}
	rlc.SortAttributes(names)
	for _, a := range names {
		value := attrs[a]
		if slices.Contains(svc.Unknown[a], value) {
			value = ""
		}
		p, ok := b.Match[a]
		if !ok {
			p = rlc.Pattern{Kind: rlc.Present}
		}
		if fits(p, value) {
			continue
		}
		if value == "" {
			return a + " is absent; the bucket wants " + patternText(p)
		}
		return a + " is " + value + "; the bucket wants " + patternText(p)
	}
	return ""
}

func fits(p rlc.Pattern, value string) bool {
	switch p.Kind {
	case rlc.Absent:
		return value == ""
	case rlc.Present:
		return value != ""
	case rlc.Prefix:
		return value != "" && strings.HasPrefix(value, p.Values[0])
	}
	return slices.Contains(p.Values, value)
}
