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

// A score that was counted before the first run is no word that no run has read traffic.
func TestCoverageThatWasCountedTooEarlyDoesNotDenyTheRun(t *testing.T) {
	f := newFixture(t)
	today := now.Truncate(24 * time.Hour)
	if err := f.db.SaveScores(t.Context(), today, []rlc.Score{{Fleet: true, Services: 3, At: now}}); err != nil {
		t.Fatal(err)
	}
	const never = "no run has read traffic yet"
	if page := holds(t, f.handler(t), "/", "is not known: no traffic had been read when it was last counted"); strings.Contains(page, never) {
		t.Error("a page that names the last run says that there was none")
	}
}

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
		team.Spread, fleet.Spread = make([]int, 37), make([]int, 37)
		team.Spread[9], team.Spread[12], team.Spread[36] = 4+i, 2, 14-i // 1.3–1.4, 1.6–1.7, 4 and more
		fleet.Spread[5], fleet.Spread[7], fleet.Spread[9], fleet.Spread[12], fleet.Spread[36] = 1, 1, 6+i, 2, 12-i
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

// Of 22 limits one lies below its peak, one between it and 1.3 times, 17 fit and 3
// lie above: the sixth and the seventeenth are in the class from 1.3 to 1.4.
func TestLimitsAreShownByTheirMultipleOfThePeak(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, path := range []string{"/", "/scorecard"} {
		page := holds(t, h, path, "<b>17</b> of 22 limits with a known peak that counts lie at 1.3 to 3 times of it; <b>2</b> below, where ordinary growth is dropped (1 of them <a href=\"/services?sort=headroom\">below the peak itself</a>); <b>3</b> above, where a limit protects little.",
			"Half of them lie between 1.3 and 1.4 times.", "Data table: limits by multiple", "1.3–1.4×", "4× and more", "fits: 1.3–3×", "/scorecard.csv?by=multiple&amp;days=")
		// Two drawings, a bar for each class with a limit, two of them below the band.
		if tight, rest := strings.Count(page, `class="m-tight"`), strings.Count(page, `class="m-fleet"`); tight != 4 || rest != 6 {
			t.Errorf("%s draws %d and %d bars, want 4 and 6", path, tight, rest)
		}
	}
	holds(t, h, "/scorecard?owner=team-payments", "<b>15</b> of 20 limits", "owner=team-payments")
	lacks(t, get(h, "/scorecard?owner=unowned").Body.String(), "limits by multiple")
	var got struct {
		Total struct {
			Multiples []struct {
				From, To *float64
				Limits   int
				Fits     bool
			}
		}
	}
	if err := json.Unmarshal(get(h, "/scorecard.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	all := got.Total.Multiples
	if len(all) != 37 || all[0].From != nil || all[36].To != nil || *all[36].From != 4 || all[36].Limits != 3 || *all[9].From != 1.3 || !all[9].Fits || all[9].Limits != 15 || all[8].Fits || all[26].Fits || !all[25].Fits {
		t.Errorf("multiples %+v", all)
	}
	rows, err := csv.NewReader(get(h, "/scorecard.csv?by=multiple").Body).ReadAll()
	if err != nil || len(rows) != 38 || !reflect.DeepEqual(rows[10], []string{"1.3", "1.4", "15", "true"}) || rows[1][0] != "" || rows[37][1] != "" {
		t.Errorf("%v, %v", rows, err)
	}
	if w := get(h, "/scorecard.csv?by=x"); w.Code != http.StatusBadRequest {
		t.Errorf("an unknown table: %d", w.Code)
	}
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
