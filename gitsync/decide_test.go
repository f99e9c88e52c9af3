package gitsync_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

func TestAcceptPutsTheReviewOnTheBaseBranchInAPersonsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	base := w.rev("main")
	c, err := w.Accept(t.Context(), p, "Ada Lovelace")
	if err != nil {
		t.Fatal(err)
	}
	if c.Hash != w.rev("main") || c.Version.Number != 2 || w.rev("main^") != base {
		t.Errorf("accepted as %+v on %s, main is %s", c, w.rev("main^"), w.rev("main"))
	}
	if w.rev("main^{tree}") != w.rev(p.Commit+"^{tree}") {
		t.Error("the base branch holds something else than the review did")
	}
	if got := w.git(w.path, "log", "-1", "--format=%(trailers:key=RLC-Actor,valueonly)%(trailers:key=RLC-Run,valueonly)", "main"); got != "Ada Lovelace\ncron-1" {
		t.Errorf("trailers %q", got)
	}
	if w.rev("rlc/checkout") != "" {
		t.Error("the branch stayed")
	}
	again, err := w.Accept(t.Context(), p, "Ada Lovelace")
	if err != nil || again != c {
		t.Errorf("second click: %+v, %v; want the same commit", again, err)
	}
	// Killed between the base branch's move and the branch's.
	w.git(w.path, "update-ref", "refs/heads/rlc/checkout", p.Commit)
	if settled, err := w.Settle(t.Context(), p); err != nil || settled.State != rlc.Accepted || settled.Actor != "Ada Lovelace" || w.rev("rlc/checkout") != "" {
		t.Errorf("settled %+v, %v; want accepted and the branch gone", settled, err)
	}
	if out := w.publish(proposal("checkout", "cron-1", p.Changes...)); out.State != rlc.Accepted || out.Actor != "Ada Lovelace" {
		t.Errorf("published again after a crash: %+v, want accepted by Ada Lovelace", out)
	}
	if got := edits(t, w, "checkout"); len(got) != 0 {
		t.Errorf("an accepted review counts as edits %v", got)
	}
	w.fsck()
}

func TestAcceptRefusesWhatWasNotLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 500)))
	if _, err := w.Accept(t.Context(), old, "Ada"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("another run's branch: %v, want ErrConflict", err)
	}
	now := proposal("checkout", "cron-2")
	now.Commit = old.Commit
	if _, err := w.Accept(t.Context(), now, "Ada"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("a branch that moved: %v, want ErrConflict", err)
	}
	w.git(w.path, "branch", "-q", "-D", "rlc/checkout")
	now.Commit = ""
	if _, err := w.Accept(t.Context(), now, "Ada"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("a branch that is gone: %v, want ErrConflict", err)
	}
}

func TestAcceptRefusesALineThatBothChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420), set("checkout", "web", 0, 60)))
	p := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 420, 500)))
	w.push("mine", map[string]string{quotas: w.edited("main", "checkout", "search", 999)})
	main := w.rev("main")
	_, err := w.Accept(t.Context(), p, "Ada")
	if !errors.Is(err, rlc.ErrConflict) || !strings.Contains(err.Error(), "callers/caller=search") {
		t.Errorf("error %v, want ErrConflict that names the quota", err)
	}
	if w.rev("main") != main {
		t.Error("main moved")
	}
}

// The person's commits stay in history, and their number counts as theirs.
func TestAcceptOfAReviewWithAPersonsCommitMergesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420), set("checkout", "web", 0, 60)))
	dir := w.clone()
	w.git(dir, "checkout", "-q", "rlc/checkout")
	w.commit(dir, "more for search", map[string]string{quotas: w.edited("rlc/checkout", "checkout", "search", 450), "NOTES.md": "why"})
	w.git(dir, "push", "-q", "origin", "rlc/checkout")
	theirs := w.rev("rlc/checkout")

	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.push("meanwhile", map[string]string{"README.md": "hello"})
	if _, err := w.Accept(t.Context(), p, "Ada"); err != nil {
		t.Fatal(err)
	}
	if w.rev("main^2") != theirs {
		t.Error("the person's commit is not in the history of main")
	}
	if got, want := w.rates("main", "checkout"), (map[string]float64{"search": 450, "web": 60}); !maps.Equal(got, want) {
		t.Errorf("quotas %v, want %v", got, want)
	}
	if w.show("main", "NOTES.md") != "why" || w.show("main", "README.md") != "hello" {
		t.Error("a person's file is lost")
	}
	if got, want := edits(t, w, "checkout"), (map[string]string{"callers/caller=search": "Bob"}); !maps.Equal(got, want) {
		t.Errorf("edited %v, want %v", got, want)
	}
	w.fsck()
}

