//go:build fault

package planner_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
)

// logged is a forge that outlives the process: commits are lines of a file.
type logged struct{ path string }

func (l logged) Publish(_ context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	text, err := os.ReadFile(l.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return p, err
	}
	if line := p.RunID + " " + p.Service + "\n"; !strings.Contains(string(text), line) {
		text = append(text, line...)
	}
	p.State = rlc.Open
	return p, os.WriteFile(l.path, text, 0o600)
}

// The process is killed with SIGKILL at each fault point, and started again on
// the same files.
func TestAProcessKilledAtAnyFaultPointEndsInExactlyOneCommit(t *testing.T) {
	if dir := os.Getenv("RLC_KILL_DIR"); dir != "" {
		db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "rlc.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		w := &world{t: t, db: db, clock: now, records: db, repo: &repo{},
			history: &history{series: map[string]func(time.Time) float64{"geo all": wave(50)}}}
		w.repo.commit(now.Add(-60*day), policy("geo", "  - {name: all}\n"))
		p, err := planner.New(w.config(func(c *planner.Config) {
			c.Policies, c.Publisher = policies.Builtin(), logged{filepath.Join(dir, "forge")}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		run, err := p.Run(t.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now})
		if err != nil || run.Result != rlc.ResultOK {
			t.Fatalf("%+v, %v", run, err)
		}
		return
	}
	for _, point := range []string{"after-claim", "after-compute", "after-store", "after-publish", "after-record"} {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			start := func(fault string) error {
				cmd := exec.Command(os.Args[0], "-test.run=^TestAProcessKilledAtAnyFaultPoint")
				cmd.Env = append(os.Environ(), "RLC_KILL_DIR="+dir, "RLC_FAULT="+fault)
				return cmd.Run()
			}
			var exit *exec.ExitError
			if err := start(point); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("first start: %v, want killed", err)
			}
			if err := start(""); err != nil {
				t.Fatalf("second start: %v", err)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "forge")); err != nil || string(text) != "cron-s geo\n" {
				t.Errorf("commits %q (%v), want one", text, err)
			}
		})
	}
}
