package web_test

import (
	"encoding/csv"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

func TestProposalsAreFilteredByTheAddress(t *testing.T) {
	h := newFixture(t).handler(t)
	open, hostiles, accepted := "cron-2026-12-02T060000Z-checkout", "", "cron-2026-11-26T060000Z-checkout"
	listed := func(ask string) (ids []string) {
		rows, err := csv.NewReader(get(h, "/proposals.csv"+ask).Body).ReadAll()
		if err != nil || len(rows) == 0 {
			t.Fatalf("%s: %v", ask, err)
		}
		for _, r := range rows[1:] {
			ids = append(ids, r[0])
		}
		return ids
	}
	all := listed("")
	for _, id := range all {
		if id != open && id != accepted {
			hostiles = id
		}
	}
	for ask, want := range map[string][]string{
		"":                                  all,
		"?state=&service=&owner=&kind=":     all,
		"?owner=team-payments":              {open, accepted},
		"?owner=team-payments&state=open":   {open},
		"?service=checkout&state=accepted":  {accepted},
		"?kind=historical":                  all,
		"?kind=predictive":                  nil,
		"?owner=team-maps":                  nil,
		"?owner=team+%3Cb%3Ebold%3C%2Fb%3E": {hostiles},
		"?service=checkout&kind=historical&page=1&per_page=1": {open},
	} {
		got, wanted := listed(ask), slices.Clone(want)
		slices.Sort(got)
		slices.Sort(wanted)
		if !slices.Equal(got, wanted) {
			t.Errorf("%q: got %q, want %q", ask, got, wanted)
		}
		if total := body(t, get(h, "/proposals.json"+ask), 200)["proposals"].([]any); len(total) != len(want) {
			t.Errorf("%q: the JSON has %d", ask, len(total))
		}
	}
	holds(t, h, "/proposals?owner=team-payments&state=open&kind=historical", `name="owner" value="team-payments"`, `<option value="historical" selected>`, `<input type="hidden" name="state" value="open">`,
		"1 proposal for services of team-payments by historical policies waits for review.", `href="/proposals.csv?kind=historical&amp;owner=team-payments&amp;state=open"`, `href="/proposals?kind=historical&amp;owner=team-payments"`)
	for target, want := range map[string][]string{
		"/proposals?service=chekout":    {"No service is called chekout; did you mean checkout?</p>", "service=chekout", "Show all"},
		"/proposals?owner=team-payment": {"No policy names team-payment among its owners; did you mean team-payments?</p>"},
		"/proposals?kind=predictive":    {"No proposal fits the filter.", "kind=predictive"},
		"/proposals?service=media":      {"No proposal of media yet", "A proposal appears when a run has read history", `href="/runs?service=media"`},
		"/proposals?service=pricing":    {"No proposal of pricing yet"},
	} {
		holds(t, h, target, want...)
	}
	holds(t, newFresh(t, nil), "/proposals", "No proposal yet", "deadband", `href="/runs"`)
	for _, target := range []string{"/proposals?kind=magic", "/proposals?state=lost"} {
		if w := get(h, target); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
}

func TestTheListShowsAnEditedProposalAsItsBranchHoldsIt(t *testing.T) {
	f := newFixture(t)
	id := "cron-2026-12-02T060000Z-checkout"
	row := func(h http.Handler) []string {
		rows, err := csv.NewReader(get(h, "/proposals.csv?state=open&service=checkout").Body).ReadAll()
		if err != nil || len(rows) != 2 {
			t.Fatalf("%v %q", err, rows)
		}
		return rows[1]
	}
	before := row(f.handler(t))
	f.amended = map[string]rlc.Limit{id + "|mobile-create": {Rate: 9000, Burst: 9000}}
	p, err := f.db.ProposalByID(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	p.Human = true
	if err := f.db.SetProposal(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	h := f.handler(t)
	after := row(h)
	if before[11] != "false" || after[11] != "true" || before[6] == after[6] || before[5] != after[5] {
		t.Errorf("before %q, after %q", before, after)
	}
	one := body(t, get(h, "/proposals/"+id+".json"), 200)["changes"]
	list := body(t, get(h, "/proposals.json?state=open&service=checkout"), 200)["proposals"].([]any)[0].(map[string]any)
	if a, b := first(t, one, map[string]any{"bucket": "mobile-create"}), first(t, list["changes"], map[string]any{"bucket": "mobile-create"}); a["new"].(map[string]any)["rate"] != 9000.0 || b["new"].(map[string]any)["rate"] != 9000.0 || list["as_edited"] != true {
		t.Errorf("the proposal has %v, the list %v", a["new"], b["new"])
	}
	if page := holds(t, h, "/proposals?state=open&service=checkout", " edited</span>"); strings.Contains(page, "the run's numbers") {
		t.Error("the numbers are said to be the run's")
	}
}
