package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/openrlc/rlc/web"
)

// What people put into an address by mistake is on no page that it leads to,
// nor where that sends them.
func TestNoPageRepeatsASecretOfItsAddress(t *testing.T) {
	const secret = "hunter2hunter2"
	h := newFixture(t).handler(t)
	nested := url.QueryEscape("/why?service=checkout&Access_Token=" + secret)
	query := "?service=checkout&caller=search&q=a&token=" + secret + "&ACCESS_TOKEN=" + secret + "&password=" + secret + "&Secret=" + secret + "&%74oken=" + secret + "&x;token=" + secret + "&next=" + nested + "&back=" + nested
	stranger := func(r *http.Request) { r.RemoteAddr = "192.0.2.7:4000" }
	pages := 0
	for _, route := range web.Routes() {
		if route.Method != "GET" {
			continue
		}
		for _, who := range []func(*http.Request){nil, stranger, bearer} {
			w := request(h, "GET", filled(route.Path)+query, "", who)
			pages++
			if strings.Contains(w.Body.String(), secret) || strings.Contains(w.Header().Get("Location"), secret) {
				t.Errorf("GET %s repeats the secret: status %d, location %q", route.Path, w.Code, w.Header().Get("Location"))
			}
		}
	}
	if pages < 100 {
		t.Errorf("%d pages were looked at", pages)
	}
	w := request(h, "POST", "/runs?token="+secret, "", func(r *http.Request) {
		stranger(r)
		r.Header.Set("Referer", "http://127.0.0.1:8080/services?sort=name&token="+secret)
	})
	if page := w.Body.String(); w.Code != http.StatusUnauthorized || strings.Contains(page, secret) || !strings.Contains(page, "/login?next=%2Fservices%3Fsort%3Dname") {
		t.Errorf("a refused form: %d %s", w.Code, page)
	}
	// What is no secret stays as it was.
	if page := get(h, "/services?q=why%3F&sort=name&token="+secret).Body.String(); !strings.Contains(page, "q=why%3F") || !strings.Contains(page, "sort=name") {
		t.Error("the other parameters are gone")
	}
	if body := get(h, "/api/v1/why?service=checkout&caller=search&api_key=k-1").Body.String(); !strings.Contains(body, "k-1") {
		t.Errorf("an attribute of the request in question is gone: %s", body)
	}
}
