package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

func asked(t *testing.T, h http.Handler, path, body string) map[string]any {
	t.Helper()
	w := request(h, "POST", path, body, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
	if w.Code != http.StatusOK {
		t.Fatalf("POST %s %s: %d %s", path, body, w.Code, w.Body)
	}
	var out map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The page, the API and the arithmetic give one answer to one question.
func TestAWhatIfOnThePageIsTheAPIsAnswer(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	history := f.history["checkout|mobile-create"]
	choice := backtest.Choice{Stat: "p99", Headroom: 0.1, Floor: 1, Seconds: 2}
	value, _, _ := backtest.Statistic(history, choice)
	limit := choice.Limit(value)
	want := backtest.FromHistory(history, limit)
	if want.Drops == 0 {
		t.Fatal("the fixture has no drops to tell apart")
	}
	got := asked(t, h, "/api/v1/backtest", `{"service":"checkout","bucket":"mobile-create","stat":"p99","headroom":0.1,"floor":1}`)
	if got["drops"] != want.Drops || got["limit"].(map[string]any)["rate"] != float64(limit.Rate) || len(got["frontier"].([]any)) != 31 {
		t.Errorf("drops %v at %v, want %g at %g", got["drops"], got["limit"], want.Drops, float64(limit.Rate))
	}
	page := get(h, "/services/checkout/buckets/mobile-create?stat=p99&headroom=0.1&floor=1&burst=2&window=28d").Body.String()
	for _, text := range []string{web.Rate(float64(limit.Rate)) + "\u00a0req/s</b>", `value="0.1"`, `<option value="p99" selected>`, "One choice changed", `class="frontier"`} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}

func TestWhatIsTickedIsLeftOut(t *testing.T) {
	h := newFixture(t).handler(t)
	limit := func(query string) float64 {
		var out struct {
			Limit struct{ Rate float64 }
		}
		exclude := ""
		if query != "" {
			exclude = `,"exclude":[` + query + `]`
		}
		b, _ := json.Marshal(asked(t, h, "/api/v1/backtest", `{"service":"checkout","bucket":"mobile-create","stat":"max","headroom":0`+exclude+`}`))
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		return out.Limit.Rate
	}
	// The storm is 3.2 × the daily peak of 1,750.
	if with, without := limit(""), limit(`{"from":"2026-11-24T20:00:00Z","until":"2026-11-24T20:40:00Z"}`); with != 5600 || without >= with {
		t.Errorf("the limit is %g with the storm and %g without", with, without)
	}
}

func TestAQuotasWhatIfIsAnsweredAloneWithSheets(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	const ask = "/services/checkout/buckets/mobile-create/whatif?stat=p99&headroom=0.1&from=now-7d&to=now"
	holds(t, h, ask, `id="whatif-answer"`,
		`<option value="p99" selected>`, `<input type="hidden" name="from" value="now-7d">`, "/services/checkout/buckets/mobile-create/whatif.csv?headroom=0.1&amp;stat=p99")
	alone := get(h, ask).Body.String()
	if strings.Contains(alone, "Counted live") || strings.Contains(alone, `class="chart"`) {
		t.Error("the what-if alone reads what only the quota's page shows")
	}
	page := get(h, "/services/checkout/buckets/mobile-create?stat=p99&headroom=0.1").Body.String()
	answer := func(page string) string {
		_, rest, _ := strings.Cut(page, `<div class="answer"`)
		text, _, _ := strings.Cut(rest, "</div>")
		return text
	}
	if answer(alone) != answer(page) || answer(page) == "" {
		t.Errorf("alone %q, on the page %q", answer(alone), answer(page))
	}
	if w := get(h, "/services/checkout/buckets/callers/whatif"); w.Code != http.StatusBadRequest {
		t.Errorf("a bucket with keys, and none named: %d", w.Code)
	}
	at := "/services/checkout/buckets/callers/whatif"
	csv := get(h, at+".csv?key=caller%3Dgeo&stat=max&headroom=0.3").Body.String()
	if lines := strings.Split(strings.TrimSpace(csv), "\n"); len(lines) != 32 || !strings.HasPrefix(lines[1], "0,") {
		t.Errorf("the curve: %d lines, %q", len(lines), csv)
	}
	var out struct {
		Bucket string
		Limit  rlc.Limit
	}
	if err := json.Unmarshal(get(h, at+".json?key=caller%3Dgeo&stat=max&headroom=0.3").Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	choice := backtest.Choice{Stat: "max", Headroom: 0.3, Floor: 1, Seconds: 2}
	value, _, _ := backtest.Statistic(f.history["checkout|callers/caller=geo"], choice)
	if out.Bucket != "callers" || out.Limit != choice.Limit(value) {
		t.Errorf("got %+v, want %+v", out, choice.Limit(value))
	}
}

func TestAServicesWhatIfOpensAtWhatItsPoliciesDo(t *testing.T) {
	f := newFixture(t)
	f.files["services/search/policy.yaml"] = []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: search\ndefaults: {policy: {kind: historical, headroom: 0.45}}\nbuckets:\n  - {name: callers, each: [caller]}\n")
	f.desired = quotafile.Parse(f.files, policies.Builtin().Check)
	holds(t, f.handler(t), "/services/search/whatif", `<option value="max" selected>`, `value="0.45"`)
}

func TestTheAxisOfAFlatCurveRepeatsNoLabel(t *testing.T) {
	for most, want := range map[float64]string{1e-6: "0.00000|0.00002|0.00004|0.00006|0.00008|0.00010", 0.04: "0|1|2|3|4", 0.1: "0|2|4|6|8|10", 0.0041: "0.0|0.1|0.2|0.3|0.4", 0: ""} {
		var texts []string
		for _, t := range web.Axis(most) {
			texts = append(texts, t.Text())
		}
		got := strings.ReplaceAll(strings.Join(texts, "|"), "\u00a0%", "")
		if got != want {
			t.Errorf("up to %g: %s, want %s", most, got, want)
		}
	}
}

// slowly lets the first reading of each service begin and wait.
type slowly struct {
	*fixture
	began, goOn chan struct{}
}

func (s slowly) StoredEach(ctx context.Context, service string, quotas []string, from, until time.Time, use func(string, rlc.History) error) error {
	if service == "checkout" {
		s.began <- struct{}{}
		<-s.goOn
	}
	return s.fixture.StoredEach(ctx, service, quotas, from, until, use)
}

func TestAServicesWhatIfWaitsForNoOtherService(t *testing.T) {
	f := slowly{newFixture(t), make(chan struct{}, 9), make(chan struct{})}
	c := f.config()
	c.History = f
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan int, 2)
	ask := func() { first <- get(h, "/services/checkout/whatif").Code }
	go ask()
	<-f.began
	if w := get(h, "/services/search/whatif"); w.Code != http.StatusOK {
		t.Errorf("another service: %d", w.Code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/services/checkout/whatif", nil))
	if strings.Contains(w.Body.String(), "whatif-answer") {
		t.Error("who has left was answered")
	}
	go ask()
	close(f.goOn)
	if a, b := <-first, <-first; a != 200 || b != 200 || len(f.began) != 0 {
		t.Errorf("%d and %d, read %d times more", a, b, len(f.began))
	}
}

func TestAWhatIfThatCannotBeAskedIsRefused(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, q := range []string{"stat=p50", "stat=max&headroom=x", "stat=max&headroom=NaN", "stat=max&headroom=-1", "stat=max&window=1h", "stat=max&floor=1e300", "stat=max&exclude=yesterday", "stat=max&exclude=2026-11-24T20:00:00Z/2026-11-23T20:00:00Z"} {
		if w := get(h, "/services/checkout/buckets/mobile-create?"+q); w.Code != http.StatusBadRequest {
			t.Errorf("?%s: %d", q, w.Code)
		}
	}
	if w := get(h, "/services/checkout/whatif?window=3d"); w.Code != http.StatusBadRequest {
		t.Errorf("an unprepared window: %d", w.Code)
	}
}

func TestAServicesWhatIfAddsUpItsKeys(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	var out struct {
		Quotas   int
		Drops    float64
		Limits   float64 `json:"limits_rate"`
		Frontier []backtest.Point
	}
	if err := json.Unmarshal(get(h, "/services/search/whatif.json?stat=p99&headroom=0.3").Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	choice := backtest.Choice{Stat: "p99", Headroom: 0.3, Floor: 1}
	var sum, drops float64
	for _, key := range []string{"web", "mobile"} {
		history := f.history["search|callers/caller="+key]
		value, _, ok := backtest.Statistic(history, choice)
		if !ok {
			t.Fatalf("no history of %s in %v", key, len(f.history))
		}
		l := choice.Limit(value)
		above, _ := backtest.NewFrontier(history).Above(l.Rate)
		sum, drops = sum+float64(l.Rate), drops+above
	}
	if out.Quotas != 2 || out.Limits != sum || out.Drops != drops || len(out.Frontier) != 31 {
		t.Errorf("%d quotas, limits %g, drops %g, want 2, %g, %g", out.Quotas, out.Limits, out.Drops, sum, drops)
	}
	for _, ending := range []string{"", ".csv"} {
		if w := get(h, "/services/"+url.PathEscape(hostileService)+"/whatif"+ending); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "<script>alert") {
			t.Errorf("whatif%s of the hostile service: %d", ending, w.Code)
		}
	}
}
