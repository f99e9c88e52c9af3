package web_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestAnOverrideSaysWhatHoldsWhenItEnds(t *testing.T) {
	f := newFixture(t)
	match := func(attrs ...string) func(*rlc.Override) {
		return func(o *rlc.Override) {
			o.Match = map[string][]string{}
			for i := 0; i < len(attrs); i += 2 {
				o.Match[attrs[i]] = []string{attrs[i+1]}
			}
		}
	}
	want := map[string]string{
		"one":     "Then callers / batch-reports 260 req/s (burst 520, shadow) and health 50 req/s (burst 100, shadow) hold again.",
		"two":     "Then mobile-create 1,900 req/s (burst 3,800, enforce) holds again.",
		"all":     "Then health 50 req/s (burst 100, shadow), callers / notify 60 req/s (burst 120, shadow) and 6 more limits hold again.",
		"nobody":  "Then no limit of checkout holds these requests.",
		"every":   "Then every service's own limits hold again.",
		"unknown": "What holds then is not known: no policy of gone can be read.",
	}
	f.overrides = []rlc.Override{override("one", nil), override("two", match("caller", "mobile-gateway", "procedure", "Create")), override("all", match()), override("nobody", match("caller", "stranger", "procedure", "Create"))}
	f.overrides = append(f.overrides, override("every", func(o *rlc.Override) { o.Service = "*" }), override("unknown", func(o *rlc.Override) { o.Service = "gone" }), override("over", func(o *rlc.Override) { o.Until = now.Add(-time.Second) }))
	h := f.handler(t)
	var got struct {
		Overrides []struct {
			ID      string
			Says    *string `json:"returns_says"`
			Total   *int    `json:"returns_total"`
			Returns []map[string]any
		}
	}
	if err := json.Unmarshal(get(h, "/emergency.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	says := map[string]string{}
	for _, o := range got.Overrides {
		if o.Says != nil {
			says[o.ID] = *o.Says
		}
	}
	if !reflect.DeepEqual(says, want) {
		t.Errorf("got %q\nwant %q", says, want)
	}
	if one := []map[string]any{{"bucket": "callers", "region": nil, "key": map[string]any{"caller": "batch-reports"}, "rate": 260.0, "burst": 520.0, "mode": "shadow", "all": true}, {"bucket": "health", "region": nil, "key": map[string]any{}, "rate": 50.0, "burst": 100.0, "mode": "shadow", "all": false}}; !reflect.DeepEqual(got.Overrides[0].Returns, one) || *got.Overrides[0].Total != 2 || *got.Overrides[2].Total != 8 || got.Overrides[4].Total != nil {
		t.Errorf("returns %v of %v", got.Overrides[0].Returns, *got.Overrides[0].Total)
	}
	rows, err := csv.NewReader(get(h, "/emergency.csv").Body).ReadAll()
	if err != nil || rows[0][9] != "returns" || rows[1][9] != want["one"] || rows[7][9] != "" {
		t.Errorf("%v %q", err, rows)
	}
	holds(t, h, "/emergency", `Then <a href="/services/checkout/buckets/callers?key=caller%3Dbatch-reports">callers / batch-reports 260 req/s (burst 520, shadow)</a> and <a href="/services/checkout/buckets/health">health 50 req/s (burst 100, shadow)</a> hold again.`, "6 more limits", "mobile-create 1,900 req/s (burst 3,800, enforce)</a> holds again.")
	if out := body(t, post(h, "/api/v1/overrides/one/extend", `{"by_seconds":60}`, bearer), 200); out["returns_says"] != want["one"] {
		t.Errorf("after an act: %v", out["returns_says"])
	}
}

func TestFiveHundredOverridesAreListedByPage(t *testing.T) {
	f := newFixture(t)
	for i := range 500 {
		f.overrides = append(f.overrides, override(fmt.Sprintf("o%03d", i), func(o *rlc.Override) { o.Match = map[string][]string{"caller": {fmt.Sprintf("caller-%03d", i)}} }))
	}
	h := f.handler(t)
	page := holds(t, h, "/emergency", "1–50 of 500", "caller-000", "caller-049", `href="/emergency?standing=2#active"`, `href="/emergency.csv?page=1"`)
	if strings.Contains(page, "caller-050") || strings.Contains(page, `rel="prev"`) {
		t.Error("the first page shows more than its part")
	}
	holds(t, h, "/emergency?standing=10", "451–500 of 500", "caller-499", `href="/emergency?standing=9#active"`, `href="/emergency.json?page=10"`)
	for target, want := range map[string]int{"/emergency?standing=11": http.StatusNotFound, "/emergency?standing=0": http.StatusBadRequest, "/emergency?standing=x": http.StatusBadRequest} {
		if w := get(h, target); w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
	rows, err := csv.NewReader(get(h, "/emergency.csv?page=10").Body).ReadAll()
	if err != nil || len(rows) != 51 || rows[1][0] != "o450" {
		t.Errorf("%v, %d rows", err, len(rows))
	}
	if n := body(t, get(h, "/emergency.json?page=10"), 200)["total"]; n != 500.0 {
		t.Errorf("total %v", n)
	}
}
