package forgetest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
)

// both is a proposal of two quotas of a service.
func both(service, run string, rate float64) rlc.Proposal {
	p := proposal(service, run, rate)
	other := p.Changes[0]
	other.Key = rlc.Key{"caller": "cart"}
	other.New = &rlc.Limit{Rate: rlc.Rate(2 * rate), Burst: rlc.Burst(4 * rate)}
	p.Changes = append(p.Changes, other)
	return p
}

// Squashed with an edit that RLC never saw on the branch: the edited line alone is a
// person's, whether the branch went with the merge or not, and without a forge too.
func edited(t *testing.T, w *world) {
	mine := rlc.QuotaID("per-caller", rlc.Key{"caller": "search"})
	for n, branch := range []string{"goes", "stays", "goes, and nobody asks the forge"} {
		run := "run-" + string(rune('1'+n))
		rate := 100 * float64(n+1)
		p := w.publish(both("checkout", run, rate))
		w.commit("rlc/checkout", fmt.Sprintf("rate: %g", rate), fmt.Sprintf("rate: %g", rate+5))
		tip := w.rev("rlc/checkout")
		w.merges(t, "rlc/checkout", "bob")
		out := p
		switch branch {
		case "stays":
			if _, err := w.run("update-ref", "refs/heads/rlc/checkout", tip); err != nil {
				t.Fatal(err)
			}
			out = w.settle(p)
		case "goes":
			out = w.settle(p)
		default:
			var err error
			if out, err = w.repo.Settle(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		w.want(branch, []any{out.State, out.Reason, w.rev("rlc/checkout")}, []any{rlc.Accepted, "", ""})
		if branch != "goes, and nobody asks the forge" {
			w.want("by whom", out.Actor, "bob")
		}
		who, err := w.repo.Edited(t.Context(), "checkout")
		w.want("whose numbers they are", []any{err, len(who), who[mine] != ""}, []any{nil, 1, true})
		w.handBack()
	}
}

// handBack removes checkout's quotas from the base branch.
func (w *world) handBack() {
	w.Helper()
	clone := filepath.Join(w.TempDir(), "clone")
	if _, err := w.run("clone", "-q", w.bare, clone); err != nil {
		w.Fatal(err)
	}
	file := filepath.Join(clone, "services/checkout/quotas.yaml")
	if err := os.Remove(file); err != nil {
		w.Fatal(err)
	}
	for _, args := range [][]string{{"-C", clone, "commit", "-qam", "hand back"}, {"-C", clone, "push", "-q", "origin", "main"}} {
		if _, err := w.run(args...); err != nil {
			w.Fatal(err)
		}
	}
}

// moveOn commits something else to the base branch.
func (w *world) moveOn(file, text string) {
	w.Helper()
	clone := filepath.Join(w.TempDir(), "clone")
	if _, err := w.run("clone", "-q", w.bare, clone); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(clone, file), []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
	for _, args := range [][]string{{"-C", clone, "add", file}, {"-C", clone, "commit", "-qm", "by hand"}, {"-C", clone, "push", "-q", "origin", "main"}} {
		if _, err := w.run(args...); err != nil {
			w.Fatal(err)
		}
	}
}

// An hour of polls: few questions, of whatever refusal.
func forbidden(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		w.Answer(func(rw http.ResponseWriter) bool {
			reply(rw, status, map[string]string{"message": "no"})
			return true
		})
		before := w.Asks.Load()
		w.want("while it refuses", w.settle(p).State, rlc.Open)
		for range 1800 {
			w.now = w.now.Add(2 * time.Second)
			if _, err := w.List(t.Context()); err == nil {
				t.Fatal("no error")
			}
		}
		if asked := w.Asks.Load() - before; asked < 4 || asked > 16 {
			t.Errorf("HTTP %d: asked %d times in an hour, want ever more rarely up to each 15 minutes", status, asked)
		}
		w.Answer(nil)
		w.now = w.now.Add(20 * time.Minute)
		if all, err := w.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("after HTTP %d: %v, %v", status, all, err)
		}
	}
}

func hung(t *testing.T, w *world) {
	short, err := w.open(100 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan struct{})
	defer close(free)
	w.Answer(func(http.ResponseWriter) bool { <-free; return true })
	for minute, want := range []int64{1, 2} {
		for range 3 {
			if _, err := short.List(t.Context()); err == nil {
				t.Fatal("a forge that hangs answers")
			}
		}
		if asked := w.Asks.Load(); asked > want {
			t.Errorf("minute %d: a forge that hangs was asked %d times, want %d at most", minute, asked, want)
		}
		w.now = w.now.Add(time.Minute)
	}
}

// A commit that comes after RLC asked is not merged by what was asked.
func pending(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	w.Check(t, "rlc/checkout", "pending")
	if err := w.reviews.Merge(t.Context(), p); !errors.Is(err, rlc.ErrConflict) || errors.Is(err, forge.ErrBehind) {
		t.Fatalf("merge with pending checks: %v", err)
	}
	w.commit("rlc/checkout", "rate: 100", "rate: 900")
	w.Check(t, "rlc/checkout", "success")
	if v, _ := w.Review("rlc/checkout"); v.State != forge.Open {
		t.Fatalf("the review with a commit that nobody judged is %s", v.State)
	}
	if err := w.reviews.Merge(t.Context(), p); !errors.Is(err, rlc.ErrConflict) {
		t.Fatalf("merge of the commit before: %v", err)
	}
	p = w.settle(p)
	if err := w.reviews.Merge(t.Context(), p); err != nil {
		t.Fatalf("merge with its checks passed: %v", err)
	}
}

