package gitsync_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

// What a person changes on the page is a person's commit on the branch: it comes
// after RLC's, keeps the other lines, stays when the review is accepted, and is the
// person's from then on.
func TestAnAmendedNumberIsThePersonsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420), set("checkout", "web", 0, 60)))
	more := gitsync.Amendment{Quota: "callers/caller=search", Limit: *limitOf(450), Why: "set by Bob: launch"}
	now, err := w.Amend(t.Context(), p, gitsync.Person{Name: "Bob"}, "More for search", more)
	if err != nil {
		t.Fatal(err)
	}
	if !now.Human || now.State != rlc.Open || now.Commit != w.rev("rlc/checkout") || now.Content == p.Content || w.rev("rlc/checkout^") != p.Commit {
		t.Errorf("amended %+v, want a person's commit on %s", now, p.Commit)
	}
	want := map[string]float64{"search": 450, "web": 60}
	if got := w.rates("rlc/checkout", "checkout"); !maps.Equal(got, want) {
		t.Errorf("the branch holds %v, want %v", got, want)
	}
	if who := w.git(w.path, "log", "-1", "--format=%an", "rlc/checkout"); who != "Bob" {
		t.Errorf("the commit is of %q, want Bob", who)
	}
	if settled, err := w.Settle(t.Context(), p); err != nil || !settled.Human || settled.Commit != now.Commit || settled.Content != now.Content {
		t.Errorf("settled %+v, %v; want what the amendment says", settled, err)
	}
	if again, err := w.Amend(t.Context(), p, gitsync.Person{Name: "Bob"}, "More for search", more); err != nil || again.Commit != now.Commit || w.rev("rlc/checkout") != now.Commit {
		t.Errorf("the same once more: %+v, %v; want the same commit", again, err)
	}
	more.Limit = *limitOf(500)
	if _, err := w.Amend(t.Context(), p, gitsync.Person{Name: "Eve"}, "Even more", more); !errors.Is(err, rlc.ErrConflict) || w.rev("rlc/checkout") != now.Commit {
		t.Errorf("by somebody who saw the branch as it was: %v, want ErrConflict and nothing written", err)
	}
	if _, err := w.Accept(t.Context(), now, "Ada"); err != nil {
		t.Fatal(err)
	}
	if got := w.rates("main", "checkout"); !maps.Equal(got, want) || w.rev("main^2") != now.Commit {
		t.Errorf("accepted %v, want %v as a merge of the person's commit", got, want)
	}
	// The merge says what it puts in force, before what the run had proposed.
	first, rest, _ := strings.Cut(w.git(w.path, "log", "-1", "--format=%b", "main"), "What follows is what the run had proposed.")
	if want := "Set by hand before it was merged:\n\n- `callers/caller=search`: 450/s, burst 900, in place of 420/s, burst 840"; !strings.Contains(first, want) || strings.Contains(first, "web") || rest == "" {
		t.Errorf("the merge says\n%s\nwant\n%s", first, want)
	}
	if got, want := edits(t, w, "checkout"), (map[string]string{"callers/caller=search": "Bob"}); !maps.Equal(got, want) {
		t.Errorf("edited %v, want %v", got, want)
	}
	w.fsck()
}

func TestAnAmendmentThatCannotBeMeantWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	tip := w.rev("rlc/checkout")
	other := p
	other.RunID = "cron-2"
	for name, c := range map[string]struct {
		p    rlc.Proposal
		a    gitsync.Amendment
		want error
		says string
	}{
		"a quota that it does not hold": {p, gitsync.Amendment{Quota: "callers/caller=nobody", Limit: *limitOf(10)}, rlc.ErrNotFound, "callers/caller=nobody"},
		"no limit at all":               {p, gitsync.Amendment{Quota: "callers/caller=search", Limit: rlc.Limit{Rate: -1, Burst: 1}}, rlc.ErrInvalid, "rate"},
		"another run's branch":          {other, gitsync.Amendment{Quota: "callers/caller=search", Limit: *limitOf(10)}, rlc.ErrConflict, "another run"},
	} {
		got, err := w.Amend(t.Context(), c.p, gitsync.Person{Name: "Bob"}, "why", c.a)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || got.Human {
			t.Errorf("%s: %v, want %v that names %q", name, err, c.want, c.says)
		}
	}
	if w.rev("rlc/checkout") != tip {
		t.Error("the branch moved")
	}
}

// What others changed on the base branch meanwhile is not told as the review's.
func TestAMergeTellsOnlyWhatWasSetByHandInItsReview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "other", 0, 100)))
	p := w.publish(proposal("checkout", "cron-2", set("checkout", "search", 0, 420)))
	now, err := w.Amend(t.Context(), p, gitsync.Person{Name: "Bob"}, "More", gitsync.Amendment{Quota: "callers/caller=search", Limit: *limitOf(450), Why: "launch"})
	if err != nil {
		t.Fatal(err)
	}
	w.push("other by hand", map[string]string{quotas: w.edited("main", "checkout", "other", 200)})
	if _, err := w.Accept(t.Context(), now, "Ada"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.rates("main", "checkout"), (map[string]float64{"other": 200, "search": 450}); !maps.Equal(got, want) {
		t.Errorf("accepted %v, want %v", got, want)
	}
	first, _, _ := strings.Cut(w.git(w.path, "log", "-1", "--format=%b", "main"), "What follows")
	if !strings.Contains(first, "search`: 450/s") || strings.Contains(first, "other") {
		t.Errorf("the merge says\n%s", first)
	}
}
