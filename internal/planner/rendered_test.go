package planner_test

import (
	"testing"

	"github.com/openrlc/rlc"
)

// Files rendered for another limiter that do not hold the numbers in force are put
// up by a proposal without changes: once, again when they shall hold something
// else, never in the way of quotas that move, and not against a rejection.
func TestStaleTargetsAreProposedWhereNoQuotaMoves(t *testing.T) {
	w := newWorld(t, files(policy("geo", "  - {name: all}\n"), policy("hand", "  - {name: all, limit: {rate: 5, burst: 5}}\n")))
	w.history.series["geo all"] = wave(50)
	w.repo.stale = map[string]string{"geo": "rendered:1", "hand": "rendered:h"}
	next := func() *rlc.Proposal {
		t.Helper()
		w.clock = w.clock.Add(day)
		if run := w.cron(); run.Result != rlc.ResultOK {
			t.Fatalf("run %+v", run)
		}
		return w.openProposal("geo")
	}
	w.pub.empty = rlc.Open // its forge has something to put up without changes
	w.cron()
	if p := w.openProposal("geo"); p == nil || len(p.Changes) != 1 {
		t.Fatalf("quotas that move go first: %+v", p)
	}
	// A service without a computed quota has targets, too.
	hand := w.openProposal("hand")
	if hand == nil || len(hand.Changes) != 0 || hand.Content != "rendered:h" {
		t.Fatalf("of hand-written limits: %+v", hand)
	}
	w.accept("geo")
	first := next()
	if first == nil || len(first.Changes) != 0 || first.Content != "rendered:1" || first.State != rlc.Open {
		t.Fatalf("nothing moves, the target is stale: %+v", first)
	}
	if again := next(); again == nil || again.ID != first.ID {
		t.Errorf("the same is put up again: %+v", again)
	}
	w.repo.stale["geo"] = "rendered:2"
	second := next()
	if second == nil || second.ID == first.ID || second.Content != "rendered:2" {
		t.Errorf("it shall hold something else: %+v", second)
	}
	w.reject("geo", "we render it ourselves")
	if p := next(); p != nil {
		t.Errorf("rejected, and put up again: %+v", p)
	}
	w.history.series["geo all"] = times(wave(50), 1.2, now.Add(-60*day), now.Add(90*day))
	if p := next(); p == nil || len(p.Changes) != 1 {
		t.Errorf("the rejection of a rendering holds quotas: %+v", p)
	}
	w.reject("geo", "not yet")
	w.repo.stale["geo"] = "rendered:3"
	if p := next(); p == nil || p.Content != "rendered:3" {
		t.Errorf("another rendering after the rejection: %+v", p)
	}
}

// A run that reads a merge before the records know of it leaves the proposal to
// whoever settles it: it is accepted, not superseded.
func TestAProposalThatWasJustMergedIsNotSuperseded(t *testing.T) {
	w := newWorld(t, policy("geo", "  - {name: all}\n"))
	w.history.series["geo all"] = wave(50)
	w.cron()
	p := w.openProposal("geo")
	if p == nil {
		t.Fatal("no proposal")
	}
	w.repo.commit(w.clock, quotas("geo", *p.Changes[0].Quota()))
	w.clock = w.clock.Add(2 * minute)
	w.cron()
	if now, err := w.db.ProposalByID(t.Context(), p.ID); err != nil || now.State != rlc.Open {
		t.Errorf("the merged proposal is %s, %v; want it open until it is settled", now.State, err)
	}
}
