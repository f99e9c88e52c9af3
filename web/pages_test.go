package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// holds checks that a page says each of these.
func holds(t *testing.T, h http.Handler, target string, want ...string) string {
	t.Helper()
	w := get(h, target)
	page := strings.Join(strings.Fields(strings.ReplaceAll(w.Body.String(), "\u00a0", " ")), " ")
	if w.Code != 200 {
		t.Errorf("GET %s: %d", target, w.Code)
	}
	for _, s := range want {
		if !strings.Contains(page, s) {
			t.Errorf("%s does not say %q", target, s)
		}
	}
	return page
}

func TestOverviewSaysWhatWaits(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/", "2 proposals wait", "1 service has a policy that cannot be read", "Live equals desired: snapshot 3.41", "requests in 24 h", "unknown parameter", "The last run held quotas")
}

func TestServicePageTellsThreeTruthsApart(t *testing.T) {
	h := newFixture(t).handler(t)
	page := holds(t, h, "/services/checkout", "dropped", "<b>362,880</b>", "Σ limits", "/ 12,000", "callers / recommendations", "mobile-gateway", "owner team-payments")
	for _, column := range []string{">Live<", ">Desired<", ">Proposed<"} {
		if !strings.Contains(page, column) {
			t.Errorf("no column %s", column)
		}
	}
	if only := holds(t, h, "/services/checkout?mode=held", "callers / loyalty"); strings.Contains(only, "callers / orders") {
		t.Error("the filter lets other rows through")
	}
	holds(t, h, "/services/pricing", "services/pricing/policy.yaml:5", "is not valid on the base branch", "unknown parameter")
}

func TestBucketPageExplainsTheNumber(t *testing.T) {
	h := newFixture(t).handler(t)
	page := holds(t, h, "/services/checkout/buckets/mobile-create",
		"Peaks below 60 s are not visible.", "Weekly peak that counts", "Headroom", "Rounding", "rlc explain checkout mobile-create",
		"looks like an incident", "Count it", "Leave it out", "INC-917", `"excluded":[{`, "1,700", "m-prop", "m-limit", "m-desired thin")
	for i, s := range []string{"Highest step", "Weekly peak that counts", "Headroom", "Rounding", "Proposed limit"} {
		_ = i
		if !strings.Contains(page, s) {
			t.Errorf("the waterfall lacks %q", s)
		}
	}
	holds(t, h, "/services/checkout/buckets/callers?key="+url.QueryEscape("caller=batch-reports"), "says", "left out")
	holds(t, h, "/services/checkout/buckets/callers?key="+url.QueryEscape("caller=loyalty"), "Held:")
	holds(t, h, "/services/checkout/buckets/health", "A person wrote it", "No history is stored for this quota")
	holds(t, h, "/services/checkout/buckets/callers", "callers / search", "callers / geo")
}

func TestShadowPageFlagsDivergence(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/services/checkout/shadow", "episodes of", "would have dropped", "Backtest beside counters", "enforcers count more", "Peaks below 60 s are not visible.")
	holds(t, h, "/services/geo/shadow", "Nothing has been replayed yet", "Live in 24 h nothing would have been dropped.")
	f := newFixture(t)
	f.counts = nil
	holds(t, f.handler(t), "/services/geo/shadow", "Nothing is counted live", "virtual_drop")
}

func TestProposalPageShowsActsToThoseWhoMay(t *testing.T) {
	h := newFixture(t).handler(t)
	const target = "/proposals/cron-2026-12-02T060000Z-checkout"
	page := holds(t, h, target, "Sign in to accept or reject", "Step of a day", "Tightened", "services/checkout/quotas.yaml", "caller: recommendations")
	if strings.Contains(page, "/accept") {
		t.Error("a viewer is offered the act")
	}
	w := request(h, "GET", target, "", bearer)
	for _, s := range []string{`action="` + target + `/accept"`, `action="` + target + `/reject"`, "required"} {
		if !strings.Contains(w.Body.String(), s) {
			t.Errorf("an actor's page lacks %q", s)
		}
	}
	if !strings.Contains(page, ">Desired</th>") || !strings.Contains(page, "; those in force would have dropped") {
		t.Error("an open proposal is not held against what is desired now")
	}
	holds(t, h, "/proposals/cron-2026-11-26T060000Z-checkout", "Accepted by ana", ">Desired then</th>", `data-l="Desired then"`)
}

