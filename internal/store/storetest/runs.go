package storetest

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

func claimedOnce(t *testing.T, db *store.DB) {
	r := run(1)
	filled(t, r)
	got, created, err := db.BeginRun(ctx(t), r)
	must(t, err)
	if !created {
		t.Error("the first claim says that the run existed")
	}
	same(t, "claimed run", got, r)

	other := run(2)
	other.ID = r.ID
	got, created, err = db.BeginRun(ctx(t), other)
	must(t, err)
	if created {
		t.Error("the second claim says that it created the run")
	}
	same(t, "existing run", got, r)
	same(t, "run by id", get(db.RunByID(ctx(t), r.ID))(t), r)

	_, err = db.RunByID(ctx(t), "none")
	fails(t, err, rlc.ErrNotFound)
	_, _, err = db.BeginRun(ctx(t), rlc.Run{})
	fails(t, err, rlc.ErrInvalid)
}

func askedRunIsAudited(t *testing.T, db *store.DB) {
	asked, cron := run(1), run(2)
	cron.Actor = ""
	for _, r := range []rlc.Run{asked, asked, cron} {
		_, _, err := db.BeginRun(ctx(t), r)
		must(t, err)
	}
	entries, total, err := db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	if total != 1 || len(entries) != 1 {
		t.Fatalf("%d audit rows, %d listed, want 1: one per asked run", total, len(entries))
	}
	entries[0].ID = ""
	same(t, "audit row", entries[0], rlc.AuditEntry{At: asked.Started, Actor: "ada", Action: "run.ask", Object: asked.ID, Detail: "checkout"})
}

func storedTogether(t *testing.T, db *store.DB) {
	r := run(1)
	c := change(r, "checkout", "callers", "search")
	filled(t, c, "Held", "Region", "Remove") // these make another change of it
	p := proposal(r, "checkout", c)
	filled(t, p)
	stored(t, db, r, []rlc.Change{c}, p)

	r.Stage = rlc.Stored
	same(t, "run", get(db.RunByID(ctx(t), r.ID))(t), r)
	same(t, "change", get(db.LatestChange(ctx(t), "checkout", "callers", key("search")))(t), c)
	same(t, "proposal", get(db.ProposalByID(ctx(t), p.ID))(t), p)
	same(t, "outbox", get(db.Outbox(ctx(t)))(t), []rlc.OutboxRow{{ProposalID: p.ID}})
}

// A region's own quota stands beside the one for all, in one run and after it.
func regionsApart(t *testing.T, db *store.DB) {
	r := run(1)
	everywhere := change(r, "checkout", "callers", "search")
	there := change(r, "checkout", "callers", "search")
	there.Region, there.Remove = "eu-west-1", true
	stored(t, db, r, []rlc.Change{everywhere, there})
	same(t, "for all", get(db.LatestChange(ctx(t), "checkout", "callers", key("search")))(t), everywhere)
	same(t, "the region's", get(db.LatestChange(ctx(t), "checkout", "callers@eu-west-1", key("search")))(t), there)
	recent := get(db.Recent(ctx(t), "checkout", r.Now))(t)
	if len(recent) != 2 || len(recent[everywhere.ID()]) != 1 || len(recent[there.ID()]) != 1 {
		t.Errorf("recent estimates %v, want one of %s and one of %s", recent, everywhere.ID(), there.ID())
	}
}

func refusedLeavesNothing(t *testing.T, db *store.DB) {
	r := run(1)
	_, _, err := db.BeginRun(ctx(t), r)
	must(t, err)
	c := change(r, "checkout", "callers", "search")
	p := proposal(r, "checkout", c)
	nameless := p
	nameless.ID = ""
	fails(t, db.StoreRun(ctx(t), r, []rlc.Change{c}, []rlc.Proposal{p, nameless}), rlc.ErrInvalid)

	same(t, "run", get(db.RunByID(ctx(t), r.ID))(t), r) // still claimed
	_, err = db.LatestChange(ctx(t), "checkout", "callers", key("search"))
	fails(t, err, rlc.ErrNotFound)
	_, err = db.ProposalByID(ctx(t), p.ID)
	fails(t, err, rlc.ErrNotFound)
	same(t, "outbox", get(db.Outbox(ctx(t)))(t), []rlc.OutboxRow(nil))

	must(t, db.StoreRun(ctx(t), r, []rlc.Change{c}, []rlc.Proposal{p}))
}

