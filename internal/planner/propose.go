package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// quarantine is how long a rejected proposal is not put up again, unless it
// differs from the rejected one by more than twice the deadband.
const quarantine = 30 * day

// propose makes the proposal that a service's changes amount to, or nil where
// none is to be put up: nothing moves, the same one is open already, a person
// works on the open one, or a person has rejected it. In the last two cases the
// changes are held with the reason. Where no quota moves, see proposeRendered.
func (p *Planner) propose(ctx context.Context, run *rlc.Run, h *head, service string, changes []rlc.Change) (*rlc.Proposal, error) {
	var moving []rlc.Change
	for _, c := range changes {
		if c.Moves() {
			moving = append(moving, c)
		}
	}
	id := run.ID + "-" + quotafile.PathSegment(service)
	proposal := &rlc.Proposal{
		ID: id, RunID: run.ID, Service: service, State: rlc.Pending, URL: p.cfg.PageURL(id),
		Base:    run.Commit,
		Content: quotafile.Hash(apply(h.config.Quotas[service], moving)),
		Changes: moving,
	}
	if svc := h.config.Service(service); svc != nil {
		proposal.Branch = p.cfg.Branch(svc)
	}
	var open rlc.Proposal // the zero value where none is
	switch page, _, err := p.cfg.Records.Proposals(ctx, rlc.Open, service, rlc.Page{Number: 1, Size: 1}); {
	case err != nil:
		return nil, fmt.Errorf("look for the open proposal of %s: %w", service, err)
	case len(page) > 0:
		open = page[0]
	}
	if open.Content == proposal.Content && (len(moving) == 0 || stands(open, proposal)) {
		return nil, nil // put up already, or merged a moment ago: whoever settles finds that
	}
	if len(moving) == 0 {
		return p.proposeRendered(ctx, run, proposal, open, changes)
	}
	rule, why := "", ""
	if open.Human {
		rule, why = "human_review", "a person has committed to the open review; what is merged there is the truth"
	} else {
		rejection, err := p.rejection(ctx, run.Now, h.config.Service(service), moving)
		if err != nil {
			return nil, err
		}
		if rejection != "" {
			rule, why = "rejected", rejection
		} else if why, err = p.unmended(ctx, proposal); err != nil {
			return nil, err
		} else if why != "" {
			rule = unmendedRule
		}
	}
	if rule == "" {
		return proposal, nil
	}
	for i := range changes {
		if changes[i].Moves() {
			hold(&changes[i], rule, why)
		}
	}
	proposal.Changes = nil
	return p.proposeRendered(ctx, run, proposal, open, changes)
}

// unmendedRule holds what could not be published before and still cannot.
const unmendedRule = "unpublishable"

// unmended is why the service's newest proposal could not be published, where that
// asked for the same and the same would happen again: that proposal stands, and
// people hear of it once.
func (p *Planner) unmended(ctx context.Context, proposal *rlc.Proposal) (string, error) {
	past, _, err := p.cfg.Records.Proposals(ctx, "", proposal.Service, rlc.Page{Number: 1, Size: 1})
	if err != nil {
		return "", fmt.Errorf("look for the proposal of %s before: %w", proposal.Service, err)
	}
	if len(past) == 0 || past[0].State != rlc.Failed || past[0].Content != proposal.Content {
		return "", nil
	}
	if err := p.cfg.Repo.Publishable(ctx, *proposal); errors.Is(err, rlc.ErrUnpublishable) && text(err) == past[0].Error {
		return past[0].Error, nil
	}
	return "", nil // mended, or another fault: publishing tells
}

// proposeRendered is propose where no quota moves: nil, or proposal, which has no
// changes. It puts up what the service's targets shall hold and do not; where they
// hold it and nothing moves any more of what is open, it closes that review.
func (p *Planner) proposeRendered(ctx context.Context, run *rlc.Run, proposal *rlc.Proposal, open rlc.Proposal, changes []rlc.Change) (*rlc.Proposal, error) {
	renders := open.ID != "" && len(open.Changes) == 0
	if open.Human || open.ID != "" && !renders && !settled(changes, open.Changes) {
		return nil, nil
	}
	stale, err := p.cfg.Repo.Stale(ctx, proposal.Service)
	switch {
	case err != nil:
		return nil, err
	case stale == "" && open.ID != "" && !renders:
		return proposal, nil
	case stale == "" || stale == open.Content && stands(open, proposal):
		return nil, nil // one that is open and done is found so by whoever settles
	}
	rejected, _, err := p.cfg.Records.Proposals(ctx, rlc.Rejected, proposal.Service, rlc.Page{Number: 1, Size: 100})
	if err != nil {
		return nil, fmt.Errorf("look for rejected proposals of %s: %w", proposal.Service, err)
	}
	for _, r := range rejected {
		if r.Content == stale && run.Now.Before(r.Decided.Add(quarantine)) {
			return nil, nil
		}
	}
	proposal.Content = stale
	return proposal, nil
}

