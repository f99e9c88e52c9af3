package web_test

import (
	"encoding/csv"
	"encoding/json"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var csvLink = regexp.MustCompile(`href="([^"]*\.csv[^"]*)"`)

// Each table of a quota's page and of the what-ifs has its sheet beside it.
func TestEveryTableOfAQuotaHasItsSheet(t *testing.T) {
	h := newFixture(t).handler(t)
	for page, want := range map[string]map[string][]string{
		"/services/checkout/buckets/callers?key=caller%3Dbatch-reports": {
			"steps":    {"rule", "detail", "rate", "acted"},
			"left_out": {"from", "until", "rule", "reason", "highest_step", "limit_had_it_counted", "word"},
			"episodes": {"bucket", "key", "from", "until"},
		},
		"/services/checkout/buckets/callers/whatif?key=caller%3Dbatch-reports": {
			"":        {"headroom", "limit_rate"},
			"choices": {"changed", "stat", "window", "headroom", "left_out", "limit_rate", "drops", "share", "at_least", "episodes"},
		},
		"/services/checkout/whatif": {
			"":     {"headroom", "limits_rate"},
			"keys": {"bucket", "key", "force_rate", "limit_rate", "above", "share"},
		},
	} {
		links := map[string]string{}
		for _, m := range csvLink.FindAllStringSubmatch(get(h, page).Body.String(), -1) {
			link := html.UnescapeString(m[1])
			table := ""
			if _, after, ok := strings.Cut(link, "table="); ok {
				table, _, _ = strings.Cut(after, "&")
			}
			links[table] = link
		}
		for table, header := range want {
			if links[table] == "" {
				t.Errorf("%s has no sheet of table %q", page, table)
				continue
			}
			rows, err := csv.NewReader(get(h, links[table]).Body).ReadAll()
			if err != nil || len(rows) < 2 || !slices.Equal(rows[0][:len(header)], header) {
				t.Errorf("%s, table %q at %q: %v, %v; want rows under %v", page, table, links[table], rows, err, header)
			}
		}
	}
	for _, bad := range []string{"/services/checkout/buckets/callers/whatif.csv?key=caller%3Dsearch&table=no", "/services/checkout/whatif.csv?table=no", "/services/checkout/buckets/callers.csv?key=caller%3Dsearch&table=no"} {
		if w := get(h, bad); w.Code != 400 {
			t.Errorf("%s: %d, want 400", bad, w.Code)
		}
	}
}

// Programs get the same rows.
func TestWhatIfsTellProgramsTheirTables(t *testing.T) {
	h := newFixture(t).handler(t)
	var one struct {
		Choices []struct {
			Changed string
			Limit   struct{ Rate float64 }
		}
	}
	if err := json.Unmarshal(get(h, "/services/checkout/buckets/callers/whatif.json?key=caller%3Dbatch-reports").Body.Bytes(), &one); err != nil {
		t.Fatal(err)
	}
	if len(one.Choices) < 3 || one.Choices[0].Changed == "" || one.Choices[0].Limit.Rate <= 0 {
		t.Errorf("choices %+v", one.Choices)
	}
	var all struct {
		Keys []struct {
			Bucket string
			Above  float64
		}
	}
	if err := json.Unmarshal(get(h, "/services/checkout/whatif.json").Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Keys) < 5 || !slices.IsSortedFunc(all.Keys, func(a, b struct {
		Bucket string
		Above  float64
	}) int {
		switch {
		case a.Above > b.Above:
			return -1
		case a.Above < b.Above:
			return 1
		}
		return 0
	}) {
		t.Errorf("keys %+v, want those first that would lose most", all.Keys)
	}
}
