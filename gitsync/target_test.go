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
