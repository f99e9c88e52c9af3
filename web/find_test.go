package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/openrlc/rlc/web"
)

// A command leads to its page, as one of rlc that was copied from a shell does,
// and so does a name that only one thing has. None of them is an act.
func TestTheBoxLeadsToWhatWasTyped(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	for q, want := range map[string]string{
		"checkout":       "/services/checkout",
		"CHECKOUT":       "/services/checkout",
		"orders":         "/callers/orders",
		"mobile-create":  "/services/checkout/buckets/mobile-create",
		"emergency":      "/emergency",
		"overview":       "/",
		"ledger":         "/services/ledger/onboard",
		"caller search":  "/callers/search",
		"shadow geo":     "/services/geo/shadow",
		"why checkout":   "/why?service=checkout",
		"why checkout x": "/why?caller=x&service=checkout",
		"rlc why checkout --caller search --procedure=Create": "/why?caller=search&procedure=Create&service=checkout",
		"explain checkout callers caller=search":              "/services/checkout/buckets/callers?key=caller%3Dsearch",
		"throttle checkout search":                            "/emergency?caller=search&service=checkout",
		"shadow ../../x?y":                                    "/services/..%2F..%2Fx%3Fy/shadow",
		"cron-2026-12-02T060000Z":                             "/runs/cron-2026-12-02T060000Z",
		"cron-2026-12-02T060000Z-checkout":                    "/proposals/cron-2026-12-02T060000Z-checkout",
	} {
		w := get(h, "/find?q="+strings.ReplaceAll(strings.NewReplacer("=", "%3D", "&", "%26", "?", "%3F").Replace(q), " ", "+"))
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
			t.Errorf("%s leads to %d %s, want %s", q, w.Code, got, want)
		}
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("finding did %q", did)
	}
}

// A text that several things hold lists them by kind; one that none holds names
// what was meant.
func TestTheBoxListsWhatHoldsAText(t *testing.T) {
	h := newFixture(t).handler(t)
	want := "kind,name,url,detail\r\n" +
		"service,search,/services/search,team-discovery\r\n" +
		"caller,search,/callers/search,\"what limits it, and what was refused\"\r\n"
	if got := get(h, "/find.csv?q=search").Body.String(); got != want {
		t.Errorf("search finds\n%s\nwant\n%s", got, want)
	}
	page := get(h, "/find?q=search").Body.String()
	if !strings.Contains(page, `href="/services/search"`) || !strings.Contains(page, `href="/callers/search"`) || !strings.Contains(page, `value="search"`) {
		t.Error("the page lacks the two that are named search, or the text in its box")
	}
	if page := get(h, "/find?q=team-maps").Body.String(); !strings.Contains(page, `href="/services/geo"`) {
		t.Error("an owner does not lead to its service")
	}
	if page := get(h, "/find?q=chekout").Body.String(); !strings.Contains(page, "did you mean checkout?") {
		t.Error("a misspelt name is not told what was meant")
	}
}

// Where services are private, the box finds what its user may see, and no more.
func TestTheBoxFindsOnlyWhatOneMaySee(t *testing.T) {
	h := company(t, newFixture(t), func(c *web.Config) { c.Access.Private = true })
	ana := as("ana", "team-payments")
	if w := request(h, "GET", "/find?q=checkout", "", ana); w.Header().Get("Location") != "/services/checkout" {
		t.Errorf("an owner does not find its service: %d", w.Code)
	}
	for _, q := range []string{"geo", "media", "ledger", "cron-2026-12-02T060000Z"} {
		out := body(t, request(h, "GET", "/find.json?q="+q, "", ana), 200)
		for _, x := range out["hits"].([]any) {
			if kind := x.(map[string]any)["kind"]; kind != "caller" && kind != "page" && kind != "command" {
				t.Errorf("%s: somebody else's %v is found", q, x)
			}
		}
	}
}
