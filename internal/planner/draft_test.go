package planner_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
)

func (w *world) draft(lines string) (map[string]rlc.Change, error) {
	w.t.Helper()
	text := ""
	for _, content := range policy("geo", lines) {
		text = string(content)
	}
	_, changes, err := w.planner.Plan(w.t.Context(), planner.Ask{Trigger: rlc.ByPerson, Service: "geo", Now: w.clock, Policy: []byte(text)})
	out := map[string]rlc.Change{}
	for _, c := range changes {
		out[c.ID()] = c
	}
	return out, err
}

// A draft of a policy tells what a run would propose by it, and what its hand-written
// limits would have dropped, before anybody pushes it. Nothing is written.
func TestADraftIsPlannedAndReplayedBeforeItIsPushed(t *testing.T) {
	w := one(t, 130, wave(100))
	w.history.series["geo batch"] = wave(8.5)
	got, err := w.draft("  - {name: all, match: {caller: \"*\"}, policy: {kind: historical, headroom: 1}}\n  - {name: batch, match: {caller: \"etl*\"}, mode: enforce, limit: {rate: 2, burst: 4}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if c := got["all"]; c.New == nil || c.New.Rate < 150 {
		t.Errorf("the computed quota %+v, want a headroom of 100 %% in place of 30", c)
	}
	c := got["batch"]
	if c.Old != nil || c.New == nil || c.New.Rate != 2 || c.NewMode != rlc.Enforce || !c.Moves() || c.Backtest.New == nil || c.Backtest.New.Share < 0.1 {
		t.Errorf("the limit written by hand: %+v, want it replayed, dropping much", c)
	}
	if !strings.Contains(c.Why, "written by hand in line") || !strings.HasSuffix(c.Why, ", enforce") {
		t.Errorf("why %q", c.Why)
	}
	if _, _, err := w.db.Runs(t.Context(), rlc.Page{}); err != nil {
		t.Fatal(err)
	}
	if runs, total, err := w.db.Runs(t.Context(), rlc.Page{}); err != nil || total != 0 || len(w.pub.commits) != 0 {
		t.Errorf("a plan left runs %v, commits %v (%v)", runs, w.pub.commits, err)
	}
	// What stays as it is written is not told.
	w.repo.commit(w.clock, policy("geo", "  - {name: all, match: {caller: \"*\"}}\n  - {name: batch, match: {caller: \"etl*\"}, limit: {rate: 2, burst: 4}}\n"))
	if got, err = w.draft("  - {name: all, match: {caller: \"*\"}}\n  - {name: batch, match: {caller: \"etl*\"}, limit: {rate: 2, burst: 4}}\n"); err != nil || got["batch"].New != nil {
		t.Errorf("an unchanged limit: %+v, %v", got["batch"], err)
	}
	// From shadow to enforce, with the same number, is told.
	got, err = w.draft("  - {name: all, match: {caller: \"*\"}}\n  - {name: batch, match: {caller: \"etl*\"}, mode: enforce, limit: {rate: 2, burst: 4}}\n")
	if c := got["batch"]; err != nil || c.OldMode != rlc.Shadow || c.NewMode != rlc.Enforce || !c.Moves() || c.Backtest.Old == nil {
		t.Errorf("a limit that begins to drop: %+v, %v", c, err)
	}
}

func TestADraftWithErrorsSaysAllOfThem(t *testing.T) {
	w := one(t, 130, wave(100))
	_, err := w.draft("  - {name: all, mode: harsh}\n  - {name: all, limit: {rate: -1}}\n")
	if !errors.Is(err, rlc.ErrInvalid) || strings.Count(err.Error(), "services/geo/policy.yaml:") < 2 {
		t.Errorf("%v, want every error with its place", err)
	}
}
