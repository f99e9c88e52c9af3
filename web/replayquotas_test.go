package web_test

import (
	"strings"
	"testing"
)

func TestAReplayRefusesQuotasThatItWouldNotCount(t *testing.T) {
	h := newFixture(t).handler(t)
	const web = `{"bucket":"callers","key":{"caller":"web"},"rate":1,"burst":1}`
	for quotas, want := range map[string]string{
		`{"bucket":"nosuch","rate":1,"burst":1}`:                                "search has no quota nosuch",
		web + `,{"bucket":"callers","key":{"caller":"wbe"},"rate":1,"burst":1}`: "search has no quota callers/caller=wbe",
		web + "," + web: "callers/caller=web is given twice",
		"":              "quotas is empty",
	} {
		out := body(t, post(h, "/api/v1/replay", `{"service":"search","from":"2026-12-01T06:00:00Z","until":"2026-12-02T06:00:00Z","quotas":[`+quotas+`]}`, nil), 400)
		if text, _ := out["detail"].(string); !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", quotas, text, want)
		}
	}
}

// A file of quotas may hold a caller that has sent nothing yet: who asks for it hears
// which, and the rest is replayed.
func TestAReplayNamesTheQuotasOfCallersWithoutTraffic(t *testing.T) {
	h := newFixture(t).handler(t)
	ask := func(quotas string, want int) map[string]any {
		return body(t, post(h, "/api/v1/replay", `{"service":"search","unseen":true,"from":"2026-12-01T06:00:00Z","until":"2026-12-02T06:00:00Z","quotas":[`+quotas+`]}`, nil), want)
	}
	const web = `{"bucket":"callers","key":{"caller":"web"},"rate":1,"burst":1}`
	alone := ask(web, 200)
	beside := ask(web+`,{"bucket":"callers","key":{"caller":"brand-new"},"rate":1,"burst":1}`, 200)
	if got, _ := beside["unseen"].([]any); len(got) != 1 || got[0] != "callers/caller=brand-new" || beside["refused"] != alone["refused"] || alone["refused"] == 0.0 {
		t.Errorf("unseen %v, refused %v; alone %v", beside["unseen"], beside["refused"], alone["refused"])
	}
	ask(`{"bucket":"nosuch","key":{"caller":"brand-new"},"rate":1,"burst":1}`, 400)
	ask(`{"bucket":"callers","key":{"procedure":"Pay"},"rate":1,"burst":1}`, 400)
}

// A quota's page and sheet read exclude without a stat as well: an hour that
// holds the storm lowers the limit, a word that is no window is refused, and
// windows that leave nothing are never a drop of 0.
func TestAWhatIfLeavesOutWhatIsAskedWithoutAStat(t *testing.T) {
	h := newFixture(t).handler(t)
	const (
		quota = "/services/checkout/buckets/mobile-create/whatif"
		storm = "exclude=2026-11-24T20:00:00Z/2026-11-24T21:00:00Z"
		all   = "exclude=2020-01-01T00:00:00Z/2030-01-01T00:00:00Z"
	)
	limit := func(ask string) float64 {
		return body(t, get(h, quota+".json"+ask), 200)["limit"].(map[string]any)["rate"].(float64)
	}
	if with, without := limit("?"+storm+"&headroom=0.3"), limit("?exclude=&headroom=0.3"); with >= without {
		t.Errorf("limit %g without the storm, %g with it", with, without)
	}
	if stat, none := limit("?stat=max&headroom=0.3&"+storm), limit("?headroom=0.3&"+storm); stat != none {
		t.Errorf("limit %g with a stat, %g without", stat, none)
	}
	for target, want := range map[string]int{
		quota + "?exclude=x":                                 400,
		quota + ".json?exclude=x&headroom=1":                 400,
		"/services/checkout/buckets/mobile-create?exclude=x": 400,
		quota + ".json?" + all:                               404,
		"/services/checkout/whatif.json?" + all:              404,
		"/services/checkout/whatif.csv?" + all:               404,
	} {
		if w := get(h, target); w.Code != want {
			t.Errorf("GET %s: %d, want %d", target, w.Code, want)
		}
	}
	holds(t, h, "/services/checkout/whatif?"+all, "Nothing is left to ask about")
	if w := post(h, "/api/v1/backtest", `{"service":"checkout","stat":"max","exclude":[{"from":"2020-01-01T00:00:00Z","until":"2030-01-01T00:00:00Z"}]}`, nil); w.Code != 404 {
		t.Errorf("a backtest of nothing: %d %s", w.Code, w.Body)
	}
}
