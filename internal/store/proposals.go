package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
)

const proposalColumns = `id, run_id, service, state, url, branch, head, base, content, human, created, decided, actor, reason, error, changes`

func scanProposal(r row) (rlc.Proposal, error) {
	var p rlc.Proposal
	var changes string
	err := r.Scan(&p.ID, &p.RunID, &p.Service, &p.State, &p.URL, &p.Branch, &p.Commit, &p.Base, &p.Content, &p.Human,
		instant{&p.Created}, instant{&p.Decided}, &p.Actor, &p.Reason, &p.Error, &changes)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal([]byte(changes), &p.Changes); err != nil {
		return p, fmt.Errorf("stored changes of proposal %s: %w", p.ID, err)
	}
	return p, nil
}

// addProposal stores a run's proposal as pending with its outbox row; what was
// pending or open for the service becomes superseded.
func addProposal(ctx context.Context, tx *sql.Tx, run rlc.Run, p rlc.Proposal) error {
	if p.ID == "" || p.Service == "" {
		return fmt.Errorf("%w: a proposal without id or service", rlc.ErrInvalid)
	}
	if err := names(p.ID, p.Service, p.URL, p.Branch, p.Commit, p.Base, p.Content, p.Actor, p.Reason, p.Error); err != nil {
		return err
	}
	changes, err := document(p.Changes)
	if err != nil {
		return fmt.Errorf("proposal %s: %w", p.ID, err)
	}
	for _, q := range []struct {
		query string
		args  []any
	}{
		{`DELETE FROM outbox WHERE proposal_id IN (SELECT id FROM proposals WHERE service = $1 AND state IN ('pending', 'open'))`,
			[]any{p.Service}},
		{`UPDATE proposals SET state = 'superseded', decided = $2, actor = 'rlc', reason = $3 WHERE service = $1 AND state IN ('pending', 'open')`,
			[]any{p.Service, micros(p.Created), rlc.SupersededBy + p.ID}},
		{`INSERT INTO proposals (` + proposalColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
			[]any{p.ID, run.ID, p.Service, rlc.Pending, p.URL, p.Branch, p.Commit, p.Base, p.Content, p.Human,
				micros(p.Created), micros(p.Decided), p.Actor, p.Reason, p.Error, changes}},
		{`INSERT INTO outbox (proposal_id, attempts, not_before, last_error) VALUES ($1, 0, 0, '')`, []any{p.ID}},
	} {
		if _, err := tx.ExecContext(ctx, q.query, q.args...); err != nil {
			return fmt.Errorf("proposal %s: %w", p.ID, err)
		}
	}
	return nil
}

// Proposals returns a page of proposals with their changes, the newest first,
// and how many there are. An empty state or service means all; Open includes
// Pending.
func (db *DB) Proposals(ctx context.Context, state rlc.ProposalState, service string, p rlc.Page) ([]rlc.Proposal, int, error) {
	return db.ProposalsBy(ctx, rlc.ProposalFilter{State: state, Service: service}, p)
}

// ProposalByID returns a proposal, or rlc.ErrNotFound.
func (db *DB) ProposalByID(ctx context.Context, id string) (rlc.Proposal, error) {
	p, err := one(ctx, db.read, scanProposal, `SELECT `+proposalColumns+` FROM proposals WHERE id = $1`, id)
	return p, found(err, "proposal", id)
}

// SetProposal writes what became of a proposal: everything but its identity,
// its creation and its changes. audit, where it is not nil, is written in the
// same transaction. Deciding a proposal takes it out of the outbox.
//
// A decided proposal stays as it was decided, so that of two people who decide
// otherwise one gets rlc.ErrConflict, and the same decision told twice leaves one
// audit row. Only a superseded one may still turn out to have been accepted, and
// what was found done by nobody known gets its name from whoever did it.
func (db *DB) SetProposal(ctx context.Context, p rlc.Proposal, audit *rlc.AuditEntry) error {
	return db.transact(ctx, "set proposal "+p.ID, func(tx *sql.Tx) error {
		return setProposal(ctx, tx, p, audit)
	})
}

// SeenProposal is SetProposal for what was seen of the branch of a proposal that
// was read as was. Where the record holds another commit by now, what was seen is
// older than that: it is rlc.ErrConflict, and the record stays.
func (db *DB) SeenProposal(ctx context.Context, was, seen rlc.Proposal) error {
	return db.transact(ctx, "set proposal "+seen.ID, func(tx *sql.Tx) error {
		// Written, as in setProposal: nobody writes between the look and the write.
		var head string
		if err := tx.QueryRowContext(ctx, `UPDATE proposals SET state = state WHERE id = $1 RETURNING head`, seen.ID).Scan(&head); err != nil {
			return found(err, "proposal", seen.ID)
		}
		if head != was.Commit {
			return fmt.Errorf("%w: its branch moved on", rlc.ErrConflict)
		}
		return setProposal(ctx, tx, seen, nil)
	})
}

