package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
)

const runColumns = `id, fired_by, service, pinned, epoch, base, stage, result, detail, actor, started, finished, held, changed, total, reused`

func scanRun(r row) (rlc.Run, error) {
	var run rlc.Run
	err := r.Scan(&run.ID, &run.Trigger, &run.Service, instant{&run.Now}, &run.Epoch, &run.Commit, &run.Stage, &run.Result, &run.Detail,
		&run.Actor, instant{&run.Started}, instant{&run.Finished}, &run.Held, &run.Changed, &run.Total, &run.Reused)
	return run, err
}

// runsLock is taken by whoever stores or removes what runs found.
const runsLock = "runs"

// BeginRun claims the slot that run.ID names: it stores run at stage Claimed,
// or, where a run of that id exists, changes nothing and returns that one with
// created false. A run that a person asked for leaves an audit row in the same
// transaction. It is fenced by run.Epoch.
func (db *DB) BeginRun(ctx context.Context, run rlc.Run) (_ rlc.Run, created bool, err error) {
	if run.ID == "" {
		return rlc.Run{}, false, fmt.Errorf("%w: a run without an id", rlc.ErrInvalid)
	}
	if err := names(run.ID, run.Service, run.Actor, run.Commit, run.Detail); err != nil {
		return rlc.Run{}, false, err
	}
	run.Stage = rlc.Claimed
	var stored rlc.Run
	err = db.Fenced(run.Epoch).transact(ctx, "begin run", func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `
			INSERT INTO runs (`+runColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
			ON CONFLICT (id) DO NOTHING`,
			run.ID, run.Trigger, run.Service, micros(run.Now), int64(run.Epoch), run.Commit, run.Stage, run.Result, run.Detail,
			run.Actor, micros(run.Started), micros(run.Finished), run.Held, run.Changed, run.Total, run.Reused)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		created = n == 1
		if created && run.Actor != "" {
			asked := rlc.AuditEntry{At: run.Started, Actor: run.Actor, Action: "run.ask", Object: run.ID, Detail: run.Service}
			if err := addAudit(ctx, tx, asked); err != nil {
				return err
			}
		}
		stored, err = scanRun(tx.QueryRowContext(ctx, `SELECT `+runColumns+` FROM runs WHERE id = $1`, run.ID))
		return err
	})
	if err != nil {
		return rlc.Run{}, false, err
	}
	return stored, created, nil
}

// StoreRun records what a claimed run found, in one transaction: the run moves
// to stage Stored with the rest of its fields as given, changes are kept as
// evidence, each proposal becomes pending with an outbox row, and older
// pending or open proposals of the same services become superseded.
//
// It is fenced by run.Epoch. A run that is not at stage Claimed has been
// stored already: rlc.ErrConflict.
func (db *DB) StoreRun(ctx context.Context, run rlc.Run, changes []rlc.Change, proposals []rlc.Proposal) error {
	return db.Fenced(run.Epoch).transact(ctx, "store run "+run.ID, func(tx *sql.Tx) error {
		// What is newest, held and superseded is decided by what other runs left.
		if err := take(ctx, tx, runsLock); err != nil {
			return err
		}
		run.Stage = rlc.Stored
		if err := moveRun(ctx, tx, run, rlc.Claimed); err != nil {
			return err
		}
		if err := addChanges(ctx, tx, run, changes); err != nil {
			return err
		}
		for i := range proposals {
			if err := addProposal(ctx, tx, run, proposals[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// FinishRun moves a run to stage Finished with its result. A claimed run may
// finish without having been stored: it failed. It is fenced by run.Epoch.
func (db *DB) FinishRun(ctx context.Context, run rlc.Run) error {
	return db.Fenced(run.Epoch).transact(ctx, "finish run "+run.ID, func(tx *sql.Tx) error {
		run.Stage = rlc.Finished
		return moveRun(ctx, tx, run, rlc.Claimed, rlc.Stored, rlc.Finished)
	})
}

// moveRun writes every field of run but its identity (id, trigger, service,
// now) if the stored run stands at one of stages and was not taken over by a
// higher epoch.
func moveRun(ctx context.Context, tx *sql.Tx, run rlc.Run, stages ...rlc.Stage) error {
	// Written, not only read: it is locked.
	old, err := one(ctx, tx, scanRun, `UPDATE runs SET stage = stage WHERE id = $1 RETURNING `+runColumns, run.ID)
	if err != nil {
		return found(err, "run", run.ID)
	}
	at := false
	for _, s := range stages {
		at = at || s == old.Stage
	}
	switch {
	case !at:
		return fmt.Errorf("%w: run %s is %s", rlc.ErrConflict, run.ID, old.Stage)
	case run.Epoch != 0 && old.Epoch > run.Epoch:
		return fmt.Errorf("%w: run %s was taken over with epoch %d", rlc.ErrFenced, run.ID, old.Epoch)
	}
	if err := names(run.Commit, run.Detail, run.Actor); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE runs SET epoch = $1, base = $2, stage = $3, result = $4, detail = $5, actor = $6, started = $7,
			finished = $8, held = $9, changed = $10, total = $11, reused = $12 WHERE id = $13`,
		int64(run.Epoch), run.Commit, run.Stage, run.Result, run.Detail, run.Actor, micros(run.Started),
		micros(run.Finished), run.Held, run.Changed, run.Total, run.Reused, run.ID)
	return err
}

