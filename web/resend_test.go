package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/openrlc/rlc/web"
)

// A form that is sent when the session has ended, or while the server cannot say who it
// is, comes back whole, ready to be sent again; one from another site does not.
func TestAFormThatIsSentAfterTheSessionEndedIsKept(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	const reason = `INC-7 "a long <b>story</b>" & more`
	form := url.Values{"service": {"checkout"}, "caller": {"search"}, "action": {"limit"}, "rate": {"100"}, "ttl": {"30m"}, "reason": {reason}}
	from := func(site string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", site)
			r.AddCookie(&http.Cookie{Name: "rlc_session", Value: strings.Repeat("A", 26)})
		}
	}
	w := request(h, "POST", "/emergency", form.Encode(), from("same-origin"))
	page := w.Body.String()
	if w.Code != 401 || !strings.Contains(page, "What you typed is kept on this page") || !strings.Contains(page, `target="_blank"`) {
		t.Fatalf("%d %s", w.Code, page)
	}
	kept := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		kept.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	if kept.Encode() != form.Encode() {
		t.Errorf("kept %q, want %q", kept, form)
	}
	if w := request(h, "POST", "/emergency", form.Encode(), from("cross-site")); strings.Contains(w.Body.String(), "INC-7") {
		t.Errorf("a form of another site is kept: %s", w.Body)
	}
	cookie := signIn(t, h, nil)
	if w := request(h, "POST", "/emergency", kept.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.AddCookie(cookie)
	}); w.Code != 303 || !strings.Contains(strings.Join(f.done(), "\n"), reason) {
		t.Errorf("sent again: %d %q", w.Code, f.done())
	}
	c := f.config()
	c.Identities = away{f.db}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if w := request(h, "POST", "/emergency", form.Encode(), from("same-origin")); w.Code != 503 || !strings.Contains(w.Body.String(), "What you typed is kept on this page") {
		t.Errorf("with the records away: %d %s", w.Code, w.Body)
	}
}
