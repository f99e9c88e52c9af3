package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/disktest"
	"github.com/openrlc/rlc/internal/store/pgtest"
)

// The disk under the records fills up: acts fail and say why, none of them by
// half, and go on once there is room.
func TestAFullDiskIsSaidAndLeavesNoActWithoutItsAudit(t *testing.T) {
	for engine, open := range map[string]func(t *testing.T) (disk, dsn string){
		"sqlite": func(t *testing.T) (string, string) {
			disk := disktest.Small(t, 4<<20)
			return disk, "sqlite:" + filepath.Join(disk, "rlc.db")
		},
		"postgres": func(t *testing.T) (string, string) {
			server := pgtest.New(t)
			dsn, disk := server.SmallDisk(t, server.DSN(t), 8<<20)
			return disk, dsn
		},
	} {
		t.Run(engine, func(t *testing.T) {
			disk, dsn := open(t)
			db := openDSN(t, dsn)
			acknowledged := 0
			verdict := func(n int) error {
				v := rlc.Verdict{ID: fmt.Sprint("v", n), Service: "checkout", Window: rlc.Window{From: monday, Until: monday.Add(time.Hour)}}
				return db.SetVerdict(t.Context(), v, rlc.AuditEntry{Actor: "ada", Action: "verdict.set", Object: v.ID, Detail: random(n, 20_000)})
			}
			if err := verdict(0); err != nil {
				t.Fatal(err)
			}
			ballast := disktest.Fill(t, disk)
			failed := 0
			for n := 1; failed < 5 && n < 1000; n++ {
				err := verdict(n)
				if err == nil {
					acknowledged++
					continue
				}
				failed++
				if !errors.Is(err, rlc.ErrUnavailable) || strings.Contains(err.Error(), "\n") ||
					!strings.Contains(err.Error(), "full") && !strings.Contains(err.Error(), "No space left") && !strings.Contains(err.Error(), "I/O error") {
					t.Errorf("act %d: %v, want one line that says that the disk is full", n, err)
				}
			}
			if failed == 0 {
				t.Fatal("the disk did not fill up")
			}
			paired(t, db, acknowledged+1)
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			if err := verdict(1001); err != nil {
				t.Errorf("with room again: %v", err)
			}
			paired(t, db, acknowledged+2)
			if engine == "sqlite" {
				intact(t, db)
			}
		})
	}
}

// random is text that no compression shortens much, of so many bytes.
func random(seed, bytes int) string {
	b := make([]byte, bytes)
	for i, x := 0, uint64(seed)+1; i < bytes; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = ' ' + byte(x%94)
	}
	return string(b)
}

// paired fails unless there are so many verdicts, each with one audit row.
func paired(t *testing.T, db *DB, want int) {
	t.Helper()
	verdicts, err := count(t.Context(), db.read, `SELECT COUNT(*) FROM verdicts`)
	if err != nil {
		t.Fatal(err)
	}
	audits, err := count(t.Context(), db.read, `SELECT COUNT(*) FROM audit a JOIN verdicts v ON a.object = v.id`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := count(t.Context(), db.read, `SELECT COUNT(*) FROM audit`)
	if err != nil || verdicts != want || audits != want || all != want {
		t.Errorf("%d verdicts, %d of %d audit rows are theirs (%v), want %d of each", verdicts, audits, all, err, want)
	}
}
