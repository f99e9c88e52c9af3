package gitsync_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

const teamB = "rlc/_team/team-b"

// toTeamB is a service's policy with another owner.
func toTeamB(service string) map[string]string {
	return map[string]string{"services/" + service + "/policy.yaml": strings.Replace(string(policy(service)), "team-a", "team-b", 1)}
}

// A service moves to a team on whose branch a person works: its old numbers leave the
// old team's branch all the same, whether its own new proposal comes first or that
// of a service that stays.
func TestAServiceLeavesItsOldTeamsBranchThoughItWaitsForTheNewOne(t *testing.T) {
	t.Parallel()
	for first, publish := range map[string]func(w *world){
		"the one that moves": func(w *world) {},
		"one that stays": func(w *world) {
			w.publish(proposal("cart", "run-2", set("cart", "search", 0, 60)))
			w.want("what merges then", w.git(w.path, "diff", "--name-only", "main", teamA), "services/cart/quotas.yaml")
		},
	} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			w := grouped(t, "cart", "checkout", "geo")
			w.push("geo is team-b's", toTeamB("geo"))
			w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
			old := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 350)))
			w.publish(proposal("geo", "run-1", set("geo", "search", 0, 7)))
			dir := w.clone()
			w.git(dir, "checkout", "-q", "-b", "mine", "origin/"+teamB)
			w.commit(dir, "mine", map[string]string{"services/geo/quotas.yaml": w.edited(teamB, "geo", "search", 8)})
			w.git(dir, "push", "-q", "origin", "mine:"+teamB)
			w.push("checkout is team-b's", toTeamB("checkout"))
			publish(w)
			next := proposal("checkout", "run-2", set("checkout", "search", 0, 400))
			if _, err := w.Publish(t.Context(), next); !errors.Is(err, rlc.ErrConflict) || errors.Is(err, rlc.ErrUnpublishable) {
				t.Fatalf("the branch of team-b has a person's commit: %v", err)
			}
			w.want("the old branch", w.git(w.path, "diff", "--name-only", "main", teamA), "services/cart/quotas.yaml")
			w.want("the old proposal is accepted", w.settle(old).State == rlc.Accepted, false)
			w.git(w.path, "update-ref", "-d", "refs/heads/"+teamB)
			w.want("the new one", w.publish(next).Branch, teamB)
			w.want("its number", w.rate(teamB, "checkout"), 400.0)
			w.fsck()
		})
	}
}

// A run's proposal cannot be published: the review of the run before is gone with it.
func TestWhatCannotBePublishedLeavesNoEarlierReviewToMerge(t *testing.T) {
	t.Parallel()
	for groupBy, refs := range map[string]string{"": "", "team": onTeam("cart")} {
		w := newWorld(t, "cart", "checkout")
		w.reopen(groupBy)
		if groupBy != "" {
			w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
		}
		old := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 100)))
		w.push("a target on a person's file", map[string]string{
			target:                          "mine\n",
			"services/checkout/policy.yaml": string(policy("checkout")) + "targets: [{kind: envoy-ratelimit, path: " + target + "}]\n",
		})
		next := proposal("checkout", "run-2", set("checkout", "search", 0, 150))
		next.Branch = "elsewhere"
		for _, want := range []string{old.Branch, "elsewhere"} { // the second time nothing stands
			out, err := w.Publish(t.Context(), next)
			if !errors.Is(err, rlc.ErrUnpublishable) {
				t.Fatalf("published over a person's file: %v", err)
			}
			w.want("where it stood", out.Branch, want)
			w.want("references", w.refs(), refs)
		}
		w.fsck()
	}
}

// A person's own commit on the review is not taken away, and stays theirs.
func TestAPersonsReviewStaysThoughTheNextCannotBePublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 100)))
	dir := w.clone()
	w.git(dir, "checkout", "-q", "-b", "mine", "origin/rlc/checkout")
	w.commit(dir, "mine", map[string]string{quotas: w.edited("rlc/checkout", "checkout", "search", 90)})
	w.git(dir, "push", "-q", "origin", "mine:rlc/checkout")
	w.push("a target on a person's file", map[string]string{
		target: "mine\n", "services/checkout/policy.yaml": string(policy("checkout")) + "targets: [{kind: envoy-ratelimit, path: " + target + "}]\n",
	})
	out := w.publish(proposal("checkout", "run-2", set("checkout", "search", 0, 150)))
	w.want("the review", []any{out.Human, w.rev("rlc/checkout")}, []any{true, w.git(dir, "rev-parse", "mine")})
}

// A team's commit that nobody settled is RLC's own all the same; a line that a
// person set before or in the merge is theirs.
func TestATeamsMergedCommitIsNoPersonsEdit(t *testing.T) {
	t.Parallel()
	for how, args := range map[string][]string{"fast-forward": {"--ff-only"}, "merged": {"--no-ff", "-m", "merge"}} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := grouped(t, "cart", "checkout")
			w.push("by hand", map[string]string{quotas: string(quotasOf("checkout", []rlc.Change{set("checkout", "web", 0, 7)}))})
			w.publish(proposal("cart", "run-1", set("cart", "search", 0, 50)))
			w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 350)))
			dir := w.clone()
			w.git(dir, append(append([]string{"merge", "-q"}, args...), "origin/"+teamA)...)
			w.git(dir, "push", "-q", "origin", "main", ":"+teamA)
			for _, s := range []string{"cart", "checkout"} { // as when another run's took their place
				w.git(w.path, "update-ref", "-d", "refs/rlc/proposed/"+s)
			}
			for service, want := range map[string]string{"cart": "", "checkout": "web"} {
				edited, err := w.Edited(t.Context(), service)
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for id := range edited {
					got += strings.TrimPrefix(id, "callers/caller=")
				}
				w.want("edited of "+service, got, want)
			}
		})
	}
}
