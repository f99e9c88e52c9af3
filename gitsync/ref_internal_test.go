package gitsync

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
)

func newRefs(t *testing.T) refs {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "with [odd] name", "r.git")
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return refs{path: dir}
}

var one, two = plumbing.NewHash(strings.Repeat("1", 40)), plumbing.NewHash(strings.Repeat("2", 40))

func TestAReferenceMovesFromTheExactHashOnly(t *testing.T) {
	r, ctx := newRefs(t), t.Context()
	const name = "refs/heads/rlc/a"
	for _, step := range []struct {
		old, new plumbing.Hash
		conflict bool
		then     plumbing.Hash
	}{
		{one, two, true, plumbing.ZeroHash},                // not there
		{plumbing.ZeroHash, one, false, one},               // created
		{plumbing.ZeroHash, two, true, one},                // there already
		{two, one, true, one},                              // elsewhere
		{one, two, false, two},                             // moved
		{one, plumbing.ZeroHash, true, two},                // not deleted from elsewhere
		{two, plumbing.ZeroHash, false, plumbing.ZeroHash}, // deleted
		{plumbing.ZeroHash, one, false, one},               // created again
	} {
		err := r.move(ctx, name, step.old, step.new)
		if errors.Is(err, rlc.ErrConflict) != step.conflict || !step.conflict && err != nil {
			t.Errorf("%s to %s: %v, want conflict %v", short(step.old), short(step.new), err, step.conflict)
		}
		if now, err := r.read(name); err != nil || now != step.then {
			t.Errorf("%s to %s: now %s, %v; want %s", short(step.old), short(step.new), short(now), err, short(step.then))
		}
	}
	left, _ := filepath.Glob(filepath.Join(globEscape(r.path), "*.tmp*"))
	locks, _ := filepath.Glob(filepath.Join(globEscape(r.path), "refs/heads/*/*.lock"))
	if left != nil || locks != nil {
		t.Errorf("left behind %v %v", left, locks)
	}
}

func TestADeletedReferenceLeavesPackedRefsToo(t *testing.T) {
	r, ctx := newRefs(t), t.Context()
	text := "# pack-refs with: peeled fully-peeled sorted \n" + one.String() + " refs/heads/main\n" + two.String() + " refs/heads/rlc/a\n" + one.String() + " refs/tags/v1\n^" + two.String() + "\n"
	if err := os.WriteFile(filepath.Join(r.path, "packed-refs"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := r.move(ctx, "refs/heads/rlc/a", two, one); err != nil {
		t.Fatal(err)
	}
	if err := r.move(ctx, "refs/heads/rlc/a", one, plumbing.ZeroHash); err != nil {
		t.Fatal(err)
	}
	if now, err := r.read("refs/heads/rlc/a"); err != nil || !now.IsZero() {
		t.Errorf("deleted reference reads %s, %v", now, err)
	}
	got, _ := os.ReadFile(filepath.Join(r.path, "packed-refs"))
	if want := strings.Replace(text, two.String()+" refs/heads/rlc/a\n", "", 1); string(got) != want {
		t.Errorf("packed-refs:\n%swant:\n%s", got, want)
	}
}

func TestALockOfAnotherProcessIsRespectedAndNamed(t *testing.T) {
	r := newRefs(t)
	lock := filepath.Join(r.path, "refs/heads/main.lock")
	if err := os.WriteFile(lock, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.move(ctx, "refs/heads/main", plumbing.ZeroHash, one)
	if err == nil || !strings.Contains(err.Error(), lock) {
		t.Errorf("error %v, want one that names the lock", err)
	}
	if err := r.recover(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error("another's lock was removed")
	}
}

// A process killed between taking a lock and renaming it leaves both names of
// one file; the next start removes them, and nothing else.
func TestALockOfAKilledProcessOfOursIsRemoved(t *testing.T) {
	for _, file := range []string{"refs/heads/main", "packed-refs"} {
		r := newRefs(t)
		if _, err := r.lock(t.Context(), "ref", filepath.Join(r.path, file), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := r.recover(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(r.path, file+".lock")); !os.IsNotExist(err) {
			t.Errorf("%s.lock is still there: %v", file, err)
		}
		if err := r.move(t.Context(), "refs/heads/main", plumbing.ZeroHash, one); err != nil {
			t.Error(err)
		}
	}
	// Killed after the rename: the spare file is the reference itself.
	r := newRefs(t)
	if err := r.move(t.Context(), "refs/heads/main", plumbing.ZeroHash, one); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(r.path, "refs/heads/main"), filepath.Join(r.path, spare+".ref")); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() error{r.recover, func() error { return r.move(t.Context(), "refs/heads/rlc/a", plumbing.ZeroHash, two) }} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if now, err := r.read("refs/heads/main"); err != nil || now != one {
			t.Errorf("main reads %s, %v", now, err)
		}
	}
}

// D12, for a repository on this machine.
func TestOnlyAnAbsolutePathIsARepositoryHere(t *testing.T) {
	for _, url := range []string{
		"", "config.git", "./config.git", "../x", "~/x", "ext::sh -c touch% /tmp/x", "git://example.org/x", "file:///etc", "fd::17", "--upload-pack=touch /tmp/x",
		"-oProxyCommand=x", " /srv/x.git", "/srv/x.git ", "/srv/x.git\n", "/srv/\nx.git", "/srv/x\x00.git", "/srv/../etc", "/srv//x.git", "/srv/a::b", "/srv/\xff",
	} {
		if got, err := localPath(url); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%q became %q, %v; want ErrInvalid", url, got, err)
		}
		if _, err := Open(t.Context(), Config{URL: url}); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("Open %q: %v, want ErrInvalid", url, err)
		}
	}
	for _, url := range []string{"/srv/config.git", "/srv/Jane Doe/config.git", "/srv/config.git/"} {
		if got, err := localPath(url); err != nil || got != strings.TrimSuffix(url, "/") {
			t.Errorf("%q became %q, %v", url, got, err)
		}
	}
}

