package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

// Connections of one replica.
const (
	writeConns = 2 // leadership and runs first of all: pages never read on them
	readConns  = 4 // what runs and the follower read
	pageConns  = 8 // Pages
)

// openPostgres prepares connections to the database that dsn names. None is
// made before it is needed, and none is used before the schema is up to date.
// What dsn sets is kept; else a server that cannot write is passed over, and
// whatever waits 5 s, for a connection, a lock or a statement, fails.
func openPostgres(dsn string, steps []migrations.Migration) (*DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		// The parser's words may quote a part of the password.
		return nil, fmt.Errorf("%w: the database's address is not a postgres:// URL; percent-encode special characters in its password", rlc.ErrInvalid)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	if !namesServer(dsn) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	for name, value := range map[string]string{
		"application_name":                    "rlc",
		"statement_timeout":                   "5s",
		"lock_timeout":                        "5s",
		"idle_in_transaction_session_timeout": "1min",
	} {
		if config.RuntimeParams[name] == "" {
			config.RuntimeParams[name] = value
		}
	}
	admin := stdlib.OpenDB(*config)
	admin.SetMaxOpenConns(1)
	admin.SetMaxIdleConns(0)
	db := &DB{admin: admin, knows: len(steps), engine: engine{
		name: "postgres",
		// Not now(), which is when the transaction began.
		now:       `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`,
		isolation: sql.LevelReadCommitted,
		patient:   `SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '1min'`,
		alone:     `SELECT pg_advisory_xact_lock(hashtextextended('rlc schema ' || current_schema(), 0))`,
		// Text is compared byte by byte, as SQLite does, whatever the
		// database's locale: lists have one order, and indexes serve it.
		schema: func(sql string) string { return strings.ReplaceAll(sql, " TEXT", ` TEXT COLLATE "C"`) },
	}}
	migrator := *db
	migrator.write = admin
	gate := &gate{open: make(chan struct{}, 1), pass: func(ctx context.Context) error {
		if err := migrator.checkServer(ctx); err != nil {
			return err
		}
		return migrator.migrate(ctx, steps)
	}}
	options := []stdlib.OptionOpenDB{stdlib.OptionBeforeConnect(func(ctx context.Context, _ *pgx.ConnConfig) error { return gate.through(ctx) })}
	if !namesServer(dsn) {
		options = append(options, stdlib.OptionResetSession(leaveReadOnly))
	}
	for _, pool := range []struct {
		db    **sql.DB
		conns int
	}{{&db.write, writeConns}, {&db.read, readConns}, {&db.pages, pageConns}} {
		p := stdlib.OpenDB(*config, options...)
		p.SetMaxOpenConns(pool.conns)
		p.SetMaxIdleConns(pool.conns)
		p.SetConnMaxIdleTime(5 * time.Minute)
		p.SetConnMaxLifetime(time.Hour)
		*pool.db = p
	}
	return db, nil
}

// namesServer reports whether the operator chose which servers will do.
func namesServer(dsn string) bool {
	u, err := url.Parse(dsn)
	return os.Getenv("PGTARGETSESSIONATTRS") != "" || err == nil && u.Query().Has("target_session_attrs")
}

// leaveReadOnly gives up a connection whose server has become read-only since
// it was made, as the old primary does in a failover: the next one is made to a
// server that can write. A server tells of the change with its first answer
// after it (PostgreSQL 14 and later), so that at most one attempt on each
// connection is lost.
func leaveReadOnly(_ context.Context, c *pgx.Conn) error {
	for _, state := range []string{"in_hot_standby", "default_transaction_read_only"} {
		if c.PgConn().ParameterStatus(state) == "on" {
			return driver.ErrBadConn
		}
	}
	return nil
}

// checkServer refuses a database that would change text.
func (db *DB) checkServer(ctx context.Context) error {
	encoding, err := one(ctx, db.write, func(r row) (s string, err error) { return s, r.Scan(&s) }, `SHOW server_encoding`)
	if err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("%w: the database's encoding is %s: create it with ENCODING 'UTF8'", rlc.ErrInvalid, encoding)
	}
	return nil
}

// gate lets everybody through once pass has succeeded. One caller at a time
// tries; the others wait.
type gate struct {
	open chan struct{} // holds a value while somebody tries
	done bool          // guarded by open
	pass func(ctx context.Context) error
}

func (g *gate) through(ctx context.Context) error {
	select {
	case g.open <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.open }()
	if g.done {
		return nil
	}
	err := g.pass(ctx)
	g.done = err == nil
	return err
}

// readOnly is PostgreSQL's read_only_sql_transaction: the server has lost its
// place to another in a failover.
const readOnly = "25006"

// again reports whether a transaction failed for no reason of its own: another
// one stood in its way (serialization_failure, deadlock_detected), its server
// turned out to be read-only, so that it wrote nothing, or its connection to be
// dead before its last word was sent, the commit included.
func again(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code == "40001" || e.Code == "40P01" || e.Code == readOnly
	}
	var connect *pgconn.ConnectError
	return unsent(err) && !errors.As(err, &connect)
}

// unsent reports whether err came before the server was told anything.
func unsent(err error) bool {
	return pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed)
}

// postgresKind is the error value for what PostgreSQL says, nil for none.
func postgresKind(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return codeKind(e.Code)
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return rlc.ErrUnavailable
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil // the caller's
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, net.ErrClosed) || unsent(err) {
		return rlc.ErrUnavailable
	}
	return nil
}

// codeKind goes by the table of PostgreSQL's error codes.
func codeKind(code string) error {
	switch code {
	case "23505", "42P07": // unique_violation, duplicate_table
		return rlc.ErrConflict
	case "22021", "22P05", "54000": // bytes that are no text; a text too long for an index
		return rlc.ErrInvalid
	case readOnly, "55P03": // 55P03 is lock_not_available
		return rlc.ErrUnavailable
	}
	switch code[:2] {
	case "08", "28", "40", "53", "57", "58": // connection, login, rollback, resources, operator, system
		return rlc.ErrUnavailable
	}
	return nil
}
