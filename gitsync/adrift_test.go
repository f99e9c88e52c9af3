package gitsync_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

// D5: what a rewrite took off the base branch comes back by no review that stands
// on it: neither by a merge, nor as the review's own commit.
func TestAReviewDoesNotBringBackWhatARewriteTookAway(t *testing.T) {
	for _, groupBy := range []string{"", gitsync.ByTeam} {
		t.Run("grouped by "+groupBy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "checkout", "cart")
			if groupBy != "" {
				w.reopen(groupBy)
			}
			w.push("what is taken away later", map[string]string{"SECRET": "hunter2"})
			p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
			other := w.publish(proposal("cart", "cron-1", set("cart", "search", 0, 99)))
			dir := w.clone()
			w.git(dir, "reset", "-q", "--hard", "HEAD~1")
			w.git(dir, "push", "-q", "-f", "origin", "main")
			w.fetched()

			tip := w.rev("main")
			if _, err := w.Accept(t.Context(), p, "Ada"); !errors.Is(err, rlc.ErrConflict) || !strings.Contains(err.Error(), "taken off main") {
				t.Errorf("accepted: %v, want ErrConflict that says why", err)
			}
			if _, err := w.Amend(t.Context(), p, gitsync.Person{Name: "Ada"}, "another number", gitsync.Amendment{Quota: p.Changes[0].ID(), Limit: rlc.Limit{Rate: 9, Burst: 9}}); !errors.Is(err, rlc.ErrConflict) {
				t.Errorf("amended: %v, want ErrConflict", err)
			}
			for _, p := range []rlc.Proposal{p, other} {
				if got := w.settle(p); got.State != rlc.Superseded || got.Human || p.Service == "checkout" && !strings.Contains(got.Reason, "taken off main") {
					t.Errorf("settled %s as %s, human %v, %q; want superseded", p.Service, got.State, got.Human, got.Reason)
				}
			}
			if w.rev("main") != tip {
				t.Error("the base branch moved")
			}
			w.want("branches", w.refs(), "")
			again := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 430)))
			if _, err := w.Accept(t.Context(), again, "Ada"); err != nil {
				t.Fatal(err)
			}
			if out := w.git(w.path, "log", "--format=%s", "main", "--", "SECRET"); out != "" || w.rate("main", "checkout") != 430 {
				t.Errorf("main holds %q and %v, want what the next run proposed and nothing of what was taken away", out, w.rate("main", "checkout"))
			}
			w.fsck()
		})
	}
}

// A run that is published again after a rewrite, or one whose review a person
// worked on: the first stands on the new history, the second is left alone and
// accepted by nobody.
func TestAfterARewriteARunStandsOnTheNewHistoryAndAPersonsReviewIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "checkout", "cart")
	w.push("what is taken away later", map[string]string{"SECRET": "hunter2"})
	mine := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	theirs := w.publish(proposal("cart", "cron-1", set("cart", "search", 0, 99)))
	theirs, err := w.Amend(t.Context(), theirs, gitsync.Person{Name: "Ada"}, "a number", gitsync.Amendment{Quota: theirs.Changes[0].ID(), Limit: rlc.Limit{Rate: 77, Burst: 154}})
	if err != nil {
		t.Fatal(err)
	}
	dir := w.clone()
	w.git(dir, "reset", "-q", "--hard", "HEAD~1")
	w.git(dir, "push", "-q", "-f", "origin", "main")
	w.fetched()

	again := w.publish(proposal("checkout", "cron-1", mine.Changes...))
	if again.State != rlc.Open || again.Human || again.Base != w.rev("main") || w.rev(again.Commit+"^") != w.rev("main") {
		t.Errorf("published again as %+v, want it open on the new history", again)
	}
	if got := w.settle(theirs); got.State != rlc.Open || !got.Human {
		t.Errorf("a person's review is %s, human %v; want it left", got.State, got.Human)
	}
	if _, err := w.Accept(t.Context(), theirs, "Ada"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("a person's review accepted: %v, want ErrConflict", err)
	}
}

// A server's references are not read at one instant: a branch may be seen gone
// before the merge that took it away. That is no rejection.
func TestABranchThatIsSeenGoneBeforeItsMergeIsNotRejected(t *testing.T) {
	t.Parallel()
	w, _ := newFarWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.Close()
	w.remote.Fresh = 1 << 40
	w.Repo = w.open(gitsync.Config{})
	w.git(w.path, "branch", "-q", "-D", "rlc/checkout")
	w.fetched() // the branch is gone, the base branch is as it was
	w.git(w.path, "update-ref", "refs/heads/main", p.Commit)
	if got := w.settle(p); got.State != rlc.Accepted {
		t.Errorf("settled as %s, %q; want accepted", got.State, got.Reason)
	}
}
