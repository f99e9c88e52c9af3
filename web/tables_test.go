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
		"/services/checkout/buckets/mobile-create": {"marks": {"at", "until", "kind", "text", "url"}},
		"/services/checkout":                       {"marks": {"at", "until", "kind", "text", "url"}, "week": {"start", "mean", "highest_step", "dropped", "above_shadow"}},
		"/services/checkout/history": {
			"promotions":  {"id", "bucket", "state", "plan", "all", "enforced", "actor", "started_at", "ended_at", "why"},
			"pins":        {"id", "quota", "rate", "burst", "actor", "at", "reason"},
			"differences": {"quota", "what", "old", "new", "from", "to"},
		},
		"/settings": {
			"parts":    {"name", "engine", "where", "ok", "error", "since"},
			"profiles": {"name", "builtin", "services", "step_seconds", "sources", "attributes"},
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
	for _, bad := range []string{"/services/checkout.csv?table=no", "/services/checkout.json?table=no", "/services/checkout/history.csv?table=no", "/settings.csv?table=no", "/services/checkout/buckets/callers/whatif.csv?key=caller%3Dsearch&table=no", "/services/checkout/whatif.csv?table=no", "/services/checkout/buckets/callers.csv?key=caller%3Dsearch&table=no"} {
		if w := get(h, bad); w.Code != 400 {
			t.Errorf("%s: %d, want 400", bad, w.Code)
		}
	}
}

// What a chart marks is for programs too, the newest first: a run, and who accepted.
func TestWhatAChartMarksIsDataToo(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, target := range []string{"/services/checkout.json?table=marks", "/services/checkout/buckets/mobile-create.json?table=marks"} {
		var got struct {
			Marks []struct{ At, Kind, Text, URL string }
		}
		if err := json.Unmarshal(get(h, target).Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(got.Marks, func(m struct{ At, Kind, Text, URL string }) bool {
			return m.At == "2026-11-26T10:00:00Z" && m.Kind == "accepted" && m.Text == "accepted by ana" && m.URL == "/proposals/cron-2026-11-26T060000Z-checkout"
		}) || !slices.IsSortedFunc(got.Marks, func(a, b struct{ At, Kind, Text, URL string }) int { return strings.Compare(b.At, a.At) }) {
			t.Errorf("%s: %+v", target, got.Marks)
		}
	}
	var week struct {
		Hours []struct {
			Start         string
			Mean, Dropped *float64
		}
	}
	if err := json.Unmarshal(get(h, "/services/checkout.json?table=week").Body.Bytes(), &week); err != nil {
		t.Fatal(err)
	}
	if len(week.Hours) != 168 || week.Hours[0].Start != "2026-11-25T06:00:00Z" || week.Hours[0].Mean == nil || *week.Hours[0].Mean <= 0 {
		t.Errorf("%d hours from %+v", len(week.Hours), week.Hours[:min(1, len(week.Hours))])
	}
}

// What names files and hosts is withheld in the sheet of parts as on the page.
func TestTheSheetOfPartsWithholdsWhatThePageDoes(t *testing.T) {
	h := newFixture(t).handler(t)
	open, all := get(h, "/settings.csv?table=parts").Body.String(), request(h, "GET", "/settings.csv?table=parts", "", bearer).Body.String()
	if !strings.Contains(open, "not shown") || open == all || strings.Contains(all, "not shown") {
		t.Errorf("open %q, to whoever has the token %q", open, all)
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
