package web_test

import (
	"regexp"
	"testing"
)

var asset = regexp.MustCompile(`(?:src|href)="(/static/[^"]+)"`)

// A page with everything that it loads is at most 150 kB on the wire: markup,
// styles, scripts and the typeface, as they are sent to a browser.
func TestPagesAreLightWithEverythingTheyLoad(t *testing.T) {
	h := newFixture(t).handler(t)
	sizes := map[string]int{}
	most, at := 0, ""
	for name, path := range pagePaths() {
		sum := weigh(h, path, sizes)
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
