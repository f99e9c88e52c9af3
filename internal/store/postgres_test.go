package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store/pgtest"
	"github.com/openrlc/rlc/migrations"
)

// Postgres is the server of this process's tests.
var Postgres pgtest.Server

func TestMain(m *testing.M) { os.Exit(Postgres.Main(m)) }

// unavailable fails unless err says so in one line.
func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, rlc.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v (%T), want one line that says that it is not available", what, err, errors.Unwrap(errors.Unwrap(err)))
	}
}

func TestAServerThatIsDownIsSaidSoWithoutThePassword(t *testing.T) {
	_, err := Open(t.Context(), "postgres://rlc:hunter2@127.0.0.1:1/rlc?sslmode=prefer")
	unavailable(t, "open", err)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("it tells the password: %v", err)
	}
}

func TestRecordsThatAreDownAtStartConnectLater(t *testing.T) {
	dsn := Postgres.DSN(t)
	Postgres.Kill(t)
	db, err := OpenLater(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	unavailable(t, "ping", db.Ping(t.Context()))
	unavailable(t, "write", db.Set(t.Context(), "k", "v"))
	Postgres.Start(t)
	if err := db.Pages().Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Set(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

func TestWhatWaitsTooLongFails(t *testing.T) {
	dsn := Postgres.DSN(t)
	db := openDSN(t, dsn)
	for _, pool := range []*sql.DB{db.write, db.read, db.pages} {
		for name, want := range map[string]string{"statement_timeout": "5s", "lock_timeout": "5s", "application_name": "rlc"} {
			var got string
			if err := pool.QueryRowContext(t.Context(), "SHOW "+name).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %s (%v), want %s", name, got, err, want)
			}
		}
	}
	quick := openDSN(t, dsn+"&lock_timeout=20ms&statement_timeout=2min") // the operator's word
	tx, err := db.write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), `LOCK TABLE runs IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	_, _, err = quick.BeginRun(t.Context(), rlc.Run{ID: "r"})
	unavailable(t, "a write beside somebody's lock", err)
	_, err = quick.RunByID(t.Context(), "r")
	unavailable(t, "a read beside somebody's lock", err)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := quick.BeginRun(t.Context(), rlc.Run{ID: "r"}); err != nil {
		t.Error(err)
	}
	hasty := openDSN(t, dsn+"&statement_timeout=200ms")
	_, err = list(t.Context(), hasty.read, func(r row) (s string, err error) { return s, r.Scan(&s) }, `SELECT pg_sleep(3600)::text`)
	unavailable(t, "a slow statement", err)
}

// A thousand page loads come while every connection of pages is taken: each
// ends when its caller does, and leadership and runs do not notice.
func TestSlowPagesDoNotHoldUpRuns(t *testing.T) {
	db := openDSN(t, Postgres.DSN(t))
	for range pageConns {
		c, err := db.pages.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	const loads = 1000
	gone, leave := context.WithCancel(t.Context())
	defer leave()
	var pages sync.WaitGroup
	var gaveUp atomic.Int32
	for range loads {
		pages.Go(func() {
			_, err := db.Pages().Get(gone, "k")
			if errors.Is(err, context.Canceled) {
				gaveUp.Add(1)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for db.pages.Stats().WaitCount < loads {
		<-tick.C
	}
	epoch, leads, err := db.Lead(t.Context(), Leadership, "a", time.Hour, 0)
	if err != nil || !leads {
		t.Fatalf("leads %v, %v", leads, err)
	}
	r := rlc.Run{ID: "r", Epoch: epoch}
	if _, _, err := db.BeginRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := db.RunByID(t.Context(), "r"); err != nil {
		t.Error(err)
	}
	if got := gaveUp.Load(); got != 0 {
		t.Errorf("%d pages gave up while their callers still waited", got)
	}
	leave()
	pages.Wait()
	if got := gaveUp.Load(); got != loads {
		t.Errorf("%d of %d pages ended with their callers", got, loads)
	}
}

func TestAServerThatCannotWriteIsPassedOver(t *testing.T) {
	dsn := Postgres.DSN(t) + "&default_transaction_read_only=on"
	_, err := Open(t.Context(), dsn)
	unavailable(t, "open", err)
	if err == nil || !strings.Contains(err.Error(), "read only") {
		t.Errorf("got %v, want it to say that the server is read only", err)
	}
	_, err = Open(t.Context(), dsn+"&target_session_attrs=any") // the operator's word: the write fails
	unavailable(t, "open any", err)
}

func TestADatabaseThatWouldChangeTextIsRefused(t *testing.T) {
	dsn := Postgres.DSN(t)
	db := openDSN(t, dsn)
	if _, err := db.write.ExecContext(t.Context(), `CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'`); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), strings.Replace(dsn, "/postgres?", "/ascii?", 1))
	if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "UTF8") {
		t.Errorf("got %v, want it refused", err)
	}
}