func storedOnce(t *testing.T, db *store.DB) {
	r := run(1)
	fails(t, db.StoreRun(ctx(t), r, nil, nil), rlc.ErrNotFound)
	stored(t, db, r, nil)
	fails(t, db.StoreRun(ctx(t), r, nil, nil), rlc.ErrConflict)
	must(t, db.FinishRun(ctx(t), r))
	fails(t, db.StoreRun(ctx(t), r, nil, nil), rlc.ErrConflict)
}

func finishes(t *testing.T, db *store.DB) {
	fails(t, db.FinishRun(ctx(t), run(9)), rlc.ErrNotFound)
	begun := run(1)
	begun.Result, begun.Finished, begun.Detail, begun.Held, begun.Changed, begun.Total = "", time.Time{}, "", 0, 0, 0
	_, _, err := db.BeginRun(ctx(t), begun)
	must(t, err)
	same(t, "begun run", get(db.RunByID(ctx(t), begun.ID))(t), begun)
	over := run(1)
	over.Stage, over.Result = rlc.Finished, rlc.ResultFailed
	must(t, db.FinishRun(ctx(t), over)) // from claimed: it failed
	must(t, db.FinishRun(ctx(t), over)) // again: the same
	same(t, "failed run", get(db.RunByID(ctx(t), over.ID))(t), over)

	r := run(2)
	stored(t, db, r, nil)
	r.Stage, r.Result = rlc.Finished, rlc.ResultOK
	must(t, db.FinishRun(ctx(t), r))
	same(t, "finished run", get(db.RunByID(ctx(t), r.ID))(t), r)
}

func fenced(t *testing.T, db *store.DB) {
	stale, leads := lead(t, db, "a", 0)
	if !leads {
		t.Fatal("a does not lead")
	}
	r := run(1)
	r.Epoch = stale
	_, _, err := db.BeginRun(ctx(t), r)
	must(t, err)
	must(t, db.Resign(ctx(t), store.Leadership, "a"))
	fresh, _ := lead(t, db, "b", 0)
	if fresh <= stale {
		t.Fatalf("the new leader's epoch %d is not above %d", fresh, stale)
	}

	fails(t, db.StoreRun(ctx(t), r, nil, []rlc.Proposal{proposal(r, "checkout")}), rlc.ErrFenced)
	fails(t, db.FinishRun(ctx(t), r), rlc.ErrFenced)
	late := run(2)
	late.Epoch = stale
	_, _, err = db.BeginRun(ctx(t), late)
	fails(t, err, rlc.ErrFenced)

	r.Epoch = fresh // the new leader takes the run over
	must(t, db.StoreRun(ctx(t), r, nil, nil))
	if got := get(db.RunByID(ctx(t), r.ID))(t).Epoch; got != fresh {
		t.Errorf("the run carries epoch %d, want the new leader's %d", got, fresh)
	}
	byHand := run(3)
	byHand.Epoch = 0
	stored(t, db, byHand, nil) // outside leadership: not fenced
	must(t, db.FinishRun(ctx(t), byHand))
}

// The run itself remembers who took it over, also where no leadership row does.
func takenOver(t *testing.T, db *store.DB) {
	r := run(1)
	r.Epoch = 5
	stored(t, db, r, nil)
	r.Epoch = 4
	fails(t, db.FinishRun(ctx(t), r), rlc.ErrFenced)
	r.Epoch = 6
	must(t, db.FinishRun(ctx(t), r))
}

func runsByPage(t *testing.T, db *store.DB) {
	for n := range 5 {
		_, _, err := db.BeginRun(ctx(t), run(n))
		must(t, err)
	}
	all, total, err := db.Runs(ctx(t), rlc.Page{})
	must(t, err)
	if total != 5 {
		t.Errorf("total %d, want 5", total)
	}
	same(t, "all", all, []rlc.Run{run(4), run(3), run(2), run(1), run(0)})
	page, total, err := db.Runs(ctx(t), rlc.Page{Number: 2, Size: 2})
	must(t, err)
	same(t, "second page of two", ids(page, runID), []string{"cron-002", "cron-001"})
	beyond, total2, err := db.Runs(ctx(t), rlc.Page{Number: 9, Size: 2})
	must(t, err)
	if len(beyond) != 0 || total != 5 || total2 != 5 {
		t.Errorf("beyond the end: %d runs, totals %d and %d, want 0, 5 and 5", len(beyond), total, total2)
	}
}

func unfinished(t *testing.T, db *store.DB) {
	for _, n := range []int{3, 1, 2} {
		_, _, err := db.BeginRun(ctx(t), run(n))
		must(t, err)
	}
	must(t, db.StoreRun(ctx(t), run(3), nil, nil))
	must(t, db.FinishRun(ctx(t), run(2)))
	got := get(db.UnfinishedRuns(ctx(t)))(t)
	want := []rlc.Run{run(1), run(3)}
	want[1].Stage = rlc.Stored
	same(t, "unfinished", got, want)
}

