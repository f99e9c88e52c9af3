package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/openrlc/rlc"
)

// addAudit writes an act into the audit log, in the act's own transaction. An
// entry without an id gets one.
func addAudit(ctx context.Context, tx *sql.Tx, e rlc.AuditEntry) error {
	if e.ID == "" {
		e.ID = newID()
	}
	if err := CheckAudit(e); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO audit (id, at, actor, action, object, detail) VALUES ($1, $2, $3, $4, $5, $6)`,
		e.ID, micros(e.At), e.Actor, e.Action, e.Object, e.Detail)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Audit returns a page of the audit log, the newest first, and how many entries
// it has.
func (db *DB) Audit(ctx context.Context, p rlc.Page) ([]rlc.AuditEntry, int, error) {
	return db.AuditLog(ctx, rlc.AuditFilter{}, p)
}

// SetVerdict stores a person's verdict, or replaces the one of the same id,
// with its audit row in the same transaction. A verdict without an id gets one.
func (db *DB) SetVerdict(ctx context.Context, v rlc.Verdict, audit rlc.AuditEntry) error {
	if v.ID == "" {
		v.ID = newID()
	}
	if !v.From.Before(v.Until) {
		return fmt.Errorf("%w: a verdict's window must end after it begins", rlc.ErrInvalid)
	}
	key := v.Key.String()
	if err := names(v.ID, v.Service, v.Bucket, key, v.Reason, v.Actor); err != nil {
		return err
	}
	return db.transact(ctx, "set verdict", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO verdicts (id, service, bucket, quota_key, starts, ends, reason, counts, actor, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			ON CONFLICT (id) DO UPDATE SET service = excluded.service, bucket = excluded.bucket, quota_key = excluded.quota_key,
				starts = excluded.starts, ends = excluded.ends, reason = excluded.reason, counts = excluded.counts,
				actor = excluded.actor, at = excluded.at`,
			v.ID, v.Service, v.Bucket, key, micros(v.From), micros(v.Until), v.Reason, v.Count, v.Actor, micros(v.At))
		if err != nil {
			return err
		}
		return addAudit(ctx, tx, audit)
	})
}

// Verdicts returns a service's verdicts in the order of their windows; of one
// window the last word comes last.
func (db *DB) Verdicts(ctx context.Context, service string) ([]rlc.Verdict, error) {
	all, err := list(ctx, db.read, func(r row) (v rlc.Verdict, err error) {
		return v, r.Scan(&v.ID, &v.Service, &v.Bucket, keyText{&v.Key}, instant{&v.From}, instant{&v.Until}, &v.Reason, &v.Count, &v.Actor, instant{&v.At})
	}, `SELECT id, service, bucket, quota_key, starts, ends, reason, counts, actor, at
		FROM verdicts WHERE service = $1 ORDER BY starts, at, id`, service)
	if err != nil {
		return nil, fmt.Errorf("list verdicts of %q: %w", service, err)
	}
	return all, nil
}

// Get returns the small value stored under name, "" where there is none.
func (db *DB) Get(ctx context.Context, name string) (string, error) {
	value, err := one(ctx, db.read, func(r row) (s string, err error) { return s, r.Scan(&s) }, `SELECT value FROM meta WHERE name = $1`, name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("get %q: %w", name, err)
	}
	return value, nil
}

// Set stores a small value under name.
func (db *DB) Set(ctx context.Context, name, value string) error {
	return db.transact(ctx, "set "+name, func(tx *sql.Tx) error { return setMeta(ctx, tx, name, value) })
}

// SetAudited is Set as a person's act, with its audit row in the same
// transaction.
func (db *DB) SetAudited(ctx context.Context, name, value string, audit rlc.AuditEntry) error {
	return db.transact(ctx, "set "+name, func(tx *sql.Tx) error {
		if err := setMeta(ctx, tx, name, value); err != nil {
			return err
		}
		return addAudit(ctx, tx, audit)
	})
}

func setMeta(ctx context.Context, tx *sql.Tx, name, value string) error {
	if err := names(name, value); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `
		INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}
