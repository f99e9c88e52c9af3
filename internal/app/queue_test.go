package app_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/planner"
)

// However many proposals wait, the oldest, which are up, are settled.
func TestAMergeIsFoundBehindAThousandThatWait(t *testing.T) {
	a := open(t, t.TempDir(), twoServices(), func(c *config.Server) { c.Reviews.MaxOpen = 1 })
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	up, _ := upAndQueued(t, a)
	now := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	first, err := a.Records.RunByID(t.Context(), up.RunID)
	if err != nil {
		t.Fatal(err)
	}
	run, _, err := a.Records.BeginRun(t.Context(), rlc.Run{ID: "person-many", Trigger: rlc.ByPerson, Now: now, Started: now, Epoch: first.Epoch, Commit: up.Base})
	if err != nil {
		t.Fatal(err)
	}
	var many []rlc.Proposal
	for i := range 1001 {
		s := fmt.Sprintf("other-%04d", i)
		many = append(many, rlc.Proposal{ID: "person-many-" + s, RunID: run.ID, Service: s, Branch: "rlc/" + s, Base: up.Base, Created: now})
	}
	if err := a.Records.StoreRun(t.Context(), run, nil, many); err != nil {
		t.Fatal(err)
	}
	git(t, filepath.Join(a.Config.Data, "config.git"), "update-ref", "refs/heads/main", up.Commit)
	a.Nudge()
	eventually(t, "the merge is found", func() bool { return accepted(t, a, up.Service).ID == up.ID })
}

// A forge that hangs delays what is merged by one wait, whatever is open.
func TestAHangingForgeDoesNotKeepAMergeFromTheEnforcers(t *testing.T) {
	a, s, push := onForge(t, "gitea", "service")
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	upAndQueued(t, a)
	free := make(chan struct{})
	t.Cleanup(func() { close(free) })
	s.Answer(func(http.ResponseWriter) bool { <-free; return true })
	before := s.Asks.Load()
	push("README.md", "of people\n")
	tell(t, a, "gitea", "{}") // so that the forge is asked at once
	eventually(t, "what was merged is live", func() bool {
		head, _, err := a.Repo.Head(t.Context())
		v, _ := a.Live()
		return err == nil && v == head.Version
	})
	if asked := s.Asks.Load() - before; asked > 2 {
		t.Errorf("the forge that hangs was asked %d times", asked)
	}
}
