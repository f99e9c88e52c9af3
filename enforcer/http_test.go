package enforcer_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// call sends one request to the handler.
func call(e *enforcer.Enforcer, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	e.Handler().ServeHTTP(rec, r)
	return rec
}

func decode(t *testing.T, rec *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		t.Fatalf("%v in %s", err, rec.Body)
	}
	return out
}

func wantJSON(t *testing.T, rec *httptest.ResponseRecorder, status int, want string) {
	t.Helper()
	got, _ := json.Marshal(decode(t, rec))
	var v any
	if err := json.Unmarshal([]byte(want), &v); err != nil {
		t.Fatal(err)
	}
	canonical, _ := json.Marshal(v)
	if rec.Code != status || string(got) != string(canonical) {
		t.Errorf("got %d %s\nwant %d %s", rec.Code, got, status, canonical)
	}
}

const checkSearch = `{"service":"checkout","attributes":{"caller":"search","procedure":"Create"},"cost":1}`

// checkout has a quota of two for caller search, in the mode given.
func checkout(mode string) rlc.Snapshot {
	return snap(7, policy("checkout", "defaults: {mode: "+mode+"}\nbuckets:\n  - {name: callers, each: [caller]}\n"),
		quotas("checkout", quota("callers", "caller: search", 0.5, 2)))
}

func TestCheckAnswersWithTheFieldsOfTheContract(t *testing.T) {
	e, _ := start(t, enforcer.Config{PagesURL: "https://rlc.example/"})
	load(t, e, checkout("enforce"))
	rec := call(e, "POST", "/v1/check", checkSearch)
	wantJSON(t, rec, 200, `{"outcome":"admit","bucket":"callers","key":{"caller":"search"},"limit":{"rate":0.5,"burst":2},"remaining":1,"retry_after_ms":0,"snapshot":"1.7"}`)
	for name, want := range map[string]string{
		"RateLimit-Policy": `"checkout/callers";q=5;w=10`,
		"RateLimit":        `"checkout/callers";r=1;t=2`,
		"Retry-After":      "",
		"X-Rlc-Bucket":     "callers",
		"X-Rlc-Snapshot":   "1.7",
		"Content-Type":     "application/json",
	} {
		if got := rec.Header().Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	call(e, "POST", "/v1/check", checkSearch)
	rec = call(e, "POST", "/v1/check", checkSearch)
	wantJSON(t, rec, 429, `{"outcome":"drop","bucket":"callers","key":{"caller":"search"},"limit":{"rate":0.5,"burst":2},"remaining":0,"retry_after_ms":2000,"snapshot":"1.7"}`)
	if got := rec.Header().Get("Link"); got != `<https://rlc.example/services/checkout/buckets/callers?key=caller%3Dsearch>; rel="help"` {
		t.Errorf("Link: %q", got)
	}
	if got := rec.Header().Get("RateLimit"); got != `"checkout/callers";r=0;t=2` {
		t.Errorf("RateLimit: %q", got)
	}
	// A key without a quota, and a service without a policy.
	wantJSON(t, call(e, "POST", "/v1/check", `{"service":"checkout","attributes":{"caller":"new"}}`), 200,
		`{"outcome":"admit","bucket":"callers","key":{"caller":"new"},"limit":null,"remaining":null,"retry_after_ms":0,"snapshot":"1.7"}`)
	wantJSON(t, call(e, "POST", "/v1/check", `{"service":"else"}`), 200,
		`{"outcome":"admit","bucket":"","key":{},"limit":null,"remaining":null,"retry_after_ms":0,"snapshot":"1.7"}`)
}

// field parses one structured field (RFC 9651) of an answer: its name and the
// parameters asked for.
func field(t *testing.T, h http.Header, name string, parameters ...string) (string, []int64) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(name))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %q: %v", name, h.Values(name), err)
	}
	item := list[0].(httpsfv.Item)
	var out []int64
	for _, p := range parameters {
		v, _ := item.Params.Get(p)
		n, ok := v.(int64)
		if !ok {
			t.Fatalf("%s: %q lacks %s", name, h.Values(name), p)
		}
		out = append(out, n)
	}
	return item.Value.(string), out
}

