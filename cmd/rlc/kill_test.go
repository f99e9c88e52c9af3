//go:build fault

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A run killed after each of its steps ends, after a restart, in exactly one
// commit: looked at from outside, in the repository and through the API.
func TestAKilledRunEndsInOneCommit(t *testing.T) {
	data := filepath.Join(t.TempDir(), "demo")
	startDemo(t, data).stop()
	repo := filepath.Join(data, "config.git")
	headroom := "0.6"
	for i, point := range []string{"after-claim", "after-compute", "after-store", "after-publish", "after-record"} {
		next := fmt.Sprintf("0.%d", 8+i)
		if i >= 2 {
			next = fmt.Sprintf("1.%d", i)
		}
		pushHeadroom(t, data, "search", headroom, next)
		headroom = next
		head := git(t, repo, "rev-parse", "main")[:12]

		startDemo(t, data, "RLC_FAULT="+point).died()
		d := startDemo(t, data)
		run := "config-" + head + "-search"
		eventually(t, "the run killed "+point+" is over", func() bool {
			var answer struct {
				Runs []struct {
					ID       string  `json:"id"`
					Result   string  `json:"result"`
					Finished *string `json:"finished_at"`
				} `json:"runs"`
			}
			d.get("/api/v1/runs", &answer)
			for _, r := range answer.Runs {
				if r.ID == run && r.Finished != nil {
					return r.Result == "ok"
				}
			}
			return false
		})
		commits := git(t, repo, "log", "--all", "--format=%H", "--grep=RLC-Run: "+run)
		if n := len(strings.Fields(commits)); n != 1 {
			t.Errorf("killed %s: %d commits of run %s:\n%s", point, n, run, commits)
		}
		if ahead := git(t, repo, "rev-list", "--count", "main..rlc/search"); ahead != "1" {
			t.Errorf("killed %s: the review is %s commits ahead of the base", point, ahead)
		}
		var open proposalsAnswer
		d.get("/api/v1/proposals?state=open", &open)
		if len(open.Proposals) != 1 {
			t.Errorf("killed %s: %d open proposals", point, len(open.Proposals))
		}
		d.stop()
	}
}

// died waits for a process that was killed from inside.
func (d *server) died() {
	d.t.Helper()
	select {
	case err := <-d.ended:
		d.ended <- err
		if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			d.t.Fatalf("ended with %v, not killed\n%s", err, d.stderr)
		}
	case <-time.After(2 * time.Minute):
		d.t.Fatalf("the fault point was not reached:\n%s", d.stderr)
	}
}

// pushHeadroom edits a service's headroom in a fresh clone and pushes it, as a
// person does.
func pushHeadroom(t *testing.T, data, service, from, to string) {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, t.TempDir(), "clone", "-q", filepath.Join(data, "config.git"), clone)
	file := filepath.Join(clone, "services", service, "policy.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	after := strings.ReplaceAll(string(b), "headroom: "+from, "headroom: "+to)
	if after == string(b) {
		t.Fatalf("no headroom %s in\n%s", from, b)
	}
	if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, clone, "commit", "-qam", "headroom "+to)
	git(t, clone, "push", "-q", "origin", "main")
}
