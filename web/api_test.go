package web_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// body decodes an answer and checks its status.
func body(t *testing.T, w *httptest.ResponseRecorder, status int) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != status {
		t.Fatalf("status %d, want %d; %v: %s", w.Code, status, err, w.Body)
	}
	return out
}

func post(h http.Handler, target, text string, change func(*http.Request)) *httptest.ResponseRecorder {
	return request(h, "POST", target, text, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
		if change != nil {
			change(r)
		}
	})
}

// first is the element of a list that has these values.
func first(t *testing.T, all any, want map[string]any) map[string]any {
	t.Helper()
	for _, x := range all.([]any) {
		m := x.(map[string]any)
		ok := true
		for k, v := range want {
			ok = ok && fmt.Sprint(m[k]) == fmt.Sprint(v)
		}
		if ok {
			return m
		}
	}
	t.Fatalf("nothing with %v in %v", want, all)
	return nil
}

func has(t *testing.T, what string, m map[string]any, fields ...string) {
	t.Helper()
	for _, f := range fields {
		if _, ok := m[f]; !ok {
			t.Errorf("%s lacks %q: has %q", what, f, slices.Sorted(maps.Keys(m)))
		}
	}
}

func TestServicesContract(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, target := range []string{"/api/v1/services", "/services.json"} {
		out := body(t, get(h, target), 200)
		s := first(t, out["services"], map[string]any{"name": "checkout"})
		has(t, "a service", s, "name", "owners", "buckets", "virtual_drops_24h", "drops_24h", "open_review")
		if s["open_review"] != "cron-2026-12-02T060000Z-checkout" || s["drops_24h"].(float64) != 362880 || fmt.Sprint(s["owners"]) != "[team-payments]" {
			t.Errorf("checkout: %v", s)
		}
		if media := first(t, out["services"], map[string]any{"name": "media"}); media["open_review"] != nil || fmt.Sprint(media["owners"]) != "[]" {
			t.Errorf("media: %v", media)
		}
	}
	s := body(t, get(h, "/api/v1/services/checkout"), 200)
	has(t, "the service", s, "name", "owners", "buckets", "virtual_drops_24h", "drops_24h", "open_review", "desired", "live", "problems")
	if p := body(t, get(h, "/api/v1/services/pricing"), 200); len(p["problems"].([]any)) == 0 {
		t.Errorf("a broken policy has no problems: %v", p)
	}
	if w := get(h, "/api/v1/services/nothing"); w.Code != 404 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("unknown service: %d %s", w.Code, w.Header().Get("Content-Type"))
	}
}

func TestBucketsContract(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, target := range []string{"/api/v1/services/checkout/buckets", "/services/checkout.json"} {
		rows := body(t, get(h, target), 200)["buckets"]
		r := first(t, rows, map[string]any{"bucket": "mobile-create"})
		has(t, "a row", r, "bucket", "key", "mode", "algorithm", "policy", "live", "desired", "proposed", "why", "held")
		limit := func(m any) string { b, _ := json.Marshal(m); return string(b) }
		if r["mode"] != "enforce" || r["algorithm"] != "token_bucket" || r["policy"] != "historical" || limit(r["live"]) != `{"burst":3800,"rate":1900}` || limit(r["desired"]) != limit(r["live"]) || r["held"] != nil || limit(r["key"]) != "{}" {
			t.Errorf("mobile-create: %v", r)
		}
		if p := r["proposed"].(map[string]any); p["rate"].(float64) <= 1900 || p["burst"].(float64) < 1 {
			t.Errorf("proposed: %v", p)
		}
		fresh := first(t, rows, map[string]any{"key": map[string]any{"caller": "recommendations"}})
		if fresh["live"] != nil || fresh["desired"] != nil || fresh["proposed"] == nil {
			t.Errorf("a new caller: %v", fresh)
		}
		if held := first(t, rows, map[string]any{"key": map[string]any{"caller": "loyalty"}}); held["held"] == nil || held["held_why"] == nil || held["proposed"] != nil {
			t.Errorf("a held quota: %v", held)
		}
		if hand := first(t, rows, map[string]any{"bucket": "health"}); hand["policy"] != nil || limit(hand["desired"]) != `{"burst":100,"rate":50}` {
			t.Errorf("a limit written by hand: %v", hand)
		}
		if bare := first(t, rows, map[string]any{"bucket": "whole-service"}); bare["desired"] != nil || bare["policy"] != "capacity" {
			t.Errorf("a bucket without a quota: %v", bare)
		}
	}
	one := body(t, get(h, "/api/v1/services/checkout/buckets/callers?key="+url.QueryEscape("caller=search")), 200)
	has(t, "a quota", one, "bucket", "key", "mode", "live", "desired", "proposed", "why", "held", "reasons", "backtest", "flags", "history")
	if hours := one["history"].(map[string]any)["hours"].([]any); len(hours) < 600 {
		t.Errorf("%d hours of history", len(hours))
	}
	if all := body(t, get(h, "/api/v1/services/checkout/buckets/callers"), 200); len(all["quotas"].([]any)) != 7 {
		t.Errorf("keys: %v", all["quotas"])
	}
	for _, key := range []string{"caller=nobody", "nonsense", "caller=a,caller=b"} {
		if w := get(h, "/api/v1/services/checkout/buckets/callers?key="+url.QueryEscape(key)); w.Code != 404 && w.Code != 400 {
			t.Errorf("key %q: %d", key, w.Code)
		}
	}
}

