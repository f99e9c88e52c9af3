package web_test

import (
	"strings"
	"testing"
)

// What rlc explain prints says what is in force now before it says which run
// computed what: a quota may have been accepted since.
func TestAnExplanationSaysWhatIsInForceAndWhichRunItIsOf(t *testing.T) {
	h := newFixture(t).handler(t)
	text := func(path string) string {
		t.Helper()
		e := body(t, get(h, path), 200)["explanation"].(map[string]any)
		if e["verdict"] == "" {
			t.Errorf("%s has no verdict", path)
		}
		return e["text"].(string)
	}
	for path, want := range map[string]string{
		"/api/v1/services/checkout/buckets/callers?key=caller%3Dgeo":             "In force now: 320/s, burst 640, in shadow.\nRun cron-2026-12-02T060000Z of 2026-12-02 06:00 UTC: ",
		"/api/v1/services/checkout/buckets/callers?key=caller%3Drecommendations": "In force now: no quota.\nRun cron-2026-12-02T060000Z of 2026-12-02 06:00 UTC: ",
		"/api/v1/services/checkout/buckets/health":                               "In force now: 50/s, burst 100, in shadow.\nA person wrote it, in line 15 of services/checkout/policy.yaml: no run computes it.\n",
	} {
		if got := text(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q…", path, got, want)
		}
	}
}