// RunByID returns a run, or rlc.ErrNotFound.
func (db *DB) RunByID(ctx context.Context, id string) (rlc.Run, error) {
	run, err := one(ctx, db.read, scanRun, `SELECT `+runColumns+` FROM runs WHERE id = $1`, id)
	return run, found(err, "run", id)
}

// Runs returns a page of all runs, the last started first, and how many there
// are.
func (db *DB) Runs(ctx context.Context, p rlc.Page) ([]rlc.Run, int, error) {
	var w where
	total, err := count(ctx, db.read, `SELECT COUNT(*) FROM runs`)
	if err != nil {
		return nil, 0, fmt.Errorf("count runs: %w", err)
	}
	limit, args := w.page(p)
	runs, err := list(ctx, db.read, scanRun, `SELECT `+runColumns+` FROM runs ORDER BY started DESC, id DESC`+limit, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list runs: %w", err)
	}
	return runs, total, nil
}

// UnfinishedRuns returns the runs that are not at stage Finished, the first
// started first.
func (db *DB) UnfinishedRuns(ctx context.Context) ([]rlc.Run, error) {
	runs, err := list(ctx, db.read, scanRun, `
		SELECT `+runColumns+` FROM runs WHERE stage IN ('claimed', 'stored') ORDER BY started, id`)
	if err != nil {
		return nil, fmt.Errorf("list unfinished runs: %w", err)
	}
	return runs, nil
}

// PruneRuns removes runs that finished before the given time, with their
// changes and with the proposals that were decided before it too. What explains
// the present stays: the newest run's changes of every service, and proposals
// that are pending or open.
func (db *DB) PruneRuns(ctx context.Context, before time.Time) error {
	at := micros(before)
	return db.tidy(ctx, "prune runs", func(tx *sql.Tx) error {
		if err := take(ctx, tx, runsLock); err != nil {
			return err
		}
		for _, q := range []struct {
			query string
			args  []any
		}{
			{`DELETE FROM changes
				WHERE run_id IN (SELECT id FROM runs WHERE stage = 'finished' AND finished < $1)
				AND at < (SELECT MAX(newer.at) FROM changes newer WHERE newer.service = changes.service)`, []any{at}},
			{`DELETE FROM latest_changes WHERE NOT EXISTS (
				SELECT 1 FROM changes c WHERE c.run_id = latest_changes.run_id AND c.service = latest_changes.service
				AND c.bucket = latest_changes.bucket AND c.quota_key = latest_changes.quota_key)`, nil},
			{`DELETE FROM proposals WHERE state NOT IN ('pending', 'open') AND decided < $1
				AND run_id IN (SELECT id FROM runs WHERE stage = 'finished' AND finished < $1)`, []any{at}},
			{`DELETE FROM runs WHERE stage = 'finished' AND finished < $1
				AND NOT EXISTS (SELECT 1 FROM changes c WHERE c.run_id = runs.id)
				AND NOT EXISTS (SELECT 1 FROM proposals p WHERE p.run_id = runs.id)`, []any{at}},
		} {
			if _, err := tx.ExecContext(ctx, q.query, q.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
