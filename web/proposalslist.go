package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/web/ui"
)

// listed is a page of proposals as they stand, and what was asked for.
type listed struct {
	all    []rlc.Proposal
	unread map[string]bool // by id: what its branch holds cannot be read, its numbers are the run's
	total  int
	page   rlc.Page
	filter rlc.ProposalFilter
}

// listProposals reads the filter of a list of proposals, and the list. Numbers
// that people committed to a branch take the place of the run's.
func (s *server) listProposals(v *visit) (l listed, err error) {
	q := v.r.URL.Query()
	l.filter = rlc.ProposalFilter{State: rlc.ProposalState(q.Get("state")), Service: strings.TrimSpace(q.Get("service")), Owner: strings.TrimSpace(q.Get("owner")), Kind: q.Get("kind")}
	if st := l.filter.State; st != "" && st != rlc.Pending && !slices.Contains(proposalStates, st) {
		return l, invalid("state must be open, pending, accepted, rejected, superseded or failed")
	}
	if kinds := policies.Builtin().Kinds(); l.filter.Kind != "" && !slices.Contains(kinds, l.filter.Kind) {
		return l, invalid("kind must be one of %s", strings.Join(kinds, ", "))
	}
	if l.page, err = v.page(); err != nil {
		return l, err
	}
	if l.all, l.total, err = s.Records.ProposalsBy(v.ctx(), l.filter, l.page); err != nil {
		return l, err
	}
	l.unread = s.standAsTheyAre(v.ctx(), l.all)
	return l, nil
}

// standAsTheyAre gives each proposal that a person has committed to the changes that
// its branch holds, and tells, by id, of which those cannot be read.
func (s *server) standAsTheyAre(ctx context.Context, all []rlc.Proposal) map[string]bool {
	unread := map[string]bool{}
	for i := range all {
		if !all[i].Human {
			continue
		}
		note := ""
		if all[i], note = s.asItStands(ctx, all[i]); note != onBranch {
			unread[all[i].ID] = true
		}
	}
	return unread
}

// listOfProposals is /proposals.
func (s *server) listOfProposals(v *visit) error {
	l, err := s.listProposals(v)
	if err != nil {
		return err
	}
	f, err := s.frame(v, "Proposals", "proposals")
	if err != nil {
		return err
	}
	view := ui.ProposalList{Service: l.filter.Service, Owner: l.filter.Owner, State: string(l.filter.State), Pager: v.pager(l.page, len(l.all), l.total)}
	view.States = append(view.States, ui.Choice{Label: "all", URL: v.with("state", ""), On: l.filter.State == ""})
	for _, st := range proposalStates {
		view.States = append(view.States, ui.Choice{Label: string(st), URL: v.with("state", string(st)), On: l.filter.State == st})
	}
	view.Kinds = append(view.Kinds, ui.Choice{Label: "any policy", On: l.filter.Kind == ""})
	for _, kind := range policies.Builtin().Kinds() {
		view.Kinds = append(view.Kinds, ui.Choice{Value: kind, Label: kind, On: l.filter.Kind == kind})
	}
	view.Verdict = l.verdict()
	if len(l.all) == 0 {
		view.Empty = s.noProposal(v, l.filter)
	}
	for _, p := range l.all {
		view.Rows = append(view.Rows, proposalRow(v, p, l.unread[p.ID]))
	}
	return s.render(v, http.StatusOK, ui.ProposalListPage(f, view))
}

// verdict says what the list holds, within its filter.
func (l listed) verdict() []ui.Part {
	of := ""
	if l.filter.Service != "" {
		of += " of " + l.filter.Service
	}
	if l.filter.Owner != "" {
		of += " for services of " + l.filter.Owner
	}
	if l.filter.Kind != "" {
		of += " by " + l.filter.Kind + " policies"
	}
	switch {
	case l.total == 0:
		return []ui.Part{{Text: "No proposal" + of + " here."}}
	case l.filter.State == rlc.Open:
		return []ui.Part{{Text: plural(l.total, "proposal"+of+" waits", "proposals"+of+" wait") + " for review."}}
	}
	return []ui.Part{{Text: plural(l.total, "proposal"+of, "proposals"+of) + ", newest first."}}
}

// proposes is when there is a proposal.
const proposes = "A proposal appears when a run has read history and finds a quota that has no limit yet, or whose limit should move by more than its deadband."