func runChanges(t *testing.T, db *store.DB) {
	r := run(1)
	r.Service = ""
	a, b := change(r, "checkout", "callers", "b"), change(r, "checkout", "callers", "a")
	h := heldChange(r, "search", "callers", "a", "no_data")
	stored(t, db, r, []rlc.Change{h, a, b})

	all, total, err := db.RunChanges(ctx(t), r.ID, false, rlc.Page{})
	must(t, err)
	if total != 3 {
		t.Errorf("total %d, want 3", total)
	}
	same(t, "all", all, []rlc.Change{b, a, h})
	held, total, err := db.RunChanges(ctx(t), r.ID, true, rlc.Page{})
	must(t, err)
	if total != 1 {
		t.Errorf("held total %d, want 1", total)
	}
	same(t, "held", held, []rlc.Change{h})
	page, _, err := db.RunChanges(ctx(t), r.ID, false, rlc.Page{Number: 2, Size: 1})
	must(t, err)
	same(t, "second page of one", ids(page, changeID), []string{"checkout callers/caller=b"})
}

func latestChanges(t *testing.T, db *store.DB) {
	r1, r2 := run(1), run(2)
	gone, old := change(r1, "checkout", "gone", "a"), change(r1, "checkout", "callers", "a")
	stored(t, db, r1, []rlc.Change{gone, old, change(r1, "search", "callers", "a")})
	fresh := heldChange(r2, "checkout", "callers", "a", "coverage")
	stored(t, db, r2, []rlc.Change{fresh})
	fresh.Seen = &rlc.Seen{At: r1.Now, Peak: old.Peak, Flags: old.Flags, Offered: old.Offered, LastHour: old.LastHour} // its run read nothing

	light := gone // lists leave episodes out
	before, after := *gone.Backtest.Old, *gone.Backtest.New
	before.Episodes, after.Episodes = nil, nil
	light.Backtest = rlc.ChangeBacktest{Old: &before, New: &after}
	same(t, "newest of checkout", get(db.LatestChanges(ctx(t), "checkout"))(t), []rlc.Change{fresh, light})
	same(t, "with episodes, in the same order", get(db.WithEpisodes(ctx(t), []rlc.Change{light, {RunID: "pruned"}, fresh}))(t), []rlc.Change{gone, {RunID: "pruned"}, fresh})
	same(t, "newest of one", get(db.LatestChange(ctx(t), "checkout", "callers", key("a")))(t), fresh)
	same(t, "newest of another", get(db.LatestChange(ctx(t), "checkout", "gone", key("a")))(t), gone)
	_, err := db.LatestChange(ctx(t), "checkout", "callers", nil)
	fails(t, err, rlc.ErrNotFound)

	r3, r4 := run(3), run(4)
	again, read := heldChange(r3, "checkout", "callers", "a", "failed"), change(r4, "checkout", "callers", "a")
	stored(t, db, r3, []rlc.Change{again})
	again.Seen = fresh.Seen // as long as no run reads
	same(t, "held twice", get(db.LatestChange(ctx(t), "checkout", "callers", key("a")))(t), again)
	stored(t, db, r4, []rlc.Change{read})
	same(t, "read again", get(db.LatestChange(ctx(t), "checkout", "callers", key("a")))(t), read)
}

func olderNow(t *testing.T, db *store.DB) {
	r1, r2 := run(1), run(2)
	fresh := change(r2, "checkout", "callers", "a")
	stored(t, db, r2, []rlc.Change{fresh})
	stored(t, db, r1, []rlc.Change{heldChange(r1, "checkout", "callers", "a", "")})
	same(t, "newest", get(db.LatestChange(ctx(t), "checkout", "callers", key("a")))(t), fresh)
}

