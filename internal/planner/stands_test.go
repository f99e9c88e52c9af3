package planner_test

import (
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
)

// The same numbers are put up anew where they belong on another branch by now, once,
// and not where a person works on the review.
func TestTheSameNumbersMoveToAnotherBranch(t *testing.T) {
	w := twoShops(t, nil)
	branch := "rlc/_team/a"
	p, err := planner.New(w.config(func(c *planner.Config) { c.Branch = func(*rlc.Service) string { return branch } }))
	if err != nil {
		t.Fatal(err)
	}
	w.planner = p
	run := func(slot string) string {
		t.Helper()
		if _, err := w.planner.Run(t.Context(), planner.Ask{Trigger: rlc.ByPerson, Slot: slot, Service: "shop", Now: w.clock, Actor: "ada"}); err != nil {
			t.Fatal(err)
		}
		return w.openProposal("shop").ID
	}
	first := run("one")
	if again := run("two"); again != first {
		t.Errorf("%s took the place of %s on the same branch", again, first)
	}
	branch = "rlc/_team/b"
	moved := run("three")
	if moved == first || w.openProposal("shop").Branch != branch {
		t.Errorf("open is %+v, want another on %s", w.openProposal("shop"), branch)
	}
	if again := run("four"); again != moved {
		t.Errorf("%s took the place of %s on the same branch", again, moved)
	}
	human := *w.openProposal("shop")
	human.Human, branch = true, "rlc/_team/c"
	if err := w.db.SetProposal(t.Context(), human, nil); err != nil {
		t.Fatal(err)
	}
	if again := run("five"); again != moved {
		t.Errorf("%s took the place of a person's review %s", again, moved)
	}
}
