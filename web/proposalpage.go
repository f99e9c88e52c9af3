package web

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// reviewURL is where a forge shows a proposal; "" where only this page does.
func reviewURL(p rlc.Proposal) string {
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || strings.HasSuffix(u.Path, "/proposals/"+p.ID) {
		return ""
	}
	return p.URL
}

// inForce reports whether live holds every number of a proposal.
func (s *server) inForce(p rlc.Proposal) bool {
	_, live := s.Truths.Live()
	if live == nil || len(p.Changes) == 0 {
		return false
	}
	for i := range p.Changes {
		want, have := p.Changes[i].Quota(), live.QuotaByID(p.Service, p.Changes[i].ID())
		if (want == nil) != (have == nil) || want != nil && !have.Same(*want) {
			return false
		}
	}
	return true
}

// liveEvent says whether an accepted proposal's numbers are in force. Numbers that a
// later revision replaced are not, and nothing is said to come.
func (s *server) liveEvent(p rlc.Proposal) ui.Event {
	version, live := s.Truths.Live()
	if s.inForce(p) {
		have, acks := 0, s.Truths.Acks()
		for _, a := range acks {
			if a.Refused == "" && a.Version.Compare(version) >= 0 {
				have++
			}
		}
		return ui.Event{Label: "now", Parts: []ui.Part{{Text: fmt.Sprintf("In force: snapshot %s, which %d of %s acknowledged", version, have, plural(len(acks), "enforcer", "enforcers"))}}}
	}
	_, desired := s.Truths.Desired()
	for i := range p.Changes {
		want := p.Changes[i].Quota()
		if desired == nil || live == nil || want == nil {
			continue
		}
		if q := desired.QuotaByID(p.Service, want.ID()); q != nil && q.Same(*want) {
			return ui.Event{Label: "next", Next: true, Parts: []ui.Part{{Text: "Enforcers load the new snapshot within seconds"}}}
		}
	}
	return ui.Event{Label: "since", Parts: []ui.Part{{Text: "Later revisions have other numbers"}, {Text: ": "}, {Text: "History", URL: serviceURL(p.Service) + "/history"}}}
}

// rest counts the service's quotas that a proposal leaves alone.
func (s *server) rest(p rlc.Proposal, svc *rlc.Service) ui.Link {
	_, desired := s.Truths.Desired()
	if desired == nil || svc == nil {
		return ui.Link{}
	}
	n := 0
	moved := map[string]bool{}
	for i := range p.Changes {
		moved[p.Changes[i].ID()] = true
	}
	for _, q := range desired.Quotas[p.Service] {
		if !moved[q.ID()] {
			n++
		}
	}
	if n == 0 {
		return ui.Link{}
	}
	return ui.Link{Text: plural(n, "quota stays as it is", "quotas stay as they are"), URL: serviceURL(p.Service)}
}

// capacityText says how much of the declared capacity all quotas of the service take
// once the changes are in force; "" without one.
func (s *server) capacityText(svc *rlc.Service, changes []rlc.Change) string {
	_, desired := s.Truths.Desired()
	if svc == nil || svc.Capacity == nil || svc.Capacity.Rate <= 0 || desired == nil {
		return ""
	}
	counts := func(bucket string) bool {
		b := svc.Bucket(bucket)
		return b != nil && b.Role == rlc.QuotaRole
	}
	sum, moved := 0.0, map[string]bool{}
	for i := range changes {
		c := &changes[i]
		moved[c.ID()] = true
		if q := c.Quota(); q != nil && q.Region == "" && counts(q.Bucket) {
			sum += float64(q.Rate)
		}
	}
	for _, q := range desired.Quotas[svc.Name] {
		if !moved[q.ID()] && q.Region == "" && q.Zone == "" && counts(q.Bucket) {
			sum += float64(q.Rate)
		}
	}
	for _, b := range svc.Buckets {
		if b.Role == rlc.QuotaRole && b.Limit != nil {
			sum += float64(b.Limit.Rate)
		}
	}
	return "Σ of all quotas then " + rate(sum) + ": " + percent(sum/float64(svc.Capacity.Rate)) + " of capacity " + rate(float64(svc.Capacity.Rate))
}

// ownedBy names the owners of a caller, with what leads to them in a sentence; ""
// where nobody is known.
func (s *server) ownedBy(caller string) string {
	_, desired := s.Truths.Desired()
	if caller == "" || desired == nil {
		return ""
	}
	if svc := desired.Service(caller); svc != nil && len(svc.Owners) > 0 {
		return "; owner " + strings.Join(svc.Owners, ", ")
	}
	return ""
}

// replayedRequests is how many requests the proposed limits were replayed against.
func replayedRequests(all []rlc.Change) (n float64) {
	adds := rlc.Summable(all)
	for i := range all {
		if c := &all[i]; c.Backtest.New != nil && adds(c) {
			n += c.Backtest.New.Requests
		}
	}
	return n
}
