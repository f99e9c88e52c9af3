package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A new installation is no trouble: nothing is refused, and the overview says what
// comes first. Its first policy is distributed like any other.
func TestANewInstallationIsCalmAndSaysWhatComesFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, nil, nil)
	eventually(t, "the services are spotted", func() bool { names, _, _ := a.Unmanaged(); return len(names) > 0 })
	page := get(t, a.URL+"/")
	for _, want := range []string{
		"Nothing is limited yet: no service has a policy.", "The first step: a policy for one service", "rlc init",
		"traffic and no policy", "/services?show=unmanaged", "the configuration holds no service yet",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, alarm := range []string{"was not distributed", "refused the last snapshot", "Nothing waits for you"} {
		if strings.Contains(page, alarm) {
			t.Errorf("the page says %q", alarm)
		}
	}
	if b := a.Banners(); len(b) != 0 {
		t.Errorf("banners %+v", b)
	}
	clone := checkout(t, dir)
	if err := os.MkdirAll(filepath.Join(clone, "services/checkout"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(clone, "services/checkout/policy.yaml"), twoServices()["services/checkout/policy.yaml"])
	git(t, clone, "add", "-A")
	git(t, clone, "commit", "-qm", "A first policy")
	git(t, clone, "push", "-q", "origin", "main")
	eventually(t, "the first policy is live", func() bool { _, live := a.Live(); return live != nil && live.Service("checkout") != nil })
}
