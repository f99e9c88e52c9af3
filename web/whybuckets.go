package web

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// noneCounted is why figures of the last 24 h are not known.
const noneCounted = "no enforcer has counted a request in 24 h"

// judged is one bucket of a service beside a request: how it stands to the
// request, its quota, and what that did.
type judged struct {
	name   string // the bucket's
	role   rlc.Role
	how    string // quota, cap, or no where it does not count the request
	fits   bool   // its match fits the request
	row    *row   // nil where its quota cannot be told
	reason string
	count  *rlc.Count // nil where it is not known, or has no quota
	stood  bool       // an override may have dropped of what it counted
}

// judge lists every bucket beside a request: the one that counts it, the caps
// that do so besides, those that fit less closely, those that do not fit. seen
// is nil where the counters cannot be read.
func (e *explained) judge(seen counts, age counting) (out []judged) {
	add := func(j judged) {
		if j.row != nil && seen != nil && !age.none {
			c := seen[j.row.id()]
			j.count = &c
		}
		out = append(out, j)
	}
	if e.quota != nil {
		add(judged{name: e.quota.name, role: rlc.QuotaRole, how: "quota", fits: true, row: e.quota, reason: e.quota.why, stood: e.stood != nil})
	}
	for i := range e.caps {
		add(judged{name: e.caps[i].name, role: rlc.CapRole, how: "cap", fits: true, row: &e.caps[i], reason: e.caps[i].why})
	}
	for _, fits := range []bool{true, false} {
		for _, o := range e.others {
			if o.fits == fits {
				add(judged{name: o.bucket.Name, role: o.bucket.Role, how: "no", fits: fits, row: o.row, reason: o.reason})
			}
		}
	}
	return out
}

// verdict is what a bucket's quota did to all of its requests: a word for
// programs, a sign, and words for people.
func (j *judged) verdict() (word, level, text string) {
	switch {
	case j.row == nil:
		return "", "", "—"
	case j.row.force() == nil:
		return "no_limit", "note", "no limit yet"
	case j.count == nil:
		return "unknown", "note", unknown
	}
	dropped, would := j.count.Drops, j.count.VirtualDrops
	switch {
	case j.row.mode == rlc.Shadow && j.stood:
		dropped = 0 // the override's
	case j.row.mode == rlc.Shadow: // what it did refuse is of when, or where, it enforced
		dropped, would = 0, would+dropped
	}
	switch {
	case dropped >= 0.5:
		return "refuses", "bad", "refused " + percent(share(dropped, j.count.Offered))
	case would >= 0.5:
		return "would_refuse", "warn", "would have refused " + percent(share(would, j.count.Offered))
	}
	return "nothing", "good", "refused nothing"
}

// countedFor reads what enforcers counted for a request's service; seen is nil
// where that fails.
func (s *server) countedFor(v *visit, e *explained) (counts, counting) {
	if e.quota != nil {
		e.stood = s.stoodFor(v, e.truth.name, e.quota)
	}
	counted, err := s.History.Counts(v.ctx(), e.truth.name, day, s.Now())
	if err != nil {
		return nil, counting{}
	}
	if caller := e.attrs["caller"]; caller != "" && !slices.Contains(e.truth.service.Unknown["caller"], caller) {
		e.unheard, e.meant = s.unheard(e.truth.service, []string{caller}, counted)
	}
	return countsOf(counted), s.counting(v, e.truth.name)
}

