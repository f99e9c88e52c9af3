package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
)

// SetOverride stores an override, or replaces the one of the same id, with its
// audit row in the same transaction. One that somebody has ended stays ended:
// then the error is rlc.ErrConflict. So it is where the audit row is there
// already, which says that this very act is stored.
func (db *DB) SetOverride(ctx context.Context, o rlc.Override, audit rlc.AuditEntry) error {
	text, err := overrideText(o)
	if err != nil {
		return err
	}
	return db.transact(ctx, "set override", func(tx *sql.Tx) error {
		by, err := one(ctx, tx, func(r row) (s string, err error) { return s, r.Scan(&s) },
			`UPDATE overrides SET id = id WHERE id = $1 RETURNING ended_by`, o.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if by != "" {
			return fmt.Errorf("%w: override %q was ended by %s", rlc.ErrConflict, o.ID, by)
		}
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO overrides (id, service, starts, ends, ended_by, document) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (id) DO UPDATE SET service = excluded.service, starts = excluded.starts, ends = excluded.ends,
				ended_by = excluded.ended_by, document = excluded.document`,
			o.ID, o.Service, micros(o.From), micros(o.Until), o.EndedBy, text); err != nil {
			return err
		}
		return addAudit(ctx, tx, audit)
	})
}

// CheckOverride makes the checks of SetOverride that need no records, for who
// acknowledges an override that is stored later: rlc.ErrInvalid.
func CheckOverride(o rlc.Override) error {
	_, err := overrideText(o)
	return err
}

// CheckAudit makes the checks of every act's audit row, as CheckOverride does.
func CheckAudit(e rlc.AuditEntry) error {
	if e.Actor == "" || e.Action == "" {
		return fmt.Errorf("%w: an audit row needs an actor and an action", rlc.ErrInvalid)
	}
	return names(e.ID, e.Actor, e.Action, e.Object, e.Detail)
}

// overrideText is the document that stands in an override's row.
func overrideText(o rlc.Override) (string, error) {
	if o.ID == "" || !o.From.Before(o.Until) {
		return "", fmt.Errorf("%w: an override needs an id, and must end after it begins", rlc.ErrInvalid)
	}
	text, err := document(o)
	if err != nil {
		return "", err
	}
	return text, names(o.ID, o.Service, o.EndedBy, text)
}

// Overrides are those that end after a time, in the order in which they began.
func (db *DB) Overrides(ctx context.Context, after time.Time) ([]rlc.Override, error) {
	all, err := list(ctx, db.read, scanOverride, `SELECT document FROM overrides WHERE ends > $1 ORDER BY starts, id`, micros(after))
	if err != nil {
		return nil, fmt.Errorf("list overrides: %w", err)
	}
	return all, nil
}

// OverrideLog is a page of all overrides, the newest first, and how many there
// are.
func (db *DB) OverrideLog(ctx context.Context, p rlc.Page) ([]rlc.Override, int, error) {
	total, err := count(ctx, db.read, `SELECT COUNT(*) FROM overrides`)
	if err != nil {
		return nil, 0, fmt.Errorf("count overrides: %w", err)
	}
	var w where
	limit, args := w.page(p)
	all, err := list(ctx, db.read, scanOverride, `SELECT document FROM overrides ORDER BY starts DESC, id DESC`+limit, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list overrides: %w", err)
	}
	return all, total, nil
}

func scanOverride(r row) (o rlc.Override, err error) {
	var text string
	if err := r.Scan(&text); err != nil {
		return o, err
	}
	return o, json.Unmarshal([]byte(text), &o)
}
