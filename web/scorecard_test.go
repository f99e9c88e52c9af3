package web_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// score stores ten days of scores: what improved, and an owner of a name that
// must stay inert.
func (f *fixture) score(t testing.TB) {
	t.Helper()
	today := now.Truncate(24 * time.Hour)
	for i := range 10 {
		n := float64(i)
		at := today.AddDate(0, 0, i-9)
		team := rlc.Score{Owner: "team-payments", Services: 1, Requests: 1000, Limited: 500 + 40*n, Known: 20, Fitting: 6 + i, Counted: 1000 * n, Drops: 10 * n, VirtualDrops: 20 * n, Unmatched: 5 * n, Open: 1, Oldest: runAt.AddDate(0, 0, -3), Median: runAt.AddDate(0, 0, -3), At: at.Add(6 * time.Hour)}
		strange := rlc.Score{Owner: hostile[0], Services: 1, At: at.Add(6 * time.Hour)}
		nobody := rlc.Score{Services: 1, Requests: 100, Limited: 100, Known: 2, Fitting: 2, Counted: 50, At: at.Add(6 * time.Hour)}
		fleet := team
		fleet.Owner, fleet.Fleet = "", true
		fleet.Services, fleet.Requests, fleet.Limited, fleet.Known, fleet.Fitting, fleet.Counted = 3, 1100, team.Limited+100, 22, team.Fitting+2, team.Counted+50
		if err := f.db.SaveScores(context.Background(), at, []rlc.Score{fleet, team, strange, nobody}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScorecardSumsTheWindowAndShowsTodaysShares(t *testing.T) {
	h := newFixture(t).handler(t)
	// Today is day 9: 860 + 100 of 1,100; 17 + … of 22. Seven days count 3…9.
	holds(t, h, "/scorecard", "87.3 %", "of the traffic that policies read has a limit", "77.3 %", "of 22 limits", "Of 42,350 requests in 7 days enforcers dropped 420 (0.99 %) and would have dropped 840 (1.98 %).",
		"1 proposal is open", "the oldest for 3 d", "+21.8 points since 26 Nov", "+27.3 points since 26 Nov", "team-payments", ">unowned<", "Wed 2 Dec")
	holds(t, h, "/scorecard?days=28", "since 23 November, the first day that is recorded,")
	holds(t, h, "/scorecard?days=1", "since midnight UTC", "9,050 requests")
	one := holds(t, h, "/scorecard?owner=team-payments", "86 %", "its services", "/services?owner=team-payments")
	if strings.Contains(one, "of 22 limits") {
		t.Error("an owner's page shows the fleet's")
	}
	holds(t, h, "/scorecard?owner=unowned", "100 %")
	for target, want := range map[string]int{"/scorecard?days=3": 400, "/scorecard?owner=nobody": 404, "/scorecard?sort=x": 400} {
		if w := get(h, target); w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
	holds(t, h, "/", "/scorecard")
}

func TestScorecardIsDataToo(t *testing.T) {
	h := newFixture(t).handler(t)
	var got struct {
		Owners []struct {
			Owner string
			Drops float64
		}
		Total map[string]any
		ByDay []struct{ Day string } `json:"by_day"`
	}
	if err := json.Unmarshal(get(h, "/scorecard.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var owners []string
	for _, o := range got.Owners {
		owners = append(owners, o.Owner)
	}
	// The least share of traffic with a limit first, an unknown one last.
	if want := []string{"team-payments", "unowned", hostile[0]}; !reflect.DeepEqual(owners, want) || got.Owners[0].Drops != 420 {
		t.Errorf("owners %q, want %q; drops %v", owners, want, got.Owners)
	}
	if len(got.ByDay) != 7 || got.ByDay[6].Day != "2026-12-02" || got.Total["fitting_share"] != 17./22 || got.Total["drops"] != 420. {
		t.Errorf("days %v, total %v", got.ByDay, got.Total)
	}
	for target, want := range map[string]int{"/scorecard.csv?sort=owner": 4, "/scorecard.csv?by=day&days=28": 11} {
		rows, err := csv.NewReader(get(h, target).Body).ReadAll()
		if err != nil || len(rows) != want {
			t.Errorf("%s: %d rows, want %d (%v)", target, len(rows), want, err)
		}
	}
}

func TestScorecardWithoutAScoreSaysWhy(t *testing.T) {
	f := newFixture(t)
	for i := range 10 {
		if err := f.db.SaveScores(context.Background(), now.Truncate(24*time.Hour).AddDate(0, 0, -i), nil); err != nil {
			t.Fatal(err)
		}
	}
	h := f.handler(t)
	holds(t, h, "/scorecard", "No score yet", "within seconds of the first run")
	if w := get(h, "/scorecard.json"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"total":null`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
