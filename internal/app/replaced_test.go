package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/planner"
)

// What is merged between a run and the publishing of its proposal is recorded,
// though the run superseded the proposal that was merged.
func TestAMergeOfAReviewWhoseSuccessorWaitsIsRecorded(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	old := openProposals(t, a, "checkout")[0]
	if err := a.SetSwitch(t.Context(), rlc.StopAutomation, true, "dana", "a look"); err != nil {
		t.Fatal(err)
	}
	next := succeed(t, a, old, old.Changes)
	bare := filepath.Join(a.Config.Data, "config.git")
	git(t, bare, "update-ref", "refs/heads/main", old.Commit)
	if err := a.SetSwitch(t.Context(), rlc.StopAutomation, false, "dana", "seen"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the merge is recorded", func() bool { return accepted(t, a, "checkout").ID == old.ID })
	rows := strings.Join(audited(t, a, "proposal.accepted"), "\n")
	if want := old.ID + ": found in the config repository"; strings.Count(rows, want) != 1 {
		t.Errorf("audit %q, want once %q", rows, want)
	}
	eventually(t, "the next one has nothing left to change", func() bool {
		p, err := a.Records.ProposalByID(t.Context(), next.ID)
		return err == nil && p.State == rlc.Superseded
	})
	if p := accepted(t, a, "checkout"); p.Reason != "" {
		t.Errorf("accepted because %q", p.Reason)
	}
}

// succeed stores a newer run whose proposal of these changes takes old's place.
func succeed(t *testing.T, a *app.App, old rlc.Proposal, changes []rlc.Change) rlc.Proposal {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	first, err := a.Records.RunByID(t.Context(), old.RunID)
	if err != nil {
		t.Fatal(err)
	}
	run, _, err := a.Records.BeginRun(t.Context(), rlc.Run{ID: "person-two", Trigger: rlc.ByPerson, Service: old.Service, Now: now, Started: now, Epoch: first.Epoch, Commit: old.Base})
	if err != nil {
		t.Fatal(err)
	}
	next := rlc.Proposal{ID: "person-two-" + old.Service, RunID: run.ID, Service: old.Service, Branch: old.Branch, Base: old.Base, Created: now, Changes: changes}
	if err := a.Records.StoreRun(t.Context(), run, nil, []rlc.Proposal{next}); err != nil {
		t.Fatal(err)
	}
	return next
}

// Merged at the very moment at which the next proposal takes the branch: after RLC
// looked, before it pushed.
func TestAMergeBetweenTheLookAndThePushIsRecorded(t *testing.T) {
	a := open(t, t.TempDir(), twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Slot: "one"}); err != nil {
		t.Fatal(err)
	}
	old := openProposals(t, a, "checkout")[0]
	bare := filepath.Join(a.Config.Data, "config.git")
	hook := filepath.Join(bare, "hooks", "update")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, hook, fmt.Appendf(nil, "#!/bin/sh\n[ \"$1\" = refs/heads/%s ] && mkdir %s/merged 2>/dev/null && git --git-dir=%s update-ref refs/heads/main %s\nexit 0\n", old.Branch, t.TempDir(), bare, old.Commit))
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	higher := old.Changes[0]
	higher.New = &rlc.Limit{Rate: 2 * higher.New.Rate, Burst: 2 * higher.New.Burst}
	succeed(t, a, old, []rlc.Change{higher})
	eventually(t, "the merge is recorded", func() bool { return accepted(t, a, "checkout").ID == old.ID })
	if rows, want := strings.Join(audited(t, a, "proposal.accepted"), "\n"), old.ID+": found in the config repository"; strings.Count(rows, want) != 1 {
		t.Errorf("audit %q, want once %q", rows, want)
	}
}
