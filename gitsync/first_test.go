package gitsync_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
)

// The first policies are one commit on a branch, made once; what a person has
// there already, merged or not, is never overwritten.
func TestFirstPoliciesAreOneCommitOnABranch(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *world{
		"here": func(t *testing.T) *world { return newWorld(t, "checkout") },
		"over https": func(t *testing.T) *world {
			w, _ := newFarWorld(t)
			return w
		},
	} {
		t.Run(name, func(t *testing.T) { firstPolicies(t, open(t)) })
	}
}

func firstPolicies(t *testing.T, w *world) {
	ann := gitsync.Person{Name: "Ann", Email: "ann@example.com"}
	files := rlc.Files{"services/geo/policy.yaml": policy("geo"), "services/mail/policy.yaml": policy("mail")}
	base := w.rev("main")
	first, err := w.PublishFirst(t.Context(), ann, "First policies\n\nRLC-Epoch: 900", files)
	if err != nil {
		t.Fatal(err)
	}
	got := w.git(w.path, "log", "-1", "--format=%H %P %an %ae %cn %s", gitsync.FirstBranch) + "\n" +
		w.git(w.path, "diff", "--name-status", "main", gitsync.FirstBranch) + "\n" + w.git(w.path, "log", "-1", "--format=%(trailers:only)", gitsync.FirstBranch)
	want := first + " " + base + " Ann ann@example.com rlc First policies\nA\tservices/geo/policy.yaml\nA\tservices/mail/policy.yaml\nRLC-Actor: Ann"
	if strings.TrimSpace(got) != want || w.rev("main") != base {
		t.Errorf("the branch:\n%s\nwant\n%s", got, want)
	}

	waiting := func(want ...string) {
		t.Helper()
		if got, err := w.FirstOf(t.Context(), []string{"checkout", "geo", "mail", "tax"}); err != nil || !slices.Equal(got, want) {
			t.Errorf("waiting: %q, %v; want %q", got, err, want)
		}
	}
	waiting("geo", "mail")
	again, err := w.PublishFirst(t.Context(), ann, "First policies", files)
	if err != nil || again != first || w.rev(gitsync.FirstBranch) != first {
		t.Errorf("again: %s, %v", again, err)
	}
	refused := func(what string, files rlc.Files, want error, says string) {
		t.Helper()
		if _, err := w.PublishFirst(t.Context(), ann, what, files); !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %v with %q", what, err, want, says)
		}
		if now := w.rev(gitsync.FirstBranch); now != first {
			t.Errorf("%s: the branch moved to %s", what, now)
		}
	}
	other := rlc.Files{"services/tax/policy.yaml": policy("tax")}
	refused("another set", other, rlc.ErrConflict, "merge it or delete it")
	refused("a service that has a policy", rlc.Files{"services/tax/policy.yaml": policy("tax"), "services/checkout/policy.yaml": policy("checkout")}, rlc.ErrConflict, "services/checkout/policy.yaml")
	refused("an invalid file", rlc.Files{"services/tax/policy.yaml": []byte("kind: Nonsense\n")}, rlc.ErrInvalid, "services/tax/policy.yaml")
	refused("a file of somebody else", rlc.Files{"README.md": []byte("x")}, rlc.ErrInvalid, "README.md")

	dir := w.clone()
	w.git(dir, "merge", "-q", "--no-ff", "-m", "merge", "origin/"+gitsync.FirstBranch)
	w.git(dir, "push", "-q", "origin", "HEAD:main")
	second, err := w.PublishFirst(t.Context(), ann, "More", other)
	if err != nil || w.git(w.path, "rev-parse", second+"^") != w.rev("main") {
		t.Errorf("after the merge: %s, %v", second, err)
	}
	waiting("tax")
	w.fsck()
}
