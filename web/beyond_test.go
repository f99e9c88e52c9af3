package web_test

import (
	"strings"
	"testing"
)

func TestAPageBeyondTheEndOfAListIsNotThere(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, path := range []string{"/services", "/services/checkout", "/proposals", "/runs", "/services/checkout/shadow"} {
		if w := get(h, path+"?page=1"); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
		w := get(h, path+"?page=99")
		if text := w.Body.String(); w.Code != 404 || !strings.Contains(text, "There is no page 99 of this list; it has 1 page.") {
			t.Errorf("%s?page=99: %d\n%s", path, w.Code, text)
		}
	}
}
