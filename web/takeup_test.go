package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// A what-if says how its number gets in force: into the open review of the quota, with
// the number filled in; or by the policy.
func TestAWhatIfSaysHowItsNumberGetsInForce(t *testing.T) {
	h := newFixture(t).handler(t)
	cookie := signIn(t, h, nil)
	for _, path := range []string{pages["bucket"] + "?headroom=0.2", pages["bucket"] + "/whatif?headroom=0.2"} {
		page := holds(t, h, path, "To put it in force, ", "into the review</a> that is open.")
		at := regexp.MustCompile(`href="(/proposals/[^"]+)">take ([0-9,.]+) into the review`).FindStringSubmatch(page)
		if at == nil {
			t.Fatalf("%s: no link", path)
		}
		u, err := url.Parse(html.UnescapeString(at[1]))
		if err != nil || u.Fragment != "edit" {
			t.Fatal(at[1], err)
		}
		q := u.Query()
		form := request(h, "GET", u.Path+"?"+u.RawQuery, "", func(r *http.Request) { r.AddCookie(cookie) }).Body.String()
		for _, want := range []string{`name="rate"`, `value="` + q.Get("rate") + `"`, `value="` + q.Get("burst") + `"`, "<b>" + at[2] + "\u00a0req/s</b>"} {
			if !strings.Contains(form, want) {
				t.Errorf("%s: the form does not say %s", at[1], want)
			}
		}
	}
	orders := "/services/checkout/buckets/callers?key=" + url.QueryEscape("caller=orders")
	holds(t, h, orders, "To put it in force, change what computes it, such as headroom, in", `<a href="/services/checkout/policy">the policy</a>`)
}
