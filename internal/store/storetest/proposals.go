package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

func supersedes(t *testing.T, db *store.DB) {
	r1, r2, r3 := run(1), run(2), run(3)
	stored(t, db, r1, nil, proposal(r1, "checkout"), proposal(r1, "search"))
	opened := proposal(r1, "checkout")
	opened.State = rlc.Open
	must(t, db.SetProposal(ctx(t), opened, nil))
	stored(t, db, r2, nil, proposal(r2, "checkout"))
	stored(t, db, r3, nil, proposal(r3, "checkout"))

	for id, want := range map[string]rlc.Proposal{
		"cron-001-checkout": {State: rlc.Superseded, Actor: "rlc", Decided: r2.Started, Reason: "superseded by cron-002-checkout"},
		"cron-002-checkout": {State: rlc.Superseded, Actor: "rlc", Decided: r3.Started, Reason: "superseded by cron-003-checkout"},
		"cron-003-checkout": {State: rlc.Pending, Actor: "ada", Decided: r3.Started.Add(time.Second), Reason: "too high"},
		"cron-001-search":   {State: rlc.Pending, Actor: "ada", Decided: r1.Started.Add(time.Second), Reason: "too high"},
	} {
		p := get(db.ProposalByID(ctx(t), id))(t)
		same(t, id, rlc.Proposal{State: p.State, Actor: p.Actor, Decided: p.Decided, Reason: p.Reason}, want)
	}
	rows := get(db.Outbox(ctx(t)))(t)
	same(t, "outbox", rows, []rlc.OutboxRow{{ProposalID: "cron-001-search"}, {ProposalID: "cron-003-checkout"}})
}

func proposalLists(t *testing.T, db *store.DB) {
	// One proposal of each state; checkout's three supersede one another.
	for n, service := range []string{"checkout", "search", "orders", "checkout", "billing"} {
		r := run(n)
		stored(t, db, r, nil, proposal(r, service, change(r, service, "callers", "a")))
		p := proposal(r, service)
		switch service {
		case "search":
			p.State = rlc.Open
		case "orders":
			p.State = rlc.Rejected
		case "billing":
			p.State = rlc.Accepted
		default:
			continue
		}
		must(t, db.SetProposal(ctx(t), p, nil))
	}
	for _, c := range []struct {
		state   rlc.ProposalState
		service string
		want    []string
	}{
		{"", "", []string{"cron-004-billing", "cron-003-checkout", "cron-002-orders", "cron-001-search", "cron-000-checkout"}},
		{rlc.Open, "", []string{"cron-003-checkout", "cron-001-search"}},
		{rlc.Pending, "", []string{"cron-003-checkout"}},
		{rlc.Superseded, "", []string{"cron-000-checkout"}},
		{rlc.Rejected, "", []string{"cron-002-orders"}},
		{rlc.Accepted, "", []string{"cron-004-billing"}},
		{"", "checkout", []string{"cron-003-checkout", "cron-000-checkout"}},
		{rlc.Open, "checkout", []string{"cron-003-checkout"}},
		{rlc.Open, "orders", []string{}},
	} {
		got, total, err := db.Proposals(ctx(t), c.state, c.service, rlc.Page{})
		must(t, err)
		same(t, "state "+string(c.state)+" of "+c.service, ids(got, proposalID), c.want)
		if total != len(c.want) {
			t.Errorf("state %q of %q: total %d, want %d", c.state, c.service, total, len(c.want))
		}
	}
	page, total, err := db.Proposals(ctx(t), "", "", rlc.Page{Number: 2, Size: 2})
	must(t, err)
	same(t, "second page of two", ids(page, proposalID), []string{"cron-002-orders", "cron-001-search"})
	same(t, "its changes", page[1].Changes, []rlc.Change{change(run(1), "search", "callers", "a")})
	if total != 5 {
		t.Errorf("total %d, want 5", total)
	}
}

