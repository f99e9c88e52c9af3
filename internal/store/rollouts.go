package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
)

// SavePromotion stores a promotion, or replaces the one of its id, with its
// audit row in the same transaction. Of a bucket one at a time is on its way:
// another is rlc.ErrConflict.
func (db *DB) SavePromotion(ctx context.Context, p rollout.Promotion, audit rlc.AuditEntry) error {
	text, err := document(p)
	if err != nil {
		return err
	}
	if err := names(p.ID, p.Service, p.Bucket, text); err != nil {
		return err
	}
	return db.transact(ctx, "save promotion", func(tx *sql.Tx) error {
		if err := take(ctx, tx, "promotions"); err != nil {
			return err
		}
		others, err := count(ctx, tx, `SELECT COUNT(*) FROM promotions WHERE service = $1 AND bucket = $2 AND state = 'growing' AND id <> $3`, p.Service, p.Bucket, p.ID)
		if err != nil {
			return err
		}
		if others > 0 && p.State == rollout.Growing {
			return fmt.Errorf("%w: bucket %q of %q is on its way already", rlc.ErrConflict, p.Bucket, p.Service)
		}
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO promotions (id, service, bucket, state, started, document) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (id) DO UPDATE SET state = excluded.state, document = excluded.document`,
			p.ID, p.Service, p.Bucket, string(p.State), micros(p.Started), text); err != nil {
			return err
		}
		return addAudit(ctx, tx, audit)
	})
}

// Promotions are the newest of a service, at most a hundred.
func (db *DB) Promotions(ctx context.Context, service string) ([]rollout.Promotion, error) {
	all, err := list(ctx, db.read, scanDocument[rollout.Promotion], `SELECT document FROM promotions WHERE service = $1 ORDER BY started DESC, id DESC LIMIT 100`, service)
	if err != nil {
		return nil, fmt.Errorf("list promotions of %q: %w", service, err)
	}
	return all, nil
}

// GrowingPromotions are those that move by themselves, the oldest first.
func (db *DB) GrowingPromotions(ctx context.Context) ([]rollout.Promotion, error) {
	all, err := list(ctx, db.read, scanDocument[rollout.Promotion], `SELECT document FROM promotions WHERE state = 'growing' ORDER BY started, id`)
	if err != nil {
		return nil, fmt.Errorf("list growing promotions: %w", err)
	}
	return all, nil
}

// SetPins stores pins, with one audit row in the same transaction.
func (db *DB) SetPins(ctx context.Context, pins []rollout.Pin, audit rlc.AuditEntry) error {
	return db.transact(ctx, "set pins", func(tx *sql.Tx) error {
		for _, p := range pins {
			text, err := document(p)
			if err != nil {
				return err
			}
			if err := names(p.ID, p.Service, text); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `
				INSERT INTO pins (id, service, at, lifted, document) VALUES ($1, $2, $3, 0, $4) ON CONFLICT (id) DO NOTHING`,
				p.ID, p.Service, micros(p.At), text); err != nil {
				return err
			}
		}
		return addAudit(ctx, tx, audit)
	})
}

// Pins are those of a service that nobody lifted, the newest first.
func (db *DB) Pins(ctx context.Context, service string) ([]rollout.Pin, error) {
	all, err := list(ctx, db.read, scanDocument[rollout.Pin], `SELECT document FROM pins WHERE service = $1 AND lifted = 0 ORDER BY at DESC, id`, service)
	if err != nil {
		return nil, fmt.Errorf("list pins of %q: %w", service, err)
	}
	return all, nil
}

// LiftPin ends a service's pin as a person's act; one that is not there, or was
// lifted before, is rlc.ErrNotFound.
func (db *DB) LiftPin(ctx context.Context, service, id string, audit rlc.AuditEntry) error {
	return db.transact(ctx, "lift pin", func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, `UPDATE pins SET lifted = $1 WHERE id = $2 AND service = $3 AND lifted = 0`, micros(audit.At), id, service)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return fmt.Errorf("%w: pin %q of %q", rlc.ErrNotFound, id, service)
		}
		return addAudit(ctx, tx, audit)
	})
}

// AddNotice stores a notice for each target; where one is stored already,
// nothing changes.
func (db *DB) AddNotice(ctx context.Context, n rlc.Notice, targets []string) error {
	text, err := document(n)
	if err != nil {
		return err
	}
	if err := names(append(targets, n.ID, text)...); err != nil {
		return err
	}
	return db.transact(ctx, "add notice", func(tx *sql.Tx) error {
		for _, target := range targets {
			if _, err := tx.ExecContext(ctx, `
				INSERT INTO notices (id, target, at, urgent, attempts, not_before, sent, last_error, document)
				VALUES ($1, $2, $3, $4, 0, 0, 0, '', $5) ON CONFLICT (id, target) DO NOTHING`,
				n.ID, target, micros(n.At), n.Urgent, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// UnsentNotices are at most a thousand that were not sent, the oldest first.
func (db *DB) UnsentNotices(ctx context.Context) ([]rlc.OutgoingNotice, error) {
	all, err := list(ctx, db.read, func(r row) (o rlc.OutgoingNotice, err error) {
		var text string
		if err := r.Scan(&o.Target, &o.Attempts, instant{&o.NotBefore}, &o.Error, &text); err != nil {
			return o, err
		}
		return o, json.Unmarshal([]byte(text), &o.Notice)
	}, `SELECT target, attempts, not_before, last_error, document FROM notices WHERE sent = 0 ORDER BY at, id, target LIMIT 1000`)
	if err != nil {
		return nil, fmt.Errorf("list notices: %w", err)
	}
	return all, nil
}

// NoticesSent says that a target has got these, at a time.
func (db *DB) NoticesSent(ctx context.Context, target string, ids []string, at time.Time) error {
	return db.transact(ctx, "notices sent", func(tx *sql.Tx) error {
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, `UPDATE notices SET sent = $1, last_error = '' WHERE id = $2 AND target = $3`, micros(at), id, target); err != nil {
				return err
			}
		}
		return nil
	})
}

// NoticesFailed says that an attempt failed, why, and when the next is due.
func (db *DB) NoticesFailed(ctx context.Context, target string, ids []string, reason string, notBefore time.Time) error {
	if err := names(reason); err != nil {
		return err
	}
	return db.transact(ctx, "notices failed", func(tx *sql.Tx) error {
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, `
				UPDATE notices SET attempts = attempts + 1, last_error = $1, not_before = $2 WHERE id = $3 AND target = $4 AND sent = 0`,
				reason, micros(notBefore), id, target); err != nil {
				return err
			}
		}
		return nil
	})
}

// scanDocument reads a row whose one column is a value as JSON.
func scanDocument[T any](r row) (v T, err error) {
	var text string
	if err := r.Scan(&text); err != nil {
		return v, err
	}
	return v, json.Unmarshal([]byte(text), &v)
}
