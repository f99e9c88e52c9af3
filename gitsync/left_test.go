package gitsync_test

import (
	"path/filepath"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/quotafile"
)

// movedAway makes a team's branch with two services, of which a person sets cart's
// line on the base branch by hand; then a new run makes the branch anew.
func movedAway(t *testing.T) (w *world, cart, checkout rlc.Proposal) {
	t.Helper()
	w = grouped(t, "cart", "checkout")
	cart = w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
	w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	w.push("by hand", map[string]string{"services/cart/quotas.yaml": string(quotasOf("cart", []rlc.Change{set("cart", "search", 0, 7)}))})
	checkout = w.publish(proposal("checkout", "run-2", set("checkout", "search", 0, 430)))
	w.want("rates of the review", []float64{w.rate(teamA, "cart"), w.rate(teamA, "checkout")}, []float64{7, 430})
	return w, cart, checkout
}

// A proposal that the base branch moved away from is not in its team's commit, so
// no merge of that accepts it, and no deleted branch rejects it: the next run makes
// another.
func TestAProposalThatLeftItsTeamsReviewIsSuperseded(t *testing.T) {
	t.Parallel()
	for what, act := range map[string]func(w *world){
		"at once":      func(*world) {},
		"fast-forward": func(w *world) { w.git(w.path, "update-ref", "refs/heads/main", w.rev(teamA)) },
		"merged and deleted": func(w *world) {
			dir := w.clone()
			w.git(dir, "merge", "-q", "--no-ff", "-m", "merge", "origin/"+teamA)
			w.git(dir, "push", "-q", "origin", "main", ":"+teamA)
		},
		"deleted": func(w *world) { w.git(w.path, "update-ref", "-d", "refs/heads/"+teamA) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, cart, _ := movedAway(t)
			act(w)
			if out := w.settle(cart); out.State != rlc.Superseded || out.Reason != "" {
				t.Errorf("cart is %s: %s", out.State, out.Reason)
			}
			w.want("its reference", w.rev("refs/rlc/proposed/cart"), "")
			if edited, err := w.Edited(t.Context(), "cart"); err != nil || len(edited) != 1 {
				t.Errorf("edited %v, %v; want the line that Bob set", edited, err)
			}
			w.fsck()
		})
	}
}

func TestTheLastOfATeamsProposalsLeavesWithTheBranch(t *testing.T) {
	t.Parallel()
	w, cart, checkout := movedAway(t)
	if _, err := w.Accept(t.Context(), checkout, "Ada"); err != nil {
		t.Fatal(err)
	}
	w.want("references", w.refs(), "refs/rlc/proposed/cart")
	next := w.publish(proposal("cart", "run-3", set("cart", "web", 0, 60)))
	w.want("the next run's", []any{next.State, next.Branch, w.settle(next).State}, []any{rlc.Open, teamA, rlc.Open})
	w.want("the one before", w.settle(cart).State, rlc.Superseded)
	w.want("references", w.refs(), onTeam("cart"))
}

// What left the review because a person put the same numbers in force is accepted.
func TestAProposalThatLeftBecauseItIsInForceIsAccepted(t *testing.T) {
	t.Parallel()
	w := grouped(t, "cart", "checkout")
	cart := w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
	w.push("the same by hand", map[string]string{"services/cart/quotas.yaml": w.show(teamA, "services/cart/quotas.yaml") + "\n"})
	w.publish(proposal("checkout", "run-2", set("checkout", "search", 0, 430)))
	w.want("the review", w.git(w.path, "diff", "--name-only", "main", teamA), "services/checkout/quotas.yaml")
	w.want("cart", w.settle(cart).State, rlc.Accepted)
	w.want("references", w.refs(), onTeam("checkout"))
	if edited, err := w.Edited(t.Context(), "cart"); err != nil || len(edited) != 0 {
		t.Errorf("edited %v, %v; want nothing", edited, err)
	}
}

// A person takes one service out of the team's branch and merges the rest.
func TestAProposalThatAPersonTookOutOfTheMergedReviewIsRejected(t *testing.T) {
	t.Parallel()
	w := grouped(t, "cart", "checkout")
	cart := w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
	checkout := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	dir := w.clone()
	w.git(dir, "checkout", "-q", "-b", "mine", "origin/"+teamA)
	w.commit(dir, "not cart", map[string]string{"services/cart/quotas.yaml": ""})
	w.git(dir, "push", "-q", "origin", "mine:main", "mine:"+teamA)
	out := w.settle(cart)
	w.want("cart", []any{out.State, out.Reason}, []any{rlc.Rejected, "the team's review was merged without it"})
	w.want("checkout", w.settle(checkout).State, rlc.Accepted)
	w.want("references", w.refs(), "")
	w.fsck()
}

// A review that only renders says nothing of the lines that the first commit of the
// base branch holds: they stay the person's who wrote it.
func TestAReviewThatOnlyRendersMakesNoLineOfTheFirstCommitOurs(t *testing.T) {
	t.Parallel()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "config.git"), now: start}
	files := rlc.Files{
		quotafile.PolicyPath("checkout"): append(policy("checkout"), "targets: [{kind: envoy-ratelimit, path: "+target+"}]\n"...),
		quotas:                           quotasOf("checkout", []rlc.Change{set("checkout", "search", 0, 420)}),
	}
	if err := gitsync.Init(t.Context(), w.path, "main", files, gitsync.Person{Name: "Ada", Email: "ada@example.org"}, "all at once"); err != nil {
		t.Fatal(err)
	}
	w.Repo = w.open(gitsync.Config{})
	if p := w.publish(rendering("cron-1")); p.State != rlc.Open {
		t.Fatalf("the rendering is %s", p.State)
	}
	edited, err := w.Edited(t.Context(), "checkout")
	if err != nil || len(edited) != 1 {
		t.Fatalf("edited %v, %v; want Ada's line", edited, err)
	}
	for id, who := range edited {
		w.want("whose "+id+" is", who, "Ada")
	}
}
