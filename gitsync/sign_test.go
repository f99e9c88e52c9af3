package gitsync_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc/gitsync"
)

// TestCommitsAreSigned has git itself verify what is signed with each kind of
// key, and refuse it for a key that is not allowed.
func TestCommitsAreSigned(t *testing.T) {
	for _, kind := range []string{"ed25519", "rsa", "ecdsa"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, "checkout")
			dir := t.TempDir()
			key := func(name, phrase string) string {
				file := filepath.Join(dir, name)
				if out, err := exec.Command("ssh-keygen", "-q", "-t", kind, "-N", phrase, "-C", name, "-f", file).CombinedOutput(); err != nil {
					t.Fatalf("ssh-keygen: %v %s", err, out)
				}
				return file
			}
			own, other, phrase := key("own", "open sesame"), key("other", ""), filepath.Join(dir, "phrase")
			allow := func(name, of string) string {
				public, err := os.ReadFile(of + ".pub")
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), []byte(`rlc@localhost namespaces="git" `+string(public)), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				return filepath.Join(dir, name)
			}
			if err := os.WriteFile(phrase, []byte("open sesame\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w.Repo = w.open(gitsync.Config{SigningKeyFile: own, SigningPassphraseFile: phrase})
			p := w.publish(proposal("checkout", "run-1", set("checkout", "search", 0, 100)))
			verify := func(commit, allowed string) error {
				cmd := exec.Command("git", "-C", w.path, "-c", "gpg.format=ssh", "-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", commit)
				out, err := cmd.CombinedOutput()
				t.Logf("%s", strings.TrimSpace(string(out)))
				return err
			}
			if err := verify(p.Commit, allow("allowed", own)); err != nil {
				t.Fatalf("the review's commit: %v", err)
			}
			if err := verify(p.Commit, allow("others", other)); err == nil {
				t.Fatal("git verified it for another's key")
			}
			c, err := w.Accept(t.Context(), p, "ann")
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(c.Hash, allow("allowed", own)); err != nil {
				t.Fatalf("the accepted commit: %v", err)
			}
			w.fsck()
		})
	}
}

func TestCodeOwnersAreThoseOfTheLastRule(t *testing.T) {
	w := newWorld(t, "checkout", "cart")
	ask := func(service string) string {
		head(t, w)
		all, err := w.CodeOwners(t.Context(), service)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(all, " ")
	}
	if got := ask("checkout"); got != "" {
		t.Fatalf("without a file: %q", got)
	}
	w.push("owners", map[string]string{"CODEOWNERS": "* @everybody\n/services/checkout/ @acme/payments @ann bob@example.com\n"})
	if got := ask("checkout") + "; " + ask("cart"); got != "acme/payments ann; everybody" {
		t.Fatalf("owners: %q", got)
	}
	w.push("nearer", map[string]string{".github/CODEOWNERS": "/services/checkout/quotas.yaml @carl\n"})
	if got := ask("checkout") + "; " + ask("cart"); got != "carl; " {
		t.Fatalf("owners of .github: %q", got)
	}
}
