package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/fault"
)

// Waits before publishing is tried again: full jitter up to the first, doubled
// by each failure, up to the last.
const (
	firstWait = 5 * time.Second
	lastWait  = 15 * time.Minute
)

// publish carries out the outbox rows of one run that are due. An error says
// that some remain.
func (p *Planner) publish(ctx context.Context, run rlc.Run) error {
	rows, err := p.cfg.Records.Outbox(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, row := range rows {
		proposal, err := p.cfg.Records.ProposalByID(ctx, row.ProposalID)
		if err != nil {
			return err
		}
		if proposal.RunID != run.ID {
			continue
		}
		if p.now().Before(row.NotBefore) {
			failed = append(failed, fmt.Errorf("publish %s: %s; next try at %s", proposal.ID, row.LastError, row.NotBefore.Format(time.RFC3339)))
			continue
		}
		if err := p.publishOne(ctx, row, proposal); err != nil {
			if ctx.Err() != nil || errors.Is(err, rlc.ErrFenced) {
				return err
			}
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (p *Planner) publishOne(ctx context.Context, row rlc.OutboxRow, proposal rlc.Proposal) error {
	published, err := p.cfg.Publisher.Publish(ctx, proposal)
	if err != nil {
		err = fmt.Errorf("publish %s: %w", proposal.ID, err)
		if ctx.Err() != nil || errors.Is(err, rlc.ErrFenced) {
			return err // it did not fail: it was interrupted
		}
		p.cfg.Log.Warn("proposal not published", "proposal", proposal.ID, "attempts", row.Attempts+1, "error", err)
		return errors.Join(err, p.cfg.Records.OutboxFailed(ctx, proposal.ID, err.Error(), p.now().Add(p.backoff(row.Attempts))))
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

// backoff is how long to wait after one more failure than attempts.
func (p *Planner) backoff(attempts int) time.Duration {
	most := lastWait
	if attempts < 10 {
		most = min(firstWait<<attempts, lastWait)
	}
	return p.cfg.Jitter(most)
}