// whyGrid lists the overrides that stand for a request, then the buckets.
func (s *server) whyGrid(v *visit, e *explained, seen counts, age counting) ui.Grid {
	g := ui.Grid{Caption: "Buckets", Columns: []ui.Column{{Label: "Bucket"}, {Label: "Counts it"}, {Label: "Mode"}, {Label: "Limit", Class: "num"}, {Label: "Verdict " + age.label}, {Label: "Reason", Class: "wide"}}}
	for _, o := range e.over {
		g.Rows = append(g.Rows, []ui.Cell{{Text: o.Subject(), URL: "/emergency"}, {Text: "override"}, {Chip: ui.Chip{Mode: "override", Text: "override"}}, {Text: o.Does()}, {Text: "—", Kind: "soft"}, {Text: s.overrideTerms(v, o)}})
	}
	for _, j := range e.judge(seen, age) {
		line := []ui.Cell{{Text: j.name, URL: bucketURL(e.truth.name, j.name, nil)}, {Text: j.how}, {Text: "—", Kind: "soft"}, {Text: "—"}, {Text: "—", Kind: "soft"}, {Text: j.reason}}
		switch {
		case j.how == "no" && j.fits:
			line[1] = ui.Cell{Text: "no, it fits less closely"}
		case j.how == "no":
			line[1].Kind = "soft"
		}
		if j.row != nil {
			_, level, text := j.verdict()
			line[0] = ui.Cell{Text: quotaName(j.row.name, j.row.key), URL: quotaLink(e.truth, j.row)}
			line[2], line[3], line[4] = ui.Cell{Chip: modeChip(j.row.mode)}, ui.Cell{Text: limitText(j.row.force())}, ui.Cell{Text: text, Level: level}
		}
		g.Rows = append(g.Rows, line)
	}
	return g
}

// apiWhy is GET /api/v1/why, and /why.json.
func (s *server) apiWhy(v *visit) error {
	if v.r.URL.Query().Get("service") == "" {
		return invalid("name a service: ?service=")
	}
	e, err := s.explain(v)
	if err != nil {
		return err
	}
	seen, age := s.countedFor(v, e)
	out := object{"service": e.truth.name, "attributes": e.attrs, "bucket": nil, "key": object{}, "quota": nil, "unmatched": e.quota == nil, "counted_since": timeJSON(age.since)}
	out["overrides"], out["overridden"] = s.overridesJSON(v, e.over), len(e.over) > 0 && s.applied()
	out["unheard"] = e.unheard != ""
	out["did_you_mean"] = orNull(e.meant)
	caps, others := []object{}, []object{}
	for _, j := range e.judge(seen, age) {
		switch o := j.json(); j.how {
		case "quota":
			out["bucket"], out["key"], out["quota"] = j.name, keyJSON(j.row.key), o
		case "cap":
			caps = append(caps, o)
		default:
			others = append(others, o)
		}
	}
	out["caps"], out["others"] = caps, others
	return answer(v, http.StatusOK, out)
}

// json is a bucket beside a request for a program: its quota's fields, where it
// has one, and the rest.
func (j *judged) json() object {
	o := object{"bucket": j.name, "role": j.role}
	if j.row != nil {
		o = rowJSON(j.row)
	}
	word, _, _ := j.verdict()
	o["role"], o["fits"], o["verdict"] = j.role, j.fits, orNull(word)
	if j.how == "no" {
		o["reason"] = j.reason
	}
	o["offered_24h"], o["drops_24h"], o["virtual_drops_24h"] = nil, nil, nil
	if j.count != nil {
		o["offered_24h"], o["drops_24h"], o["virtual_drops_24h"] = j.count.Offered, j.count.Drops, j.count.VirtualDrops
	}
	return o
}

// whyCSV is /why.csv: the overrides that stand for a request, then every bucket.
func (s *server) whyCSV(v *visit) error {
	e, err := s.explain(v)
	if err != nil {
		return err
	}
	seen, age := s.countedFor(v, e)
	var rows [][]string
	for _, o := range e.over {
		rows = append(rows, []string{o.Subject(), "override", o.Does(), s.overrideTerms(v, o), "", "", "", "", "true", "", "", "", ""})
	}
	for _, j := range e.judge(seen, age) {
		word, _, _ := j.verdict()
		line := []string{j.name, j.how, "", j.reason, "", "", "", "", strconv.FormatBool(j.fits), word, "", "", ""}
		if j.row != nil {
			line[2], line[4], line[5] = limitText(j.row.force()), j.row.key.String(), string(j.row.mode)
			if l := j.row.force(); l != nil {
				line[6], line[7] = float(float64(l.Rate)), strconv.FormatInt(int64(l.Burst), 10)
			}
		}
		if j.count != nil {
			line[10], line[11], line[12] = whole(j.count.Offered), whole(j.count.Drops), whole(j.count.VirtualDrops)
		}
		rows = append(rows, line)
	}
	return sheet(v, "why", []string{"bucket", "counts", "limit", "reason", "key", "mode", "rate", "burst", "fits", "verdict", "offered_24h", "drops_24h", "virtual_drops_24h"}, rows)
}
