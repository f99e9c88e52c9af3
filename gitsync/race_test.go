package gitsync_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

// People push to main and to review branches with git while rlc publishes and
// accepts in the same repository. Whatever was pushed or accepted is there in
// the end. go-git's own reference update loses commits here.
func TestNothingIsLostWhilePeoplePush(t *testing.T) {
	t.Parallel()
	const services, people = 2, 2
	rounds, pushes := 6, 4
	if t.Name() != "TestNothingIsLostWhilePeoplePush" { // over a network: slower
		rounds, pushes = 2, 2
	}
	names := make([]string, services)
	for i := range names {
		names[i] = fmt.Sprintf("svc-%d", i)
	}
	w := newWorld(t, names...)
	dirs := make([]string, people)
	for i := range dirs {
		dirs[i] = w.clone()
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var accepted, pushed []string // commits, files
	person := func(i int) {
		defer wg.Done()
		git := func(args ...string) error {
			out, err := command(t.Context(), dirs[i], "Bob", args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
			}
			return nil
		}
		for n := range pushes {
			file := fmt.Sprintf("person-%d-%d", i, n)
			if err := os.WriteFile(filepath.Join(dirs[i], file), []byte(file), 0o666); err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(git("add", file), git("commit", "-q", "-m", file)); err != nil {
				t.Error(err)
				return
			}
			for git("push", "-q", "origin", "main") != nil {
				if err := git("pull", "-q", "--rebase", "origin", "main"); err != nil {
					t.Error(err)
					return
				}
			}
			mu.Lock()
			pushed = append(pushed, file)
			mu.Unlock()
		}
	}
	for i := range people {
		wg.Add(1)
		go person(i)
	}
	for n := range rounds {
		for _, name := range names {
			p, err := w.Publish(t.Context(), proposal(name, fmt.Sprintf("run-%d", n), set(name, fmt.Sprintf("caller-%d", n), 0, float64(n+1))))
			if err != nil {
				t.Fatal(err)
			}
			for {
				c, err := w.Accept(t.Context(), p, "Ada")
				if errors.Is(err, rlc.ErrConflict) {
					continue // five times in a row somebody else was faster
				}
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				accepted = append(accepted, c.Hash)
				mu.Unlock()
				break
			}
		}
	}
	wg.Wait()
	line := w.git(w.path, "rev-list", "--first-parent", "main")
	for _, h := range accepted {
		if !strings.Contains(line, h) {
			t.Errorf("accepted commit %s is lost", h)
		}
	}
	for _, f := range pushed {
		if got := w.show("main", f); got != f {
			t.Errorf("pushed file %s is lost", f)
		}
	}
	for _, name := range names {
		if got := len(w.rates("main", name)); got != rounds {
			t.Errorf("%s has %d quotas, want %d", name, got, rounds)
		}
	}
	if want := 1 + services*rounds + people*pushes; strings.Count(line, "\n")+1 != want {
		t.Errorf("%d commits on main, want %d", strings.Count(line, "\n")+1, want)
	}
	if left, _ := filepath.Glob(filepath.Join(w.path, "rlc-ref.tmp*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
	w.fsck()
}

// A person commits to the review branch while rlc rebuilds it: either rlc's
// rebuild came first and the push is refused, or the commit stays.
func TestAPersonsCommitOnTheBranchIsNeverLostToARebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rounds := 4
	if w.remote.URL != "" {
		rounds = 2
	}
	for n := range rounds {
		name := fmt.Sprintf("run-%d", n)
		w.publish(proposal("checkout", name, set("checkout", "search", 0, float64(100+2*n))))
		dir := w.clone()
		w.git(dir, "checkout", "-q", "rlc/checkout")
		w.commit(dir, "mine", map[string]string{"NOTES.md": name})
		var push error
		done := make(chan struct{})
		go func() {
			defer close(done)
			push = command(t.Context(), dir, "Bob", "push", "-q", "origin", "rlc/checkout").Run()
		}()
		for i := range 5 {
			if _, err := w.Publish(t.Context(), proposal("checkout", fmt.Sprintf("%s-%d", name, i), set("checkout", "search", 0, float64(101+2*n)))); err != nil {
				t.Error(err)
			}
		}
		<-done
		if push == nil && w.rev("rlc/checkout") != w.git(dir, "rev-parse", "HEAD") {
			t.Fatal("git said that the push was done, and the commit is gone")
		}
		w.git(w.path, "branch", "-q", "-D", "rlc/checkout")
	}
}

// D17.
func TestASecondRlcOnTheRepositoryIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	again := w.remote
	if again.URL == "" {
		again.URL = w.path
	}
	_, err := gitsync.Open(t.Context(), again)
	if !errors.Is(err, rlc.ErrConflict) || !strings.Contains(err.Error(), "another rlc") {
		t.Errorf("error %v, want ErrConflict that says so", err)
	}
	w.push("plain git goes on", map[string]string{"README.md": "x"})
	reader := w.open(gitsync.Config{ReadOnly: true})
	if _, _, err := reader.Head(t.Context()); err != nil {
		t.Errorf("reading beside it: %v", err)
	}
	if _, err := reader.Publish(t.Context(), proposal("checkout", "cron-1", set("checkout", "search", 0, 420))); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("writing while read only: %v, want ErrRefused", err)
	}
	w.Close()
	r := w.open(gitsync.Config{})
	if _, _, err := r.Head(t.Context()); err != nil {
		t.Error(err)
	}
}