func decisionIsAudited(t *testing.T, db *store.DB) {
	r := run(1)
	stored(t, db, r, nil, proposal(r, "checkout", change(r, "checkout", "callers", "a")))
	want := rlc.Proposal{
		ID: "cron-001-checkout", RunID: r.ID, Service: "checkout", State: rlc.Rejected, URL: "http://rlc/q", Branch: "rlc/other",
		Commit: "dead", Base: "facade", Content: "other", Human: false, Created: r.Started, Decided: now.Add(time.Hour),
		Actor: "grace", Reason: "a sale is on", Error: "gone", Changes: []rlc.Change{change(r, "checkout", "callers", "a")},
	}
	entry := rlc.AuditEntry{ID: "a1", At: now, Actor: "grace", Action: "proposal.reject", Object: want.ID, Detail: want.Reason}
	filled(t, entry)
	set := want
	set.RunID, set.Service, set.Created, set.Changes = "", "", time.Time{}, nil // identity is not written
	bad := entry
	bad.Actor = ""
	fails(t, db.SetProposal(ctx(t), set, &bad), rlc.ErrInvalid)
	if got := get(db.ProposalByID(ctx(t), want.ID))(t).State; got != rlc.Pending {
		t.Errorf("without its audit row the decision stands: %s", got)
	}
	must(t, db.SetProposal(ctx(t), set, &entry))
	same(t, "proposal", get(db.ProposalByID(ctx(t), want.ID))(t), want)
	entries, _, err := db.Audit(ctx(t), rlc.Page{Size: 1, Number: 2}) // the first is the run's
	must(t, err)
	same(t, "audit", entries, []rlc.AuditEntry{entry})
	twice, again := set, entry // by who acted, and by who found the act
	twice.Actor, again.ID, again.Actor = "mary", "a2", "mary"
	must(t, db.SetProposal(ctx(t), twice, &again))
	same(t, "told twice", get(db.ProposalByID(ctx(t), want.ID))(t), want)
	entries, _, err = db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	if slices.Contains(ids(entries, func(e rlc.AuditEntry) string { return e.ID }), "a2") {
		t.Error("a decision that is told twice left two audit rows")
	}
	same(t, "outbox", get(db.Outbox(ctx(t)))(t), []rlc.OutboxRow(nil))
	r2 := run(2) // found first, told by who did it afterwards
	stored(t, db, r2, nil, proposal(r2, "checkout"))
	seen := proposal(r2, "checkout")
	seen.State, seen.Actor, seen.Reason, seen.Decided = rlc.Rejected, "", "the branch was deleted", now
	must(t, db.SetProposal(ctx(t), seen, &rlc.AuditEntry{ID: "b1", At: now, Actor: "somebody", Action: "proposal.reject", Object: seen.ID}))
	seen.Actor, seen.Reason = "grace", "a sale is on"
	must(t, db.SetProposal(ctx(t), seen, &rlc.AuditEntry{ID: "b2", At: now, Actor: "grace", Action: "proposal.reject", Object: seen.ID}))
	if got := get(db.ProposalByID(ctx(t), seen.ID))(t); got.Actor != "grace" || got.Reason != "a sale is on" {
		t.Errorf("found, then told by grace: %q, %q", got.Actor, got.Reason)
	}
	entries, _, err = db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	if !slices.Contains(ids(entries, func(e rlc.AuditEntry) string { return e.ID }), "b2") {
		t.Error("who decided is not in the audit")
	}
	fails(t, db.SetProposal(ctx(t), rlc.Proposal{ID: "none", State: rlc.Open}, nil), rlc.ErrNotFound)
}

// What a follower saw of a branch does not undo what a person wrote of it since.
func seenOlder(t *testing.T, db *store.DB) {
	r := run(1)
	stored(t, db, r, nil, proposal(r, "checkout"))
	was := proposal(r, "checkout")
	was.State, was.Commit, was.Human = rlc.Open, "a1", false
	must(t, db.SetProposal(ctx(t), was, nil))
	seen := was
	seen.Content, seen.Human = "of a1", true
	must(t, db.SeenProposal(ctx(t), was, seen))
	same(t, "seen", get(db.ProposalByID(ctx(t), was.ID))(t), seen)
	edited := seen
	edited.Commit, edited.Content = "b2", "of b2"
	must(t, db.SetProposal(ctx(t), edited, nil))
	fails(t, db.SeenProposal(ctx(t), was, seen), rlc.ErrConflict)
	same(t, "edited", get(db.ProposalByID(ctx(t), was.ID))(t), edited)
	fails(t, db.SeenProposal(ctx(t), was, rlc.Proposal{ID: "none", State: rlc.Open}), rlc.ErrNotFound)
}

