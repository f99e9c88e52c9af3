package store

import (
	"context"
	"fmt"

	"github.com/openrlc/rlc"
)

// Queue lists what is to be reviewed, the first to be put up first: the pending
// and the open proposals, without their changes, however many there are.
func (db *DB) Queue(ctx context.Context) ([]rlc.Proposal, error) {
	all, err := list(ctx, db.read, func(r row) (p rlc.Proposal, err error) {
		return p, r.Scan(&p.ID, &p.RunID, &p.Service, &p.State, &p.Branch, &p.Commit, &p.Content, &p.Human, instant{&p.Created})
	}, `SELECT id, run_id, service, state, branch, head, content, human, created FROM proposals
		WHERE state IN ('pending', 'open') ORDER BY created, id`)
	if err != nil {
		return nil, fmt.Errorf("list what is to be reviewed: %w", err)
	}
	return all, nil
}

// UnderReview lists the open proposals, those that wait left out, with their
// changes, the oldest first, however many there are.
func (db *DB) UnderReview(ctx context.Context) ([]rlc.Proposal, error) {
	all, err := list(ctx, db.read, scanProposal, `SELECT `+proposalColumns+` FROM proposals WHERE state = 'open' ORDER BY created, id`)
	if err != nil {
		return nil, fmt.Errorf("list open proposals: %w", err)
	}
	return all, nil
}
