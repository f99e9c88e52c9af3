package web

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/web/ui"
)

// deployed is the action of the audit row that a deploy leaves.
const deployed = "service.deployed"

// happening is something that explains a chart: at a time, or from one to
// another.
type happening struct {
	at, until time.Time // until is zero for what happened at once
	kind      string    // deploy, run, accepted, promote, override, event or excluded
	label     string    // a word or two, for the chart
	what      ui.Link   // for the table
}

// happenings are what a chart of a service marks in a window, oldest first; r
// narrows them to what concerns one quota, nil does not.
func (s *server) happenings(v *visit, t *truth, r *row, w rlc.Window, proposals []rlc.Proposal, promotions []rollout.Promotion) ([]happening, error) {
	var all []happening
	add := func(h happening) {
		once := h.until.IsZero() && !h.at.Before(w.From) && h.at.Before(w.Until)
		if once || h.until.After(w.From) && h.at.Before(w.Until) {
			all = append(all, h)
		}
	}
	for _, p := range proposals {
		if r != nil && !slices.ContainsFunc(p.Changes, func(c rlc.Change) bool { return r.is(&c) }) {
			continue
		}
		add(happening{at: p.Created, kind: "run", label: "run", what: ui.Link{Text: "a run proposed " + proposalLine(p), URL: runURL(p.RunID)}})
		if p.State == rlc.Accepted {
			add(happening{at: p.Decided, kind: "accepted", label: "accepted", what: ui.Link{Text: "accepted by " + orNobody(p.Actor), URL: proposalURL(p.ID)}})
		}
	}
	for _, p := range promotions {
		if r == nil || p.Bucket == r.plain() {
			add(happening{at: p.Started, kind: "promote", label: "enforce", what: ui.Link{Text: p.Bucket + " goes from shadow to enforce, by " + p.Actor, URL: serviceURL(t.name) + "/history"}})
		}
	}
	overrides, err := s.touching(v, t, r)
	if err != nil {
		return nil, err
	}
	for _, o := range overrides {
		add(happening{at: o.From, until: o.Until, kind: "override", label: "override", what: ui.Link{Text: o.Subject() + " " + o.Does() + ", by " + o.Actor + ": " + o.Reason, URL: "/emergency"}})
	}
	deploys, _, err := s.Identities.AuditLog(v.ctx(), rlc.AuditFilter{Action: deployed, Object: t.name, From: w.From, Until: w.Until}, rlc.Page{Number: 1, Size: mostMarks})
	if err != nil {
		return nil, err
	}
	for _, d := range deploys {
		if d.Object == t.name { // the filter takes a part of it
			add(happening{at: d.At, kind: "deploy", label: clip(d.Detail, 18), what: ui.Link{Text: "deploy of " + d.Detail + ", told by " + d.Actor}})
		}
	}
	if t.service != nil {
		for _, e := range t.service.Events {
			add(happening{at: e.From, until: e.Until, kind: "event", label: clip(e.Name, 18), what: ui.Link{Text: "event " + e.Name + ", × " + trim(e.Multiply, 2)}})
		}
	}
	for _, x := range windows(t, r) {
		label := cmp.Or(clip(x.Reason, 18), "left out")
		add(happening{at: x.From, until: x.Until, kind: "excluded", label: label, what: ui.Link{Text: "left out of history: " + cmp.Or(x.Reason, "not counted")}})
	}
	slices.SortStableFunc(all, func(a, b happening) int { return a.at.Compare(b.at) })
	return all[max(0, len(all)-mostMarks):], nil
}

// mostMarks bounds what a chart marks: the newest.
const mostMarks = 50

// latelyShown bounds the overrides that a page knows of: the newest.
const latelyShown = 200

// lately are the newest overrides of all services, the newest first: read once for a
// page.
func (s *server) lately(v *visit) ([]rlc.Override, error) {
	if v.lately == nil {
		log, _, err := s.Records.OverrideLog(v.ctx(), rlc.Page{Number: 1, Size: latelyShown})
		v.lately = &overrideLog{log, err}
	}
	return v.lately.list, v.lately.err
}

// touching are the newest overrides of a service, the newest first: what was
// held, blocked or lifted by hand. With r only what touches that quota counts.
func (s *server) touching(v *visit, t *truth, r *row) ([]rlc.Override, error) {
	log, err := s.lately(v)
	if err != nil {
		return nil, err
	}
	var out []rlc.Override
	for _, o := range log {
		if o.Service != t.name && o.Service != "*" {
			continue
		}
		if r != nil {
			if some, _ := s.touchesBucket(o, t.name, r.plain(), r.key); !some {
				continue
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// marks are happenings as a chart shows them.
func marks(all []happening) []mark {
	out := []mark{}
	for _, h := range all {
		m := mark{T: h.at.Unix(), Label: h.label, Kind: h.kind}
		if !h.until.IsZero() {
			m.Until = h.until.Unix()
		}
		out = append(out, m)
	}
	return out
}

// markTable is the same as a table, the newest first.
func markTable(v *visit, all []happening) ui.Grid {
	g := ui.Grid{Caption: "What the chart marks", Columns: []ui.Column{{Label: "When"}, {Label: "Lasted", Class: "num"}, {Label: "Kind"}, {Label: "What", Class: "wide"}}}
	for _, h := range slices.Backward(all) {
		lasted := "—"
		if !h.until.IsZero() {
			lasted = span(h.until.Sub(h.at))
		}
		g.Rows = append(g.Rows, []ui.Cell{{At: v.timeAs(h.at, "Mon 2 Jan 15:04")}, {Text: lasted}, {Text: h.kind}, {Text: h.what.Text, URL: h.what.URL}})
	}
	return g
}

// apiDeploy records that a service was deployed, so that its charts mark when.
func (s *server) apiDeploy(v *visit) error {
	var in struct {
		Version string     `json:"version"`
		At      *time.Time `json:"at"` // nil: now
	}
	if err := read(v, &in); err != nil {
		return err
	}
	name, now := v.r.PathValue("service"), s.Now().UTC()
	if _, err := s.known(name); err != nil {
		return err
	}
	in.Version = strings.TrimSpace(in.Version)
	at := now
	if in.At != nil {
		at = in.At.UTC()
	}
	switch {
	case in.Version == "" || len(in.Version) > 100:
		return invalid("version must be 1 to 100 bytes: what was deployed")
	case at.After(now.Add(time.Minute)) || at.Before(now.Add(-window)):
		return invalid("at must lie within the last 28 days")
	}
	err := s.Identities.AddAudit(v.ctx(), rlc.AuditEntry{At: at, Actor: v.who.name, Action: deployed, Object: name, Detail: in.Version})
	if err != nil {
		return err
	}
	return answer(v, http.StatusCreated, object{"service": name, "version": in.Version, "at": at})
}