func TestEverySegmentIsABranchThatGitAccepts(t *testing.T) {
	seen := map[string]string{}
	for _, segment := range []string{"checkout", "a.b", "a..b", "a-b", "a.", "a.lock", "a-lock", "_x-0123456789ab", "0", "a._-", "main", "packed-refs"} {
		name := branchName(segment)
		if err := exec.Command("git", "check-ref-format", "refs/heads/"+name).Run(); err != nil {
			t.Errorf("%s: git refuses %s", segment, name)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%s and %s share the branch %s", segment, other, name)
		}
		seen[name] = segment
	}
	if got := branchName("a.b"); got != "rlc/a.b" {
		t.Errorf("a plain segment became %s", got)
	}
}

// While git holds a reference it does not move under git's feet, and the other
// way round. go-git's own update looks at another lock and loses one of the two.
func TestGitAndRlcRespectEachOthersLocks(t *testing.T) {
	r := newRefs(t)
	git := func(args ...string) *exec.Cmd {
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a"}, args...)...)
		cmd.Dir = r.path
		return cmd
	}
	commit := func(message string) plumbing.Hash {
		t.Helper()
		if err := git("hash-object", "-t", "tree", "-w", "/dev/null").Run(); err != nil {
			t.Fatal(err)
		}
		out, err := git("commit-tree", "-m", message, "4b825dc642cb6eb9a060e54bf8d69288fbee4904").Output()
		if err != nil {
			t.Fatal(err)
		}
		return plumbing.NewHash(strings.TrimSpace(string(out)))
	}
	first, theirs, ours := commit("first"), commit("theirs"), commit("ours")
	const name = "refs/heads/main"
	if err := r.move(t.Context(), name, plumbing.ZeroHash, first); err != nil {
		t.Fatal(err)
	}

	// git's hook stops it between taking its lock and moving the reference.
	held, release := filepath.Join(t.TempDir(), "held"), filepath.Join(t.TempDir(), "release")
	hook := filepath.Join(r.path, "hooks", "reference-transaction")
	script := "#!/bin/sh\ncat >/dev/null\n[ \"$1\" = prepared ] || exit 0\necho >'" + held + "'\ncat '" + release + "'\n"
	if err := errors.Join(syscall.Mkfifo(held, 0o600), syscall.Mkfifo(release, 0o600), os.WriteFile(hook, []byte(script), 0o777)); err != nil {
		t.Fatal(err)
	}
	update := git("update-ref", name, theirs.String(), first.String())
	if err := update.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(held); err != nil { // returns once git is there
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.move(ctx, name, first, ours); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("while git holds it: %v, want ErrConflict", err)
	}
	if err := errors.Join(os.WriteFile(release, nil, 0), update.Wait(), os.Remove(hook)); err != nil {
		t.Fatal(err)
	}
	if now, err := r.read(name); err != nil || now != theirs {
		t.Fatalf("now at %s, %v; want git's %s", short(now), err, short(theirs))
	}

	unlock, err := r.lock(t.Context(), "ref", filepath.Join(r.path, name), []byte(ours.String()+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := git("update-ref", name, first.String(), theirs.String()).Run(); err == nil {
		t.Error("git moved a reference that rlc holds")
	}
	unlock()
	if err := git("update-ref", name, first.String(), theirs.String()).Run(); err != nil {
		t.Errorf("git after rlc let go: %v", err)
	}
}
