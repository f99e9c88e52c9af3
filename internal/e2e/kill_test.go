//go:build fault

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var buildFlags = []string{"-tags", "fault"}

// kills is how often the process is killed at each point.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("RLC_KILLS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("RLC_KILLS=%q: want a number above 0", text)
	}
	return n
}

// A person's edit, and the server killed at each step of the run that answers
// it: after a restart there is one run, one commit, one review, whatever the
// step.
func TestKilledAtAnyStepOfARunEndsInOneReview(t *testing.T) {
	w := newWorld(t)
	p := w.serve("rlc")
	p.ready()
	if r := p.compute(); r.Result != "ok" {
		t.Fatalf("%+v", r)
	}
	eventually(t, "two reviews", func() bool { return len(p.open()) == 2 })
	w.merge("checkout")
	w.merge("search")
	p.stop()

	headroom := 0.5 // each edit another, within what a policy may say
	for _, point := range []string{"after-claim", "after-compute", "after-store", "gitsync-committed", "gitsync-moved", "after-publish", "after-record"} {
		for range kills(t) {
			headroom += 0.2
			head := w.edit("search", fmt.Sprintf("defaults: {policy: {kind: historical, headroom: %.1f}}\n", headroom))
			w.serve("rlc", "RLC_FAULT="+point).died()
			p := w.serve("rlc")
			id := "config-" + head[:12] + "-search"
			eventually(t, "the run killed "+point+" is over", func() bool {
				var all struct {
					Runs []run `json:"runs"`
				}
				p.get("/api/v1/runs", &all)
				for _, r := range all.Runs {
					if r.ID == id && r.Finished != nil {
						return r.Result == "ok"
					}
				}
				return false
			})
			eventually(t, "one review", func() bool { return fmt.Sprint(p.open()) == "[search]" })
			if commits := git(t, w.git.bare, "log", "--all", "--format=%H", "--grep=RLC-Run: "+id); len(strings.Fields(commits)) != 1 {
				t.Errorf("killed %s: commits of run %s: %q", point, id, commits)
			}
			if ahead := git(t, w.git.bare, "rev-list", "--count", "main..rlc/search"); ahead != "1" {
				t.Errorf("killed %s: the review is %s commits ahead", point, ahead)
			}
			p.stop()
		}
	}
}

// The server killed before and after it hands a merged commit to the enforcers:
// before, the next one hands it out; after, an enforcer that was away finds it,
// the page says how many have it, and nobody takes it twice.
func TestKilledInDistributionReachesEveryEnforcer(t *testing.T) {
	w := newWorld(t)
	p := w.serve("rlc")
	p.ready()
	one, two := w.edge("edge-1"), w.edge("edge-2")
	eventually(t, "both enforcers are heard", func() bool { v, n := p.live(); return n == 2 && one.inForce() == v && two.inForce() == v })
	for i := range kills(t) {
		for j, point := range []string{"before-distribute", "after-distribute"} {
			p.stop()
			number := git(t, w.git.bare, "rev-list", "--count", "--first-parent", w.edit("search", fmt.Sprintf("defaults: {policy: {kind: historical, headroom: %d.%d}}\n", i+1, j+1)))
			two.signal(syscall.SIGSTOP)
			w.serve("rlc", "RLC_FAULT="+point).died()
			has := func(e *process) bool { return strings.HasSuffix(e.inForce(), "."+number) }
			if point == "after-distribute" {
				eventually(t, "the one that listened has it", func() bool { return has(one) })
			} else if has(one) {
				t.Errorf("killed %s: an enforcer has what was not handed out", point)
			}
			p = w.serve("rlc")
			eventually(t, "the page says that one of two has it", func() bool {
				return has(one) && p.says("/", "1 of 2 enforcers have")
			})
			two.signal(syscall.SIGCONT)
			eventually(t, "both have it", func() bool { v, n := p.live(); return n == 2 && has(one) && one.inForce() == v && two.inForce() == v })
		}
	}
}

// edit commits a person's change of a policy and returns the commit.
func (w *world) edit(service, extra string) string {
	w.t.Helper()
	clone := w.git.clone()
	if err := os.WriteFile(filepath.Join(clone, "services", service, "policy.yaml"), []byte(policy(service, extra)), 0o644); err != nil {
		w.t.Fatal(err)
	}
	git(w.t, clone, "commit", "-qam", "Edit "+service)
	git(w.t, clone, "push", "-q", "origin", "main")
	return git(w.t, clone, "rev-parse", "HEAD")
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// died waits for a process that was killed from inside.
func (p *process) died() {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
		if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			p.t.Fatalf("ended with %v, not killed\n%s", err, p.log)
		}
	case <-time.After(2 * time.Minute):
		p.t.Fatalf("the fault point was not reached:\n%s", p.log)
	}
}
