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
// Methods may be called concurrently, from several processes. Errors wrap
// rlc.ErrNotFound, rlc.ErrConflict, rlc.ErrFenced, rlc.ErrInvalid or
// rlc.ErrUnavailable where the caller can act on it.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

// DB is the records, or a view of them that Pages or Fenced gave.
type DB struct {
	write  *sql.DB
	read   *sql.DB
	pages  *sql.DB // reads of pages; SQLite has one pool for all reads
	admin  *sql.DB // migrations, where they cannot use write; nil else
	engine engine
	knows  int    // schema version of this program
	epoch  uint64 // fences every write of this view; 0 does not
}

// engine is what SQLite and PostgreSQL disagree on.
type engine struct {
	name      string                  // as lines of a migration name it
	now       string                  // SQL for the database's clock in Unix microseconds
	isolation sql.IsolationLevel      //
	patient   string                  // SQL that allows a transaction to take minutes; ""
	alone     string                  // SQL that keeps others out of making the schema's first table until a transaction ends; ""
	schema    func(sql string) string // what a migration's text becomes; nil leaves it
}

// Open opens the records named by dsn and brings their schema up to date:
//
//	sqlite:PATH                a file, created where it does not exist
//	postgres://… postgresql:// a database, with libpq's parameters
//
// Records with a newer schema than this program knows are rlc.ErrInvalid. A
// database that does not answer is rlc.ErrUnavailable, after 5 s at most.
// Errors never hold the DSN, which may hold a password.
func Open(ctx context.Context, dsn string) (*DB, error) {
	db, err := OpenLater(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if err := db.Ping(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// OpenLater is Open for a database that may be down: its first connection is
// made, and its schema brought up to date, by whoever needs it first. Until
// then everything fails with rlc.ErrUnavailable. A file is opened at once.
func OpenLater(ctx context.Context, dsn string) (*DB, error) {
	steps, err := migrations.All()
	if err != nil {
		return nil, err
	}
	name, rest, _ := strings.Cut(dsn, ":")
	switch {
	case name == "sqlite" && rest != "":
		db, err := openSQLite(ctx, rest)
		if err != nil {
			return nil, err
		}
		if err := db.migrate(ctx, steps); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		db.knows = len(steps)
		return db, nil
	case (name == "postgres" || name == "postgresql") && strings.HasPrefix(rest, "//"):
		return openPostgres(dsn, steps)
	}
	return nil, fmt.Errorf("%w: the database's address: want sqlite:/path/of/file.db or postgres://user@host/name", rlc.ErrInvalid)
}

// Close releases the connections, also those of every view.
func (db *DB) Close() error {
	var errs []error
	for i, pool := range []*sql.DB{db.pages, db.read, db.write, db.admin} {
		if pool != nil && (i != 0 || pool != db.read) {
			errs = append(errs, pool.Close())
		}
	}
	return errors.Join(errs...)
}

// Pages is a view whose reads have connections of their own, so that slow
// pages do not hold up runs. It is closed with db.
func (db *DB) Pages() *DB {
	view := *db
	view.read = db.pages
	return &view
}

// Fenced is a view whose every write carries epoch: it fails with
// rlc.ErrFenced, and leaves nothing, once a higher epoch leads. Epoch 0 is a
// writer outside leadership, such as a command run by hand: it passes.
func (db *DB) Fenced(epoch uint64) *DB {
	if epoch == 0 {
		return db
	}
	view := *db
	view.epoch = epoch
	return &view
}

// Ping reports whether the records answer.
func (db *DB) Ping(ctx context.Context) error {
	_, err := one(ctx, db.read, func(r row) (n int, err error) { return n, r.Scan(&n) }, `SELECT 1`)
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	return nil
}

// transact runs f in one write transaction: all of it is stored, durably, when
// transact returns nil, and nothing otherwise. what names the act in errors.
// f may run several times.
//
// PostgreSQL runs transactions side by side, and each statement sees what was
// committed before it began. Whoever decides by what it read must therefore
// lock first what it decides on: by a write that changes nothing (UPDATE … SET
// x = x … RETURNING), or by take for what has no row. SQLite has one writer, to
// whom these cost little.
func (db *DB) transact(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	return db.repeat(ctx, what, func(tx *sql.Tx) error {
		version, err := schemaVersion(ctx, tx)
		if err == nil {
			err = newer(version, db.knows)
		}
		if err == nil {
			err = fence(ctx, tx, db.epoch, false) // a stale writer need not begin
		}
		if err == nil {
			err = f(tx)
		}
		if err == nil {
			err = fence(ctx, tx, db.epoch, true)
		}
		return err
	})
}

// tidy is transact for acts that may take minutes.
func (db *DB) tidy(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	return db.transact(ctx, what, func(tx *sql.Tx) error {
		if err := db.beginPatient(ctx, tx); err != nil {
			return err
		}
		return f(tx)
	})
}

func (db *DB) beginPatient(ctx context.Context, tx *sql.Tx) error {
	if db.engine.patient == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, db.engine.patient)
	return err
}

// retries is how often a transaction is run again that failed for no reason of
// its own.
const retries = 5

// repeat runs f in a transaction, again where again says so.
func (db *DB) repeat(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	for try := 0; ; try++ {
		err := db.attempt(ctx, f)
		if err == nil {
			return nil
		}
		if !again(err) || try == retries || !pause(ctx, try) {
			return fmt.Errorf("%s: %w", what, translate(err))
		}
	}
}

func (db *DB) attempt(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := db.write.BeginTx(ctx, &sql.TxOptions{Isolation: db.engine.isolation})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// pause waits between two tries: a random part of 10 ms, then of 20 ms, and so
// on. It reports whether ctx goes on.
func pause(ctx context.Context, try int) bool {
	timer := time.NewTimer(mathrand.N(10 * time.Millisecond << try))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// take keeps every other transaction that takes the same name out until tx
// ends.
func take(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO locks (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name`, name)
	if err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	return nil
}

// translate wraps what a driver says in the error value of the root package
// that a caller can act on. Other errors stay as they are.
func translate(err error) error {
	for _, ours := range []error{nil, rlc.ErrNotFound, rlc.ErrConflict, rlc.ErrFenced, rlc.ErrInvalid, rlc.ErrUnavailable} {
		if errors.Is(err, ours) {
			return err
		}
	}
	kind := postgresKind(err)
	if kind == nil {
		kind = sqliteKind(err)
	}
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w: %w", kind, oneLine{err})
}

// oneLine is an error whose text is brought into one line.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }

// querier is what *sql.DB and *sql.Tx share.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// list runs one query and scans every row.
func list[T any](ctx context.Context, q querier, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	if !storable(args) {
		return nil, nil
	}
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, translate(err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, translate(err)
		}
		all = append(all, v)
	}
	return all, translate(rows.Err())
}

// one runs a query for one row; where there is none the error is
// sql.ErrNoRows.
func one[T any](ctx context.Context, q querier, scan func(row) (T, error), query string, args ...any) (T, error) {
	if !storable(args) {
		var none T
		return none, sql.ErrNoRows
	}
	v, err := scan(q.QueryRowContext(ctx, query, args...))
	return v, translate(err)
}

// count runs a query for a number.
func count(ctx context.Context, q querier, query string, args ...any) (n int, err error) {
	if !storable(args) {
		return 0, nil
	}
	return one(ctx, q, func(r row) (n int, err error) { return n, r.Scan(&n) }, query, args...)
}

// storable reports whether every text among a query's arguments can be stored.
// One that cannot is equal to nothing; PostgreSQL would call it an error.
func storable(args []any) bool {
	for _, a := range args {
		if s, ok := a.(string); ok && names(s) != nil {
			return false
		}
	}
	return true
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
			return fmt.Errorf("%w: the text %.100q holds NUL or is not UTF-8", rlc.ErrInvalid, s)
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