func TestShadowContract(t *testing.T) {
	h := newFixture(t).handler(t)
	out := body(t, get(h, "/api/v1/services/checkout/shadow"), 200)
	live := out["live"].(map[string]any)
	if live["offered"].(float64) <= 0 || live["virtual_drops"].(float64) <= 0 {
		t.Errorf("live: %v", live)
	}
	episodes := out["episodes"].([]any)
	if len(episodes) == 0 {
		t.Fatal("no episodes")
	}
	var last time.Time
	for i, x := range episodes {
		e := x.(map[string]any)
		has(t, "an episode", e, "bucket", "key", "from", "until", "peak", "limit", "virtual_drops", "share")
		from, err := time.Parse(time.RFC3339, e["from"].(string))
		if err != nil || (i > 0 && from.After(last)) || e["bucket"] == "mobile-create" {
			t.Errorf("episode %d: %v", i, e)
		}
		if e["peak"].(float64) <= e["limit"].(float64) || e["share"].(float64) <= 0 || e["share"].(float64) > 1 {
			t.Errorf("episode %d: %v", i, e)
		}
		last = from
	}
}

func TestProposalsAndRunsContract(t *testing.T) {
	h := newFixture(t).handler(t)
	out := body(t, get(h, "/api/v1/proposals?state=open"), 200)
	p := first(t, out["proposals"], map[string]any{"service": "checkout"})
	has(t, "a proposal", p, "id", "service", "state", "url", "changes")
	c := first(t, p["changes"], map[string]any{"bucket": "mobile-create"})
	has(t, "a change", c, "bucket", "key", "old", "new", "reasons", "backtest")
	bt := c["backtest"].(map[string]any)
	for _, side := range []string{"old", "new"} {
		has(t, "a backtest", bt[side].(map[string]any), "requests", "drops")
		has(t, "a limit", c[side].(map[string]any), "rate", "burst")
	}
	episodes := bt["old"].(map[string]any)["episodes"].([]any)
	if e := first(t, episodes, map[string]any{"bucket": "mobile-create"}); !reflect.DeepEqual(e["key"], c["key"]) {
		t.Errorf("an episode of %v in a change of %v", e["key"], c["key"])
	}
	has(t, "a reason", c["reasons"].([]any)[0].(map[string]any), "rule", "detail", "rate")
	if n := len(body(t, get(h, "/api/v1/proposals?state=accepted"), 200)["proposals"].([]any)); n != 1 {
		t.Errorf("%d accepted", n)
	}
	if w := get(h, "/api/v1/proposals?state=lost"); w.Code != 400 {
		t.Errorf("an unknown state: %d", w.Code)
	}
	runs := body(t, get(h, "/api/v1/runs"), 200)
	r := first(t, runs["runs"], map[string]any{"id": "cron-2026-12-02T060000Z"})
	has(t, "a run", r, "id", "trigger", "started_at", "finished_at", "result", "held", "changed")
	if r["trigger"] != "cron" || r["result"] != "degraded" || r["started_at"] != "2026-12-02T06:00:01Z" || r["held"].(float64) != 1 {
		t.Errorf("run: %v", r)
	}
	one := body(t, get(h, "/api/v1/runs/cron-2026-12-02T060000Z?held=true"), 200)
	if n := len(one["changes"].([]any)); n != 1 {
		t.Errorf("%d held changes", n)
	}
}

