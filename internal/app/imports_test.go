package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

// An imported policy is a commit of the person's in the real repository, and
// puts nothing in force; what is there already, or would enforce, is refused and
// leaves the repository as it was.
func TestAnImportedPolicyIsCommittedInShadowAndNeverOverAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, twoServices(), nil)
	repo := filepath.Join(dir, "config.git")
	show := func(rev string) string { return git(t, repo, "show", rev) }

	imported := policy("geo", "defaults: {mode: shadow}\n")
	if err := a.ImportPolicy(t.Context(), "geo", imported, "ana"); err != nil {
		t.Fatal(err)
	}
	if got := show("main:services/geo/policy.yaml"); got != string(imported) {
		t.Errorf("committed %q, want %q", got, imported)
	}
	if got := git(t, repo, "log", "-1", "--format=%an: %s", "--name-only", "main"); got != "ana: Import geo, all in shadow\n\nservices/geo/policy.yaml\n" {
		t.Errorf("the commit: %q", got)
	}
	head := strings.TrimSpace(git(t, repo, "rev-parse", "main"))
	if got := audited(t, a, "service.import"); len(got) != 1 || got[0] != "ana geo: policy.yaml at "+head+", all in shadow" {
		t.Errorf("audited %q", got)
	}
	eventually(t, "the service is known", func() bool { _, c := a.Desired(); return c != nil && c.Service("geo") != nil })
	if _, live := a.Live(); live != nil && len(live.Quotas["geo"]) != 0 {
		t.Errorf("in force for geo: %+v", live.Quotas["geo"])
	}

	// A person's policy came by git a moment ago: the server has not looked yet.
	clone := checkout(t, dir)
	theirs := policy("media", "description: Pictures\n")
	if err := os.Mkdir(filepath.Join(clone, "services/media"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(clone, "services/media/policy.yaml"), theirs)
	git(t, clone, "add", "-A")
	git(t, clone, "commit", "-qm", "media by hand")
	git(t, clone, "push", "-q", "origin", "main")
	head = git(t, repo, "rev-parse", "main")

	for _, c := range []struct {
		what, service string
		policy        []byte
		want          error
	}{
		{"one that was imported", "geo", imported, rlc.ErrConflict},
		{"a person's", "media", policy("media", ""), rlc.ErrConflict},
		{"one of the first commit", "checkout", policy("checkout", ""), rlc.ErrConflict},
		{"the name of another service", "maps", policy("checkout", ""), rlc.ErrInvalid},
		{"one that enforces", "maps", policy("maps", "defaults: {mode: enforce}\n"), rlc.ErrInvalid},
		{"a broken one", "maps", []byte("service: maps\nbuckets: [\n"), rlc.ErrInvalid},
	} {
		if err := a.ImportPolicy(t.Context(), c.service, c.policy, "ana"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if now := git(t, repo, "rev-parse", "main"); now != head {
		t.Errorf("a refused import moved the base branch to %s", show(strings.TrimSpace(now)))
	}
	if got := show("main:services/media/policy.yaml"); got != string(theirs) {
		t.Errorf("the person's policy is %q", got)
	}
	if got := audited(t, a, "service.import"); len(got) != 1 {
		t.Errorf("audited %q", got)
	}
}