func changeLog(t *testing.T, db *store.DB) {
	moved := change(run(1), "checkout", "callers", "a")
	for n, c := range []rlc.Change{
		heldChange(run(0), "checkout", "callers", "a", ""), // nothing to tell
		moved,
		heldChange(run(2), "checkout", "callers", "a", ""),         // the same
		heldChange(run(3), "checkout", "callers", "a", "coverage"), // held now
		heldChange(run(4), "checkout", "callers", "a", "coverage"), // still
		heldChange(run(5), "checkout", "callers", "a", "no_data"),  // for another reason
		heldChange(run(6), "checkout", "callers", "a", ""),         // no longer
	} {
		stored(t, db, run(n), []rlc.Change{c, change(run(n), "checkout", "callers", "b")})
	}
	log, total, err := db.ChangeLog(ctx(t), "checkout", "callers", key("a"), rlc.Page{})
	must(t, err)
	same(t, "log", ids(log, func(c rlc.Change) string { return c.RunID }), []string{"cron-006", "cron-005", "cron-003", "cron-001"})
	if total != 4 {
		t.Fatalf("total %d, want 4", total)
	}
	same(t, "the oldest, whole", log[3], moved)
	page, _, err := db.ChangeLog(ctx(t), "checkout", "callers", key("a"), rlc.Page{Number: 2, Size: 3})
	must(t, err)
	same(t, "second page of three", page, []rlc.Change{moved})
}

func recent(t *testing.T, db *store.DB) {
	for n := range 4 {
		c := change(run(n), "checkout", "callers", "a")
		c.Estimate = limit(float64(100 + n))
		abstained := heldChange(run(n), "checkout", "callers", "b", "no_data")
		whole := change(run(n), "checkout", "whole", "")
		whole.Key = nil
		if n == 3 {
			whole.Forecast = &rlc.Forecast{From: run(n).Now, Q50: []rlc.Rate{1}, Q99: []rlc.Rate{2}, Rates: []rlc.Rate{3}}
		}
		stored(t, db, run(n), []rlc.Change{c, abstained, whole, change(run(n), "search", "callers", "a")})
	}
	hourly := rlc.RecentEstimate{At: run(3).Now, PolicyID: "p1", Limit: *limit(131.25), Hours: &rlc.QuotaHours{From: run(3).Now, Rates: []rlc.Rate{3}}}
	estimate := func(n int, rate float64) rlc.RecentEstimate {
		return rlc.RecentEstimate{At: run(n).Now, PolicyID: "p1", Limit: *limit(rate)}
	}
	same(t, "recent", get(db.Recent(ctx(t), "checkout", run(2).Now))(t), map[string][]rlc.RecentEstimate{
		"callers/caller=a": {estimate(2, 102), estimate(3, 103)},
		"whole":            {estimate(2, 131.25), hourly},
	})
}

func pruneRuns(t *testing.T, db *store.DB) {
	finished := func(n int, changes []rlc.Change, proposals ...rlc.Proposal) {
		stored(t, db, run(n), changes, proposals...)
		must(t, db.FinishRun(ctx(t), run(n)))
	}
	both := func(n int) []rlc.Change {
		return []rlc.Change{change(run(n), "checkout", "callers", "a"), change(run(n), "search", "callers", "a")}
	}
	old, open := proposal(run(0), "checkout"), proposal(run(1), "search")
	finished(0, both(0), old)
	finished(1, both(1)[1:], open)                                        // the newest of search, with an open proposal
	stored(t, db, run(2), both(2)[:1], proposal(run(2), "checkout"))      // not over
	finished(3, []rlc.Change{change(run(3), "checkout", "callers", "b")}) // the newest of checkout
	_, _, err := db.BeginRun(ctx(t), run(4))                              // a run without changes
	must(t, err)
	must(t, db.FinishRun(ctx(t), run(4)))

	must(t, db.PruneRuns(ctx(t), now.Add(1000*time.Hour)))
	all, _, err := db.Runs(ctx(t), rlc.Page{})
	must(t, err)
	same(t, "runs left", ids(all, runID), []string{"cron-003", "cron-002", "cron-001"})
	same(t, "newest changes of checkout", ids(get(db.LatestChanges(ctx(t), "checkout"))(t), changeID), []string{"checkout callers/caller=a", "checkout callers/caller=b"})
	same(t, "newest changes of search", ids(get(db.LatestChanges(ctx(t), "search"))(t), changeID), []string{"search callers/caller=a"})
	proposals, _, err := db.Proposals(ctx(t), "", "", rlc.Page{})
	must(t, err)
	same(t, "proposals left", ids(proposals, proposalID), []string{"cron-002-checkout", "cron-001-search"})

	stored(t, db, run(5), both(5)) // what is newer explains the present now
	must(t, db.FinishRun(ctx(t), run(2)))
	must(t, db.FinishRun(ctx(t), run(5)))
	must(t, db.PruneRuns(ctx(t), run(5).Finished)) // run 5 finished at that time, not before
	same(t, "newest changes of checkout", ids(get(db.LatestChanges(ctx(t), "checkout"))(t), changeID), []string{"checkout callers/caller=a"})
}
