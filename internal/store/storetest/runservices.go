package storetest

import (
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

// runServices: a run of four services, of which checkout moved two quotas and
// put them up, search holds three for two reasons, orders was released from a
// hold and stays as it is, and Maps both moves, put up before, and holds.
func runServices(t *testing.T, db *store.DB) {
	before, r := run(1), run(2)
	before.Service, r.Service = "", ""
	stored(t, db, before, []rlc.Change{heldChange(before, "orders", "callers", "a", "no_data")})
	away := heldChange(r, "search", "callers", "a", "failed")
	away.HeldWhy, away.Failed = "the query timed out", true
	few := heldChange(r, "search", "callers", "b", "few_days")
	few.HeldWhy = "2 of 7 days"
	fewer := heldChange(r, "search", "callers", "c", "few_days")
	fewer.HeldWhy = "1 of 7 days"
	pinned := heldChange(r, "Maps", "callers", "b", "pinned")
	pinned.HeldWhy = "ada pinned it"
	put := proposal(r, "checkout", change(r, "checkout", "callers", "a"), change(r, "checkout", "callers", "b"))
	stored(t, db, r, []rlc.Change{
		change(r, "checkout", "callers", "a"), change(r, "checkout", "callers", "b"), heldChange(r, "checkout", "whole", "", ""),
		away, few, fewer, heldChange(r, "orders", "callers", "a", ""), change(r, "Maps", "callers", "a"), pinned,
	}, put)

	maps := rlc.RunService{Service: "Maps", Quotas: 2, Changed: 1, Held: 1, Because: []rlc.HeldFor{{Rule: "pinned", Why: "ada pinned it", Quotas: 1}}}
	checkout := rlc.RunService{Service: "checkout", Quotas: 3, Changed: 2, Proposal: put.ID, State: rlc.Pending}
	orders := rlc.RunService{Service: "orders", Quotas: 1}
	search := rlc.RunService{Service: "search", Quotas: 3, Held: 3, Because: []rlc.HeldFor{
		{Rule: "few_days", Why: "2 of 7 days", Quotas: 2}, {Rule: "failed", Why: "the query timed out", Failed: true, Quotas: 1}}}
	for _, c := range []struct {
		name   string
		filter rlc.RunFilter
		page   rlc.Page
		want   []rlc.RunService
		totals rlc.RunTotals
		quotas []string
	}{
		{"all", rlc.RunFilter{}, rlc.Page{}, []rlc.RunService{maps, checkout, orders, search}, rlc.RunTotals{Services: 4, Changed: 2, Held: 2},
			[]string{"Maps callers/caller=a", "Maps callers/caller=b", "checkout callers/caller=a", "checkout callers/caller=b", "checkout whole/caller=", "orders callers/caller=a", "search callers/caller=a", "search callers/caller=b", "search callers/caller=c"}},
		{"changed", rlc.RunFilter{Only: "changed"}, rlc.Page{}, []rlc.RunService{maps, checkout}, rlc.RunTotals{Services: 4, Changed: 2, Held: 2},
			[]string{"Maps callers/caller=a", "checkout callers/caller=a", "checkout callers/caller=b"}},
		{"held", rlc.RunFilter{Only: "held"}, rlc.Page{}, []rlc.RunService{maps, search}, rlc.RunTotals{Services: 4, Changed: 2, Held: 2},
			[]string{"Maps callers/caller=b", "search callers/caller=a", "search callers/caller=b", "search callers/caller=c"}},
		{"by part of a name", rlc.RunFilter{Query: "MAP"}, rlc.Page{}, []rlc.RunService{maps}, rlc.RunTotals{Services: 1, Changed: 1, Held: 1}, []string{"Maps callers/caller=a", "Maps callers/caller=b"}},
		{"by name", rlc.RunFilter{Service: "orders"}, rlc.Page{}, []rlc.RunService{orders}, rlc.RunTotals{Services: 1}, []string{"orders callers/caller=a"}},
		{"a sign that LIKE knows", rlc.RunFilter{Query: "_"}, rlc.Page{}, nil, rlc.RunTotals{}, []string{}},
		{"text that is nowhere stored", rlc.RunFilter{Query: "\x00"}, rlc.Page{}, nil, rlc.RunTotals{}, []string{}},
		{"the second page", rlc.RunFilter{}, rlc.Page{Number: 2, Size: 2}, []rlc.RunService{orders, search}, rlc.RunTotals{Services: 4, Changed: 2, Held: 2}, []string{"checkout callers/caller=a", "checkout callers/caller=b"}},
	} {
		got, err := db.RunServices(ctx(t), r.ID, c.filter, c.page)
		must(t, err)
		same(t, "services, "+c.name, got, c.want)
		same(t, "totals, "+c.name, get(db.RunTotals(ctx(t), r.ID, c.filter))(t), c.totals)
		quotas, _, err := db.RunQuotas(ctx(t), r.ID, c.filter, c.page)
		must(t, err)
		same(t, "quotas, "+c.name, ids(quotas, changeID), c.quotas)
	}
	_, err := db.RunServices(ctx(t), r.ID, rlc.RunFilter{Only: "new"}, rlc.Page{})
	fails(t, err, rlc.ErrInvalid)
	_, _, err = db.RunQuotas(ctx(t), r.ID, rlc.RunFilter{Only: "new"}, rlc.Page{})
	fails(t, err, rlc.ErrInvalid)
}