// noProposal says why the list is empty: a name that nothing has, a service without a
// policy, the filter, or that no run has proposed anything.
func (s *server) noProposal(v *visit, f rlc.ProposalFilter) *ui.Empty {
	if f == (rlc.ProposalFilter{}) {
		return &ui.Empty{Title: "No proposal yet", Reason: proposes, Fix: ui.Link{Text: "Runs", URL: "/runs"}}
	}
	var query []string
	for _, part := range [][2]string{{"state", string(f.State)}, {"service", f.Service}, {"owner", f.Owner}, {"kind", f.Kind}} {
		if part[1] != "" {
			query = append(query, part[0]+"="+part[1])
		}
	}
	out := &ui.Empty{Title: "Nothing to show", Reason: "No proposal fits the filter. " + proposes, Query: strings.Join(query, " "), Fix: ui.Link{Text: "Show all", URL: "/proposals"}}
	_, desired := s.Truths.Desired()
	if desired == nil {
		return out
	}
	var services, owners []string
	for _, svc := range desired.Services {
		if s.maySee(v.who, svc.Name) {
			services, owners = append(services, svc.Name), append(owners, svc.Owners...)
		}
	}
	for name := range desired.Broken {
		if s.maySee(v.who, name) {
			services = append(services, name)
		}
	}
	unmanaged := s.unmanagedFor(v.who)
	switch {
	case f.Service != "" && slices.Contains(unmanaged, f.Service):
		out.Title, out.Reason = "No policy yet", f.Service+" has traffic and no policy, so no run looks at it."
		out.Fix = ui.Link{Text: "Its first policy", URL: serviceURL(f.Service) + "/onboard"}
	case f.Service != "" && !slices.Contains(services, f.Service):
		out.Reason = "No service is called " + f.Service + meant(f.Service, append(services, unmanaged...)) + "."
	case f.Owner != "" && !slices.Contains(owners, f.Owner):
		out.Reason = "No policy names " + f.Owner + " among its owners" + meant(f.Owner, owners) + "."
	case f == (rlc.ProposalFilter{Service: f.Service}):
		out.Title, out.Reason = "No proposal of "+f.Service+" yet", proposes
		out.Fix = ui.Link{Text: "Its runs", URL: runsURL(f.Service)}
	}
	out.Reason = strings.Replace(out.Reason, "?.", "?", 1)
	return out
}

// proposalRow is a line of the list.
func proposalRow(v *visit, p rlc.Proposal, unread bool) ui.ProposalRow {
	row := ui.ProposalRow{
		Link: ui.Link{Text: plural(len(p.Changes), "quota", "quotas"), URL: proposalURL(p.ID)}, Service: ui.Link{Text: p.Service, URL: serviceURL(p.Service)},
		Chip: stateChip(p.State), Created: v.time(p.Created), By: p.Actor, Old: "—", New: "—",
	}
	up, down, fresh := moves(p.Changes)
	row.Moves = movesText(up, down, fresh)
	if old, neu, known := drops(p.Changes); known {
		row.Old, row.New = digits(old), digits(neu)
	}
	switch {
	case unread:
		row.Note = "edited; the run's numbers"
	case p.Human:
		row.Note = "edited"
	}
	if p.Reason != "" {
		row.By += ": " + clip(p.Reason, 80)
	}
	return row
}

// apiProposals is GET /api/v1/proposals, and /proposals.json.
func (s *server) apiProposals(v *visit) error {
	l, err := s.listProposals(v)
	if err != nil {
		return err
	}
	out := make([]object, 0, len(l.all))
	for _, p := range l.all {
		o := proposalJSON(p)
		o["as_edited"] = p.Human && !l.unread[p.ID]
		out = append(out, o)
	}
	return answer(v, http.StatusOK, paged("proposals", out, l.page, l.total))
}

func (s *server) proposalsCSV(v *visit) error {
	l, err := s.listProposals(v)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, p := range l.all {
		before, after := "", "" // nothing was replayed
		if old, neu, known := drops(p.Changes); known {
			before, after = whole(old), whole(neu)
		}
		rows = append(rows, []string{p.ID, p.Service, string(p.State), p.URL, strconv.Itoa(len(p.Changes)), before, after, stamp(p.Created), stamp(p.Decided), p.Actor, p.Reason, strconv.FormatBool(p.Human && !l.unread[p.ID])})
	}
	return sheet(v, "proposals", []string{"id", "service", "state", "url", "changes", "drops_old", "drops_new", "created_at", "decided_at", "actor", "reason", "as_edited"}, rows)
}
