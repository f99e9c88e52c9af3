package web_test

import (
	"net/http"
	"regexp"
	"testing"
)

var asset = regexp.MustCompile(`(?:src|href)="(/static/[^"]+)"`)

// A page with everything that it loads is at most 150 kB on the wire: markup,
// styles, scripts and the typeface, as they are sent to a browser.
func TestPagesAreLightWithEverythingTheyLoad(t *testing.T) {
	h := newFixture(t).handler(t)
	zipped := func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") }
	sizes := map[string]int{}
	most, at := 0, ""
	for name, path := range pagePaths() {
		sum := request(h, "GET", path, "", zipped).Body.Len()
		for _, m := range asset.FindAllStringSubmatch(get(h, path).Body.String(), -1) {
			if sizes[m[1]] == 0 {
				sizes[m[1]] = request(h, "GET", m[1], "", zipped).Body.Len()
			}
			sum += sizes[m[1]]
		}
		if sum > 150_000 {
			t.Errorf("%s weighs %d bytes", name, sum)
		}
		if sum > most {
			most, at = sum, name
		}
	}
	if most < 70_000 { // the typeface alone is 65 kB
		t.Errorf("the heaviest page weighs %d bytes: something was not counted", most)
	}
	t.Logf("the heaviest is %s with %d bytes", at, most)
}
