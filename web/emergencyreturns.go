package web

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web/ui"
)

// mostReturning bounds the limits that an override's line names, and
// mostReturningJSON those that its JSON does.
const (
	mostReturning     = 2
	mostReturningJSON = 20
)

// returning is a limit that holds requests of an override again once that ends.
type returning struct {
	bucket string
	region string
	key    rlc.Key
	limit  rlc.Limit // as it is when the override ends
	mode   rlc.Mode
	all    bool // all of its requests are the override's
}

// returns are the limits that hold an override's requests again when it ends: as
// live, else as desired, those that are the override's alone first, then the
// lowest. unknown says why they are not known, or that they are those of every
// service; "" where they are.
func (s *server) returns(o rlc.Override) (out []returning, unknown string) {
	if o.Service == "*" {
		return nil, "every service's own limits"
	}
	_, c := s.Truths.Live()
	if c == nil || c.Service(o.Service) == nil {
		_, c = s.Truths.Desired()
	}
	if c == nil || c.Service(o.Service) == nil {
		return nil, "not known: no policy of " + o.Service + " can be read"
	}
	out = returningOf(c, c.Service(o.Service), o)
	slices.SortStableFunc(out, func(a, b returning) int {
		switch {
		case a.all != b.all:
			return map[bool]int{true: -1, false: 1}[a.all]
		case a.limit.Rate != b.limit.Rate:
			return cmp.Compare(a.limit.Rate, b.limit.Rate)
		}
		return strings.Compare(rlc.QuotaID(a.bucket, a.key), rlc.QuotaID(b.bucket, b.key))
	})
	return out, ""
}

// returningOf are the limits of a service that touch an override: its quotas, those
// that stand in a bucket, and those that a bucket has for keys without a quota
// where none of its quotas is touched.
func returningOf(c *quotafile.Config, svc *rlc.Service, o rlc.Override) (out []returning) {
	touched := map[string]bool{}
	add := func(b *rlc.Bucket, q rlc.Quota, mode rlc.Mode) {
		key := q.Key
		if q.Region != "" {
			key = maps.Clone(key)
			if key == nil {
				key = rlc.Key{}
			}
			key["region"] = q.Region
		}
		if some, all := o.Touches(b.Match, key); some {
			touched[b.Name] = true
			out = append(out, returning{b.Name, q.Region, q.Key, q.At(o.Until), mode, all})
		}
	}
	for _, q := range c.Quotas[svc.Name] {
		if b := svc.Bucket(q.Bucket); b != nil {
			mode := b.Mode
			if q.Mode == rlc.Shadow {
				mode = rlc.Shadow
			}
			add(b, q, mode)
		}
	}
	for i := range svc.Buckets {
		b := &svc.Buckets[i]
		limit := b.Limit
		if limit == nil {
			limit = b.NewKey.Limit
		}
		if limit != nil && !touched[b.Name] {
			add(b, rlc.Quota{Bucket: b.Name, Limit: *limit}, b.Mode)
		}
	}
	return out
}

// text is one of them in words: callers / search 260 req/s (burst 520, shadow).
func (r returning) text() string {
	name := quotaName(r.bucket, r.key)
	if r.region != "" {
		name += " in " + r.region
	}
	return name + " " + rate(float64(r.limit.Rate)) + " req/s (burst " + count(float64(r.limit.Burst)) + ", " + string(r.mode) + ")"
}

