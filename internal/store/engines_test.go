package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/migrations"
)

// onEngines runs test once per engine, on records that are empty.
func onEngines(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+file(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres.DSN(t)) })
}

// expire ends every lease, as if the database's clock had gone on.
func expire(t *testing.T, db *DB) {
	t.Helper()
	if _, err := db.write.ExecContext(t.Context(), `UPDATE leaders SET expires = 0`); err != nil {
		t.Fatal(err)
	}
}

// A leader that was stopped long enough to lose its lease finds its writes
// fenced: the lease is on the database's clock, so the test moves that.
func TestALeaseEndsOnTheDatabasesClock(t *testing.T) {
	onEngines(t, func(t *testing.T, dsn string) {
		a, b := openDSN(t, dsn), openDSN(t, dsn) // two processes
		first, leads, err := a.Lead(t.Context(), Leadership, "a", time.Hour, 0)
		if err != nil || !leads {
			t.Fatalf("a leads: %v, %v", leads, err)
		}
		if _, leads, err := b.Lead(t.Context(), Leadership, "b", time.Hour, 0); err != nil || leads {
			t.Fatalf("b leads: %v, %v, want one leader", leads, err)
		}
		r := rlc.Run{ID: "r", Epoch: first}
		if _, _, err := a.BeginRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if _, err := a.write.ExecContext(t.Context(), `UPDATE leaders SET expires = expires - $1`, time.Hour.Microseconds()); err != nil {
			t.Fatal(err)
		}
		second, leads, err := b.Lead(t.Context(), Leadership, "b", time.Hour, 0)
		if err != nil || !leads || second != first+1 {
			t.Fatalf("b leads: %v with epoch %d, %v; want it with %d", leads, second, err, first+1)
		}
		if _, leads, err := a.Lead(t.Context(), Leadership, "a", time.Hour, 0); err != nil || leads {
			t.Errorf("a leads again: %v, %v", leads, err)
		}
		if err := a.StoreRun(t.Context(), r, nil, nil); !errors.Is(err, rlc.ErrFenced) {
			t.Errorf("a's write: %v, want it fenced", err)
		}
	})
}

func TestALeaderThatWakesUpTooLateIsFenced(t *testing.T) {
	onEngines(t, wakesUpTooLate)
}

