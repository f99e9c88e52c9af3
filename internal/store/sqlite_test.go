package store

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

func open(t *testing.T, path string) *DB {
	t.Helper()
	return openDSN(t, "sqlite:"+path)
}

func openDSN(t *testing.T, dsn string) *DB {
	t.Helper()
	db, err := Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "rlc.db") }

func TestAnUnknownDSNIsRefusedWithoutItsSecret(t *testing.T) {
	for _, dsn := range []string{
		"", "sqlite:", "rlc.db", "mysql://rlc:hunter2@db/rlc", "host=db password=hunter2", "postgres:rlc:hunter2@db",
		"hunter2:x", "postgres://rlc:p/hunter2@db/rlc", "postgres://rlc:hunter2%zz@db/rlc", "postgres://rlc:x@db/rlc?sslpassword=hunter2&sslmode=sometimes",
	} {
		_, err := Open(t.Context(), dsn)
		if !errors.Is(err, rlc.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", dsn, err)
		}
	}
}

func TestAPathMayHoldWhatURLsEscape(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%41", "rlc.db")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	if err := db.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the records are elsewhere: %v", err)
	}
	t.Chdir(filepath.Dir(path))
	if got, err := open(t, "rlc.db").Get(t.Context(), "k"); err != nil || got != "v" {
		t.Errorf("by its relative path: %q, %v", got, err)
	}
}

func TestCommitsSurviveAPowerCutAndReadersCannotWrite(t *testing.T) {
	db := open(t, file(t))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"} {
		var got string
		if err := db.write.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("writer's %s is %s (%v), want %s", pragma, got, err, want)
		}
	}
	if _, err := db.read.ExecContext(t.Context(), `DELETE FROM audit`); err == nil {
		t.Error("a reader's connection wrote")
	}
}

func step(version int, sql string) migrations.Migration {
	return migrations.Migration{Version: version, Name: fmt.Sprintf("%04d_test.sql", version), SQL: sql}
}

func tables(t *testing.T, db *DB) string {
	t.Helper()
	all, err := list(t.Context(), db.read, func(r row) (s string, err error) { return s, r.Scan(&s) },
		`SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'test_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestAMigrationThatFailsLeavesTheVersionBeforeAndResumes(t *testing.T) {
	db := open(t, file(t))
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	n := len(all)
	good := append(all, step(n+1, `CREATE TABLE test_a (x BIGINT)`), step(n+2, `CREATE TABLE test_b (x BIGINT); CREATE TABLE test_c (x BIGINT)`))
	broken := append(good[:n+1:n+1], step(n+2, `CREATE TABLE test_b (x BIGINT); INSERT INTO nowhere VALUES (1)`))
	if err := db.migrate(t.Context(), broken); err == nil || !strings.Contains(err.Error(), broken[n+1].Name) {
		t.Fatalf("got %v, want an error that names the step", err)
	}
	if got := tables(t, db); got != "test_a" {
		t.Errorf("tables %q, want only those of the step before", got)
	}
	for range 2 { // the second time there is nothing to do
		if err := db.migrate(t.Context(), good); err != nil {
			t.Fatal(err)
		}
	}
	if got := tables(t, db); got != "test_a test_b test_c" {
		t.Errorf("tables %q, want all", got)
	}
}

func TestOfSeveralOpenersOfANewFileAllOpenIt(t *testing.T) {
	path := file(t)
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() {
			db, err := Open(t.Context(), "sqlite:"+path)
			if err == nil {
				err = db.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestAFullDiskIsAnErrorAndLeavesNoHalf(t *testing.T) {
	db := open(t, file(t))
	var pages int
	if err := db.write.QueryRowContext(t.Context(), `PRAGMA page_count`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := db.write.ExecContext(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+2)); err != nil {
		t.Fatal(err)
	}
	v := rlc.Verdict{ID: "v", Service: "checkout", Window: rlc.Window{From: monday, Until: monday.Add(time.Hour)}}
	err := db.SetVerdict(t.Context(), v, rlc.AuditEntry{Actor: "ada", Action: "verdict.set", Detail: strings.Repeat("x", 1<<20)})
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("got %v, want it to say that the disk is full", err)
	}
	if got, err := db.Verdicts(t.Context(), "checkout"); err != nil || len(got) != 0 {
		t.Errorf("%d verdicts without their audit row (%v)", len(got), err)
	}
	intact(t, db)
}

func TestReadersDoNotWaitForAWriter(t *testing.T) {
	db := open(t, file(t))
	err := db.transact(t.Context(), "hold the lock", func(tx *sql.Tx) error {
		if err := setMeta(t.Context(), tx, "k", "new"); err != nil {
			return err
		}
		got, err := db.Get(t.Context(), "k")
		if got != "" {
			t.Errorf("a reader sees %q of a transaction that is not over", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func intact(t *testing.T, db *DB) {
	t.Helper()
	var word string
	if err := db.read.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&word); err != nil || word != "ok" {
		t.Errorf("integrity check: %q, %v", word, err)
	}
}

func TestAMigrationKilledAfterAnyStatementResumesInAFile(t *testing.T) {
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	statements := strings.Count(all[0].SQL, ";\n")
	every := (statements + long(4, statements) - 1) / long(4, statements)
	path, killed := file(t), 0
	for n := 1; n <= statements; n += every {
		t.Setenv("RLC_STORE_STATEMENTS", strconv.Itoa(n))
		cmd, out := child(t, "migrate", "sqlite:"+path)
		if !out.Scan() || out.Text() != "half" {
			t.Fatalf("the other process says %q", out.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		killed++
	}
	db := open(t, path) // its lock is free, its half is gone
	intact(t, db)
	if err := db.Set(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	t.Logf("killed after %d of %d statements", killed, statements)
}