// stands reports whether what is open is where a new proposal would be put up: the
// service's owners, or how reviews are grouped, may have changed. A person's review
// stays where it is.
func stands(open rlc.Proposal, proposal *rlc.Proposal) bool {
	return open.Human || open.Branch == "" || proposal.Branch == "" || open.Branch == proposal.Branch
}

// settled reports whether every change that was put up has been decided again
// and moves no more, or lies within the deadband: a quota that is held for want
// of evidence keeps its proposal.
func settled(now, proposed []rlc.Change) bool {
	if len(proposed) == 0 {
		return false // an empty one needs no other to close it
	}
	over := make(map[string]bool, len(now))
	for _, c := range now {
		over[c.ID()] = !c.Moves() && (c.Held == "" || c.Held == "deadband")
	}
	for _, c := range proposed {
		if !over[c.ID()] {
			return false
		}
	}
	return true
}

// rejection says who rejected these changes and for how long they stay away, ""
// where nobody did.
func (p *Planner) rejection(ctx context.Context, now time.Time, service *rlc.Service, moving []rlc.Change) (string, error) {
	rejected, _, err := p.cfg.Records.Proposals(ctx, rlc.Rejected, service.Name, rlc.Page{Number: 1, Size: 100})
	if err != nil {
		return "", fmt.Errorf("look for rejected proposals of %s: %w", service.Name, err)
	}
	for _, r := range rejected {
		until := r.Decided.Add(quarantine)
		if len(r.Changes) > 0 && now.Before(until) && !differs(service, moving, r.Changes) {
			return fmt.Sprintf("%s rejected this on %s%s; it is put up again on %s, or once it differs by more than twice the deadband",
				orSomebody(r.Actor), r.Decided.Format(time.DateOnly), because(r.Reason), until.Format(time.DateOnly)), nil
		}
	}
	return "", nil
}

func orSomebody(actor string) string {
	if actor == "" {
		return "somebody"
	}
	return actor
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// apply is what quotas.yaml holds once the changes that move are merged.
func apply(quotas []rlc.Quota, moving []rlc.Change) []rlc.Quota {
	byID := make(map[string]rlc.Quota, len(quotas)+len(moving))
	for _, q := range quotas {
		byID[q.ID()] = q
	}
	for _, c := range moving {
		if q := c.Quota(); q != nil {
			byID[c.ID()] = *q
		} else {
			delete(byID, c.ID())
		}
	}
	ids := slices.Sorted(maps.Keys(byID))
	out := make([]rlc.Quota, len(ids))
	for i, id := range ids {
		out[i] = byID[id]
	}
	return out
}

// differs reports whether one of the moving changes asks for something else
// than the rejected ones did: a mode, windows or hours of its own, its removal, or a limit further than twice
// the bucket's deadband from the rejected limit, or, where the rejected
// proposal left the quota alone, from the limit in force.
func differs(service *rlc.Service, moving, rejected []rlc.Change) bool {
	was := make(map[string]rlc.Change, len(rejected))
	for _, r := range rejected {
		was[r.ID()] = r
	}
	for _, c := range moving {
		from, mode, timed, removed := c.Old, c.OldMode, c.OldTimed, false
		if r, ok := was[c.ID()]; ok {
			from, mode, timed, removed = r.New, r.NewMode, r.NewTimed, r.Remove
		}
		if from == nil || c.NewMode != mode || c.Remove != removed || !c.NewTimed.Equal(timed) {
			return true
		}
		band := rlc.DefaultGuards().Deadband
		if b := service.Bucket(c.Bucket); b != nil && b.Guards.Deadband > 0 {
			band = b.Guards.Deadband
		}
		if apart(float64(from.Rate), float64(c.New.Rate)) > 2*band || apart(float64(from.Burst), float64(c.New.Burst)) > 2*band {
			return true
		}
	}
	return false
}

// apart is the change from a to b relative to a.
func apart(a, b float64) float64 {
	if a == b {
		return 0
	}
	return math.Abs(b-a) / a // +Inf from 0
}