// gc packs objects and references under a running rlc.
func TestGcUnderARunningRlcIsHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rounds = 3
	for n := range rounds {
		w.inForce(proposal("checkout", fmt.Sprintf("run-%d", n), set("checkout", fmt.Sprintf("caller-%d", n), 0, 10)))
		p := w.publish(proposal("checkout", fmt.Sprintf("next-%d", n), set("checkout", "open", 0, 10)))
		w.git(w.path, "gc", "-q", "--prune=now")
		if _, _, err := w.Head(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := edits(t, w, "checkout"); len(got) != 0 {
			t.Errorf("edited %v", got)
		}
		if err := w.Reject(t.Context(), p, "Ada", "no"); err != nil {
			t.Fatal(err)
		}
		if w.rev("rlc/checkout") != "" {
			t.Fatal("a packed branch was not deleted")
		}
	}
	if got := len(w.rates("main", "checkout")); got != rounds {
		t.Errorf("%d quotas, want %d", got, rounds)
	}
	w.fsck()
}

// A person works over HTTP, through git's own server.
func TestAPersonClonesAndPushesOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.git(w.path, "config", "http.receivepack", "true")
	w.git(w.path, "config", "receive.unpackLimit", "1") // every push arrives as a pack
	head(t, w)
	exe, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(exe)), "git-http-backend"),
		Stderr: io.Discard,
		Env:    []string{"GIT_PROJECT_ROOT=" + filepath.Dir(w.path), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + t.TempDir()},
	})
	defer server.Close()
	dir := t.TempDir()
	w.git(dir, "clone", "-q", server.URL+"/config.git", ".")
	w.git(dir, "merge", "-q", "--no-ff", "--no-edit", "origin/rlc/checkout")
	w.git(dir, "push", "-q", "origin", "main")
	c, files, err := w.Head(t.Context())
	if err != nil || c.Hash != w.git(dir, "rev-parse", "HEAD") {
		t.Fatalf("head %+v, %v; want what was pushed", c, err)
	}
	if len(files[quotas]) == 0 {
		t.Error("the merged file is not in the head")
	}
	if p := w.publish(proposal("checkout", "cron-1")); p.State != rlc.Accepted || p.Actor != "Bob" || w.rev("rlc/checkout") != "" {
		t.Errorf("published again: %s by %q; want accepted by Bob, the branch gone", p.State, p.Actor)
	}
	resp, err := http.Get(server.URL + "/config.git/rlc.lock")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("rlc's own files are served")
	}
}