func TestEveryTextIsComparedByteByByte(t *testing.T) {
	db := openDSN(t, Postgres.DSN(t))
	all, err := list(t.Context(), db.read, func(r row) (s string, err error) { return s, r.Scan(&s) },
		`SELECT table_name || '.' || column_name || ' ' || COALESCE(collation_name, '') FROM information_schema.columns
		WHERE table_schema = current_schema() AND data_type = 'text'`)
	if err != nil || len(all) < 40 {
		t.Fatalf("%d columns of text, %v", len(all), err)
	}
	for _, column := range all {
		if !strings.HasSuffix(column, " C") {
			t.Errorf("%s: want the collation C", column)
		}
	}
}

func TestATransactionThatCollidedIsRunAgainFiveTimes(t *testing.T) {
	db := openDSN(t, Postgres.DSN(t))
	for _, code := range []string{"40001", "40P01"} {
		for _, collisions := range []int{0, 5, 6} {
			tries := 0
			err := db.transact(t.Context(), "collide", func(tx *sql.Tx) error {
				if tries++; tries <= collisions {
					return fmt.Errorf("far down: %w", &pgconn.PgError{Code: code})
				}
				return setMeta(t.Context(), tx, fmt.Sprint(code, collisions), "v")
			})
			got, _ := db.Get(t.Context(), fmt.Sprint(code, collisions))
			switch {
			case collisions <= 5 && (err != nil || got != "v" || tries != collisions+1):
				t.Errorf("%s %d times: %v after %d tries, stored %q", code, collisions, err, tries, got)
			case collisions > 5:
				unavailable(t, code, err)
				if tries != 6 || got != "" {
					t.Errorf("%s: %d tries, stored %q, want 6 and nothing", code, tries, got)
				}
			}
		}
	}
	tries := 0
	err := db.transact(t.Context(), "fail", func(*sql.Tx) error { tries++; return rlc.ErrConflict })
	if !errors.Is(err, rlc.ErrConflict) || tries != 1 {
		t.Errorf("%v after %d tries, want what failed by itself to be tried once", err, tries)
	}
}