func TestRunPageSaysWhyQuotasWereHeld(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/runs/cron-2026-12-02T060000Z", "1 held", "callers / loyalty", "Sign in to run again")
	holds(t, h, "/runs/person-2026-12-02T060230Z", "The run failed. Every quota stays as it is.")
}

func TestEmptyStatesGiveReasonAndFix(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	holds(t, h, "/services?q=zzz", "No service fits the filter", "q=zzz", "Show all")
	holds(t, h, "/proposals?state=rejected", "Nothing to show", "deadband")
	holds(t, h, "/services/checkout?q=zzz", "No quota fits the filter", "Show all")
}

func TestFormsAct(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	act := func(target string, form url.Values) string {
		w := request(h, "POST", target, form.Encode(), func(r *http.Request) {
			bearer(r)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
		if w.Code != http.StatusSeeOther {
			t.Errorf("POST %s: %d %s", target, w.Code, w.Body)
		}
		return w.Header().Get("Location")
	}
	if to := act("/runs?service=checkout", nil); to != "/runs?done=run" {
		t.Errorf("after asking for a run: %s", to)
	}
	key := rlc.Key{"caller": hostile[10]}
	back := act("/services/"+url.PathEscape(hostileService)+"/buckets/callers/verdicts?key="+url.QueryEscape(key.String()), url.Values{"from": {"2026-11-24T20:00:00Z"}, "until": {"2026-11-24T21:00:00Z"}, "count": {"false"}})
	holds(t, h, back, "Recorded. The next run follows your word.")
	want := []string{`run "checkout" at 0001-01-01T00:00:00Z by token`, "verdict " + hostileService + "/callers/" + key.String() + " count=false by token"}
	if got := f.done(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("done %q, want %q", got, want)
	}
}

func TestTimesFollowTheChosenZone(t *testing.T) {
	h := newFixture(t).handler(t)
	w := get(h, "/runs?tz=Asia%2FTokyo")
	if !strings.Contains(w.Body.String(), ">2 Dec 15:00<") || !strings.Contains(w.Body.String(), "2026-12-02 06:00:01 UTC") {
		t.Error("times are not Tokyo's, or not in full on hover")
	}
	kept := w.Result().Cookies()
	if len(kept) != 1 || kept[0].Name != "tz" {
		t.Fatalf("cookies: %v", kept)
	}
	w = request(h, "GET", "/runs", "", func(r *http.Request) { r.AddCookie(kept[0]) })
	if !strings.Contains(w.Body.String(), ">2 Dec 15:00<") {
		t.Error("the zone is not remembered")
	}
	for _, bad := range []string{"Local", "../../etc/passwd", "Nowhere/Else", ""} {
		if w := get(h, "/runs?tz="+url.QueryEscape(bad)); w.Code != 200 || !strings.Contains(w.Body.String(), ">2 Dec 06:00<") {
			t.Errorf("zone %q: %d", bad, w.Code)
		}
	}
}

func TestThemeIsRenderedByTheServer(t *testing.T) {
	h := newFixture(t).handler(t)
	w := request(h, "GET", "/runs", "", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "theme", Value: "dark"}) })
	if !strings.Contains(w.Body.String(), `data-theme="dark"`) {
		t.Error("the cookie does not choose the theme")
	}
	if w := get(h, "/runs"); strings.Contains(w.Body.String(), "data-theme=") {
		t.Error("without a cookie the system chooses")
	}
	if w := request(h, "GET", "/runs", "", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "theme", Value: `"><script>`}) }); strings.Contains(w.Body.String(), "data-theme") {
		t.Error("any cookie becomes a theme")
	}
}

