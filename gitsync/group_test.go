package gitsync_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

const teamA = "rlc/_team/team-a"

// grouped makes a world of services that one team owns, put up on its branch.
func grouped(t *testing.T, services ...string) *world {
	t.Helper()
	w := newWorld(t, services...)
	w.reopen(gitsync.ByTeam)
	return w
}

func (w *world) reopen(groupBy string) {
	w.t.Helper()
	if err := w.Repo.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.Repo = w.open(gitsync.Config{GroupBy: groupBy})
}

// refs are the short names of the branches and proposals of rlc, by name.
func (w *world) refs() string {
	w.t.Helper()
	return strings.Join(strings.Fields(w.git(w.path, "for-each-ref", "--format=%(refname)", "refs/heads/rlc", "refs/rlc/proposed")), " ")
}

// onTeam is what w.refs says while these services are on the team's branch.
func onTeam(services ...string) string {
	out := "refs/heads/" + teamA
	for _, s := range services {
		out += " refs/rlc/proposed/" + s
	}
	return out
}

func (w *world) want(what string, got, want any) {
	w.t.Helper()
	if g, want := fmt.Sprint(got), fmt.Sprint(want); g != want {
		w.t.Fatalf("%s:\n got %s\nwant %s", what, g, want)
	}
}

// rate is what a revision holds for caller search of a service, 0 for nothing.
func (w *world) rate(rev, service string) float64 {
	w.t.Helper()
	if w.git(w.path, "ls-tree", rev, "services/"+service+"/quotas.yaml") == "" {
		return 0
	}
	return w.rates(rev, service)["search"]
}

func TestATeamsProposalsAreOneCommitOnOneBranch(t *testing.T) {
	t.Parallel()
	w := grouped(t, "cart", "checkout")
	first := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	second := w.publish(proposal("cart", "run-2", set("cart", "search", 0, 50)))
	w.want("references", w.refs(), onTeam("cart", "checkout"))
	w.want("branches", []string{first.Branch, second.Branch}, []string{teamA, teamA})
	w.want("the commit", []string{w.rev(teamA), w.rev(teamA + "~1")}, []string{second.Commit, w.rev("main")})
	w.want("its files", w.git(w.path, "diff", "--name-only", "main", teamA), "services/cart/quotas.yaml\nservices/checkout/quotas.yaml")
	msg := w.git(w.path, "log", "-1", "--format=%B", teamA)
	for _, want := range []string{"rlc(team team-a): 2 services\n\n- rlc(cart): 1 quota +1", "- rlc(checkout): 1 quota +1", "\n## rlc(checkout): 1 quota +1", "RLC-Team: team-a"} {
		if !strings.Contains(msg, want) {
			t.Errorf("the message lacks %q:\n%s", want, msg)
		}
	}
	if strings.Count(msg, "To reject") != 1 {
		t.Errorf("the message says more than once how to answer:\n%s", msg)
	}
	if out := w.settle(first); out.State != rlc.Open || out.Commit != second.Commit || out.Human {
		t.Errorf("the first one is %+v, want it open at the branch's tip", out)
	}
	w.want("published again", w.publish(proposal("cart", "run-2", set("cart", "search", 0, 50))).Commit, second.Commit)

	// A newer run takes the place of its service's proposal, on the moved base.
	w.push("elsewhere", map[string]string{"README": "x\n"})
	w.publish(proposal("cart", "run-3", set("cart", "search", 0, 60)))
	w.want("the commit's base", w.rev(teamA+"~1"), w.rev("main"))
	w.want("rates", []float64{w.rate(teamA, "cart"), w.rate(teamA, "checkout")}, []float64{60, 420})
	w.want("the one before", w.settle(second).State, rlc.Superseded)

	// Nothing left to change: it leaves, and the branch goes with the last.
	w.want("left", w.publish(proposal("cart", "run-4")).State, rlc.Superseded)
	w.want("references", w.refs(), onTeam("checkout"))
	w.want("the one that left", w.git(w.path, "ls-tree", "-r", "--name-only", teamA, "services/cart/quotas.yaml"), "")
	w.want("the other one", w.settle(first).State, rlc.Open)
	w.want("left", w.publish(proposal("checkout", "run-5")).State, rlc.Superseded)
	w.want("references", w.refs(), "")
	w.fsck()
}

