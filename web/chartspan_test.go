package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// The address chooses the part of a chart; a part that means nothing is
// refused, one outside of the history shows all of it. The fixture ends at 6:00:
// 1796191200 - 7 × 86400 = 1795586400.
func TestTheAddressChoosesThePartOfAChart(t *testing.T) {
	h := newFixture(t).handler(t)
	for query, want := range map[string]struct {
		status int
		view   string
	}{
		"":                                     {http.StatusOK, `"view":null`},
		"?from=now-7d&to=now":                  {http.StatusOK, `"view":{"from":1795586400,`},
		"?from=now-7d":                         {http.StatusOK, `"view":{"from":1795586400,`},
		"?from=1999-01-01T00:00:00Z":           {http.StatusOK, `"view":null`},
		"?to=1999-01-01T00:00:00Z":             {http.StatusBadRequest, ""},
		"?from=yesterday":                      {http.StatusBadRequest, ""},
		"?from=now-0d":                         {http.StatusBadRequest, ""},
		"?from=now-9999999999999d":             {http.StatusBadRequest, ""},
		"?from=now&to=now":                     {http.StatusBadRequest, ""},
		"?from=now-7x":                         {http.StatusBadRequest, ""},
		"?from=now-5dh":                        {http.StatusBadRequest, ""},
		"?from=now-5hh":                        {http.StatusBadRequest, ""},
		"?from=now-":                           {http.StatusBadRequest, ""},
		"?from=%3Cscript%3Ealert(1)%3C/script": {http.StatusBadRequest, ""},
	} {
		w := get(h, pages["bucket"]+query)
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.view) {
			i := strings.Index(w.Body.String(), `"view":`)
			t.Errorf("%s: %d, %s, want %+v", query, w.Code, w.Body.String()[max(i, 0):min(max(i, 0)+60, w.Body.Len())], want)
		}
	}
}