// Published is SetProposal and OutboxDone in one transaction, fenced by the
// epoch of the leader that published; 0 is not fenced.
func (db *DB) Published(ctx context.Context, epoch uint64, p rlc.Proposal, audit *rlc.AuditEntry) error {
	return db.Fenced(epoch).transact(ctx, "publish proposal "+p.ID, func(tx *sql.Tx) error {
		if err := setProposal(ctx, tx, p, audit); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM outbox WHERE proposal_id = $1`, p.ID)
		return err
	})
}

func setProposal(ctx context.Context, tx *sql.Tx, p rlc.Proposal, audit *rlc.AuditEntry) error {
	var old rlc.ProposalState
	var by string
	// Written, not only read: of two people who decide at once one waits here.
	if err := tx.QueryRowContext(ctx, `UPDATE proposals SET state = state WHERE id = $1 RETURNING state, actor`, p.ID).Scan(&old, &by); err != nil {
		return found(err, "proposal", p.ID)
	}
	if decided(old) && p.State != old && (old != rlc.Superseded || p.State != rlc.Accepted) {
		return fmt.Errorf("%w: it is %s", rlc.ErrConflict, old)
	}
	if decided(old) && p.State == old && (by != "" || p.Actor == "") {
		return nil // whoever acted and whoever found the act both tell of it
	}
	if !decided(p.State) && p.State != rlc.Pending && p.State != rlc.Open {
		return fmt.Errorf("%w: proposal state %q", rlc.ErrInvalid, p.State)
	}
	if err := names(p.URL, p.Branch, p.Commit, p.Base, p.Content, p.Actor, p.Reason, p.Error); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `
		UPDATE proposals SET state = $1, url = $2, branch = $3, head = $4, base = $5, content = $6, human = $7,
			decided = $8, actor = $9, reason = $10, error = $11 WHERE id = $12`,
		p.State, p.URL, p.Branch, p.Commit, p.Base, p.Content, p.Human, micros(p.Decided), p.Actor, p.Reason, p.Error, p.ID)
	if err != nil {
		return err
	}
	if decided(p.State) {
		if _, err := tx.ExecContext(ctx, `DELETE FROM outbox WHERE proposal_id = $1`, p.ID); err != nil {
			return err
		}
	}
	if audit == nil {
		return nil
	}
	return addAudit(ctx, tx, *audit)
}

func decided(s rlc.ProposalState) bool {
	return s == rlc.Accepted || s == rlc.Rejected || s == rlc.Superseded || s == rlc.Failed
}

// Outbox returns what is to be published, the oldest proposal first.
func (db *DB) Outbox(ctx context.Context) ([]rlc.OutboxRow, error) {
	rows, err := list(ctx, db.read, func(r row) (o rlc.OutboxRow, err error) {
		return o, r.Scan(&o.ProposalID, &o.Attempts, instant{&o.NotBefore}, &o.LastError)
	}, `SELECT o.proposal_id, o.attempts, o.not_before, o.last_error
		FROM outbox o JOIN proposals p ON p.id = o.proposal_id ORDER BY p.created, p.id`)
	if err != nil {
		return nil, fmt.Errorf("list outbox: %w", err)
	}
	return rows, nil
}

// OutboxDone takes a proposal out of the outbox; a second time does nothing.
func (db *DB) OutboxDone(ctx context.Context, proposalID string) error {
	return db.transact(ctx, "outbox done", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM outbox WHERE proposal_id = $1`, proposalID)
		return err
	})
}

// OutboxFailed counts a failed attempt to publish, with its reason, which the
// proposal carries as its Error too. It is tried again at notBefore. A
// proposal that is no longer in the outbox is rlc.ErrNotFound.
func (db *DB) OutboxFailed(ctx context.Context, proposalID, reason string, notBefore time.Time) error {
	if err := names(reason); err != nil {
		return err
	}
	return db.transact(ctx, "outbox failed", func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `
			UPDATE outbox SET attempts = attempts + 1, last_error = $2, not_before = $3 WHERE proposal_id = $1`,
			proposalID, reason, micros(notBefore))
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			if err == nil {
				err = fmt.Errorf("%w: outbox row of %q", rlc.ErrNotFound, proposalID)
			}
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE proposals SET error = $2 WHERE id = $1`, proposalID, reason)
		return err
	})
}