func decidedStays(t *testing.T, db *store.DB) {
	states := []rlc.ProposalState{rlc.Pending, rlc.Open, rlc.Accepted, rlc.Rejected, rlc.Superseded, rlc.Failed}
	n := 0
	for _, from := range states {
		for _, to := range states {
			r := run(n)
			n++
			stored(t, db, r, nil, proposal(r, "checkout"))
			p := proposal(r, "checkout")
			p.State = from
			must(t, db.SetProposal(ctx(t), p, nil))
			p.State = to
			err := db.SetProposal(ctx(t), p, &rlc.AuditEntry{At: now, Actor: "ada", Action: "x"})
			ok := from == to || from == rlc.Pending || from == rlc.Open || (from == rlc.Superseded && to == rlc.Accepted)
			switch {
			case ok:
				must(t, err)
			default:
				fails(t, err, rlc.ErrConflict)
				to = from
			}
			if got := get(db.ProposalByID(ctx(t), p.ID))(t).State; got != to {
				t.Errorf("from %s: it is %s, want %s", from, got, to)
			}
		}
	}
	r := run(n)
	stored(t, db, r, nil, proposal(r, "checkout"))
	p := proposal(r, "checkout")
	p.State = "half"
	fails(t, db.SetProposal(ctx(t), p, nil), rlc.ErrInvalid)
}

func outbox(t *testing.T, db *store.DB) {
	r := run(1)
	stored(t, db, r, nil, proposal(r, "checkout"), proposal(r, "search"))
	must(t, db.OutboxFailed(ctx(t), "cron-001-checkout", "remote moved", now))
	must(t, db.OutboxFailed(ctx(t), "cron-001-checkout", "disk full", now.Add(time.Minute)))
	same(t, "outbox", get(db.Outbox(ctx(t)))(t), []rlc.OutboxRow{
		{ProposalID: "cron-001-checkout", Attempts: 2, NotBefore: now.Add(time.Minute), LastError: "disk full"},
		{ProposalID: "cron-001-search"},
	})
	if got := get(db.ProposalByID(ctx(t), "cron-001-checkout"))(t).Error; got != "disk full" {
		t.Errorf("the proposal's error is %q, want the last", got)
	}
	must(t, db.OutboxDone(ctx(t), "cron-001-checkout"))
	must(t, db.OutboxDone(ctx(t), "cron-001-checkout"))
	same(t, "outbox", get(db.Outbox(ctx(t)))(t), []rlc.OutboxRow{{ProposalID: "cron-001-search"}})
	fails(t, db.OutboxFailed(ctx(t), "cron-001-checkout", "x", now), rlc.ErrNotFound)
}

func published(t *testing.T, db *store.DB) {
	stale, _ := lead(t, db, "a", 0)
	r := run(1)
	r.Epoch = stale
	stored(t, db, r, nil, proposal(r, "checkout"))
	must(t, db.Resign(ctx(t), store.Leadership, "a"))
	fresh, _ := lead(t, db, "b", 0)
	p := proposal(r, "checkout")
	p.State, p.Commit = rlc.Open, "published"
	fails(t, db.Published(ctx(t), stale, p, nil), rlc.ErrFenced)
	if got := get(db.ProposalByID(ctx(t), p.ID))(t).State; got != rlc.Pending {
		t.Errorf("a stale leader's word stands: %s", got)
	}
	must(t, db.Published(ctx(t), fresh, p, nil))
	same(t, "proposal", get(db.ProposalByID(ctx(t), p.ID))(t), p)
	same(t, "outbox", get(db.Outbox(ctx(t)))(t), []rlc.OutboxRow(nil))
}