func wakesUpTooLate(t *testing.T, dsn string) {
	db := openDSN(t, dsn)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	cmd, says := childWith(t, "lead and store", dsn, in)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if !says.Scan() || says.Text() != "begun" {
		t.Fatalf("the other process says %q", says.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	expire(t, db)
	if _, leads, err := db.Lead(t.Context(), Leadership, "me", time.Hour, 0); err != nil || !leads {
		t.Fatalf("leads %v, %v", leads, err)
	}
	if _, err := out.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !says.Scan() || says.Text() != "fenced true" {
		t.Errorf("awake, the other process says %q", says.Text())
	}
	if r, err := db.RunByID(t.Context(), "r"); err != nil || r.Stage != rlc.Claimed {
		t.Errorf("the run is %s, %v", r.Stage, err)
	}
}

// long is how often a test does what it repeats: few times, or many in the long
// form that RLC_CHAOS asks for.
func long(few, many int) int {
	if os.Getenv("RLC_CHAOS") != "" {
		return many
	}
	return few
}

func TestOfReplicasThatStartTogetherOneLeads(t *testing.T) {
	onEngines(t, func(t *testing.T, dsn string) {
		openDSN(t, dsn) // the schema
		for _, replicas := range []int{2, 5} {
			first := openDSN(t, dsn)
			expire(t, first)
			start := make(chan struct{})
			var together sync.WaitGroup
			var leaders atomic.Int32
			epochs := make([]uint64, replicas)
			for n := range replicas {
				db := openDSN(t, dsn)
				together.Go(func() {
					<-start
					epoch, leads, err := db.Lead(t.Context(), Leadership, fmt.Sprint(replicas, " replicas, ", n), time.Hour, 0)
					if err != nil {
						t.Error(err)
					}
					if epochs[n] = epoch; leads {
						leaders.Add(1)
					}
				})
			}
			close(start)
			together.Wait()
			slices.Sort(epochs)
			if leaders.Load() != 1 || epochs[0] != epochs[replicas-1] {
				t.Errorf("of %d replicas %d lead, and they know the epochs %v", replicas, leaders.Load(), epochs)
			}
		}
	})
}

// Four replicas work off slots, each until it finds itself fenced, while the
// leadership is torn from one to the next.
func TestNoSlotIsExecutedTwiceWhereLeadershipChanges(t *testing.T) {
	onEngines(t, func(t *testing.T, dsn string) {
		const replicas = 4
		changes := long(50, 1000)
		w := world{executed: map[string]int{}, progress: make(chan struct{}, 1)}
		for range replicas {
			w.replicas = append(w.replicas, &replica{openDSN(t, dsn), make(chan uint64, 1)})
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		for _, r := range w.replicas {
			wg.Go(func() { w.work(t, ctx, r) })
		}
		for n := range changes {
			r := w.replicas[n%replicas]
			expire(t, w.replicas[(n+1)%replicas].db)
			epoch, leads, err := r.db.Lead(t.Context(), Leadership, fmt.Sprint("replica ", n%replicas), time.Hour, 0)
			if err != nil || !leads || epoch != uint64(n+1) {
				t.Fatalf("change %d: leads %v with epoch %d, %v", n, leads, epoch, err)
			}
			w.leader.Store(epoch)
			r.elected <- epoch
			for range 2 { // the first may be one that was under way
				select {
				case <-w.progress:
				case <-t.Context().Done():
					t.Fatal("nothing is executed any more")
				}
			}
		}
		stop()
		wg.Wait()
		for id, times := range w.executed {
			if times != 1 {
				t.Errorf("%s was executed %d times", id, times)
			}
		}
		t.Logf("%d changes, %d slots, 0 executed twice, %d writes fenced, %d slots found taken", changes, len(w.executed), w.fenced.Load(), w.taken.Load())
	})
}

type world struct {
	replicas []*replica
	leader   atomic.Uint64 // the highest epoch that leads for sure
	slot     atomic.Int64
	progress chan struct{}
	fenced   atomic.Int64
	taken    atomic.Int64

	mu       sync.Mutex
	executed map[string]int
}

type replica struct {
	db      *DB
	elected chan uint64 // epochs that it learns of
}

// work executes slot after slot under each epoch that r is elected with, until
// a write is fenced: nothing else tells r that it no longer leads.
func (w *world) work(t *testing.T, ctx context.Context, r *replica) {
	for {
		select {
		case epoch := <-r.elected:
			for fenced := false; !fenced && ctx.Err() == nil; {
				fenced = w.execute(t, ctx, r.db, epoch)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *world) execute(t *testing.T, ctx context.Context, db *DB, epoch uint64) (fenced bool) {
	leader, n := w.leader.Load(), w.slot.Load()
	run := rlc.Run{ID: fmt.Sprint("slot-", n), Epoch: epoch, Started: monday}
	_, _, err := db.BeginRun(ctx, run)
	if err == nil {
		err = db.StoreRun(ctx, run, nil, []rlc.Proposal{{ID: run.ID, Service: "checkout"}})
	}
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, rlc.ErrFenced):
		w.fenced.Add(1)
		return true
	case errors.Is(err, rlc.ErrConflict): // another replica's
		w.taken.Add(1)
	case err != nil:
		t.Error(err)
		return true
	default:
		if epoch < leader {
			t.Errorf("%s was stored under epoch %d, and %d led before it began", run.ID, epoch, leader)
		}
		w.mu.Lock()
		w.executed[run.ID]++
		w.mu.Unlock()
		select {
		case w.progress <- struct{}{}:
		default:
		}
	}
	w.slot.CompareAndSwap(n, n+1)
	return false
}

// A replica of the version before, which is still running while another one
// brings the schema up to date, stops writing and goes on reading.
func TestAnOlderProgramRefusesToWriteInOneLine(t *testing.T) {
	onEngines(t, func(t *testing.T, dsn string) {
		db := openDSN(t, dsn)
		if err := db.Set(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
		if _, err := db.write.ExecContext(t.Context(), `INSERT INTO schema_versions (version, name, applied) VALUES (999, '0999_later.sql', 0)`); err != nil {
			t.Fatal(err)
		}
		_, opened := Open(t.Context(), dsn)
		_, _, led := db.Lead(t.Context(), Leadership, "a", time.Hour, 0)
		for what, err := range map[string]error{"open": opened, "write": db.Set(t.Context(), "k", "w"), "lead": led} {
			if !errors.Is(err, rlc.ErrInvalid) {
				t.Errorf("%s: %v, want it refused", what, err)
				continue
			}
			if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "schema version 999") {
				t.Errorf("%s: %q, want one line that names the version", what, err)
			}
		}
		if got, err := db.Get(t.Context(), "k"); err != nil || got != "v" {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// child runs this test binary again as another process, in the role of
// TestChild, on the records at dsn.
func child(t *testing.T, role, dsn string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	return childWith(t, role, dsn, nil)
}

// childWith is child with a standard input.
func childWith(t *testing.T, role, dsn string, in *os.File) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "RLC_STORE_CHILD="+role, "RLC_STORE_DSN="+dsn)
	cmd.Stderr = os.Stderr
	if in != nil {
		cmd.Stdin = in
	}
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
	role, dsn := os.Getenv("RLC_STORE_CHILD"), os.Getenv("RLC_STORE_DSN")
	switch role {
	case "write":
		db := openDSN(t, dsn)
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
		_, leads, err := openDSN(t, dsn).Lead(t.Context(), Leadership, fmt.Sprint(os.Getpid()), time.Hour, 0)
		fmt.Println("leads", leads, err)
		select {}
	case "lead and store":
		db := openDSN(t, dsn)
		epoch, _, err := db.Lead(t.Context(), Leadership, "child", time.Hour, 0)
		if err != nil {
			t.Fatal(err)
		}
		r := rlc.Run{ID: "r", Epoch: epoch}
		if _, _, err := db.BeginRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		fmt.Println("begun")
		if _, err := fmt.Scanln(); err != nil && !strings.Contains(err.Error(), "newline") {
			t.Fatal(err)
		}
		fmt.Println("fenced", errors.Is(db.StoreRun(t.Context(), r, nil, nil), rlc.ErrFenced))
		select {}
	case "migrate":
		db, err := openSQLite(t.Context(), strings.TrimPrefix(dsn, "sqlite:"))
		if err != nil {
			t.Fatal(err)
		}
		all, err := migrations.All()
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(os.Getenv("RLC_STORE_STATEMENTS"))
		if err != nil {
			t.Fatal(err)
		}
		half := strings.Join(strings.SplitAfter(all[0].SQL, ";\n")[:n], "")
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
	onEngines(t, func(t *testing.T, dsn string) {
		kills := long(20, 300)
		if !strings.HasPrefix(dsn, "sqlite:") {
			kills = long(5, 50) // what a client's death can break there is little
		}
		acknowledged := map[string]rlc.Stage{}
		for kill := range kills {
			cmd, out := child(t, "write", dsn)
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
		db := openDSN(t, dsn)
		if strings.HasPrefix(dsn, "sqlite:") {
			intact(t, db)
		}
		found := whole(t, db, acknowledged)
		t.Logf("%d kills, %d runs acknowledged, %d found, 0 lost", kills, len(acknowledged), found)
	})
}

// whole fails where a run that was acknowledged at a stage is not there, or
// where a run is there without all that belongs to its stage: one change, one
// proposal, one outbox row, one audit row. It returns how many runs there are.
func whole(t *testing.T, db *DB, acknowledged map[string]rlc.Stage) int {
	t.Helper()
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
	return len(have)
}

func TestASecondProcessCannotLead(t *testing.T) {
	onEngines(t, secondCannotLead)
}

func secondCannotLead(t *testing.T, dsn string) {
	cmd, out := child(t, "lead", dsn)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if !out.Scan() || out.Text() != "leads true <nil>" {
		t.Fatalf("the other process says %q", out.Text())
	}
	if _, leads, err := openDSN(t, dsn).Lead(t.Context(), Leadership, "me", time.Hour, 0); err != nil || leads {
		t.Errorf("leads %v, %v beside another process", leads, err)
	}
}
