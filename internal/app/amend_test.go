package app_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/app"
	"github.com/openrlc/rlc/internal/planner"
)

// A person's number on the page goes the way of a commit on the branch: the records
// say so with one audit row, the proposal shows it in place of the run's, and what
// is accepted is that number.
func TestANumberThatAPersonSetsIsWhatIsAccepted(t *testing.T) {
	t.Parallel()
	a := open(t, t.TempDir(), twoServices(), nil)
	if _, err := a.Compute(t.Context(), planner.Ask{Service: "checkout"}); err != nil {
		t.Fatal(err)
	}
	var p rlc.Proposal
	eventually(t, "checkout is up", func() bool {
		if all := openProposals(t, a, "checkout"); len(all) == 1 {
			p = all[0]
		}
		return p.State == rlc.Open
	})
	run := p.Changes[0]
	limit := rlc.Limit{Rate: run.New.Rate + 111, Burst: run.New.Burst + 222}
	if err := a.Amend(t.Context(), p.ID, "", run.ID(), limit, "dana", "the launch\n on Friday"); err != nil {
		t.Fatal(err)
	}
	now, err := a.Records.ProposalByID(t.Context(), p.ID)
	if err != nil || !now.Human || now.Commit == p.Commit || !reflect.DeepEqual(now.Changes, p.Changes) {
		t.Fatalf("recorded %+v, %v; want a person's, the run's changes as they were", now, err)
	}
	want := slices.Clone(p.Changes)
	i := slices.IndexFunc(want, func(c rlc.Change) bool { return c.ID() == run.ID() })
	want[i].New, want[i].Why, want[i].Look, want[i].Backtest.New = &limit, "set by dana: the launch on Friday", "", nil
	want[i].Reasons = []rlc.Reason{{Rule: "by_hand", Detail: want[i].Why, Rate: limit.Rate, Acted: true}}
	got, err := a.Amended(t.Context(), now)
	slices.SortFunc(want, func(a, b rlc.Change) int { return strings.Compare(a.ID(), b.ID()) })
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("as the branch holds it\n%+v, %v; want\n%+v", got, err, want)
	}
	for _, seen := range []string{p.Holds(), p.Commit} {
		if err := a.Accept(t.Context(), p.ID, seen, "erin"); !errors.Is(err, rlc.ErrConflict) {
			t.Errorf("accepting what was shown before: %v, want a conflict", err)
		}
	}
	if err := a.Accept(t.Context(), p.ID, now.Holds(), "erin"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the number is desired", func() bool {
		_, c := a.Desired()
		q := c.QuotaByID("checkout", run.ID())
		return q != nil && q.Limit == limit
	})
	if got, want := decisions(t, a, p.ID), []string{"proposal.accepted by erin", "proposal.edited by dana"}; !slices.Equal(got, want) {
		t.Errorf("audit rows %v, want %v", got, want)
	}
	if again, err := a.Amended(t.Context(), now); err != nil || !reflect.DeepEqual(again, got) && len(again) != len(want) {
		t.Errorf("once it is accepted: %v, %v", again, err)
	}
	if err := a.Amend(t.Context(), p.ID, "", run.ID(), limit, "dana", "again"); err == nil || !strings.Contains(err.Error(), "not open") {
		t.Errorf("of an accepted proposal: %v", err)
	}
}

// What people did to a branch by other means is told, too: a line that they set
// back is no change, one that they added or took out is.
func TestChangesAreThoseOfTheBranchAsItStands(t *testing.T) {
	quota := func(caller string, rate rlc.Rate) rlc.Quota {
		return rlc.Quota{Bucket: "callers", Key: rlc.Key{"caller": caller}, Limit: rlc.Limit{Rate: rate, Burst: 10}, Why: "x"}
	}
	byID := func(all ...rlc.Quota) map[string]rlc.Quota {
		out := map[string]rlc.Quota{}
		for _, q := range all {
			out[q.ID()] = q
		}
		return out
	}
	change := func(caller string, old, new rlc.Rate) rlc.Change {
		return rlc.Change{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": caller}, Old: &rlc.Limit{Rate: old, Burst: 10}, New: &rlc.Limit{Rate: new, Burst: 10}, Why: "x"}
	}
	p := rlc.Proposal{Service: "checkout", Changes: []rlc.Change{change("kept", 1, 2), change("back", 1, 2), change("other", 1, 2)}}
	base := byID(quota("kept", 1), quota("back", 1), quota("other", 1), quota("gone", 5), quota("same", 7))
	branch := byID(quota("kept", 2), quota("back", 1), quota("other", 3), quota("added", 4), quota("same", 7))
	var got []string
	for _, c := range app.AmendedChanges(p, base, branch) {
		text := c.Key["caller"]
		for _, l := range []*rlc.Limit{c.Old, c.New} {
			if l == nil {
				text += " -"
			} else {
				text += " " + string('0'+rune(l.Rate))
			}
		}
		if c.Remove {
			text += " removed"
		}
		got = append(got, text)
	}
	if want := []string{"added - 4", "gone 5 5 removed", "kept 1 2", "other 1 3"}; !slices.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
}
