package app_test

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/gitsync/forgetest"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/planner"
)

// remote serves a bare repository of files over https, by git itself.
// It returns the URL, the file of the authority, and the bare repository.
func remote(t *testing.T, files rlc.Files) (url, ca, bare string) {
	t.Helper()
	root := t.TempDir()
	bare = filepath.Join(root, "config.git")
	if err := gitsync.Init(context.Background(), bare, "main", files, dana, "First configuration"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(forgetest.Git(t, root))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return server.URL + "/config.git", ca, bare
}

// The same loop with the config repository behind https: what is accepted is
// pushed, what a person pushes is followed.
func TestTheLoopOverHTTPS(t *testing.T) {
	t.Parallel()
	url, ca, bare := remote(t, twoServices())
	a := open(t, t.TempDir(), nil, func(c *config.Server) { c.Repository.URL, c.Repository.CAFile = url, ca })
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	if branches := git(t, bare, "branch", "--list", "rlc/*"); strings.Count(branches, "rlc/") != 2 {
		t.Errorf("reviews on the server: %q", branches)
	}
	acceptAll(t, a)
	if files := git(t, bare, "ls-tree", "-r", "--name-only", "main"); strings.Count(files, "quotas.yaml") != 2 {
		t.Errorf("main on the server:\n%s", files)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, bare, "clone", "-q", bare, clone)
	write(t, filepath.Join(clone, "services/search/policy.yaml"), policy("search", "defaults: {policy: {kind: historical, headroom: 0.9}}\n"))
	git(t, clone, "commit", "-qam", "More headroom")
	git(t, clone, "push", "-q", "origin", "main")
	eventually(t, "a proposal for search", func() bool { return len(openProposals(t, a, "search")) == 1 })
}