func TestActsByJSON(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	id := "cron-2026-12-02T060000Z-checkout"
	if out := body(t, post(h, "/api/v1/proposals/"+id+"/reject", `{"reason":"not now"}`, bearer), 200); out["state"] != "rejected" || out["reason"] != "not now" {
		t.Errorf("rejected: %v", out)
	}
	if w := post(h, "/api/v1/proposals/"+id+"/accept", ``, bearer); w.Code != 409 {
		t.Errorf("accepting what is rejected: %d", w.Code)
	}
	run := body(t, post(h, "/api/v1/runs", `{"service":"checkout","now":"2026-12-02T06:00:00Z"}`, bearer), 202)
	if run["id"] == "" || run["result"] != nil {
		t.Errorf("run: %v", run)
	}
	out := body(t, post(h, "/api/v1/verdicts", `{"service":"checkout","bucket":"callers","key":{"caller":"batch-reports"},"from":"2026-11-24T20:00:00Z","until":"2026-11-24T21:00:00Z","count":true,"reason":"a batch","actor":"somebody else"}`, bearer), 201)
	if out["actor"] != "token" || out["id"] == "" {
		t.Errorf("a verdict speaks for %v", out["actor"])
	}
	all := body(t, get(h, "/api/v1/verdicts?service=checkout"), 200)["verdicts"].([]any)
	if len(all) == 0 {
		t.Error("the verdict is not listed")
	}
	if out := body(t, get(h, "/api/v1/overrides"), 200); len(out["overrides"].([]any)) != 0 {
		t.Errorf("overrides: %v", out)
	}
	body(t, post(h, "/api/v1/follow", "{}", bearer), 200)
	want := []string{
		"reject " + id + " by token: not now", "accept " + id + " by token", `run "checkout" at 2026-12-02T06:00:00Z by token`,
		"verdict checkout/callers/caller=batch-reports count=true by token", "follow by token",
	}
	if got := f.done(); !slices.Equal(got, want) {
		t.Errorf("done %q, want %q", got, want)
	}
}

func TestBacktestReplaysStoredHistory(t *testing.T) {
	h := newFixture(t).handler(t)
	out := body(t, post(h, "/api/v1/backtest", `{"service":"checkout","bucket":"mobile-create","rate":1900,"burst":3800}`, nil), 200)
	has(t, "a backtest", out, "requests", "drops", "share", "step_seconds", "episodes", "worst")
	has(t, "the worst step", out["worst"].(map[string]any), "at", "rate")
	if out["step_seconds"].(float64) != 60 || out["drops"].(float64) <= 0 || len(out["episodes"].([]any)) == 0 {
		t.Errorf("%v", out)
	}
	first(t, out["episodes"], map[string]any{"bucket": "mobile-create"})
	if out := body(t, post(h, "/api/v1/backtest", `{"service":"checkout","bucket":"mobile-create","rate":1e6}`, nil), 200); out["drops"].(float64) != 0 || out["worst"] != nil {
		t.Errorf("a limit far above: drops %v, worst %v", out["drops"], out["worst"])
	}
	for text, want := range map[string]int{
		`{"service":"checkout","bucket":"mobile-create"}`:                                                                       400,
		`{"service":"checkout","bucket":"mobile-create","rate":-1}`:                                                             400,
		`{"service":"checkout","bucket":"mobile-create","rate":1e300}`:                                                          400,
		`{"service":"checkout","bucket":"nothing","rate":1}`:                                                                    404,
		`{"service":"checkout","bucket":"callers","key":{"caller":"x"},"rate":1}`:                                               404,
		`{"service":"checkout","bucket":"mobile-create","rate":5,"from":"x"}`:                                                   400,
		`{"service":"checkout","bucket":"mobile-create","rate":5,"from":"2026-12-03T00:00:00Z","until":"2026-12-02T00:00:00Z"}`: 400,
	} {
		if w := post(h, "/api/v1/backtest", text, nil); w.Code != want {
			t.Errorf("%s: %d, want %d", text, w.Code, want)
		}
	}
}