func TestPagesAreSmallAndCompressed(t *testing.T) {
	h := newFixture(t).handler(t)
	for target, most := range map[string]int{"/": 8 << 10, "/services": 8 << 10, "/services/checkout": 13 << 10, "/services/checkout/buckets/mobile-create": 40 << 10, "/proposals": 6 << 10} {
		w := request(h, "GET", target, "", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip, br") })
		if w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > most {
			t.Errorf("%s: %q, %d bytes, want at most %d", target, w.Header().Get("Content-Encoding"), w.Body.Len(), most)
		}
		t.Logf("%s: %d bytes", target, w.Body.Len())
	}
}

// counting counts the calls of the store.
type counting struct {
	web.Records
	calls atomic.Int64
}

func (c *counting) Summaries(ctx context.Context, f rlc.ServiceFilter, p rlc.Page) ([]rlc.ServiceSummary, int, error) {
	c.calls.Add(1)
	if p.Limit() > 50 {
		panic("a page asks for more than a page")
	}
	return c.Records.Summaries(ctx, f, p)
}

func (c *counting) Proposals(ctx context.Context, s rlc.ProposalState, service string, p rlc.Page) ([]rlc.Proposal, int, error) {
	c.calls.Add(1)
	return c.Records.Proposals(ctx, s, service, p)
}

func (c *counting) Runs(ctx context.Context, p rlc.Page) ([]rlc.Run, int, error) {
	c.calls.Add(1)
	return c.Records.Runs(ctx, p)
}

func (c *counting) LatestChanges(ctx context.Context, service string) ([]rlc.Change, error) {
	c.calls.Add(1)
	return c.Records.LatestChanges(ctx, service)
}

func (c *counting) Summary(ctx context.Context, service string) (rlc.ServiceSummary, error) {
	c.calls.Add(1)
	return c.Records.Summary(ctx, service)
}

// With 1,100 services a page asks the store as often as with seven.
func TestNoPageComputesOverAllServices(t *testing.T) {
	f := newFixture(t)
	c := &counting{Records: f.db}
	config := f.config()
	config.Records = c
	h, err := web.New(config)
	if err != nil {
		t.Fatal(err)
	}
	pages := []string{"/", "/services", "/services?sort=drops&dir=desc", "/services?q=service-1", "/services.json", "/services/checkout"}
	calls := func() (out []int64) {
		for _, target := range pages {
			c.calls.Store(0)
			if w := get(h, target); w.Code != 200 {
				t.Fatalf("%s: %d", target, w.Code)
			}
			out = append(out, c.calls.Load())
		}
		return out
	}
	few := calls()
	var many []rlc.ServiceSummary
	for i := range 1100 {
		head := rlc.Ratio(.3)
		many = append(many, rlc.ServiceSummary{Name: fmt.Sprintf("service-%04d", i), Owners: []string{"team"}, Buckets: 9, Headroom: &head, Week: rlc.Trend{Until: runAt, Mean: make([]*rlc.Rate, 168), Most: make([]*rlc.Rate, 168)}, Updated: runAt})
	}
	if err := f.db.SaveSummaries(context.Background(), many); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	full := calls()
	if fmt.Sprint(few) != fmt.Sprint(full) {
		t.Errorf("store calls of %v: %v with 7 services, %v with 1,107", pages, few, full)
	}
	for i, n := range full {
		if n > 8 {
			t.Errorf("%s asks the store %d times", pages[i], n)
		}
	}
	t.Logf("store calls %v; %d pages in %s", full, len(pages), time.Since(start).Round(time.Millisecond))
	if page := get(h, "/services").Body.String(); strings.Count(page, `<tr role="row">`) != 51 || !strings.Contains(page, "1–50 of 1,107") {
		t.Errorf("the list shows %d rows", strings.Count(page, `<tr role="row">`)-1)
	}
}

func TestNumbersReadWell(t *testing.T) {
	for in, want := range map[float64]string{0: "0", 0.004: "< 0.01", 0.25: "0.25", 9.999: "10", 61.64: "61.6", 312.4: "312", 12345.6: "12,346", 8e7: "80 M"} {
		if got := web.Rate(in); got != want {
			t.Errorf("rate %g reads %q, want %q", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "0 %", 0.0000001: "< 0.001 %", 0.00005: "0.005 %", 0.0039: "0.39 %", 0.123: "12.3 %", 1: "100 %"} {
		if got := strings.ReplaceAll(web.Percent(in), "\u00a0", " "); got != want {
			t.Errorf("share %g reads %q, want %q", in, got, want)
		}
	}
	for in, want := range map[float64]string{0.31: "+31 %", -0.095: "−10 %", 0: "0 %", 0.001: "± < 1 %"} {
		if got := strings.ReplaceAll(web.Signed(in), "\u00a0", " "); got != want {
			t.Errorf("change %g reads %q, want %q", in, got, want)
		}
	}
}
