// Package store keeps all records: runs with their changes, proposals with the
// outbox that publishes them, stored series, verdicts, service summaries,
// acknowledgements, leadership and the audit log.
//
// One SQL text serves every engine. Times are stored as BIGINT Unix
// microseconds (0 is the zero time) and come back in UTC; finer fractions are
// lost. Ids come from callers. What engines disagree on (the clock, the DSN)
// is in the file named after the engine. The suite in storetest holds every
// engine to the same behaviour.
//
// Methods may be called concurrently. Errors wrap rlc.ErrNotFound,
// rlc.ErrConflict, rlc.ErrFenced or rlc.ErrInvalid where the caller can act on
// it.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

// DB is the records. Writes go through one connection and are therefore
// serial; reads have a pool of their own and never wait for a writer.
type DB struct {
	write *sql.DB
	read  *sql.DB
	now   string // SQL for the database's clock in Unix microseconds
}

// Open opens the records named by dsn, "sqlite:" and the path of a file that
// is created where it does not exist, and brings the schema up to date. Records
// with a newer schema than this program knows are refused.
func Open(ctx context.Context, dsn string) (*DB, error) {
	steps, err := migrations.All()
	if err != nil {
		return nil, err
	}
	engine, rest, _ := strings.Cut(dsn, ":")
	if engine != "sqlite" || rest == "" {
		// The DSN may hold a password: only its engine is named.
		return nil, fmt.Errorf("%w: database %q: want sqlite:/path/of/file.db", rlc.ErrInvalid, engine)
	}
	db, err := openSQLite(ctx, rest)
	if err != nil {
		return nil, err
	}
	if err := db.migrate(ctx, steps); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Close releases the connections.
func (db *DB) Close() error { return errors.Join(db.read.Close(), db.write.Close()) }

// Ping reports whether the records answer.
func (db *DB) Ping(ctx context.Context) error {
	var one int
	if err := db.read.QueryRowContext(ctx, `SELECT 1`).Scan(&one); err != nil {
		return fmt.Errorf("records: %w", err)
	}
	return nil
}

// transact runs f in one write transaction: all of it is stored, durably, when
// transact returns nil, and nothing otherwise. what names the act in errors.
func (db *DB) transact(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%s: begin: %w", what, err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := f(tx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%s: commit: %w", what, err)
	}
	return nil
}

// querier is what *sql.DB and *sql.Tx share.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// list runs one query and scans every row.
func list[T any](ctx context.Context, q querier, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// row is what *sql.Row and *sql.Rows share.
type row interface{ Scan(dest ...any) error }

// found turns "no such row" into rlc.ErrNotFound with what was looked for.
func found(err error, what, id string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: %s %q", rlc.ErrNotFound, what, id)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", what, id, err)
	}
	return nil
}

// where collects conditions, each holding one placeholder, written $?.
type where struct {
	conditions []string
	args       []any
}

func (w *where) add(condition string, arg any) {
	w.args = append(w.args, arg)
	w.conditions = append(w.conditions, strings.ReplaceAll(condition, "$?", fmt.Sprintf("$%d", len(w.args))))
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// page appends LIMIT and OFFSET and returns the arguments with theirs.
func (w *where) page(p rlc.Page) (string, []any) {
	n := len(w.args)
	return fmt.Sprintf(" LIMIT $%d OFFSET $%d", n+1, n+2), append(w.args[:n:n], p.Limit(), p.Offset())
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// instant scans a BIGINT of Unix microseconds into a time.
type instant struct{ t *time.Time }

func (i instant) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("time is a %T, want microseconds", v)
	}
	*i.t = fromMicros(n)
	return nil
}

// keyText scans a canonical key.
type keyText struct{ k *rlc.Key }

func (k keyText) Scan(v any) (err error) {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("key is a %T, want text", v)
	}
	*k.k, err = rlc.ParseKey(s)
	return err
}

// names refuses text that an engine would refuse or change: NUL and invalid
// UTF-8.
func names(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return fmt.Errorf("%w: name %q holds NUL or is not UTF-8", rlc.ErrInvalid, s)
		}
	}
	return nil
}

// document renders v as JSON; what cannot be rendered (a NaN) is refused.
func document(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("%w: %w", rlc.ErrInvalid, err)
	}
	return string(b), nil
}

// newID makes an id for a record that came without one.
func newID() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}
