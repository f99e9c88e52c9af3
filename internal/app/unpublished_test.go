package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
)

// Numbers that cannot be published are the owners' to mend: they hear of it at
// once, of the same fault once a day, and the page tells the reason.
func TestOwnersHearOnceOfNumbersThatCannotBePublished(t *testing.T) {
	o := receive(t)
	files := twoServices()
	files["services/search/policy.yaml"] = policy("search", "targets: [{kind: envoy-ratelimit, path: platform/search.yaml}]\n")
	a := telling(t, o, time.Hour, files)
	clone := checkout(t, a.Config.Data)
	if err := os.Mkdir(filepath.Join(clone, "platform"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(clone, "platform/search.yaml"), []byte("domain: theirs\n"))
	git(t, clone, "add", "-A")
	git(t, clone, "commit", "-qm", "a file of our own")
	git(t, clone, "push", "-q", "origin", "main")

	for _, slot := range []string{"one", "two"} {
		run, err := a.Compute(t.Context(), planner.Ask{Slot: slot, Now: time.Now().UTC().Truncate(time.Second), Actor: "dana"})
		if err != nil || run.Result != rlc.ResultDegraded {
			t.Fatalf("run %+v, %v; want it degraded: checkout's numbers are up", run, err)
		}
	}
	failed, _, err := a.Records.Proposals(t.Context(), rlc.Failed, "search", rlc.Page{})
	if rows := audited(t, a, "proposal.failed"); err != nil || len(failed) != 1 || len(rows) != 1 {
		t.Fatalf("failed %+v, %v, audit %q; want the first one to stand", failed, err, rows)
	}
	eventually(t, "the owners are told", func() bool { return len(o.of("failed")) > 0 })
	told := o.of("failed")[0]
	if told.Service != "search" || !told.Urgent || strings.Join(told.Owners, ",") != "team-a" ||
		!strings.Contains(told.Text, "cannot be published; those in force stay") || !strings.Contains(told.Text, "platform/search.yaml is a file that a person wrote") ||
		!strings.HasPrefix(told.URL, a.URL+"/proposals/") {
		t.Errorf("told %+v", told)
	}
	if page := get(t, told.URL); !strings.Contains(page, "platform/search.yaml is a file that a person wrote") {
		t.Error("the page that the notice leads to does not tell the reason")
	}
	// What is told later comes after what was told before: the second failure of
	// the same fault is not among it.
	if _, err := a.SetOverride(t.Context(), block(time.Hour), "ana"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the override is told", func() bool { return len(o.of("override")) == 1 })
	if n := len(o.of("failed")); n != 1 {
		t.Errorf("told %d times of one fault", n)
	}
}