// However the branch gets onto the base, each service's proposal is found accepted
// and its numbers are RLC's.
func TestATeamsBranchIsFoundMerged(t *testing.T) {
	t.Parallel()
	inClone := func(w *world, args ...string) {
		dir := w.clone()
		w.git(dir, append([]string{"merge", "-q"}, args...)...)
		if args[0] == "--squash" {
			w.git(dir, "commit", "-q", "-m", "all of it")
		}
		w.git(dir, "push", "-q", "origin", "main")
	}
	for how, merge := range map[string]func(w *world, cart, checkout rlc.Proposal){
		"merged":       func(w *world, _, _ rlc.Proposal) { inClone(w, "--no-ff", "-m", "merge", "origin/"+teamA) },
		"fast-forward": func(w *world, _, _ rlc.Proposal) { inClone(w, "--ff-only", "origin/"+teamA) },
		"squashed":     func(w *world, _, _ rlc.Proposal) { inClone(w, "--squash", "origin/"+teamA) },
		"squashed, the branch deleted": func(w *world, _, _ rlc.Proposal) {
			inClone(w, "--squash", "origin/"+teamA)
			w.git(w.path, "update-ref", "-d", "refs/heads/"+teamA)
		},
		"accepted one by one": func(w *world, cart, checkout rlc.Proposal) {
			for _, p := range []rlc.Proposal{checkout, cart} {
				if _, err := w.Accept(w.t.Context(), w.settle(p), "Bob"); err != nil {
					w.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := grouped(t, "cart", "checkout")
			cart := w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
			checkout := w.publish(proposal("checkout", "run-2", set("checkout", "search", 0, 420)))
			merge(w, cart, checkout)
			for _, p := range []rlc.Proposal{cart, checkout} {
				if out := w.settle(p); out.State != rlc.Accepted {
					t.Errorf("%s is %s: %s", p.Service, out.State, out.Reason)
				}
				if edited, err := w.Edited(t.Context(), p.Service); err != nil || len(edited) != 0 {
					t.Errorf("%s: edited %v, %v; want nothing", p.Service, edited, err)
				}
			}
			w.want("references", w.refs(), "")
			w.want("rates", []float64{w.rate("main", "cart"), w.rate("main", "checkout")}, []float64{50, 420})
			w.fsck()
		})
	}
}

func TestOneOfATeamsProposalsIsAcceptedOrRejectedAlone(t *testing.T) {
	t.Parallel()
	w := grouped(t, "cart", "checkout", "geo")
	cart := w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
	checkout := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	geo := w.publish(proposal("geo", "run-1", set("geo", "search", 0, 7)))
	if _, err := w.Accept(t.Context(), checkout, "Bob"); err != nil { // as it was looked at before geo came
		t.Fatal(err)
	}
	w.want("rates", []float64{w.rate("main", "cart"), w.rate("main", "checkout")}, []float64{0, 420})
	w.want("references", w.refs(), onTeam("cart", "geo"))
	w.want("the branch's base", w.rev(teamA+"~1"), w.rev("main"))
	w.want("accepted", w.settle(checkout).State, rlc.Accepted)
	if err := w.Reject(t.Context(), geo, "Bob", "no"); err != nil {
		t.Fatal(err)
	}
	w.want("references", w.refs(), onTeam("cart"))
	w.want("the others", []float64{w.rate(teamA, "cart"), w.rate(teamA, "geo")}, []float64{50, 0})
	w.want("still open", w.settle(cart).State, rlc.Open)
	moved := cart
	moved.Content = "another"
	if _, err := w.Accept(t.Context(), moved, "Bob"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("accepted what nobody looked at: %v", err)
	}
}

// A deleted branch rejects all that was on it, and no other proposal brings it back.
func TestADeletedTeamsBranchRejectsAllOnIt(t *testing.T) {
	t.Parallel()
	w := grouped(t, "cart", "checkout", "geo")
	cart := w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
	checkout := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	w.git(w.path, "update-ref", "-d", "refs/heads/"+teamA)
	w.want("before it was noticed", w.settle(cart).State, rlc.Rejected)
	w.publish(proposal("geo", "run-2", set("geo", "search", 0, 7)))
	w.want("references", w.refs(), onTeam("geo"))
	w.want("what came later", w.settle(checkout).State, rlc.Rejected)
	w.want("files", w.git(w.path, "diff", "--name-only", "main", teamA), "services/geo/quotas.yaml")
}

func TestATeamsBranchWithAPersonsCommitIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := grouped(t, "cart", "checkout", "geo")
	cart := w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
	checkout := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	dir := w.clone()
	w.git(dir, "checkout", "-q", "-b", "mine", "origin/"+teamA)
	w.commit(dir, "less for search", map[string]string{"services/cart/quotas.yaml": w.edited(teamA, "cart", "search", 40)})
	w.git(dir, "push", "-q", "origin", "mine:"+teamA)
	tip := w.rev(teamA)

	next := w.publish(proposal("checkout", "run-2", set("checkout", "search", 0, 500)))
	w.want("hands off", []any{next.Human, next.Commit, next.Branch, w.rev(teamA)}, []any{true, tip, teamA, tip})
	if _, err := w.Publish(t.Context(), proposal("geo", "run-2", set("geo", "search", 0, 7))); !errors.Is(err, rlc.ErrConflict) || errors.Is(err, rlc.ErrUnpublishable) || !strings.Contains(err.Error(), "a person works on the branch "+teamA) {
		t.Errorf("a service that is not on it: %v", err)
	}
	seen := w.settle(checkout)
	w.want("seen", []any{seen.State, seen.Human, seen.Commit}, []any{rlc.Open, true, tip})
	if _, err := w.Accept(t.Context(), seen, "Bob"); !errors.Is(err, rlc.ErrConflict) || !strings.Contains(err.Error(), "merge it as a whole") {
		t.Errorf("accepted a part of it: %v", err)
	}
	if err := w.Reject(t.Context(), seen, "Bob", "no"); !errors.Is(err, rlc.ErrConflict) {
		t.Errorf("rejected a part of it: %v", err)
	}
	w.want("the branch", w.rev(teamA), tip)

	// Merged with the edit: both are accepted, the edit is the person's.
	w.git(w.path, "update-ref", "refs/heads/main", tip)
	for _, p := range []rlc.Proposal{seen, w.settle(cart)} {
		w.want(p.Service, w.settle(p).State, rlc.Accepted)
	}
	for service, want := range map[string]int{"cart": 1, "checkout": 0} {
		if edited, err := w.Edited(t.Context(), service); err != nil || len(edited) != want {
			t.Errorf("%s: edited %v, %v; want %d", service, edited, err, want)
		}
	}
	w.want("references", w.refs(), "")
	w.fsck()
}

