package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"runtime"

	"modernc.org/sqlite" // also the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/openrlc/rlc"
)

// openSQLite opens the file at path. WAL lets readers go on while one
// connection writes; synchronous=FULL makes a commit survive a power cut;
// writers take their lock at BEGIN, so that a transaction never fails half-way
// because another process wrote; everybody waits up to 5 s for a lock.
func openSQLite(ctx context.Context, path string) (*DB, error) {
	file := url.URL{Scheme: "file", OmitHost: true, Path: path}
	write := url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "temp_store(MEMORY)", "journal_size_limit(67108864)"},
	}
	read := url.Values{
		"_pragma": {"busy_timeout(5000)", "query_only(TRUE)", "temp_store(MEMORY)"},
	}
	// unixepoch's fraction ends at the millisecond, which leases can spare.
	db := &DB{engine: engine{name: "sqlite", now: `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`}}
	var err error
	file.RawQuery = write.Encode()
	if db.write, err = sql.Open("sqlite", file.String()); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	file.RawQuery = read.Encode()
	if db.read, err = sql.Open("sqlite", file.String()); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.write.Close())
	}
	db.pages = db.read // readers wait for nobody
	db.write.SetMaxOpenConns(1)
	db.read.SetMaxOpenConns(max(4, runtime.GOMAXPROCS(0)))
	if err := settle(ctx, db.write); err != nil { // sets WAL before a reader comes
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	return db, nil
}

// settle makes the first connection. A file becomes WAL under a lock that
// SQLite does not wait for, whatever busy_timeout says: of several openers of
// a new file the later ones come again, for a few seconds.
func settle(ctx context.Context, write *sql.DB) error {
	for try := 0; ; try++ {
		err := write.PingContext(ctx)
		var e *sqlite.Error
		if !errors.As(err, &e) || e.Code()&0xff != sqlite3.SQLITE_BUSY || try == 9 || !pause(ctx, try) {
			return err
		}
	}
}

// sqliteKind is the error value for what SQLite says, nil for none.
func sqliteKind(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return nil
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return rlc.ErrConflict
	}
	switch e.Code() & 0xff { // the rest says where
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return rlc.ErrUnavailable
	}
	return nil
}
