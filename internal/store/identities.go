package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// maxSessions bounds what is kept of sign-ins, begun ones among them.
const maxSessions = 20_000

// OpenSession stores a sign-in, with its audit row where one is given, and
// drops those that have ended by s.Created. Where too many stand the error is
// rlc.ErrUnavailable.
func (db *DB) OpenSession(ctx context.Context, s rlc.Session, audit *rlc.AuditEntry) error {
	teams, err := document(s.Groups)
	if err != nil {
		return err
	}
	if err := names(s.ID, s.Name, s.Via, teams); err != nil {
		return err
	}
	return db.transact(ctx, "open session", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM sessions WHERE ends <= $1`, micros(s.Created)); err != nil {
			return err
		}
		n, err := count(ctx, tx, `SELECT COUNT(*) FROM sessions`)
		if err != nil {
			return err
		}
		if n >= maxSessions {
			return fmt.Errorf("%w: %d sessions stand", rlc.ErrUnavailable, n)
		}
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO sessions (id, name, via, teams, sealed, created, checked, seen, ends) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			s.ID, s.Name, s.Via, teams, s.Sealed, micros(s.Created), micros(s.Checked), micros(s.Seen), micros(s.Until)); err != nil {
			return err
		}
		if audit == nil {
			return nil
		}
		return addAudit(ctx, tx, *audit)
	})
}

const sessionColumns = `id, name, via, teams, sealed, created, checked, seen, ends`

// Session returns the sign-in of this id, ended or not; where there is none the
// error is rlc.ErrNotFound.
func (db *DB) Session(ctx context.Context, id string) (rlc.Session, error) {
	s, err := one(ctx, db.read, scanSession, `SELECT `+sessionColumns+` FROM sessions WHERE id = $1`, id)
	return s, found(err, "session", "…")
}

// RefreshSession replaces what a sign-in says of its person, and when it was
// seen and checked. One that was closed meanwhile stays closed.
func (db *DB) RefreshSession(ctx context.Context, s rlc.Session) error {
	teams, err := document(s.Groups)
	if err != nil {
		return err
	}
	return db.transact(ctx, "refresh session", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE sessions SET name = $1, teams = $2, sealed = $3, checked = $4, seen = $5 WHERE id = $6`,
			s.Name, teams, s.Sealed, micros(s.Checked), micros(s.Seen), s.ID)
		return err
	})
}

// CloseSession ends a sign-in and returns it, so that of two who close it one
// has it; where there is none the error is rlc.ErrNotFound. audit, where it is
// not nil, is written in the same transaction.
func (db *DB) CloseSession(ctx context.Context, id string, audit *rlc.AuditEntry) (rlc.Session, error) {
	var s rlc.Session
	if names(id) != nil {
		return s, found(sql.ErrNoRows, "session", "…")
	}
	err := db.transact(ctx, "close session", func(tx *sql.Tx) (err error) {
		s, err = one(ctx, tx, scanSession, `DELETE FROM sessions WHERE id = $1 RETURNING `+sessionColumns, id)
		if err := found(err, "session", "…"); err != nil || audit == nil {
			return err
		}
		return addAudit(ctx, tx, *audit)
	})
	return s, err
}

func scanSession(r row) (s rlc.Session, err error) {
	var teams string
	if err := r.Scan(&s.ID, &s.Name, &s.Via, &teams, &s.Sealed, instant{&s.Created}, instant{&s.Checked}, instant{&s.Seen}, instant{&s.Until}); err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(teams), &s.Groups)
}

// CreateToken stores a new API token with its audit row.
func (db *DB) CreateToken(ctx context.Context, t rlc.Token, audit rlc.AuditEntry) error {
	if t.ID == "" || len(t.Hash) != 64 || t.Right == "" || !t.Until.After(t.Created) {
		return fmt.Errorf("%w: a token needs an id, a hash, a role and must end after it begins", rlc.ErrInvalid)
	}
	services, err := document(t.Services)
	if err != nil {
		return err
	}
	if err := names(t.ID, t.Name, t.Hash, string(t.Right), services, t.Actor); err != nil {
		return err
	}
	return db.transact(ctx, "create token", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO api_tokens (id, name, hash, role, services, actor, created, ends, used, revoked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			t.ID, t.Name, t.Hash, string(t.Right), services, t.Actor, micros(t.Created), micros(t.Until), micros(t.Used), micros(t.Revoked)); err != nil {
			return err
		}
		return addAudit(ctx, tx, audit)
	})
}

const tokenColumns = `id, name, hash, role, services, actor, created, ends, used, revoked`