func TestEveryRefusalTellsWhenToComeBack(t *testing.T) {
	for _, limit := range []string{"{rate: 1840, burst: 3}", "{rate: 0.3, burst: 1}", "{rate: 0.0001, burst: 1}", "{rate: 61.3, burst: 2}", "{rate: 0, burst: 0}"} {
		e, _ := start(t, enforcer.Config{})
		load(t, e, snap(1, policy("checkout", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: "+limit+"}\n")))
		spread := map[string]bool{}
		for range 200 {
			rec := call(e, "POST", "/v1/check", checkSearch)
			bucket, _ := field(t, rec.Header(), "RateLimit-Policy", "q", "w")
			_, rt := field(t, rec.Header(), "RateLimit", "r", "t")
			if bucket != "checkout/callers" || rt[1] < 1 {
				t.Fatalf("%s: %v", limit, rec.Header())
			}
			if rec.Code == 200 {
				continue
			}
			after, err := strconv.Atoi(rec.Header().Get("Retry-After"))
			if rec.Code != 429 || err != nil || after < 1 || after > 3600 {
				t.Fatalf("%s: %d, Retry-After %q", limit, rec.Code, rec.Header().Get("Retry-After"))
			}
			tSeconds := int(rt[1])
			wait := decode(t, rec)["retry_after_ms"].(float64)
			if after < tSeconds || float64(tSeconds)*1000 < wait || after > 2*tSeconds+1 {
				t.Fatalf("%s: Retry-After %d, t=%d, wait %g ms", limit, after, tSeconds, wait)
			}
			spread[rec.Header().Get("Retry-After")] = true
		}
		// At the hour, the longest that anybody is told, there is no room left.
		if len(spread) < 2 && !spread["3600"] {
			t.Errorf("%s: every refusal says %v: no jitter", limit, spread)
		}
	}
}

// The bucket that refused is the one that is told of, not the quota bucket.
func TestARefusalTellsOfTheBucketThatRefused(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", `defaults: {mode: enforce}
buckets:
  - {name: callers, each: [caller], limit: {rate: 100, burst: 100}}
  - {name: all, role: cap, limit: {rate: 0.1, burst: 1}}
  - {name: quiet, role: cap, mode: shadow, limit: {rate: 0.001, burst: 1}}
`)))
	body := `{"service":"s","attributes":{"caller":"a"}}`
	call(e, "POST", "/v1/check", body)
	rec := call(e, "POST", "/v1/check", body)
	name, rt := field(t, rec.Header(), "RateLimit", "r", "t")
	// 0.1/s with nothing left: ten seconds.
	if rec.Code != 429 || name != "s/all" || rt[0] != 0 || rt[1] != 10 || rec.Header().Get("X-Rlc-Bucket") != "all" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
}

func TestARefusalIsSmallAndConstant(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, checkout("enforce"))
	bodies := map[string]bool{}
	for range 100 {
		if rec := call(e, "POST", "/v1/check", checkSearch); rec.Code == 429 {
			bodies[rec.Body.String()] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("%d different refusals", len(bodies))
	}
	for b := range bodies {
		if len(b) > 300 {
			t.Errorf("a refusal has %d bytes", len(b))
		}
	}
}

func TestExplainingNeverCounts(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, checkout("enforce"))
	before := metrics(t, e)
	for range 50 {
		if rec := call(e, "GET", "/v1/explain?service=checkout&caller=search", ""); decode(t, rec)["outcome"] != "admit" {
			t.Fatalf("explaining took a token: %s", rec.Body)
		}
	}
	after := metrics(t, e)
	for name, v := range before {
		if strings.HasPrefix(name, "rlc_enforcer_") && after[name] != v {
			t.Errorf("%s: %s, then %s", name, v, after[name])
		}
	}
	if got := decode(t, call(e, "GET", "/v1/top?service=checkout", ""))["buckets"].([]any); len(got) != 2 {
		t.Errorf("top: %v", got)
	}
	wantOutcomes(t, "the two that are still there", ask(e, 3, "checkout", search), 2, 1, 0)
}

func TestTopListsWhoIsRefused(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: "+twoADay+"}\n  - {name: quiet, role: cap, mode: shadow, limit: {rate: 0.0001, burst: 1}}\n")))
	ask(e, 5, "s", rlc.Attributes{"caller": "a"})
	ask(e, 9, "s", rlc.Attributes{"caller": "b"})
	last := noon.Format(time.RFC3339)
	wantJSON(t, call(e, "GET", "/v1/top?service=s&bucket=callers", ""), 200, `{"service":"s","buckets":[{"bucket":"callers","top":[
		{"key":{"caller":"b"},"drops":7,"virtual_drops":0,"over":0,"last":"`+last+`"},
		{"key":{"caller":"a"},"drops":3,"virtual_drops":0,"over":0,"last":"`+last+`"}]}]}`)
	if got := decode(t, call(e, "GET", "/v1/top?service=s&bucket=callers&n=1", ""))["buckets"].([]any)[0].(map[string]any)["top"].([]any); len(got) != 1 {
		t.Errorf("n=1: %v", got)
	}
	for target, want := range map[string]int{"/v1/top": 400, "/v1/top?service=s&n=0": 400, "/v1/top?service=s&n=x": 400, "/v1/top?service=else": 404, "/v1/top?service=s&bucket=else": 404} {
		if rec := call(e, "GET", target, ""); rec.Code != want {
			t.Errorf("%s: %d %s", target, rec.Code, rec.Body)
		}
	}
}

// What matches nothing and what is dropped virtually can be heard, for a log.
func TestEveryDecisionIsHeard(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "buckets:\n  - {name: callers, each: [caller], limit: {rate: 0.0001, burst: 1}}\n")))
	var heard []string
	h := e.HTTP(enforcer.HTTPConfig{Observe: func(peer string, r enforcer.Request, d enforcer.Decision) {
		heard = append(heard, fmt.Sprintf("%s%s %s %s", peer, r.Attributes["caller"], d.Bucket, d.Outcome))
	}})
	for _, target := range []string{"/v1/check?service=s&caller=a", "/v1/check?service=s&caller=a", "/v1/check?service=s"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
	}
	if got := strings.Join(heard, ", "); got != "a callers admit, a callers virtual_drop,  __unmatched__ admit" {
		t.Errorf("heard %s", got)
	}
	wantMetrics(t, e, map[string]string{
		`rlc_enforcer_requests_total{bucket="callers",caller="a",outcome="virtual_drop",procedure="",service="s"}`: "1",
		`rlc_enforcer_requests_total{bucket="__unmatched__",caller="",outcome="admit",procedure="",service="s"}`:   "1",
	})
}

func TestABucketInShadowSetsNoLimitHeaders(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, checkout("shadow"))
	for i, want := range []string{"admit", "admit", "virtual_drop"} {
		rec := call(e, "POST", "/v1/check", checkSearch)
		if rec.Code != 200 || decode(t, rec)["outcome"] != want {
			t.Errorf("request %d: %d %s", i, rec.Code, rec.Body)
		}
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After", "Link"} {
			if got := rec.Header().Get(name); got != "" {
				t.Errorf("request %d: %s: %s", i, name, got)
			}
		}
	}
	if rec := call(e, "GET", "/v1/check?service=checkout&caller=search", ""); rec.Code != 200 {
		t.Errorf("a virtual drop as a subrequest: %d", rec.Code)
	}
}

func TestCheckAsASubrequestTakesHeadersAndQuery(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: "+twoADay+"}\n")))
	caller := func(rec *httptest.ResponseRecorder) any { return decode(t, rec)["key"].(map[string]any)["caller"] }
	if got := caller(call(e, "GET", "/v1/check?service=s&caller=q", "")); got != "q" {
		t.Errorf("by query: %v", got)
	}
	// The proxy's header wins over a query that may be the client's.
	if got := caller(call(e, "GET", "/v1/check?service=s&caller=q", "", "X-RLC-Attr-Caller", "h")); got != "h" {
		t.Errorf("by header: %v", got)
	}
	call(e, "GET", "/v1/check?service=s&caller=q", "")
	rec := call(e, "GET", "/v1/check?service=s&caller=q", "")
	if rec.Code != 403 || decode(t, rec)["outcome"] != "drop" || rec.Header().Get("Retry-After") == "" {
		t.Errorf("over the limit: %d %s %v", rec.Code, rec.Body, rec.Header())
	}
	if rec := call(e, "GET", "/v1/check?service=s&caller=q&cost=0", ""); rec.Code != 403 {
		t.Errorf("a peek over the limit: %d", rec.Code)
	}
}

func TestBadInputIsRefusedWithAClearText(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, checkout("enforce"))
	many := `{"service":"s","attributes":{`
	for i := range 65 {
		many += fmt.Sprintf(`"a%d":"x",`, i)
	}
	many = strings.TrimSuffix(many, ",") + "}}"
	for _, c := range []struct {
		method, target, body string
		status               int
		want                 string
	}{
		{"POST", "/v1/check", "", 400, "the body is empty"},
		{"POST", "/v1/check", `{"service":`, 400, "ends in the middle"},
		{"POST", "/v1/check", `{"service" "x"}`, 400, "not JSON"},
		{"POST", "/v1/check", `{}`, 400, "service is missing"},
		{"POST", "/v1/check", `{"service":"s"} {"service":"t"}`, 400, "more than one JSON value"},
		{"POST", "/v1/check", `{"service":"s","attribute":{}}`, 400, `unknown field "attribute"`},
		{"POST", "/v1/check", `{"service":"s","cost":-5}`, 400, "cost -5 is negative"},
		{"POST", "/v1/check", `[]`, 400, "the body must be an object, not a list"},
		{"POST", "/v1/check", `{"service":"s","cost":1.5}`, 400, "cost must be a whole number, not 1.5"},
		{"POST", "/v1/check", `{"service":"s","cost":"x"}`, 400, "cost must be a whole number, not text"},
		{"POST", "/v1/check", `{"service":"s","cost":99999999999999999999}`, 400, "cost must be a whole number, not 99999999999999999999"},
		{"POST", "/v1/check", `{"service":"s","cost":900000000000000000}`, 400, "is above 100,000,000,000"},
		{"POST", "/v1/check", `{"service":"s","attributes":{"caller":5}}`, 400, "must be text, not a number"},
		{"POST", "/v1/check", `{"service":"s","attributes":{"":"x"}}`, 400, "attribute's name"},
		{"POST", "/v1/check", many, 400, "65 attributes; at most 64"},
		{"POST", "/v1/check", `{"service":"` + strings.Repeat("x", 70_000) + `"}`, 413, "larger than 65536 bytes"},
		{"POST", "/v1/check", `{"service":"` + strings.Repeat("x", 2000) + `"}`, 400, "service is longer than"},
		{"GET", "/v1/check?caller=x", "", 400, "service is missing"},
		{"GET", "/v1/check?service=s&caller=x&caller=y", "", 400, `"caller" is given 2 times`},
		{"GET", "/v1/check?service=s&cost=many", "", 400, "cost must be a whole number"},
		{"GET", "/v1/check?service=checkout&caller=%zz", "", 400, "the query cannot be read"},
		{"GET", "/v1/check?service=checkout&caller=a;b", "", 400, "the query cannot be read"},
		{"GET", "/v1/explain?service=checkout&caller=a%", "", 400, "the query cannot be read"},
		{"GET", "/v1/top?service=checkout&bucket=%g1", "", 400, "the query cannot be read"},
		{"GET", "/v1/config?service=a;b", "", 400, "the query cannot be read"},
		{"GET", "/v1/explain", "", 400, "service is missing"},
		{"GET", "/v1/config?service=nobody", "", 404, "no policy for service"},
	} {
		rec := call(e, c.method, c.target, c.body)
		p := decode(t, rec)
		if rec.Code != c.status || !strings.Contains(fmt.Sprint(p["detail"]), c.want) || rec.Header().Get("Content-Type") != "application/problem+json" || p["status"] != float64(c.status) {
			t.Errorf("%s %s %.60s: got %d %v, want %d %q", c.method, c.target, c.body, rec.Code, p, c.status, c.want)
		}
	}
	if rec := call(e, "POST", "/v1/check", "x", "Content-Encoding", "gzip"); rec.Code != 415 {
		t.Errorf("a compressed body: %d", rec.Code)
	}
	if rec := call(e, "POST", "/v1/check", checkSearch, "Sec-Fetch-Site", "cross-site"); rec.Code != 403 {
		t.Errorf("from another site's page: %d", rec.Code)
	}
	if rec := call(e, "DELETE", "/v1/check", ""); rec.Code != 405 {
		t.Errorf("DELETE: %d", rec.Code)
	}
	if got := metrics(t, e)[`rlc_enforcer_requests_total{bucket="callers",caller="search",outcome="admit",procedure="",service="checkout"}`]; got != "0" {
		t.Errorf("%s requests counted, want 0: bad input is no request, and a known quota starts at 0", got)
	}
}

func TestConfigAndExplainShowWhatIsInForce(t *testing.T) {
	e, at := start(t, enforcer.Config{Name: "e1", Zone: "z"})
	wantJSON(t, call(e, "GET", "/v1/config", ""), 200, `{"epoch":0,"version":0,"snapshot":"","commit":"","age_seconds":0,"name":"e1","zone":"z","buckets":[]}`)
	wantJSON(t, call(e, "GET", "/v1/explain?service=s", ""), 200, `{"service":"s","attributes":{},"outcome":"admit","snapshot":"0.0","buckets":[],"text":"no snapshot is in force: every request is admitted"}`)
	load(t, e, snap(7, policy("checkout", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller]}\n  - {name: all, role: cap, mode: shadow, limit: {rate: 1, burst: 1}}\n"),
		quotas("checkout", quota("callers", "caller: search", 0.5, 2))))
	at.advance(90 * time.Second)
	wantJSON(t, call(e, "GET", "/v1/config?service=checkout", ""), 200, `{"epoch":1,"version":7,"snapshot":"1.7","commit":"c7","age_seconds":90,"name":"e1","zone":"z","buckets":[
		{"service":"checkout","bucket":"callers","key":{"caller":"search"},"role":"quota","mode":"enforce","algorithm":"token_bucket","source":"quota","limit":{"rate":0.5,"burst":2}},
		{"service":"checkout","bucket":"callers","role":"quota","mode":"enforce","algorithm":"token_bucket","source":"none","limit":null},
		{"service":"checkout","bucket":"all","role":"cap","mode":"shadow","algorithm":"token_bucket","source":"policy","limit":{"rate":1,"burst":1}}]}`)

	for range 2 {
		call(e, "POST", "/v1/check", checkSearch)
	}
	wantJSON(t, call(e, "GET", "/v1/explain?service=checkout&caller=search&procedure=Create", ""), 200, `{"service":"checkout","attributes":{"caller":"search","procedure":"Create"},
		"outcome":"drop","snapshot":"1.7","text":"dropped: callers enforces 0.5/s with burst 2 and is used up","buckets":[
		{"service":"checkout","bucket":"callers","key":{"caller":"search"},"role":"quota","mode":"enforce","algorithm":"token_bucket","source":"quota","limit":{"rate":0.5,"burst":2},"admits":false,"remaining":0,"retry_after_ms":2000},
		{"service":"checkout","bucket":"all","role":"cap","mode":"shadow","algorithm":"token_bucket","source":"policy","limit":{"rate":1,"burst":1},"admits":false,"remaining":0,"retry_after_ms":1000}]}`)
	wantJSON(t, call(e, "GET", "/v1/explain?service=checkout", ""), 200, `{"service":"checkout","attributes":{},"outcome":"virtual_drop","snapshot":"1.7",
		"text":"admitted; all allows 1/s with burst 1 and is used up: dropped if everything enforced","buckets":[
		{"service":"checkout","bucket":"__unmatched__","role":"quota","mode":"enforce","source":"none","limit":null,"admits":true,"remaining":null,"retry_after_ms":0},
		{"service":"checkout","bucket":"all","role":"cap","mode":"shadow","algorithm":"token_bucket","source":"policy","limit":{"rate":1,"burst":1},"admits":false,"remaining":0,"retry_after_ms":1000}]}`)
}

func TestReadinessNamesItsReason(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	wantJSON(t, call(e, "GET", "/readyz", ""), 503, `{"ready":false,"reasons":["no snapshot yet: every request is admitted"],"notes":[],"snapshot":"0.0"}`)
	wantJSON(t, call(e, "GET", "/healthz", ""), 200, `{"status":"ok"}`)
	load(t, e, checkout("enforce"))
	wantJSON(t, call(e, "GET", "/readyz", ""), 200, `{"ready":true,"reasons":[],"notes":[],"snapshot":"1.7"}`)
}

func TestHostileNamesAreInertInHeadersAndMetrics(t *testing.T) {
	e, _ := start(t, enforcer.Config{})
	load(t, e, snap(1, policy("s", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: "+twoADay+"}\n")))
	hostile := []string{"a\r\nSet-Cookie: x=1", "\"},evil{x=\"", "\x00", "\xff\xfe", "\xff\xfd", "é\u202e", strings.Repeat("x", 64<<10), strings.Repeat("x", 64<<10-1) + "y", "{{7*7}}"}
	for _, caller := range hostile {
		got := ask(e, 3, "s", rlc.Attributes{"caller": caller})
		if got[enforcer.Admit] != 2 || got[enforcer.Drop] != 1 {
			t.Errorf("%.20q: %v", caller, got)
		}
		body, _ := json.Marshal(map[string]any{"service": "s", "attributes": map[string]string{"caller": caller}})
		for name, values := range call(e, "POST", "/v1/check", string(body)).Header() {
			for _, v := range values {
				if strings.ContainsAny(v, "\r\n\x00") {
					t.Errorf("header %s: %q", name, v)
				}
			}
		}
	}
	for name := range metrics(t, e) {
		if len(name) > 1000 {
			t.Errorf("a metric's name has %d bytes", len(name))
		}
	}
}

// What a refusal links to is a page that exists: what stands in a bucket's place
// has none of its own.
func TestARefusalLinksToThePageThatExplainsIt(t *testing.T) {
	e, _ := start(t, enforcer.Config{PagesURL: "https://rlc.example"})
	load(t, e, snap(1, policy("s", "buckets:\n  - {name: b, match: {caller: known}}\nunmatched: {mode: enforce, limit: "+twoADay+"}\n")))
	check := `{"service":"s","attributes":{"caller":"x"}}`
	for range 2 {
		call(e, "POST", "/v1/check", check)
	}
	if got := call(e, "POST", "/v1/check", check).Header().Get("Link"); got != `<https://rlc.example/services/s/policy>; rel="help"` {
		t.Errorf("what no bucket matches links to %s", got)
	}
}

// An override on a caller by name is that caller's limit: 429, and the page that
// explains it to the caller. One for whoever sends sheds load: 503.
func TestAnOverrideOnACallerRefusesAsALimitDoesAndOthersShedLoad(t *testing.T) {
	const why = `<https://rlc.example/why?caller=x&service=s>; rel="help"`
	const emergency = `<https://rlc.example/emergency>; rel="help"`
	type answer struct {
		Status int
		Link   string
	}
	none, share, wide := rlc.Rate(0), rlc.Ratio(0.999), map[string]enforcer.Pattern{"procedure": {"Buy"}}
	by := func(p ...string) map[string]enforcer.Pattern { return map[string]enforcer.Pattern{"caller": p} }
	for name, c := range map[string]struct {
		change func(*enforcer.Override)
		want   answer
	}{
		"block of a caller":    {func(o *enforcer.Override) { o.Match = by("x") }, answer{429, why}},
		"block of a list":      {func(o *enforcer.Override) { o.Match = by("w", "x") }, answer{429, why}},
		"limit of a prefix":    {func(o *enforcer.Override) { o.Match, o.Action, o.Rate = by("x*"), enforcer.LimitAction, &none }, answer{429, why}},
		"drop of a caller":     {func(o *enforcer.Override) { o.Match, o.Action, o.DropRatio = by("x"), enforcer.DropAction, share }, answer{429, why}},
		"ramp of a caller":     {func(o *enforcer.Override) { o.Match, o.Until = by("x"), noon }, answer{429, why}},
		"block of a procedure": {func(o *enforcer.Override) { o.Match = wide }, answer{503, emergency}},
		"block of everybody":   {func(o *enforcer.Override) { o.Match = by("*") }, answer{503, emergency}},
		"limit of everybody": {func(o *enforcer.Override) {
			o.Match, o.Action, o.Rate = map[string]enforcer.Pattern{}, enforcer.LimitAction, &none
		}, answer{503, emergency}},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := start(t, enforcer.Config{PagesURL: "https://rlc.example"})
			load(t, e, snap(1, policy("s", "buckets:\n  - {name: b, each: [caller], limit: {rate: 0, burst: 0}}\n")))
			overlay(t, e, 1, override("o1", func(o *enforcer.Override) { o.From = noon.Add(-time.Hour); c.change(o) }))
			for range 100 { // a share of 0.999, and the ramp's first instant, admit next to nothing
				rec := call(e, "POST", "/v1/check", `{"service":"s","attributes":{"caller":"x","procedure":"Buy"}}`)
				if rec.Code == 200 {
					continue
				}
				if got := (answer{rec.Code, rec.Header().Get("Link")}); got != c.want {
					t.Errorf("got  %+v\nwant %+v", got, c.want)
				}
				return
			}
			t.Error("nothing was dropped")
		})
	}
}
