package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

// The enforcers of mobile-create have counted seconds for ten days, those of its
// callers nobody has.
func TestAWhatIfSaysWhetherTheBurstHeldAndWhichOneWould(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	history, err := f.Stored(t.Context(), "checkout", "mobile-create", nil, runAt.AddDate(0, 0, -28), runAt)
	if err != nil {
		t.Fatal(err)
	}
	choice := backtest.Choice{Stat: "max", Headroom: 0.1, Floor: 1, Seconds: 0.01}
	value, _, _ := backtest.Statistic(history, choice)
	limit := choice.Limit(value)
	suggested, _, ok := choice.Suggestion(history, limit.Rate)
	want := backtest.FromHistory(history, limit).Bursts
	if want == nil || want.Over == 0 || !ok {
		t.Fatalf("the fixture has no second to tell of: %+v, %d", want, suggested)
	}
	got := asked(t, h, "/api/v1/backtest", `{"service":"checkout","bucket":"mobile-create","stat":"max","headroom":0.1,"floor":1,"burst_seconds":0.01}`)
	seen, _ := got["bursts"].(map[string]any)
	if seen["hours_over"] != float64(want.Over) || seen["hours"] != float64(want.Hours) || seen["holds"] != float64(want.Holds) || got["burst_suggested"] != float64(suggested) {
		t.Errorf("bursts %v, suggested %v; want %+v and %d", seen, got["burst_suggested"], *want, suggested)
	}
	const page = "/services/checkout/buckets/mobile-create/whatif?stat=max&headroom=0.1&floor=1&window=28d&burst="
	short := holds(t, h, page+"0.01", fmt.Sprintf("would not have held the highest second of %d of %d hours", want.Over, want.Hours), "Suggested is a burst of ", "peaks below 60 s are not visible")
	lacks(t, short, "Peaks below 60 s")
	holds(t, h, page+"20", "The burst would have held every second that enforcers counted")
	nobody := holds(t, h, "/services/checkout/buckets/callers/whatif?key=caller%3Dgeo", "Peaks below 60 s are not visible.")
	lacks(t, nobody, "Suggested is a burst")
	if got := asked(t, h, "/api/v1/backtest", `{"service":"checkout","bucket":"callers","key":{"caller":"geo"},"rate":10}`); got["bursts"] != nil {
		t.Errorf("nobody counted, and yet %v", got["bursts"])
	}
}

// Scenario 19: minutes alone, and then an enforcer that counts.
func TestPagesNameTheBlindSpotUntilEnforcersCountSeconds(t *testing.T) {
	f := newFixture(t)
	const shadow, quota = "/services/checkout/shadow", "/services/checkout/buckets/callers?key=caller%3Dgeo"
	for _, page := range []string{shadow, quota} {
		holds(t, f.handler(t), page, "Peaks below 60 s are not visible.")
	}
	changes, err := f.db.LatestChanges(t.Context(), "checkout")
	if err != nil {
		t.Fatal(err)
	}
	for i := range changes {
		changes[i].RunID = "counted"
		for _, b := range []*rlc.Backtest{changes[i].Backtest.Old, changes[i].Backtest.New} {
			if b != nil {
				b.Bursts = &rlc.Bursts{Hours: 672, Highest: rlc.Peak{Rate: 12, At: runAt.AddDate(0, 0, -3)}, Holds: 1}
			}
		}
	}
	f.run(t, rlc.Run{ID: "counted", Trigger: rlc.ByPerson, Service: "checkout", Now: runAt, Commit: f.commit.Hash, Stage: rlc.Finished, Result: rlc.ResultOK, Started: runAt.Add(time.Second), Finished: runAt.Add(time.Minute), Total: len(changes)}, changes, nil)
	lacks(t, holds(t, f.handler(t), shadow, "would have held every second that enforcers counted"), "Peaks below 60 s")
	holds(t, f.handler(t), quota, "The burst would have held every second that enforcers counted, at most 12/s.")
}

func lacks(t *testing.T, page, text string) {
	t.Helper()
	if strings.Contains(page, text) {
		t.Errorf("the page says %q", text)
	}
}

// Hours and windows of a rate are replayed as quotas.yaml would have them, and
// refused where it could not hold them.
func TestABacktestTakesHoursAndWindows(t *testing.T) {
	h := newFixture(t).handler(t)
	const ask = `{"service":"checkout","bucket":"mobile-create","rate":5000,"burst":10000,"from":"2026-12-01T06:00:00Z","until":"2026-12-02T06:00:00Z"`
	drops := func(rest string) float64 {
		n, _ := asked(t, h, "/api/v1/backtest", ask+rest+"}")["drops"].(float64)
		return n
	}
	flat := drops("")
	hours, window := drops(`,"hours":{"from":"2026-12-01T00:00:00Z","rates":[1]}`), drops(`,"windows":[{"from":"2026-12-01T12:00:00Z","until":"2026-12-01T12:30:00Z","rate":1,"burst":1}],"hours":null`)
	if flat != 0 || hours <= 0 || window <= 0 || hours == window {
		t.Errorf("dropped %g, with an hour at 1/s %g, with a window %g", flat, hours, window)
	}
	for _, wrong := range []string{`,"hours":{"from":"2026-12-01T00:30:00Z","rates":[1]}`, `,"windows":[{"from":"2026-12-01T12:00:00Z","until":"2026-12-01T12:00:00Z","rate":1,"burst":1}]`} {
		if w := request(h, "POST", "/api/v1/backtest", ask+wrong+"}", func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }); w.Code != http.StatusUnprocessableEntity && w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, w.Code, w.Body)
		}
	}
}
