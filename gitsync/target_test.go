package gitsync_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

const target = "platform/ratelimit/checkout.yaml"

// targeted makes a world whose service renders its numbers for Envoy, too.
func targeted(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.push("render for Envoy", map[string]string{"services/checkout/policy.yaml": string(policy("checkout")) + "targets: [{kind: envoy-ratelimit, path: " + target + "}]\n"})
	return w
}

// holds fails unless the target at rev has each of the given texts.
func (w *world) holds(rev string, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if got := w.show(rev, target); !strings.Contains(got, text) {
			w.t.Errorf("the target on %s lacks %q:\n%s", rev, text, got)
		}
	}
}

func TestATargetIsRenderedInTheCommitOfItsQuotas(t *testing.T) {
	t.Parallel()
	w := targeted(t)
	p := w.publish(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if got := w.git(w.path, "diff", "--name-only", "main", "rlc/checkout"); got != target+"\n"+quotas {
		t.Errorf("the review changes %q, want the target and the quotas", got)
	}
	w.holds("rlc/checkout", "# Written by rlc", "value: search", "requests_per_unit: 420")
	if msg := w.git(w.path, "log", "-1", "--format=%B", "rlc/checkout"); !strings.Contains(msg, "What the rendered files cannot say") || !strings.Contains(msg, "burst") {
		t.Errorf("the message does not tell what is lost:\n%s", msg)
	}

	// The base moves under the review: a person's numbers are rendered with it.
	web := set("checkout", "web", 0, 60)
	if _, err := w.Edit(t.Context(), gitsync.Person{Name: "Ada"}, "by hand", rlc.Files{quotas: quotasOf("checkout", []rlc.Change{web})}); err != nil {
		t.Fatal(err)
	}
	w.holds("main", "value: web", "requests_per_unit: 60")
	if _, err := w.Accept(t.Context(), p, "Bob"); err != nil {
		t.Fatal(err)
	}
	w.holds("main", "value: web", "requests_per_unit: 60", "value: search", "requests_per_unit: 420")
	w.fsck()
}

func TestATargetThatThePolicyDropsIsRemoved(t *testing.T) {
	t.Parallel()
	w := targeted(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.holds("main", "requests_per_unit: 420")
	w.push("no Envoy", map[string]string{"services/checkout/policy.yaml": string(policy("checkout"))})
	w.holds("main", "requests_per_unit: 420") // a person's push is theirs
	w.publish(proposal("checkout", "cron-2", set("checkout", "search", 420, 500)))
	if got := w.git(w.path, "ls-tree", "-r", "--name-only", "rlc/checkout", target); got != "" {
		t.Errorf("the review keeps the target:\n%s", got)
	}
	// An edit through rlc removes it with the line of the policy.
	w.push("Envoy again", map[string]string{"services/checkout/policy.yaml": string(policy("checkout")) + "targets: [{kind: envoy-ratelimit, path: " + target + "}]\n"})
	if _, err := w.Edit(t.Context(), gitsync.Person{Name: "Ada"}, "drop it", rlc.Files{"services/checkout/policy.yaml": policy("checkout")}); err != nil {
		t.Fatal(err)
	}
	if got := w.git(w.path, "ls-tree", "-r", "--name-only", "main", target); got != "" {
		t.Errorf("the edit keeps the target:\n%s", got)
	}
}

func TestAFileThatAPersonWroteIsNoTarget(t *testing.T) {
	t.Parallel()
	w := targeted(t)
	w.push("theirs", map[string]string{target: "domain: checkout\n"})
	_, err := w.Publish(t.Context(), proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "a file that a person wrote") {
		t.Errorf("published over a person's file: %v", err)
	}
	if w.rev("rlc/checkout") != "" || w.show("main", target) != "domain: checkout" {
		t.Error("something was written")
	}
}

// rendering is a proposal that moves no quota.
func rendering(run string) rlc.Proposal {
	return rlc.Proposal{ID: run + "-checkout", RunID: run, Service: "checkout", State: rlc.Pending}
}

func (w *world) settle(p rlc.Proposal) rlc.Proposal {
	w.t.Helper()
	out, err := w.Settle(w.t.Context(), p)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// staleAs fails unless the target is stale or not.
func (w *world) staleAs(want bool) {
	w.t.Helper()
	got, err := w.Stale(w.t.Context(), "checkout")
	if err != nil || (got != "") != want {
		w.t.Errorf("stale: %q, %v; want %v", got, err, want)
	}
}

// A plain push of numbers leaves the target behind: that fires a run of the
// service, and a review of the target alone brings it up. Merged in whatever way,
// it is accepted, and the numbers stay the person's.
func TestATargetFollowsAPlainPushByAReviewOfItsOwn(t *testing.T) {
	t.Parallel()
	for how, merge := range map[string]func(w *world, p rlc.Proposal){
		"accepted": func(w *world, p rlc.Proposal) {
			if _, err := w.Accept(w.t.Context(), p, "Bob"); err != nil {
				w.t.Fatal(err)
			}
		},
		"squashed": func(w *world, _ rlc.Proposal) {
			dir := w.clone()
			w.git(dir, "merge", "-q", "--squash", "origin/rlc/checkout")
			w.git(dir, "commit", "-q", "-m", "follow")
			w.git(dir, "push", "-q", "origin", "main")
		},
		"fast-forward": func(w *world, _ rlc.Proposal) {
			w.git(w.path, "update-ref", "refs/heads/main", "refs/heads/rlc/checkout")
		},
		"by hand": func(w *world, _ rlc.Proposal) {
			w.push("render it", map[string]string{target: w.show("rlc/checkout", target) + "\n"})
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := targeted(t)
			w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
			w.staleAs(false)
			from := w.rev("main")
			w.push("more for search", map[string]string{quotas: strings.ReplaceAll(w.show("main", quotas)+"\n", "rate: 420", "rate: 500")})
			w.staleAs(true)
			if names, all, err := w.Changed(t.Context(), from, w.rev("main")); err != nil || all || strings.Join(names, ",") != "checkout" {
				t.Errorf("changed: %v %v %v, want checkout", names, all, err)
			}
			edited, err := w.Edited(t.Context(), "checkout")
			if err != nil || len(edited) != 1 {
				t.Fatalf("edited %v, %v", edited, err)
			}
			p := w.publish(rendering("cron-2"))
			if got := w.git(w.path, "diff", "--name-only", "main", "rlc/checkout"); got != target || p.State != rlc.Open || !strings.HasPrefix(p.Content, "rendered:") {
				t.Fatalf("the review changes %q, want the target alone: %+v", got, p)
			}
			w.holds("rlc/checkout", "requests_per_unit: 500")
			if msg := w.git(w.path, "log", "-1", "--format=%B", "rlc/checkout"); !strings.HasPrefix(msg, "rlc(checkout): 0 quotas · rendered files follow the numbers in force\n\nNo quota changes;") {
				t.Errorf("message:\n%s", msg)
			}
			if again := w.publish(rendering("cron-2")); again.Commit != p.Commit {
				t.Errorf("published again as %s, want %s", again.Commit, p.Commit)
			}
			if out := w.settle(p); out.State != rlc.Open {
				t.Fatalf("before it is merged it is %s: %s", out.State, out.Reason)
			}
			merge(w, p)
			w.staleAs(false)
			if out := w.settle(p); out.State != rlc.Accepted || out.Actor == "" || w.rev("rlc/checkout") != "" {
				t.Errorf("settled as %+v, the branch at %q", out, w.rev("rlc/checkout"))
			}
			w.holds("main", "requests_per_unit: 500")
			after, err := w.Edited(t.Context(), "checkout")
			if err != nil || len(after) != 1 || after["callers/caller=search"] != edited["callers/caller=search"] {
				t.Errorf("edited %v, %v; before it was %v", after, err, edited)
			}
			w.fsck()
		})
	}
}

// With nothing to render left, the review goes; one that a person rejected is so.
func TestAReviewOfATargetIsRejectedAndClosedLikeAnyOther(t *testing.T) {
	t.Parallel()
	w := targeted(t)
	w.inForce(proposal("checkout", "cron-1", set("checkout", "search", 0, 420)))
	w.push("no Envoy", map[string]string{"services/checkout/policy.yaml": string(policy("checkout"))})
	w.staleAs(true)
	p := w.publish(rendering("cron-2"))
	if got := w.git(w.path, "diff", "--name-status", "main", "rlc/checkout"); got != "D\t"+target {
		t.Errorf("the review does %q, want the target removed", got)
	}
	w.git(w.path, "update-ref", "-d", "refs/heads/rlc/checkout")
	if out := w.settle(p); out.State != rlc.Rejected || out.Content != p.Content {
		t.Errorf("its branch deleted: %+v", out)
	}
	w.publish(rendering("cron-3"))
	w.push("Envoy again", map[string]string{"services/checkout/policy.yaml": string(policy("checkout")) + "targets: [{kind: envoy-ratelimit, path: " + target + "}]\n"})
	if out := w.publish(rendering("cron-4")); out.State != rlc.Superseded || w.rev("rlc/checkout") != "" {
		t.Errorf("nothing is stale any more: %+v, the branch at %q", out, w.rev("rlc/checkout"))
	}
	// A target that is a person's file is no reason for a review.
	w.push("theirs", map[string]string{target: "domain: checkout\n"})
	w.staleAs(false)
}
