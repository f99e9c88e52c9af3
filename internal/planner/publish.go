package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/escape"
	"github.com/openrlc/rlc/internal/fault"
)

// Waits before publishing is tried again: full jitter up to the first, doubled
// by each failure, up to the last.
const (
	firstWait = 5 * time.Second
	lastWait  = 15 * time.Minute
)

// mostText bounds, in characters, what is kept of an error.
const mostText = 1000

// publish carries out the outbox rows, of the runs wanted, that are due and whose
// turn has come. An error says that some failed; one that waits for its turn did
// not.
func (p *Planner) publish(ctx context.Context, wanted func(runID string) bool) error {
	rows, err := p.cfg.Records.Outbox(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	var waits map[string]string
	if p.cfg.Waiting != nil {
		if waits, err = p.cfg.Waiting(ctx); err != nil {
			return err
		}
	}
	var failed []error
	for _, row := range rows {
		why := waits[row.ProposalID]
		if why != "" && p.told[row.ProposalID] == why {
			continue
		}
		proposal, err := p.cfg.Records.ProposalByID(ctx, row.ProposalID)
		switch {
		case err != nil:
			return err
		case !wanted(proposal.RunID):
			continue
		case why != "":
			if err := p.waits(ctx, proposal, why); err != nil {
				return err
			}
			continue
		case p.now().Before(row.NotBefore):
			failed = append(failed, fmt.Errorf("publish %s: %s; next try at %s", proposal.Service, row.LastError, row.NotBefore.Format(time.RFC3339)))
			continue
		}
		if err := p.publishOne(ctx, row, proposal); err != nil {
			if ctx.Err() != nil || errors.Is(err, rlc.ErrFenced) {
				return err
			}
			failed = append(failed, err)
		}
	}
	maps.DeleteFunc(p.told, func(id, _ string) bool { return waits[id] == "" })
	return some(failed)
}

// waits notes with a proposal why it is not put up yet.
func (p *Planner) waits(ctx context.Context, proposal rlc.Proposal, why string) error {
	if proposal.Reason != why || proposal.Error != "" {
		proposal.Reason, proposal.Error = why, ""
		if err := p.cfg.Records.SetProposal(ctx, proposal, nil); err != nil && !errors.Is(err, rlc.ErrConflict) {
			return fmt.Errorf("note that %s waits: %w", proposal.ID, err)
		}
	}
	p.told[proposal.ID] = why
	return nil
}

// some joins the first errors of a list and says how many more there are; nil
// for none.
func some(all []error) error {
	if n := len(all) - mostTrouble; n > 0 {
		all = append(slices.Clone(all[:mostTrouble]), fmt.Errorf("and %d more", n))
	}
	return errors.Join(all...)
}

func (p *Planner) publishOne(ctx context.Context, row rlc.OutboxRow, proposal rlc.Proposal) error {
	proposal.Reason = "" // its wait is over
	published, err := p.cfg.Publisher.Publish(ctx, proposal)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, rlc.ErrFenced) {
			return fmt.Errorf("publish %s: %w", proposal.Service, err) // it did not fail: it was interrupted
		}
		p.cfg.Log.Warn("proposal not published", "proposal", proposal.ID, "attempts", row.Attempts+1, "error", err)
		if errors.Is(err, rlc.ErrUnpublishable) {
			return p.giveUp(ctx, proposal, err)
		}
		return errors.Join(err, p.cfg.Records.OutboxFailed(ctx, proposal.ID, text(err), p.now().Add(p.backoff(row.Attempts))))
	}
	fault.Hit("after-publish")
	if published.State == rlc.Pending {
		published.State = rlc.Open
	}
	if published.State != rlc.Open && published.Decided.IsZero() {
		// It is on the base branch already, or nothing was left to change.
		published.Decided, published.Actor = p.now(), "rlc"
	}
	published.Error = ""
	err = p.cfg.Records.Published(ctx, p.cfg.Epoch(), published, nil)
	if errors.Is(err, rlc.ErrConflict) {
		return nil // decided meanwhile, and out of the outbox with that
	}
	if err != nil {
		return fmt.Errorf("record %s as published: %w", proposal.ID, err)
	}
	fault.Hit("after-record")
	return nil
}

// giveUp ends a proposal that no later try could publish.
func (p *Planner) giveUp(ctx context.Context, proposal rlc.Proposal, why error) error {
	proposal.State, proposal.Decided, proposal.Actor, proposal.Error = rlc.Failed, p.now(), "rlc", text(why)
	err := p.cfg.Records.Published(ctx, p.cfg.Epoch(), proposal, &rlc.AuditEntry{
		At: proposal.Decided, Actor: "rlc", Action: "proposal.failed", Object: proposal.ID, Detail: proposal.Error})
	if errors.Is(err, rlc.ErrConflict) {
		return nil // decided meanwhile
	}
	if err != nil {
		return fmt.Errorf("record %s as failed: %w", proposal.ID, err)
	}
	return nil
}

// unpublished adds to the run's detail which of its proposals cannot be
// published: it is failed where that is all of them, else degraded. It is read
// from the records, so that a resumed run ends as it would have ended.
func (p *Planner) unpublished(ctx context.Context, run *rlc.Run) error {
	failed, err := p.proposalsOf(ctx, *run, rlc.Failed)
	if err != nil || len(failed) == 0 {
		return err
	}
	all, err := p.proposalsOf(ctx, *run, "")
	if err != nil {
		return err
	}
	var trouble []string
	for _, f := range failed {
		trouble = append(trouble, notPublished(f.Service, f.Error))
	}
	by := degradedBy
	if len(failed) == len(all) {
		by = failedBy
	}
	before := strings.TrimPrefix(run.Detail, degradedBy)
	if run.Detail = by + sentence(trouble); before != "" {
		run.Detail += "; " + before
	}
	return nil
}

// notPublished says that a service's numbers are not up, and why.
func notPublished(service, why string) string {
	return "the proposal for " + service + " is not published: " + why
}

// proposalsOf are a run's proposals in a state, "" for all.
func (p *Planner) proposalsOf(ctx context.Context, run rlc.Run, state rlc.ProposalState) (out []rlc.Proposal, err error) {
	const size = 100
	for page := 1; ; page++ {
		all, total, err := p.cfg.Records.Proposals(ctx, state, run.Service, rlc.Page{Number: page, Size: size})
		if err != nil {
			return nil, fmt.Errorf("look for the proposals of %s: %w", run.ID, err)
		}
		for _, o := range all {
			if o.RunID == run.ID {
				out = append(out, o)
			}
		}
		// The newest come first, and a run makes its proposals after it started.
		if page*size >= total || len(all) == 0 || all[len(all)-1].Created.Before(run.Started) {
			return out, nil
		}
	}
}

// text is an error as it is kept: one line, bounded.
func text(err error) string { return escape.Clip(escape.Line(err.Error()), mostText) }

// backoff is how long to wait after one more failure than attempts.
func (p *Planner) backoff(attempts int) time.Duration {
	most := lastWait
	if attempts < 10 {
		most = min(firstWait<<attempts, lastWait)
	}
	return p.cfg.Jitter(most)
}