// returnSays is what holds when an override ends: "then callers / search 260 req/s
// (burst 520, shadow) holds again".
func (s *server) returnSays(o rlc.Override) []ui.Part {
	all, unknown := s.returns(o)
	if unknown != "" {
		if o.Service == "*" {
			return []ui.Part{{Text: "Then " + unknown + " hold again."}}
		}
		return []ui.Part{{Text: "What holds then is " + unknown + "."}}
	}
	if len(all) == 0 {
		return []ui.Part{{Text: "Then no limit of " + o.Service + " holds these requests."}}
	}
	say := []ui.Part{{Text: "Then "}}
	for i, r := range all[:min(len(all), mostReturning)] {
		switch {
		case i > 0 && i == len(all)-1:
			say = append(say, ui.Part{Text: " and "})
		case i > 0:
			say = append(say, ui.Part{Text: ", "})
		}
		say = append(say, ui.Part{Text: r.text(), URL: bucketURL(o.Service, r.bucket, r.key)})
	}
	if more := len(all) - mostReturning; more > 0 {
		say = append(say, ui.Part{Text: " and "}, ui.Part{Text: plural(more, "more limit", "more limits"), URL: serviceURL(o.Service)})
	}
	again := " hold again."
	if len(all) == 1 {
		again = " holds again."
	}
	if others := goesOn(besides(s.othersOn(o))); others != nil {
		return append(append(say, ui.Part{Text: again + " "}), others...)
	}
	return append(say, ui.Part{Text: again})
}

// standingJSON is an override for whoever may see all of its service: with what
// it did and what holds when it ends, where it stands.
func (s *server) standingJSON(o rlc.Override, d did) object {
	out := s.overrideJSON(o)
	out["did"], out["did_says"] = nil, nil
	out["returns"], out["returns_total"], out["returns_says"] = nil, nil, nil
	if !o.Stands(s.Now()) {
		return out
	}
	if c, ok := d.counts[o.ID]; ok {
		out["did"] = object{"judged": math.Round(c.Judged), "drops": math.Round(c.Drops), "seconds": recent.Seconds()}
	}
	if text := textOf(d.says(o)); text != "" {
		out["did_says"] = text
	}
	all, unknown := s.returns(o)
	limits := []object{}
	for _, r := range all[:min(len(all), mostReturningJSON)] {
		limits = append(limits, object{"bucket": r.bucket, "region": orNull(r.region), "key": keyJSON(r.key), "rate": r.limit.Rate, "burst": r.limit.Burst, "mode": r.mode, "all": r.all})
	}
	out["returns"], out["returns_total"], out["returns_says"] = limits, len(all), textOf(s.returnSays(o))
	if unknown != "" {
		out["returns_total"] = nil
	}
	return out
}

// returnCell is what holds when an override ends, for those that stand: "" for
// others.
func (s *server) returnCell(o rlc.Override) string {
	if !o.Stands(s.Now()) {
		return ""
	}
	return textOf(s.returnSays(o))
}

// standingPage reads which part of the overrides that stand is asked for.
func standingPage(v *visit) (rlc.Page, error) {
	p := rlc.Page{Number: 1}
	text := v.r.URL.Query().Get("standing")
	if text == "" {
		return p, nil
	}
	n, ok := positive(text)
	if !ok || n > 1_000_000 {
		return p, invalid("standing must be a page's number, from 1 on")
	}
	p.Number = n
	return p, nil
}

// standing puts the part of the overrides that stand, of all, on the page.
func (s *server) standing(v *visit, all []rlc.Override, p rlc.Page, view *ui.Emergency) error {
	part := cut(all, p)
	if len(part) == 0 && p.Number > 1 {
		return fault{status: http.StatusNotFound, detail: "There is no page " + strconv.Itoa(p.Number) + " of the overrides that stand; there " + map[bool]string{true: "is ", false: "are "}[len(all) == 1] + plural(len(all), "override", "overrides") + "."}
	}
	did := s.overridesDid(v.ctx(), part)
	for _, o := range part {
		row := s.standingRow(v, o, did)
		row.Returns = s.returnSays(o)
		view.Standing = append(view.Standing, row)
	}
	if len(all) == 0 {
		return nil
	}
	at := strconv.Itoa(p.Number)
	view.StandingPager = ui.Pager{Range: count(float64(p.Offset()+1)) + "–" + count(float64(p.Offset()+len(part))) + " of " + count(float64(len(all))), CSV: "/emergency.csv?page=" + at, JSON: "/emergency.json?page=" + at}
	if p.Number > 1 {
		view.StandingPager.Prev = v.with("standing", strconv.Itoa(p.Number-1)) + "#active"
	}
	if p.Offset()+len(part) < len(all) {
		view.StandingPager.Next = v.with("standing", strconv.Itoa(p.Number+1)) + "#active"
	}
	return nil
}
