package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

type marked struct {
	Label, Kind string
	T, Until    int64
}

var chartJSON = regexp.MustCompile(`(?s)<script id="chart-data" type="application/json">(.*?)</script>`)

func marksOn(t *testing.T, h http.Handler, target string) []marked {
	t.Helper()
	m := chartJSON.FindStringSubmatch(get(h, target).Body.String())
	if m == nil {
		t.Fatalf("%s has no chart", target)
	}
	var d struct{ Marks []marked }
	if err := json.Unmarshal([]byte(m[1]), &d); err != nil {
		t.Fatal(err)
	}
	return d.Marks
}

// A chart marks what happened to its quota, and nothing of another: deploys,
// runs, what was accepted, overrides, events, exclusions; a table says the same.
func TestAChartMarksWhatHappened(t *testing.T) {
	f := newFixture(t)
	f.desired.Service("checkout").Events = []rlc.Event{{Name: "sale", From: runAt.AddDate(0, 0, -3), Until: runAt.AddDate(0, 0, -2), Multiply: 2}, {Name: "to come", From: runAt.AddDate(0, 0, 3), Until: runAt.AddDate(0, 0, 4), Multiply: 2}}
	held := rlc.Rate(500)
	for _, o := range []rlc.Override{
		{ID: "o1", Service: "checkout", Match: map[string][]string{"caller": {"mobile-gateway"}}, Action: "limit", Rate: &held, From: runAt.Add(-30 * time.Hour), Until: runAt.Add(-29 * time.Hour), Actor: "sue", Reason: "INC-9"},
		{ID: "o2", Service: "media", Match: map[string][]string{}, Action: "block", From: runAt.Add(-30 * time.Hour), Until: runAt.Add(-29 * time.Hour), Actor: "sue", Reason: "elsewhere"},
	} {
		if err := f.db.SetOverride(context.Background(), o, rlc.AuditEntry{At: o.From, Actor: "sue", Action: "override.set", Object: o.Service}); err != nil {
			t.Fatal(err)
		}
	}
	h := f.handler(t)
	tell := func(body string, change func(*http.Request)) *httptest.ResponseRecorder {
		return request(h, "POST", "/api/v1/services/checkout/deploys", body, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			if change != nil {
				change(r)
			}
		})
	}
	if w := tell(`{"version":"v42","at":"2026-12-01T12:00:00Z"}`, bearer); w.Code != http.StatusCreated {
		t.Fatalf("deploy: %d %s", w.Code, w.Body)
	}
	for body, want := range map[string]int{`{"version":" "}`: 400, `{"version":"x","at":"2020-01-01T00:00:00Z"}`: 400, `{"version":"x","at":"2027-01-01T00:00:00Z"}`: 400, `{"version":"` + strings.Repeat("x", 101) + `"}`: 400} {
		if w := tell(body, bearer); w.Code != want {
			t.Errorf("%.40s: %d, want %d", body, w.Code, want)
		}
	}
	if w := tell(`{"version":"v43"}`, nil); w.Code != http.StatusUnauthorized {
		t.Errorf("a viewer tells of a deploy: %d", w.Code)
	}
	at := func(days, hours int) int64 {
		return runAt.AddDate(0, 0, days).Add(time.Duration(hours) * time.Hour).Unix()
	}
	incident := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC).Unix()
	want := []marked{
		{"INC-917", "excluded", incident, incident + 7200},
		{"run", "run", at(-6, 0), 0},
		{"accepted", "accepted", at(-6, 4), 0},
		{"sale", "event", at(-3, 0), at(-2, 0)},
		{"override", "override", at(0, -30), at(0, -29)},
		{"v42", "deploy", at(0, -18), 0},
	}
	var got []marked
	for _, m := range marksOn(t, h, pages["bucket"]) {
		if m.Label != "left out" { // what the policy flagged by itself
			got = append(got, m)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("marks\n%+v\nwant\n%+v", got, want)
	}
	holds(t, h, pages["bucket"], "what the chart marks", "deploy of v42, told by token", "INC-9", "event sale, × 2", "accepted by ana", "left out of history: INC-917", `class="m-mark"`)
	if page := get(h, pages["batch"]).Body.String(); strings.Contains(page, "INC-9,") || strings.Contains(page, ">override<") {
		t.Error("an override of another caller is marked")
	}
	service := marksOn(t, h, "/services/checkout")
	kinds := map[string]bool{}
	for _, m := range service {
		kinds[m.Kind] = true
	}
	if want := (map[string]bool{"run": true, "accepted": true, "event": true, "override": true, "deploy": true}); !reflect.DeepEqual(kinds, want) {
		t.Errorf("the service's chart marks %v, want %v", kinds, want)
	}
	holds(t, h, "/services/checkout", "Last week", "mean per hour, over quota buckets", "m-cap", ">capacity<")
}

func TestAChartSaysWhatTheAddressAsksForInVain(t *testing.T) {
	h := newFixture(t).handler(t)
	for query, want := range map[string]string{
		"?from=1999-01-01T00:00:00Z":                         "The chart holds 4 Nov 06:00 to 2 Dec 06:00; the address asks for more.",
		"?from=1999-01-01T00:00:00Z&to=1999-02-01T00:00:00Z": "the address asks for a time outside of it, so all of it is shown.",
		"?from=now-1h": "less than two hours",
	} {
		holds(t, h, pages["bucket"]+query, want)
	}
	if page := get(h, pages["bucket"]+"?from=now-7d").Body.String(); strings.Contains(page, "the address asks") {
		t.Error("a part that is there is called missing")
	}
}

// A capacity far above what is offered does not press the traffic to the foot of the
// chart: it is named above the drawing.
func TestACapacityFarAboveTheTrafficLeavesTheTrafficReadable(t *testing.T) {
	for capacity, far := range map[string]bool{"12000": false, "120000": true} {
		f := newFixture(t)
		f.files["services/checkout/policy.yaml"] = bytes.ReplaceAll(f.files["services/checkout/policy.yaml"], []byte("rate: 12000"), []byte("rate: "+capacity))
		f.desired = quotafile.Parse(f.files, policies.Builtin().Check)
		h := f.handler(t)
		page := get(h, "/services/checkout").Body.String()
		if strings.Contains(page, "The capacity, 120,000 req/s, lies above the drawing.") != far {
			t.Errorf("capacity %s: far is %v", capacity, !far)
		}
		line := regexp.MustCompile(`class="m-cap" d="M0 ([0-9.]+)H[0-9]{3}`).FindStringSubmatch(page)
		mean := regexp.MustCompile(`class="m-mean" d="([^"]{99,})"`).FindStringSubmatch(page)
		if line == nil || mean == nil {
			t.Fatalf("capacity %s: no line", capacity)
		}
		highest := 1e9
		for _, m := range regexp.MustCompile(`[ML][0-9.]+ ([0-9.]+)`).FindAllStringSubmatch(mean[1], -1) {
			y, _ := strconv.ParseFloat(m[1], 64)
			highest = min(highest, y)
		}
		at, _ := strconv.ParseFloat(line[1], 64)
		if at < 0 || at > 60 || far && highest > 150 {
			t.Errorf("capacity %s is drawn at %g, the highest mean at %g", capacity, at, highest)
		}
	}
}
