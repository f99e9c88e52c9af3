package store

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

func open(t *testing.T, path string) *DB {
	t.Helper()
	db, err := Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "rlc.db") }

func TestADSNThatIsNotSQLiteIsRefusedWithoutItsSecret(t *testing.T) {
	for _, dsn := range []string{"", "sqlite:", "rlc.db", "postgres://rlc:hunter2@db/rlc"} {
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

func TestRecordsOfANewerSchemaAreRefusedInOneLine(t *testing.T) {
	path := file(t)
	db := open(t, path)
	if _, err := db.write.ExecContext(t.Context(), `INSERT INTO schema_versions (version, name, applied) VALUES (999, '0999_later.sql', 0)`); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), "sqlite:"+path)
	if !errors.Is(err, rlc.ErrInvalid) {
		t.Fatalf("got %v, want it refused", err)
	}
	if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "schema version 999") {
		t.Errorf("got %q, want one line that names the version", err)
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

func TestOfTwoMigratorsOneWaits(t *testing.T) {
	path := file(t)
	var wg sync.WaitGroup
	errs := make([]error, 4)
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

// A leader that was stopped long enough to lose its lease finds its writes
// fenced: the lease is on the database's clock, so the test moves that.
func TestALeaseEndsOnTheDatabasesClock(t *testing.T) {
	path := file(t)
	a, b := open(t, path), open(t, path) // two processes
	first, leads, err := a.Lead(t.Context(), Leadership, "a", 15*time.Second, 0)
	if err != nil || !leads {
		t.Fatalf("a leads: %v, %v", leads, err)
	}
	if _, leads, err := b.Lead(t.Context(), Leadership, "b", 15*time.Second, 0); err != nil || leads {
		t.Fatalf("b leads: %v, %v, want one leader", leads, err)
	}
	r := rlc.Run{ID: "r", Epoch: first}
	if _, _, err := a.BeginRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := a.write.ExecContext(t.Context(), `UPDATE leaders SET expires = expires - $1`, (15 * time.Second).Microseconds()); err != nil {
		t.Fatal(err)
	}
	second, leads, err := b.Lead(t.Context(), Leadership, "b", 15*time.Second, 0)
	if err != nil || !leads || second != first+1 {
		t.Fatalf("b leads: %v with epoch %d, %v; want it with %d", leads, second, err, first+1)
	}
	if _, leads, err := a.Lead(t.Context(), Leadership, "a", 15*time.Second, 0); err != nil || leads {
		t.Errorf("a leads again: %v, %v", leads, err)
	}
	if err := a.StoreRun(t.Context(), r, nil, nil); !errors.Is(err, rlc.ErrFenced) {
		t.Errorf("a's write: %v, want it fenced", err)
	}
}

func intact(t *testing.T, db *DB) {
	t.Helper()
	var word string
	if err := db.read.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&word); err != nil || word != "ok" {
		t.Errorf("integrity check: %q, %v", word, err)
	}
}

// child runs this test binary again as another process, in the role of
// TestChild, on the records at path.
func child(t *testing.T, role, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "RLC_STORE_CHILD="+role, "RLC_STORE_PATH="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// TestChild is the other process of the tests below; it says on stdout what
// was acknowledged and never ends by itself. Without a role it does nothing.
func TestChild(t *testing.T) {
	role, path := os.Getenv("RLC_STORE_CHILD"), os.Getenv("RLC_STORE_PATH")
	switch role {
	case "write":
		db := open(t, path)
		for n := 0; ; n++ {
			r := rlc.Run{ID: fmt.Sprintf("%d-%d", os.Getpid(), n), Actor: "ada", Started: monday}
			if _, _, err := db.BeginRun(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			fmt.Println("begun", r.ID)
			c := rlc.Change{Service: r.ID, Bucket: "b", New: &rlc.Limit{Rate: 1, Burst: 1}, Why: strings.Repeat("why ", 500)}
			if err := db.StoreRun(t.Context(), r, []rlc.Change{c}, []rlc.Proposal{{ID: r.ID, Service: r.ID, Changes: []rlc.Change{c}}}); err != nil {
				t.Fatal(err)
			}
			fmt.Println("stored", r.ID)
		}
	case "lead":
		_, leads, err := open(t, path).Lead(t.Context(), Leadership, fmt.Sprint(os.Getpid()), time.Hour, 0)
		fmt.Println("leads", leads, err)
		select {}
	case "migrate":
		db, err := openSQLite(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		all, err := migrations.All()
		if err != nil {
			t.Fatal(err)
		}
		half := all[0].SQL[:strings.LastIndex(all[0].SQL, "CREATE TABLE")]
		tx, err := db.write.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(context.Background(), half); err != nil {
			t.Fatal(err)
		}
		fmt.Println("half")
		select {}
	}
}

func TestNothingAcknowledgedIsLostToKill9(t *testing.T) {
	path := file(t)
	acknowledged := map[string]rlc.Stage{}
	for kill := range 20 {
		cmd, out := child(t, "write", path)
		for n := 0; out.Scan(); n++ {
			what, id, _ := strings.Cut(out.Text(), " ")
			switch what {
			case "begun":
				acknowledged[id] = rlc.Claimed
			case "stored":
				acknowledged[id] = rlc.Stored
			default:
				t.Fatalf("the other process says %q", out.Text())
			}
			if n == 3+7*kill%31 { // at another place each time; what follows until the end counts too
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		cmd.Wait()
	}
	db := open(t, path)
	intact(t, db)
	type record struct {
		stage                             rlc.Stage
		changes, proposals, outbox, audit int
	}
	have := map[string]record{}
	if _, err := list(t.Context(), db.read, func(r row) (struct{}, error) {
		var id string
		var rec record
		err := r.Scan(&id, &rec.stage, &rec.changes, &rec.proposals, &rec.outbox, &rec.audit)
		have[id] = rec
		return struct{}{}, err
	}, `SELECT id, stage, (SELECT COUNT(*) FROM changes c JOIN latest_changes l ON l.run_id = c.run_id WHERE c.run_id = runs.id),
		(SELECT COUNT(*) FROM proposals p WHERE p.run_id = runs.id), (SELECT COUNT(*) FROM outbox o WHERE o.proposal_id = runs.id),
		(SELECT COUNT(*) FROM audit a WHERE a.object = runs.id) FROM runs`); err != nil {
		t.Fatal(err)
	}
	for id, stage := range acknowledged {
		if rec, ok := have[id]; !ok || (stage == rlc.Stored && rec.stage != rlc.Stored) {
			t.Errorf("run %s was acknowledged as %s and is %q", id, stage, rec.stage)
		}
	}
	for id, rec := range have {
		want := record{stage: rlc.Claimed, audit: 1}
		if rec.stage == rlc.Stored {
			want = record{rlc.Stored, 1, 1, 1, 1}
		}
		if rec != want {
			t.Errorf("run %s is half there: %+v, want %+v", id, rec, want)
		}
	}
	t.Logf("20 kills, %d runs acknowledged, %d found, 0 lost", len(acknowledged), len(have))
}

func TestASecondProcessCannotLead(t *testing.T) {
	path := file(t)
	cmd, out := child(t, "lead", path)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if !out.Scan() || out.Text() != "leads true <nil>" {
		t.Fatalf("the other process says %q", out.Text())
	}
	if _, leads, err := open(t, path).Lead(t.Context(), Leadership, "me", time.Hour, 0); err != nil || leads {
		t.Errorf("leads %v, %v beside another process", leads, err)
	}
}

func TestAKilledMigrationResumes(t *testing.T) {
	path := file(t)
	cmd, out := child(t, "migrate", path)
	if !out.Scan() || out.Text() != "half" {
		t.Fatalf("the other process says %q", out.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	db := open(t, path) // its lock is free, its half is gone
	intact(t, db)
	if err := db.Set(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}
