package storetest

import (
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

func proposalsFiltered(t *testing.T, db *store.DB) {
	must(t, db.SaveSummaries(ctx(t), []rlc.ServiceSummary{
		{Name: "checkout", Owners: []string{"team-payments", "team-a"}}, {Name: "search", Owners: []string{"team-ab"}}, {Name: "orders"}}))
	for n, service := range []string{"checkout", "search", "orders"} {
		r := run(n)
		c := change(r, service, "callers", "a")
		c.Policy = map[string]string{"search": "predictive"}[service]
		if service == "orders" {
			c.Policy, c.Why = "contractual", `says "policy":"predictive" itself`
		}
		stored(t, db, r, nil, proposal(r, service, c))
	}
	done := proposal(run(1), "search")
	done.State = rlc.Accepted
	must(t, db.SetProposal(ctx(t), done, nil))
	for _, c := range []struct {
		filter rlc.ProposalFilter
		want   []string
	}{
		{rlc.ProposalFilter{}, []string{"cron-002-orders", "cron-001-search", "cron-000-checkout"}},
		{rlc.ProposalFilter{Owner: "team-a"}, []string{"cron-000-checkout"}},
		{rlc.ProposalFilter{Owner: "team-ab", State: rlc.Accepted}, []string{"cron-001-search"}},
		{rlc.ProposalFilter{Owner: "team-ab", State: rlc.Open}, []string{}},
		{rlc.ProposalFilter{Owner: "team"}, []string{}},
		{rlc.ProposalFilter{Kind: "predictive"}, []string{"cron-001-search"}},
		{rlc.ProposalFilter{Kind: "contractual", Service: "orders"}, []string{"cron-002-orders"}},
		{rlc.ProposalFilter{Kind: `x"`}, []string{}},
		{rlc.ProposalFilter{State: rlc.Open}, []string{"cron-002-orders", "cron-000-checkout"}},
	} {
		got, total, err := db.ProposalsBy(ctx(t), c.filter, rlc.Page{})
		must(t, err)
		same(t, "proposals", ids(got, proposalID), c.want)
		if total != len(c.want) {
			t.Errorf("%+v: total %d, want %d", c.filter, total, len(c.want))
		}
	}
}
