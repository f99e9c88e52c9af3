package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// A draft may name where questions go, so planning one is for who may act on the
// service; every error of it is told.
func TestADraftIsPlannedForWhoMayActOnItsService(t *testing.T) {
	f := newFixture(t)
	h := company(t, f, nil)
	plan := func(body string, who func(*http.Request)) (int, string) {
		w := request(h, "POST", "/api/v1/plan", body, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			who(r)
		})
		return w.Code, w.Body.String()
	}
	draft := `{"service":"checkout","policy":"a draft"}`
	for _, c := range []struct {
		body string
		who  func(*http.Request)
		code int
	}{
		{draft, as("rae", "team-search"), 403},
		{`{"service":"checkout"}`, as("rae", "team-search"), 200}, // no draft: it only computes
		{draft, as("ana", "team-payments"), 200},
		{`{"policy":"a draft"}`, as("ada", "admins"), 400},
	} {
		if code, body := plan(c.body, c.who); code != c.code {
			t.Errorf("%s: %d, want %d: %s", c.body, code, c.code, body)
		}
	}
	if want := []string{"plan a draft of checkout by ana: a draft"}; !slices.Equal(f.done(), want) {
		t.Errorf("done %q, want %q", f.done(), want)
	}
	if code, body := plan(`{"service":"checkout","policy":"broken"}`, as("ana", "team-payments")); code != 400 || !strings.Contains(body, "policy.yaml:1:1: one") || !strings.Contains(body, "policy.yaml:2:1: two") {
		t.Errorf("errors of a draft: %d %s", code, body)
	}
	if w := post(f.handler(t), "/api/v1/plan", draft, nil); w.Code != http.StatusUnauthorized {
		t.Errorf("a viewer on this machine: %d", w.Code)
	}
	holds(t, f.handler(t), "/services/checkout/policy", "<code>rlc plan --service checkout --policy services/checkout/policy.yaml</code>")
}
