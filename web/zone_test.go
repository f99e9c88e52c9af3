package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// A link that asks for times in UTC shows them so, however the zone is written
// and whatever the reader's cookie says; one that asks for no zone says so.
func TestTheZoneOfALinkIsKept(t *testing.T) {
	h := newFixture(t).handler(t)
	for tz, want := range map[string]string{"utc": "06:00", "UTC": "06:00", "europe/paris": "07:00", "America/New_York": "01:00"} {
		w := request(h, "GET", "/runs?tz="+tz, "", inParis)
		if !strings.Contains(w.Body.String(), "2 Dec "+want+"</time>") {
			t.Errorf("?tz=%s does not show the last run at %s", tz, want)
		}
		if strings.Contains(w.Body.String(), "There is no time zone") {
			t.Errorf("?tz=%s is not known", tz)
		}
	}
	w := request(h, "GET", "/runs?tz=Mars", "", inParis)
	if page := w.Body.String(); !strings.Contains(page, "There is no time zone Mars.") || !strings.Contains(page, "Times are in Paris") || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("?tz=Mars: %s, cookie %q", page[:min(len(page), 300)], w.Header().Get("Set-Cookie"))
	}
}

func inParis(r *http.Request) { r.AddCookie(&http.Cookie{Name: "tz", Value: "Europe%2FParis"}) }
