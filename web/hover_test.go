package web_test

import (
	"regexp"
	"strings"
	"testing"
)

// An instant in a table, a tile or a verdict says in full when it was, in the zone
// of the page and in UTC, where it is pointed at.
func TestInstantsAreGivenInFull(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, c := range [...]struct{ target, part string }{
		{"/services/checkout/buckets/mobile-create?tz=Europe/Paris", "; the worst step was <time datetime=\"2026-11-24T20:02:00Z\" title=\"Tue 2026-11-24 21:02:00 CET = 2026-11-24 20:02:00 UTC\">24 Nov 21:02</time> at 5,600 req/s"},
		{"/callers/search?tz=Europe/Paris", "<time datetime=\"2026-11-04T12:21:00Z\" title=\"Wed 2026-11-04 13:21:00 CET = 2026-11-04 12:21:00 UTC\">4 Nov 13:21</time>, 25 episodes"},
		{"/why?service=checkout&caller=search&tz=Europe/Paris", "<dd><time datetime=\"2026-11-04T12:21:00Z\" title=\"Wed 2026-11-04 13:21:00 CET = 2026-11-04 12:21:00 UTC\">4 Nov 13:21</time>"},
	} {
		page := strings.Join(strings.Fields(strings.ReplaceAll(get(h, c.target).Body.String(), "\u00a0", " ")), " ")
		page = strings.ReplaceAll(page, "</time> , ", "</time>, ")
		if !strings.Contains(page, c.part) {
			t.Errorf("%s lacks %s", c.target, c.part)
		}
	}
	marks := regexp.MustCompile(`(?s)<caption class="vh">What the chart marks.*?</table>`).FindString(get(h, "/services/checkout/buckets/mobile-create").Body.String())
	if rows, full := strings.Count(marks, "<tr")-1, strings.Count(marks, `UTC">`); rows < 2 || full != rows {
		t.Errorf("%d of %d marks say when in full", full, rows)
	}
}