// TokenByHash returns the token of this hash, ended or not; where there is none
// the error is rlc.ErrNotFound.
func (db *DB) TokenByHash(ctx context.Context, hash string) (rlc.Token, error) {
	t, err := one(ctx, db.read, scanToken, `SELECT `+tokenColumns+` FROM api_tokens WHERE hash = $1`, hash)
	return t, found(err, "token", "…")
}

// Tokens returns a page of all API tokens, the newest first, and how many there
// are.
func (db *DB) Tokens(ctx context.Context, p rlc.Page) ([]rlc.Token, int, error) {
	total, err := count(ctx, db.read, `SELECT COUNT(*) FROM api_tokens`)
	if err != nil {
		return nil, 0, fmt.Errorf("count tokens: %w", err)
	}
	var w where
	limit, args := w.page(p)
	all, err := list(ctx, db.read, scanToken, `SELECT `+tokenColumns+` FROM api_tokens ORDER BY created DESC, id DESC`+limit, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list tokens: %w", err)
	}
	return all, total, nil
}

// UseToken notes when a token was used last.
func (db *DB) UseToken(ctx context.Context, id string, at time.Time) error {
	return db.transact(ctx, "use token", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE api_tokens SET used = $1 WHERE id = $2 AND used < $1`, micros(at), id)
		return err
	})
}

// RevokeToken ends a token for good, with its audit row. One that is revoked
// already, or unknown, is rlc.ErrNotFound.
func (db *DB) RevokeToken(ctx context.Context, id string, at time.Time, audit rlc.AuditEntry) error {
	if err := names(id); err != nil {
		return err
	}
	return db.transact(ctx, "revoke token", func(tx *sql.Tx) error {
		_, err := one(ctx, tx, func(r row) (s string, err error) { return s, r.Scan(&s) },
			`UPDATE api_tokens SET revoked = $1 WHERE id = $2 AND revoked = 0 RETURNING id`, micros(at), id)
		if err := found(err, "token", id); err != nil {
			return err
		}
		return addAudit(ctx, tx, audit)
	})
}

func scanToken(r row) (t rlc.Token, err error) {
	var services, role string
	if err := r.Scan(&t.ID, &t.Name, &t.Hash, &role, &services, &t.Actor, instant{&t.Created}, instant{&t.Until}, instant{&t.Used}, instant{&t.Revoked}); err != nil {
		return t, err
	}
	t.Right = rlc.Right(role)
	return t, json.Unmarshal([]byte(services), &t.Services)
}

// AddAudit writes an entry of its own: something that was refused, which has no
// transaction.
func (db *DB) AddAudit(ctx context.Context, e rlc.AuditEntry) error {
	return db.transact(ctx, "audit", func(tx *sql.Tx) error { return addAudit(ctx, tx, e) })
}

// AuditLog is Audit for those entries that f selects.
func (db *DB) AuditLog(ctx context.Context, f rlc.AuditFilter, p rlc.Page) ([]rlc.AuditEntry, int, error) {
	var w where
	if f.Actor != "" {
		w.add(`actor = $?`, f.Actor)
	}
	if prefix, ok := strings.CutSuffix(f.Action, "."); ok {
		w.add(`action LIKE $? ESCAPE '\'`, like(prefix)+".%")
	} else if f.Action != "" {
		w.add(`action = $?`, f.Action)
	}
	if f.Object != "" {
		w.add(`(LOWER(object) LIKE $? ESCAPE '\' OR LOWER(detail) LIKE $? ESCAPE '\')`, "%"+like(strings.ToLower(f.Object))+"%")
	}
	if !f.From.IsZero() {
		w.add(`at >= $?`, micros(f.From))
	}
	if !f.Until.IsZero() {
		w.add(`at < $?`, micros(f.Until))
	}
	total, err := count(ctx, db.read, `SELECT COUNT(*) FROM audit`+w.String(), w.args...)
	if err != nil {
		return nil, 0, fmt.Errorf("count audit log: %w", err)
	}
	limit, args := w.page(p)
	all, err := list(ctx, db.read, scanAudit, `SELECT id, at, actor, action, object, detail FROM audit`+w.String()+` ORDER BY at DESC, id DESC`+limit, args...)
	if err != nil {
		return nil, 0, fmt.Errorf("list audit log: %w", err)
	}
	return all, total, nil
}

// like is text that LIKE takes as it is.
func like(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

func scanAudit(r row) (e rlc.AuditEntry, err error) {
	return e, r.Scan(&e.ID, instant{&e.At}, &e.Actor, &e.Action, &e.Object, &e.Detail)
}
