package web_test

import (
	"math"
	"net/http"
	"strings"
	"testing"
)

// The service's callers meet their quotas together; what each offers is what
// its history holds of the window.
func TestAReplayNamesWhoWouldHaveBeenRefused(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	out := asked(t, h, "/api/v1/replay", `{"service":"checkout","from":"2026-11-05T00:00:00Z","until":"2026-12-02T06:00:00Z"}`)
	callers := map[string]map[string]any{}
	for _, c := range out["callers"].([]any) {
		c := c.(map[string]any)
		key, _ := c["key"].(map[string]any)["caller"].(string)
		callers[c["bucket"].(string)+"/"+key] = c
	}
	storm := callers["mobile-create/"]
	if storm == nil || storm["refused"].(float64) == 0 || storm["first"] == nil || callers["callers/geo"]["refused"].(float64) != 0 || out["capacity"] != 12000.0 {
		t.Fatalf("mobile-create: %v, geo: %v, capacity %v", storm, callers["callers/geo"], out["capacity"])
	}
	if sum := storm["by_quota"].(float64) + storm["by_caps"].(float64); math.Abs(sum-storm["refused"].(float64)) > 1 {
		t.Errorf("by quota and caps %g, refused %v", sum, storm["refused"])
	}
}

func TestOtherQuotasCanBeReplayed(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	out := asked(t, h, "/api/v1/replay", `{"service":"search","from":"2026-12-01T06:00:00Z","until":"2026-12-02T06:00:00Z","quotas":[{"bucket":"callers","key":{"caller":"web"},"rate":1,"burst":1}]}`)
	first := out["callers"].([]any)[0].(map[string]any)
	offered := first["offered"].(float64)
	// One a second for a day and the burst of one pass.
	if passed := offered - first["refused"].(float64); first["key"].(map[string]any)["caller"] != "web" || math.Abs(passed-86401) > 1 {
		t.Errorf("%v: %g of %g pass, want 86,401", first["key"], passed, offered)
	}
}

func TestAReplayOfNothingSaysWhy(t *testing.T) {
	h := newFixture(t).handler(t)
	for path, want := range map[string]int{
		"/services/checkout/replay":                           http.StatusOK,
		"/services/checkout/replay.json":                      http.StatusOK,
		"/services/checkout/replay.csv":                       http.StatusOK,
		"/services/checkout/replay?from=yesterday":            http.StatusBadRequest,
		"/services/checkout/replay?from=2026-01-01T00:00:00Z": http.StatusBadRequest,
		"/services/nothing/replay":                            http.StatusNotFound,
		"/services/pricing/replay":                            http.StatusOK,
	} {
		if w := get(h, path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	if page := get(h, "/services/pricing/replay").Body.String(); !strings.Contains(page, "Nothing can be replayed") {
		t.Error("an empty replay gives no reason")
	}
}
