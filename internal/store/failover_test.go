package store

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store/pgtest"
)

// A standby is promoted while the old primary goes on, read-only: what was
// connected to it moves over at once, and a leader from before is fenced.
func TestAFailoverIsFollowedAndFencesTheOldLeader(t *testing.T) {
	old := pgtest.New(t)
	dsn := old.DSN(t)
	standby := old.Standby(t)
	db := openDSN(t, standby.Or(dsn))
	first, leads, err := db.Lead(t.Context(), Leadership, "a", time.Hour, 0)
	if err != nil || !leads {
		t.Fatalf("leads %v, %v", leads, err)
	}
	r := rlc.Run{ID: "r", Epoch: first}
	if _, _, err := db.BeginRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var both []*sql.Conn // each of the leader's connections is to the old primary
	for range writeConns {
		conn, err := db.write.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, conn)
	}
	for _, conn := range both {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	standby.Promote(t, old)
	old.ReadOnly(t, true)

	for _, write := range []string{"x", "y", "z"} {
		if err := db.Set(t.Context(), "k", write); err != nil {
			t.Errorf("write %s, when the old primary is read-only: %v", write, err)
		}
	}
	now := openDSN(t, standby.Or(dsn)) // another replica
	if got, err := now.Get(t.Context(), "k"); err != nil || got != "z" {
		t.Errorf("the new primary holds %q, %v", got, err)
	}
	if got, err := now.RunByID(t.Context(), "r"); err != nil || got.Stage != rlc.Claimed {
		t.Errorf("what was acknowledged before is %+v, %v", got, err)
	}
	expire(t, now)
	second, leads, err := now.Lead(t.Context(), Leadership, "b", time.Hour, 0)
	if err != nil || !leads || second != first+1 {
		t.Fatalf("leads %v with epoch %d, %v; want it with %d", leads, second, err, first+1)
	}
	if err := db.StoreRun(t.Context(), r, nil, nil); !errors.Is(err, rlc.ErrFenced) {
		t.Errorf("the old leader's write: %v, want it fenced", err)
	}
}

// An administrator ends every session (57P01): acts are carried out on a new
// one, and a read fails at most once for each session that was open.
func TestAnEndedSessionCostsNoAct(t *testing.T) {
	dsn := Postgres.DSN(t)
	db, admin := openDSN(t, dsn), openDSN(t, dsn)
	for n := range 3 {
		if err := db.Set(t.Context(), "k", "v"); err != nil {
			t.Errorf("act %d: %v", n, err)
		}
		failed := 0
		for _, err := db.Get(t.Context(), "k"); err != nil; _, err = db.Get(t.Context(), "k") {
			unavailable(t, "a read", err)
			if failed++; failed > readConns {
				t.Fatalf("round %d: %d reads failed, want one for each of %d connections at most", n, failed, readConns)
			}
		}
		var ended int
		if err := admin.admin.QueryRowContext(t.Context(), `SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE application_name = 'rlc' AND pid <> pg_backend_pid()`).Scan(&ended); err != nil || ended == 0 {
			t.Fatalf("%d sessions ended, %v", ended, err)
		}
	}
}