func TestPlanChangesNothingAndNeedsNoToken(t *testing.T) {
	f := newFixture(t)
	out := body(t, post(f.handler(t), "/api/v1/plan", `{"service":"checkout"}`, nil), 200)
	has(t, "a plan", out, "run", "changes")
	if len(out["changes"].([]any)) == 0 || len(f.done()) != 0 {
		t.Errorf("changes %d, done %q", len(out["changes"].([]any)), f.done())
	}
}

func TestWhyNamesTheBucketAndWhyNotTheOthers(t *testing.T) {
	h := newFixture(t).handler(t)
	out := body(t, get(h, "/api/v1/why?service=checkout&caller=mobile-gateway&procedure=Create"), 200)
	if out["bucket"] != "mobile-create" || out["unmatched"] != false {
		t.Errorf("%v", out)
	}
	if r := first(t, out["others"], map[string]any{"bucket": "callers"}); r["reason"] != "it fits too, but mobile-create fits more closely" {
		t.Errorf("callers: %v", r)
	}
	if r := first(t, out["others"], map[string]any{"bucket": "health"}); r["reason"] != "procedure is Create; the bucket wants Health" {
		t.Errorf("health: %v", r)
	}
	if r := first(t, out["caps"], map[string]any{"bucket": "whole-service"}); r["role"] != "cap" {
		t.Errorf("caps: %v", r)
	}
	out = body(t, get(h, "/api/v1/why?service=checkout&procedure=Refund"), 200)
	if out["bucket"] != nil || out["unmatched"] != true {
		t.Errorf("without a caller: %v", out)
	}
	if r := first(t, out["others"], map[string]any{"bucket": "callers"}); r["reason"] != "caller is absent; the bucket wants *" {
		t.Errorf("callers: %v", r)
	}
	out = body(t, get(h, "/api/v1/why?service=checkout&caller=search"), 200)
	if q := out["quota"].(map[string]any); fmt.Sprint(out["key"]) != "map[caller:search]" || q["live"] == nil {
		t.Errorf("search: %v", out)
	}
}

func TestSnapshotIsEpochDotVersion(t *testing.T) {
	out := body(t, get(newFixture(t).handler(t), "/api/v1/snapshot"), 200)
	if out["snapshot"] != "3.41" || len(out["enforcers"].([]any)) != 1 {
		t.Errorf("%v", out)
	}
}

func TestListsArePaged(t *testing.T) {
	h := newFixture(t).handler(t)
	one := body(t, get(h, "/api/v1/services?per_page=2&page=2"), 200)
	if n := len(one["services"].([]any)); n != 2 || one["total"].(float64) != 7 || one["page"].(float64) != 2 {
		t.Errorf("page 2: %v", one)
	}
	if n := len(body(t, get(h, "/api/v1/services/checkout/buckets?per_page=3&page=4"), 200)["buckets"].([]any)); n != 1 {
		t.Errorf("the last page has %d rows", n)
	}
	for _, q := range []string{"per_page=1001", "per_page=0", "page=-1", "page=x", "page=99999999999999999999"} {
		for _, path := range []string{"/api/v1/services", "/services/checkout", "/runs"} {
			if w := get(h, path+"?"+q); w.Code != 400 {
				t.Errorf("%s?%s: %d", path, q, w.Code)
			}
		}
	}
}

func TestKeysTravelInAddresses(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, name := range hostile {
		key := rlc.Key{"caller": name}
		out := body(t, get(h, "/api/v1/services/"+url.PathEscape(hostileService)+"/buckets/callers?key="+url.QueryEscape(key.String())), 200)
		if got := out["key"].(map[string]any)["caller"]; got != name {
			t.Errorf("asked for %q, got %q", name, got)
		}
	}
}