func TestAClosedReviewOfATeamKeepsPeoplesCommits(t *testing.T) {
	t.Parallel()
	w := grouped(t, "cart", "checkout")
	cart := w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
	checkout := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	dir := w.clone()
	w.git(dir, "checkout", "-q", "-b", "mine", "origin/"+teamA)
	w.commit(dir, "a note", map[string]string{"README": "y\n"})
	w.git(dir, "push", "-q", "origin", "mine:"+teamA)
	if err := w.RejectBranch(t.Context(), w.settle(cart), "Bob", "closed"); err != nil {
		t.Fatal(err)
	}
	w.want("kept", w.git(w.path, "for-each-ref", "--format=%(objectname)", "refs/rlc/kept"), w.git(dir, "rev-parse", "HEAD"))
	w.want("the other one", w.settle(checkout).State, rlc.Rejected)
	w.want("references", w.refs(), "")
}

// Grouping comes, goes, and follows the owners: a proposal stands in one place.
func TestAProposalMovesToWhereItIsGrouped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "cart", "checkout")
	alone := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 420)))
	w.want("alone", w.refs(), "refs/heads/rlc/checkout")
	w.reopen(gitsync.ByTeam)
	w.want("as long as no run comes", w.settle(alone).State, rlc.Open)
	w.publish(proposal("checkout", "run-2", set("checkout", "search", 0, 430)))
	w.publish(proposal("cart", "run-2", set("cart", "search", 0, 50)))
	w.want("grouped", w.refs(), onTeam("cart", "checkout"))

	w.push("another team", map[string]string{"services/cart/policy.yaml": strings.Replace(string(policy("cart")), "team-a", "'@acme/b team'", 1)})
	moved := w.publish(proposal("cart", "run-3", set("cart", "search", 0, 60)))
	if !strings.HasPrefix(moved.Branch, "rlc/_team/") || moved.Branch == teamA || w.rev(moved.Branch) != moved.Commit {
		t.Errorf("moved to %s at %s", moved.Branch, w.rev(moved.Branch))
	}
	w.want("what is left", w.git(w.path, "diff", "--name-only", "main", teamA), "services/checkout/quotas.yaml")
	w.push("nobody's", map[string]string{"services/cart/policy.yaml": strings.Replace(string(policy("cart")), "owners: [team-a]\n", "", 1)})
	w.want("without owners", w.publish(proposal("cart", "run-4", set("cart", "search", 0, 70))).Branch, "rlc/cart")
	w.want("references", w.refs(), "refs/heads/"+teamA+" refs/heads/rlc/cart refs/rlc/proposed/checkout")

	w.reopen("")
	w.publish(proposal("checkout", "run-5", set("checkout", "search", 0, 440)))
	w.want("ungrouped", w.refs(), "refs/heads/rlc/cart refs/heads/rlc/checkout")
	w.fsck()
}