// A forge's button that merges the base branch into a review is nobody's edit.
func behind(t *testing.T, w *world) {
	w.Strict()
	p := w.publish(proposal("checkout", "run-1", 100))
	w.moveOn("README.md", "of people\n")
	if err := w.reviews.Merge(t.Context(), p); !errors.Is(err, forge.ErrBehind) {
		t.Fatalf("merge of one that is behind: %v", err)
	}
	now, err := w.reviews.Rebuild(t.Context(), p)
	w.want("rebuilt", []any{err, now.State, now.Human, now.Content, now.Base, now.Commit}, []any{nil, rlc.Open, false, p.Content, w.rev("main"), w.rev("rlc/checkout")})
	again, err := w.reviews.Rebuild(t.Context(), now)
	w.want("again", []any{err, again.Commit}, []any{nil, now.Commit})

	w.moveOn("NOTES.md", "of people\n")
	tree, err := w.run("merge-tree", "--write-tree", "refs/heads/main", now.Commit)
	if err != nil {
		t.Fatal(err)
	}
	button, err := w.run("commit-tree", "-p", now.Commit, "-p", "refs/heads/main", "-m", "Merge branch main into rlc/checkout", tree)
	if err == nil {
		_, err = w.run("update-ref", "refs/heads/rlc/checkout", button)
	}
	if err != nil {
		t.Fatal(err)
	}
	now = w.settle(now)
	w.want("after the button", []any{now.State, now.Human, now.Commit}, []any{rlc.Open, false, button})
	next := w.publish(proposal("checkout", "run-2", 150))
	w.want("a newer run's", []any{next.Human, next.Commit == button}, []any{false, false})
	if err := w.reviews.Merge(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	w.want("merged", w.settle(next).State, rlc.Accepted)
}

func takenOff(t *testing.T, w *world) {
	w.publish(proposal("checkout", "run-1", 100))
	w.SetLabels("rlc/checkout", "mine")
	w.mu.Lock()
	w.of(1).reviewers = []string{"bob"}
	w.mu.Unlock()
	w.publish(proposal("checkout", "run-2", 130))
	v, _ := w.Review("rlc/checkout")
	w.want("text and labels", []any{v.Title, v.Labels}, []any{"rlc(checkout): run-2", []string{"mine"}})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want("reviewers", w.of(1).reviewers, []string{"bob"})
}

func quoted(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	say := func(text string) {
		t.Helper()
		if err := w.reviews.Comment(t.Context(), p, text); err != nil {
			t.Fatal(err)
		}
	}
	w.Says("rlc/checkout", "bob", "look\n\n<!-- rlc:comment -->")
	say("first")
	w.Says("rlc/checkout", "bob", w.Comments(1)[1])
	say("second")
	all := w.Comments(1)
	w.want("comments", []any{len(all), all[0], strings.Contains(all[1], "second"), strings.Contains(all[2], "first")},
		[]any{3, "look\n\n<!-- rlc:comment -->", true, true})
}

func leftOpen(t *testing.T, w *world) {
	p := w.publish(proposal("checkout", "run-1", 100))
	stays := w.publish(proposal("cart", "run-1", 100))
	w.Answer(func(rw http.ResponseWriter) bool {
		reply(rw, http.StatusBadGateway, nil)
		return true
	})
	if err := w.repo.Reject(t.Context(), p, "dana", "too low"); err != nil {
		t.Fatal(err)
	}
	p.State = rlc.Rejected
	if err := w.reviews.CloseReview(t.Context(), p); err == nil {
		t.Fatal("a forge that is away closes a review")
	}
	w.Answer(nil)
	w.now = w.now.Add(2 * time.Minute)
	w.want("another one", w.settle(stays).State, rlc.Open)
	v, _ := w.Review("rlc/checkout")
	other, _ := w.Review("rlc/cart")
	w.want("on the forge", []any{v.State, other.State}, []any{forge.Closed, forge.Open})
}

func withdrawn(t *testing.T, w *world) {
	w.publish(proposal("checkout", "run-1", 100))
	w.moveOn("limits.yaml", "of people\n")
	w.moveOn("services/checkout/policy.yaml", "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\ntargets: [{kind: envoy-ratelimit, path: limits.yaml}]\nbuckets:\n  - {name: per-caller, each: [caller]}\n")
	if _, err := w.reviews.Publish(t.Context(), proposal("checkout", "run-2", 150)); !errors.Is(err, rlc.ErrUnpublishable) {
		t.Fatalf("a target on a person's file: %v", err)
	}
	v, _ := w.Review("rlc/checkout")
	w.want("the one before", []any{v.State, w.rev("rlc/checkout")}, []any{forge.Closed, ""})
	if all, err := w.List(t.Context()); err != nil || slices.ContainsFunc(all, func(v forge.Review) bool { return v.Branch == "rlc/checkout" }) {
		t.Errorf("open %v, %v", all, err)
	}
}