func TestRejectDeletesTheBranchOnlyWhenItIsTheOneSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	newer := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 430)))
	if err := w.Reject(t.Context(), p, "Ada", "no"); err != nil || w.rev("rlc/checkout") != newer.Commit {
		t.Errorf("rejecting an old proposal: %v, branch %q; want the newer one untouched", err, w.rev("rlc/checkout"))
	}
	dir := w.clone()
	w.git(dir, "checkout", "-q", "rlc/checkout")
	w.commit(dir, "mine", map[string]string{"NOTES.md": "why"})
	w.git(dir, "push", "-q", "origin", "rlc/checkout")
	theirs := w.rev("rlc/checkout")
	if err := w.Reject(t.Context(), newer, "Ada", "no"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("a person's commit that nobody looked at: %v, want ErrConflict", err)
	}
	seen, err := w.Settle(t.Context(), newer)
	if err != nil || !seen.Human || seen.Commit != theirs {
		t.Fatalf("settled %+v, %v; want human at %s", seen, err, theirs)
	}
	for range 2 { // a second click finds nothing to do
		if err := w.Reject(t.Context(), seen, "Ada", "no"); err != nil {
			t.Fatal(err)
		}
	}
	if w.rev("rlc/checkout") != "" || w.rev("refs/rlc/kept/checkout/"+theirs) != theirs {
		t.Error("want the branch gone and the person's commit kept")
	}
}

func TestSettleFindsWhatPeopleDid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(w *world, dir string)
		want rlc.ProposalState
		who  string
	}{
		"nothing yet": {func(w *world, dir string) {}, rlc.Open, ""},
		"merge": {func(w *world, dir string) {
			w.git(dir, "merge", "-q", "--no-ff", "--no-edit", "origin/rlc/checkout")
		}, rlc.Accepted, "Bob"},
		"fast-forward": {func(w *world, dir string) {
			w.git(dir, "merge", "-q", "--ff-only", "origin/rlc/checkout")
		}, rlc.Accepted, "rlc"},
		"squash": {func(w *world, dir string) {
			w.git(dir, "merge", "-q", "--squash", "origin/rlc/checkout")
			w.git(dir, "commit", "-q", "-m", "new numbers")
		}, rlc.Accepted, "Bob"},
		"squash, with the branch deleted": {func(w *world, dir string) {
			w.git(dir, "merge", "-q", "--squash", "origin/rlc/checkout")
			w.git(dir, "commit", "-q", "-m", "new numbers")
			w.git(dir, "push", "-q", "origin", ":rlc/checkout")
		}, rlc.Accepted, "Bob"},
		"squash with another line edited in one commit": {func(w *world, dir string) {
			w.git(dir, "merge", "-q", "--squash", "origin/rlc/checkout")
			w.commit(dir, "new numbers", map[string]string{quotas: w.edited("rlc/checkout", "checkout", "batch", 77)})
		}, rlc.Accepted, "Bob"},
		"rebase": {func(w *world, dir string) {
			w.commit(dir, "before", map[string]string{"README.md": "x"})
			w.git(dir, "cherry-pick", "origin/rlc/checkout")
		}, rlc.Accepted, "rlc"},
		"squash, then the same line edited": {func(w *world, dir string) {
			w.git(dir, "merge", "-q", "--squash", "origin/rlc/checkout")
			w.git(dir, "commit", "-q", "-m", "new numbers")
			w.commit(dir, "more", map[string]string{quotas: w.edited("rlc/checkout", "checkout", "search", 501)})
		}, rlc.Accepted, "Bob"},
		"branch deleted": {func(w *world, dir string) { w.git(dir, "push", "-q", "origin", ":rlc/checkout") }, rlc.Rejected, ""},
		"something else on main": {func(w *world, dir string) {
			w.commit(dir, "other", map[string]string{quotas: w.edited("main", "checkout", "web", 61)})
		}, rlc.Open, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420), set("checkout", "web", 0, 60), set("checkout", "batch", 0, 10)))
			p := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 420, 500)))
			dir := w.clone()
			c.do(w, dir)
			w.git(dir, "push", "-q", "origin", "main")
			got, err := w.Settle(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got.State != c.want || got.Actor != c.who {
				t.Errorf("%s by %q, want %s by %q", got.State, got.Actor, c.want, c.who)
			}
			if left := w.rev("rlc/checkout") != ""; left != (c.want == rlc.Open) {
				t.Errorf("branch left: %v", left)
			}
			if !got.Decided.IsZero() == (c.want == rlc.Open) {
				t.Errorf("decided %v", got.Decided)
			}
			want := map[string]string{}
			switch name {
			case "squash with another line edited in one commit":
				want["callers/caller=batch"] = "Bob"
			case "squash, then the same line edited":
				want["callers/caller=search"] = "Bob"
			case "something else on main":
				want["callers/caller=web"] = "Bob"
			}
			if got := edits(t, w, "checkout"); !maps.Equal(got, want) {
				t.Errorf("edited %v, want %v", got, want)
			}
		})
	}
}

