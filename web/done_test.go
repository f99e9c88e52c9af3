package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// An act's outcome is told to who comes from a page of this server, not to who was
// sent an address that claims one.
func TestAnAddressThatSomebodyWasSentTellsOfNoAct(t *testing.T) {
	h := newFixture(t).handler(t)
	for from, want := range map[string]bool{"": true, "same-origin": true, "none": false, "cross-site": false, "same-site": false} {
		page := request(h, "GET", "/proposals?done=accepted", "", func(r *http.Request) {
			if from != "" {
				r.Header.Set("Sec-Fetch-Site", from)
			}
		}).Body.String()
		if got := strings.Contains(page, "Accepted. It is on the base branch"); got != want {
			t.Errorf("from %q: told %v, want %v", from, got, want)
		}
	}
}
