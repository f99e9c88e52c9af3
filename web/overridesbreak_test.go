package web_test

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestOnlyTheWordTruePreviewsAndNothingElseBecomesAnAct(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	in := `{"service":"checkout","action":"block","ttl_seconds":60,"reason":"x"}`
	for _, query := range []string{"preview=1", "preview=", "preview=True", "preview=true&preview=false", "preview=true;x", "preview=%zz", "Preview=true", "dry_run=true"} {
		if w := post(h, "/api/v1/overrides?"+query, in, bearer); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	for _, target := range []string{"/api/v1/overrides?all=1", "/emergency.csv?all=yes"} {
		if w := get(h, target); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("did %q", did)
	}
	body(t, post(h, "/api/v1/overrides?preview=false", in, bearer), 201)
}

func TestAPreviewRefusesWhatTheActWouldRefuse(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	for _, action := range []string{`"limit","rate":-5`, `"drop","drop_ratio":1.5`, `"drop","drop_ratio":-0.2`, `"nuke"`, `"block","rate":1`} {
		w := post(h, "/api/v1/overrides?preview=true", `{"service":"checkout","ttl_seconds":60,"reason":"x","action":`+action+`}`, bearer)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", action, w.Code, w.Body)
		}
	}
	for _, values := range []url.Values{{"action": {"limit"}, "rate": {"-5"}}, {"action": {"limit"}, "rate": {"NaN"}}, {"action": {"drop"}, "drop": {"150"}}, {"action": {"drop"}, "drop": {"-20"}}} {
		values.Set("service", "checkout")
		values.Set("ttl", "30m")
		values.Set("reason", "x")
		if w := get(h, "/emergency?"+values.Encode()); w.Code != http.StatusUnprocessableEntity || strings.Contains(w.Body.String(), "would drop") {
			t.Errorf("%v: %d", values, w.Code)
		}
	}
}

// A form says whom an override is for once: of two callers neither wins silently. The
// command of a name with a comma is for that name.
func TestAFormNamesEachAttributeOnce(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	form := url.Values{"service": {"checkout"}, "caller": {"search"}, "action": {"block"}, "ttl": {"30m"}, "reason": {"x"}}
	for _, also := range []string{"caller=geo", "tenant=a tenant=b"} {
		form.Set("also", also)
		if w := get(h, "/emergency?"+form.Encode()); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "is given twice") {
			t.Errorf("preview of %s: %d", also, w.Code)
		}
		if w := formed(h, "/emergency", form); w.Code < 400 {
			t.Errorf("%s: %d", also, w.Code)
		}
	}
	if did := f.done(); len(did) != 0 {
		t.Errorf("did %q", did)
	}
	form.Set("also", "")
	form.Set("caller", "search,geo")
	if w := get(h, "/emergency?"+form.Encode()); !strings.Contains(html.UnescapeString(w.Body.String()), "rlc throttle 'checkout' --caller 'search,geo' --block") {
		t.Errorf("the command is not for the caller search,geo: %d", w.Code)
	}
}

func TestWhatActsMustBeToldStandsInEveryAnswer(t *testing.T) {
	f := newFixture(t)
	f.trouble = "it is in force and not written down"
	h := f.handler(t)
	in := `{"service":"checkout","action":"block","ttl_seconds":60,"reason":"x"}`
	for _, out := range []map[string]any{
		body(t, post(h, "/api/v1/overrides", in, bearer), 201),
		body(t, post(h, "/api/v1/overrides/override-new/extend", `{"by_seconds":600}`, bearer), 200),
		body(t, request(h, "DELETE", "/api/v1/overrides/override-new", "", bearer), 200),
		body(t, post(h, "/api/v1/switches/all-to-shadow", `{"on":false,"reason":"calm"}`, bearer), 200),
	} {
		if text, _ := out["warning"].(string); !strings.Contains(text, f.trouble) {
			t.Errorf("answer %v", out)
		}
	}
}