// A squash leaves no trace of RLC's commit; later commits must not make the
// numbers look like a person's.
func TestASquashedReviewStaysKnownAsRLCs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	dir := w.clone()
	w.git(dir, "merge", "-q", "--squash", "origin/rlc/checkout")
	w.git(dir, "commit", "-q", "-m", "new numbers")
	w.git(dir, "push", "-q", "origin", "main")
	if got := edits(t, w, "checkout"); len(got) != 0 {
		t.Errorf("before settling: edited %v, want none", got)
	}
	// The next run comes before anybody settled the first.
	w.publish(proposal("checkout", "cron-2", set("checkout", "search", 420, 500)))
	if got := edits(t, w, "checkout"); len(got) != 0 {
		t.Errorf("after the next review: edited %v, want none", got)
	}
	if got, err := w.Settle(t.Context(), p); err != nil || got.State != rlc.Accepted {
		t.Errorf("settled %s, %v; want accepted", got.State, err)
	}
	w.git(w.path, "gc", "-q", "--prune=now")
	w.push("search needs more", map[string]string{quotas: w.edited("main", "checkout", "search", 999)})
	if got, want := edits(t, w, "checkout"), (map[string]string{"callers/caller=search": "Bob"}); !maps.Equal(got, want) {
		t.Errorf("edited %v, want %v", got, want)
	}
}

func TestSettleSaysSupersededForAnotherRunsBranch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 500)))
	if got, err := w.Settle(t.Context(), p); err != nil || got.State != rlc.Superseded {
		t.Errorf("settled %s, %v; want superseded", got.State, err)
	}
}

func TestEditCommitsInAPersonsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "services/checkout/policy.yaml"
	base := w.rev("main")
	next := strings.Replace(string(policy("checkout")), "team-a", "team-b", 1)
	c, err := w.Edit(t.Context(), gitsync.Person{Name: "Eve\nRLC-Run: x"}, "owner\n\nRLC-Run: forged\nRLC-Epoch: 99", rlc.Files{path: []byte(next)})
	if err != nil {
		t.Fatal(err)
	}
	if c.Hash != w.rev("main") || w.rev("main^") != base || w.show("main", path)+"\n" != next {
		t.Errorf("edit %+v did not land", c)
	}
	if got := w.git(w.path, "log", "-1", "--format=%an|%cn|%(trailers:key=RLC-Run,valueonly)|%(trailers:key=RLC-Epoch,valueonly)", "main"); strings.ReplaceAll(got, "\n", "") != `Eve\u{a}RLC-Run: x|rlc||0` {
		t.Errorf("author, committer, run, epoch: %q", got)
	}
	same, err := w.Edit(t.Context(), gitsync.Person{Name: "Eve"}, "again", rlc.Files{path: []byte(next)})
	if err != nil || same.Hash != c.Hash {
		t.Errorf("an edit that changes nothing: %+v, %v; want the tip", same, err)
	}
	if _, err := w.EditFrom(t.Context(), base, gitsync.Person{Name: "Dan"}, "late", rlc.Files{path: policy("checkout")}); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("an edit of what somebody else changed since: %v, want ErrConflict", err)
	}
	if _, err := w.Edit(t.Context(), gitsync.Person{Name: "Dan"}, "bad", rlc.Files{path: []byte("buckets: [")}); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("an edit that does not validate: %v, want ErrInvalid", err)
	}
	for _, path := range []string{"../x", "/etc/passwd", ".git/config", "services/../x/policy.yaml", "README.md", "services/a/b/policy.yaml"} {
		if _, err := w.Edit(t.Context(), gitsync.Person{Name: "Dan"}, "bad", rlc.Files{path: []byte("x")}); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("an edit of %s: %v, want ErrInvalid", path, err)
		}
	}
	if _, err := w.Edit(t.Context(), gitsync.Person{Name: "Dan"}, "bye", rlc.Files{path: nil}); err != nil {
		t.Fatal(err)
	}
	if got := w.git(w.path, "ls-tree", "-r", "--name-only", "main"); got != "" {
		t.Errorf("after removing the only file: %q", got)
	}
	w.fsck()
}
