package web_test

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
)

func TestEveryTableOfAQuotasPageIsASheet(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	const page = "/services/checkout/buckets/mobile-create"
	holds(t, h, page+"?stat=p99&headroom=0.2", `href="`+page+`.csv"`, `href="`+page+`.csv?table=episodes"`, `href="`+page+`.csv?table=history"`)
	for table, want := range map[string]struct{ head, first string }{
		"":                {"service,bucket,key,day", "checkout,mobile-create,,2026-11-04"},
		"?table=episodes": {"bucket,key,from,until,peak,limit", "mobile-create,,2026-12-01T13:36:00Z"},
		"?table=history":  {"at,old_rate,new_rate", "2026-12-02T06:00:00Z,1900,3000"},
	} {
		rows, err := csv.NewReader(get(h, page+".csv"+table).Body).ReadAll()
		if err != nil || len(rows) < 3 || !strings.HasPrefix(strings.Join(rows[0], ","), want.head) || !strings.HasPrefix(strings.Join(rows[1], ","), want.first) {
			t.Errorf("%s: %v %q", table, err, rows[:min(len(rows), 2)])
		}
	}
	if w := get(h, page+".csv?table=other"); w.Code < 400 {
		t.Errorf("a table that there is not: %d", w.Code)
	}
}

func TestAFirstLimitOfTwoDaysIsARange(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	holds(t, h, "/services/checkout", `<span class="prop">64.9–121</span> <span class="sub under"> low confidence</span>`, "first proposal", "no peak known")
	holds(t, h, "/services/checkout/buckets/callers?key=caller%3Drecommendations", "A first limit of <b>64.9–121 req/s</b>", "Low confidence: 2.1 days were seen", "<dd>64.9–121 ")
}

func TestTheOverrideOfAQuotaStandsBesideItsThreeTruths(t *testing.T) {
	f := newFixture(t)
	const key = "/services/checkout/buckets/callers?key=caller%3Dbatch-reports"
	holds(t, f.handler(t), key, "<dt>Override</dt>", "none stands; the limits hold as they are", `href="/emergency?service=checkout&amp;caller=batch-reports"`)
	f.overrides = []rlc.Override{override("o1", nil)}
	holds(t, f.handler(t), key, `class="m-flag" width="400"`, "18:42 left, by ana: ", "INC-944 runaway export</a>")
}
