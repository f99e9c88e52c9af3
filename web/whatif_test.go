package web_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/web"
)

func asked(t *testing.T, h http.Handler, path, body string) map[string]any {
	t.Helper()
	w := request(h, "POST", path, body, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
	if w.Code != http.StatusOK {
		t.Fatalf("POST %s %s: %d %s", path, body, w.Code, w.Body)
	}
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The page, the API and the arithmetic give one answer to one question.
func TestAWhatIfOnThePageIsTheAPIsAnswer(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	history := f.history["checkout|mobile-create"]
	choice := backtest.Choice{Stat: "p99", Headroom: 0.1, Floor: 1, Seconds: 2}
	value, _, _ := backtest.Statistic(history, choice)
	limit := choice.Limit(value)
	want := backtest.FromHistory(history, limit)
	if want.Drops == 0 {
		t.Fatal("the fixture has no drops to tell apart")
	}
	got := asked(t, h, "/api/v1/backtest", `{"service":"checkout","bucket":"mobile-create","stat":"p99","headroom":0.1,"floor":1}`)
	if got["drops"] != want.Drops || got["limit"].(map[string]any)["rate"] != float64(limit.Rate) || len(got["frontier"].([]any)) != 31 {
		t.Errorf("drops %v at %v, want %g at %g", got["drops"], got["limit"], want.Drops, float64(limit.Rate))
	}
	page := get(h, "/services/checkout/buckets/mobile-create?stat=p99&headroom=0.1&floor=1&burst=2&window=28d").Body.String()
	for _, text := range []string{web.Rate(float64(limit.Rate)) + " req/s</b>", `value="0.1"`, `<option value="p99" selected>`, "One choice changed", `class="frontier"`} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

func TestWhatIsTickedIsLeftOut(t *testing.T) {
	h := newFixture(t).handler(t)
	limit := func(query string) float64 {
		var out struct {
			Limit struct{ Rate float64 }
		}
		exclude := ""
		if query != "" {
			exclude = `,"exclude":[` + query + `]`
		}
		b, _ := json.Marshal(asked(t, h, "/api/v1/backtest", `{"service":"checkout","bucket":"mobile-create","stat":"max","headroom":0`+exclude+`}`))
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		return out.Limit.Rate
	}
	// The storm is 3.2 × the daily peak of 1,750.
	if with, without := limit(""), limit(`{"from":"2026-11-24T20:00:00Z","until":"2026-11-24T20:40:00Z"}`); with != 5600 || without >= with {
		t.Errorf("the limit is %g with the storm and %g without", with, without)
	}
}

func TestAWhatIfThatCannotBeAskedIsRefused(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, q := range []string{"stat=p50", "stat=max&headroom=x", "stat=max&headroom=NaN", "stat=max&headroom=-1", "stat=max&window=1h", "stat=max&floor=1e300", "stat=max&exclude=yesterday", "stat=max&exclude=2026-11-24T20:00:00Z/2026-11-23T20:00:00Z"} {
		if w := get(h, "/services/checkout/buckets/mobile-create?"+q); w.Code != http.StatusBadRequest {
			t.Errorf("?%s: %d", q, w.Code)
		}
	}
	if w := get(h, "/services/checkout/whatif?window=3d"); w.Code != http.StatusBadRequest {
		t.Errorf("an unprepared window: %d", w.Code)
	}
}

func TestAServicesWhatIfAddsUpItsKeys(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	var out struct {
		Quotas   int
		Drops    float64
		Limits   float64 `json:"limits_rate"`
		Frontier []backtest.Point
	}
	if err := json.Unmarshal(get(h, "/services/search/whatif.json?stat=p99&headroom=0.3").Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	choice := backtest.Choice{Stat: "p99", Headroom: 0.3, Floor: 1}
	var sum, drops float64
	for _, key := range []string{"web", "mobile"} {
		history := f.history["search|callers/caller="+key]
		value, _, ok := backtest.Statistic(history, choice)
		if !ok {
			t.Fatalf("no history of %s in %v", key, len(f.history))
		}
		l := choice.Limit(value)
		above, _ := backtest.NewFrontier(history).Above(l.Rate)
		sum, drops = sum+float64(l.Rate), drops+above
	}
	if out.Quotas != 2 || out.Limits != sum || out.Drops != drops || len(out.Frontier) != 31 {
		t.Errorf("%d quotas, limits %g, drops %g, want 2, %g, %g", out.Quotas, out.Limits, out.Drops, sum, drops)
	}
	for _, ending := range []string{"", ".csv"} {
		if w := get(h, "/services/"+url.PathEscape(hostileService)+"/whatif"+ending); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "<script>alert") {
			t.Errorf("whatif%s of the hostile service: %d", ending, w.Code)
		}
	}
}
