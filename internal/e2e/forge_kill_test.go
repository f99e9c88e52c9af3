//go:build fault

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/gitsync/forgetest"
)

// The server killed at each step between the branch and its review, and between the
// merge that it asks a forge for and its record: one review for each branch, one
// merged commit, one row that says who accepted it.
func TestKilledOnTheWayToAForgeAndBackDoublesNothing(t *testing.T) {
	w := newWorld(t)
	bare := filepath.Join(w.dir, "acme", "config.git")
	if err := os.MkdirAll(filepath.Dir(bare), 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, w.dir, "clone", "-q", "--bare", w.git.bare, bare)
	f := forgetest.NewServer(t, forgetest.GitHub, bare, "canary-forge")
	w.write(w.config, fmt.Sprintf(`token: %s
store: {dsn: %q}
prometheus: {url: %s}
repository: {url: %s, user: rlc, token_file: %s, ca_file: %s}
forge: {kind: github, url: %s, repository: %s}
redis: {url: %s}
poll: 200ms
schedule: "17 3 * * *"
`, token, w.dsn, w.promURL, f.GitURL(), f.TokenFile(), f.CAFile(), f.URL, forgetest.Repo, w.redis.URL()))

	p := w.serve("rlc", "RLC_FAULT=before-review")
	p.ready()
	if code, text := ask(http.MethodPost, p.url+"/api/v1/runs", map[string]string{}); code/100 != 2 {
		t.Fatalf("ask for a run: %d %s", code, text)
	}
	p.died()
	p = w.serve("rlc")
	p.ready()
	eventually(t, "both reviews", func() bool { return len(p.open()) == 2 })
	for i, service := range []string{"checkout", "search"} {
		if v, ok := f.Review("rlc/" + service); !ok || v.State != forge.Open || v.Number > 2 {
			t.Errorf("review %d: %+v, want one of two", i, v)
		}
	}
	p.stop()

	clone := filepath.Join(w.dir, "clone")
	git(t, w.dir, "clone", "-q", bare, clone)
	w.write(filepath.Join(clone, "defaults.yaml"), "apiVersion: rlc/v1\nkind: Defaults\nprofile: rlc\nauto_merge: {max_change: 0.2}\n")
	git(t, clone, "commit", "-qam", "Merge by itself what needs no person")
	git(t, clone, "push", "-q", "origin", "main")
	for _, point := range []string{"after-auto-merge", "after-forge-merge"} {
		w.serve("rlc", "RLC_FAULT="+point).died()
	}
	p = w.serve("rlc")
	p.ready()
	for _, service := range []string{"checkout", "search"} {
		var d decision
		eventually(t, service+" is accepted", func() bool { d = p.decided(service); return d.State == "accepted" })
		eventually(t, "one audit row of "+d.ID, func() bool { return p.rowsOf(d.ID, "proposal.accepted") == 1 })
		if n := p.rowsOf(d.ID, "proposal.auto_merge"); n < 1 {
			t.Errorf("%s: merged by itself without a record of it", service)
		}
		if v, _ := f.Review("rlc/" + service); v.State != forge.Merged || v.Number > 2 {
			t.Errorf("%s: %+v, want its first review merged", service, v)
		}
		if n := git(t, bare, "rev-list", "--count", "main", "--", "services/"+service+"/quotas.yaml"); n != "1" {
			t.Errorf("%s: %s commits of its quotas on the base branch", service, n)
		}
	}
	p.stop()
}