func TestADeadlockEndsWithBothStored(t *testing.T) {
	db := openDSN(t, Postgres.DSN(t)+"&deadlock_timeout=10ms")
	var met sync.WaitGroup
	met.Add(2)
	set := func(first, second string) func() {
		return func() {
			tries := 0
			err := db.transact(t.Context(), "cross", func(tx *sql.Tx) error {
				if err := setMeta(t.Context(), tx, first, "v"); err != nil {
					return err
				}
				if tries++; tries == 1 {
					met.Done()
					met.Wait() // each has its first
				}
				return setMeta(t.Context(), tx, second, "v")
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(set("a", "b"))
	wg.Go(set("b", "a"))
	wg.Wait()
}

// The leadership changes after the writer's first look and before its commit.
func TestALeaderOvertakenWhileItWritesIsFencedAtItsCommit(t *testing.T) {
	dsn := Postgres.DSN(t)
	a, b := openDSN(t, dsn), openDSN(t, dsn)
	first, _, err := a.Lead(t.Context(), Leadership, "a", time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	err = a.Fenced(first).transact(t.Context(), "long write", func(tx *sql.Tx) error {
		tries++
		if err := setMeta(t.Context(), tx, "k", "late"); err != nil {
			return err
		}
		if epoch, leads, err := a.Lead(t.Context(), Leadership, "a", time.Hour, 0); err != nil || !leads || epoch != first {
			t.Errorf("renewed meanwhile: %v with %d, %v", leads, epoch, err)
		}
		expire(t, b)
		if epoch, leads, err := b.Lead(t.Context(), Leadership, "b", time.Hour, 0); err != nil || !leads || epoch != first+1 {
			t.Errorf("taken over meanwhile: %v with %d, %v", leads, epoch, err)
		}
		return nil
	})
	if !errors.Is(err, rlc.ErrFenced) || tries != 1 {
		t.Errorf("%v after %d tries, want it fenced", err, tries)
	}
	if got, err := b.Get(t.Context(), "k"); err != nil || got != "" {
		t.Errorf("it left %q, %v", got, err)
	}
}

// What waits: the first is not committed yet when the second begins.
func TestASecondWaitsForTheFirst(t *testing.T) {
	dsn := Postgres.DSN(t)
	db, other := openDSN(t, dsn), openDSN(t, dsn)
	epoch, _, err := db.Lead(t.Context(), Leadership, "a", time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	rejected := rlc.Proposal{ID: "p", Service: "checkout", State: rlc.Rejected}
	accepted := rejected
	accepted.State = rlc.Accepted
	r, another, failed := rlc.Run{ID: "r"}, rlc.Run{ID: "another"}, rlc.Run{ID: "failed", Stage: rlc.Finished}
	for _, run := range []rlc.Run{r, another, failed} {
		if _, _, err := db.BeginRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.StoreRun(t.Context(), r, nil, []rlc.Proposal{rejected}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		first  func(tx *sql.Tx) error
		second func() error
		want   error
	}{
		{"a decision", func(tx *sql.Tx) error { return setProposal(t.Context(), tx, rejected, nil) },
			func() error { return other.SetProposal(t.Context(), accepted, nil) }, rlc.ErrConflict},
		{"a run's end", func(tx *sql.Tx) error { return moveRun(t.Context(), tx, failed, rlc.Claimed) },
			func() error { return other.StoreRun(t.Context(), failed, nil, nil) }, rlc.ErrConflict},
		{"storing a run", func(tx *sql.Tx) error { return take(t.Context(), tx, runsLock) },
			func() error { return other.StoreRun(t.Context(), another, nil, nil) }, nil},
		{"pruning runs", func(tx *sql.Tx) error { return take(t.Context(), tx, runsLock) },
			func() error { return other.PruneRuns(t.Context(), monday) }, nil},
		{"a change of leader after the last look at the epoch", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), `UPDATE meta SET value = value`)
			return errors.Join(err, fence(t.Context(), tx, epoch, true))
		}, func() error {
			_, _, err := other.Lead(t.Context(), Leadership, "b", time.Hour, epoch)
			return err
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			done := make(chan error, 1)
			err := db.transact(t.Context(), "first", func(tx *sql.Tx) error {
				if err := c.first(tx); err != nil {
					return err
				}
				go func() { done <- c.second() }()
				for {
					select {
					case err := <-done:
						done <- err
						return errors.New("the second did not wait")
					default:
					}
					n, err := count(t.Context(), db.read, `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`)
					if err != nil || n > 0 {
						return err
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("the second: %v, want %v", err, c.want)
			}
		})
	}
}

func TestAMigrationKilledAfterAnyStatementResumes(t *testing.T) {
	dsn := Postgres.DSN(t)
	db, err := OpenLater(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	statements := strings.SplitAfter(all[0].SQL, ";\n")
	for n := 1; n < len(statements); n++ {
		tx, err := db.admin.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), db.schema(strings.Join(statements[:n], ""))); err != nil {
			t.Fatalf("after %d statements: %v", n, err)
		}
		if _, err := tx.ExecContext(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`); err == nil {
			t.Fatal("the session survived")
		}
		tx.Rollback()
		if left, err := count(t.Context(), db.admin, `SELECT COUNT(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace`); err != nil || left != 0 {
			t.Fatalf("after %d statements %d relations are left, %v", n, left, err)
		}
	}
	if err := db.Set(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
	t.Logf("killed after each of %d statements", len(statements)-1)
}

func TestOfSeveralMigratorsAllButOneWait(t *testing.T) {
	for range 3 { // each time in a schema that holds nothing
		severalMigrate(t, Postgres.DSN(t))
	}
}

func severalMigrate(t *testing.T, dsn string) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() {
			db, err := Open(t.Context(), dsn)
			if err == nil {
				err = errors.Join(db.Set(t.Context(), fmt.Sprint(i), "v"), db.Close())
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// The server dies in the middle of writes and recovers; the same handle goes
// on, and what it acknowledged is there, whole.
func TestNothingAcknowledgedIsLostToADeadServer(t *testing.T) {
	db := openDSN(t, Postgres.DSN(t))
	const rounds, each = 5, 12
	done := make(chan struct{})
	progress := make(chan struct{})
	acknowledged := map[string]rlc.Stage{}
	failures := 0
	var writer sync.WaitGroup
	writer.Go(func() {
		defer close(progress)
		for n := 0; t.Context().Err() == nil; n++ {
			select {
			case <-done:
				return
			default:
			}
			r := rlc.Run{ID: fmt.Sprint("r", n), Actor: "ada", Started: monday}
			if _, _, err := db.BeginRun(t.Context(), r); err != nil {
				unavailable(t, "begin", err)
				failures++
				pause(t.Context(), 3)
				continue
			}
			acknowledged[r.ID] = rlc.Claimed
			c := rlc.Change{Service: r.ID, Bucket: "b", Why: strings.Repeat("why ", 500)}
			if err := db.StoreRun(t.Context(), r, []rlc.Change{c}, []rlc.Proposal{{ID: r.ID, Service: r.ID, Changes: []rlc.Change{c}}}); err != nil {
				unavailable(t, "store", err)
				failures++
				continue
			}
			acknowledged[r.ID] = rlc.Stored
			select {
			case progress <- struct{}{}:
			default:
			}
		}
	})
	for range rounds {
		for range each {
			if _, ok := <-progress; !ok {
				t.Fatal("the writer gave up")
			}
		}
		Postgres.Kill(t)
		Postgres.Start(t)
	}
	<-progress // it goes on after the last
	close(done)
	writer.Wait()
	found := whole(t, db, acknowledged)
	t.Logf("%d times the server died, %d runs acknowledged, %d found, 0 lost; %d writes failed meanwhile", rounds, len(acknowledged), found, failures)
}
