package web_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// A request of mobile-gateway for Create fits callers, too, whose quota for it
// has a limit and refuses; mobile-create counts it.
func losing(t *testing.T) *fixture {
	f := newFixture(t)
	key := rlc.Key{"caller": "mobile-gateway"}
	f.desired.Quotas["checkout"] = append(f.desired.Quotas["checkout"], rlc.Quota{Bucket: "callers", Key: key, Limit: rlc.Limit{Rate: 700, Burst: 1400}, Why: "weekly peak 538 × 1.30"})
	f.counts = append(f.counts, rlc.Count{Service: "checkout", Bucket: "callers", Key: key, Offered: 1000, VirtualDrops: 30})
	return f
}

const asksCreate = "service=checkout&caller=mobile-gateway&procedure=Create"

func TestWhyShowsLimitsAndVerdictsOfTheBucketsThatLost(t *testing.T) {
	h := losing(t).handler(t)
	rows, err := csv.NewReader(get(h, "/why.csv?"+asksCreate).Body).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"bucket", "counts", "limit", "reason", "key", "mode", "rate", "burst", "fits", "verdict", "offered_24h", "drops_24h", "virtual_drops_24h"},
		{"mobile-create", "quota", "1,900", "weekly peak 1462 × 1.30", "", "enforce", "1900", "3800", "true", "refuses", "90720000", "362880", "0"},
		{"whole-service", "cap", "—", "", "", "shadow", "", "", "true", "no_limit", "0", "0", "0"},
		{"callers", "no", "700", "it fits too, but mobile-create fits more closely", "caller=mobile-gateway", "shadow", "700", "1400", "true", "would_refuse", "1000", "0", "30"},
		{"health", "no", "50", "procedure is Create; the bucket wants Health", "", "shadow", "50", "100", "false", "nothing", "0", "0", "0"},
	}
	if !slices.EqualFunc(rows, want, slices.Equal) {
		t.Errorf("got\n%s\nwant\n%s", table(rows), table(want))
	}
	holds(t, h, "/why?"+asksCreate, "Verdict 24 h", "no, it fits less closely", "would have refused 3 %", ">700<", "refused 0.4 %", "no limit yet")
	var got struct {
		Quota  struct{ Verdict string }
		Caps   []struct{ Bucket, Verdict string }
		Others []struct {
			Bucket, Reason, Mode, Verdict string
			Fits                          bool
			Key                           rlc.Key
			Desired                       *rlc.Limit
			Drops                         *float64 `json:"virtual_drops_24h"`
		}
	}
	if err := json.Unmarshal(get(h, "/why.json?"+asksCreate).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	o := got.Others[0]
	if got.Quota.Verdict != "refuses" || got.Caps[0].Verdict != "no_limit" || len(got.Others) != 2 || o.Bucket != "callers" || !o.Fits || o.Key["caller"] != "mobile-gateway" ||
		*o.Desired != (rlc.Limit{Rate: 700, Burst: 1400}) || *o.Drops != 30 || o.Verdict != "would_refuse" || got.Others[1].Fits || got.Others[1].Reason != "procedure is Create; the bucket wants Health" {
		t.Errorf("answer %+v", got)
	}
}

func table(rows [][]string) string {
	var out []string
	for _, r := range rows {
		out = append(out, strings.Join(r, " | "))
	}
	return strings.Join(out, "\n")
}

func TestWhyAndACallerSayHowFarTheirCountsReach(t *testing.T) {
	f := losing(t)
	f.since = time.Date(2026, 12, 2, 3, 10, 0, 0, time.UTC)
	h := f.handler(t)
	for target, want := range map[string][]string{
		"/why?" + asksCreate:                  {"Since 2 Dec 03:10 it refused <b>0.4 %</b>", "requests since 2 Dec 03:10, counted by enforcers", "Verdict since 2 Dec 03:10"},
		"/why?service=checkout&caller=search": {"Since 2 Dec 03:10 it would have refused"},
		"/callers/mobile-gateway":             {"sent since 2 Dec 03:10, by", "Offered since 2 Dec 03:10", "requests since 2 Dec 03:10, in shadow"},
		"/callers/search":                     {"was refused since 2 Dec 03:10; enforced"},
		"/callers/orders":                     {"Nothing of orders was refused since 2 Dec 03:10"},
	} {
		if page := holds(t, h, target, want...); strings.Contains(page, "n 24 h") {
			t.Errorf("%s speaks of 24 h", target)
		}
	}
	if since := body(t, get(h, "/why.json?"+asksCreate), 200)["counted_since"]; since != "2026-12-02T03:10:00Z" {
		t.Errorf("counted_since %v", since)
	}
}

// youngGeo counts the service geo for three hours and every other for a day.
type youngGeo struct{ web.History }

func (y youngGeo) CountedSince(ctx context.Context, service string, window time.Duration, at time.Time) (time.Time, error) {
	if service == "geo" {
		return now.Add(-3 * time.Hour), nil
	}
	return y.History.CountedSince(ctx, service, window, at)
}

func TestACallerOfServicesThatAreCountedForLongAndShortIsToldApart(t *testing.T) {
	c := newFixture(t).config()
	c.History = youngGeo{c.History}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, h, "/callers/web", "Offered 24 h at most", ", since 2 Dec 03:04", "Nothing of web was refused in at most 24 h")
}

func TestWhereNobodyCountsWhyAndACallerClaimNothing(t *testing.T) {
	h := newFresh(t, rlc.Files{"services/checkout/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: checkout\nbuckets:\n  - {name: web, match: {caller: web}, limit: {rate: 50, burst: 100}}\n")})
	for target, want := range map[string][]string{
		"/why?service=checkout&caller=web": {"What it refused is not known: no enforcer has counted a request in 24 h.", "<dd>unknown </dd><dd>no enforcer has counted a request in 24 h</dd>"},
		"/callers/web":                     {"What was refused of web is unknown: no enforcer has counted a request in 24 h."},
	} {
		if page := holds(t, h, target, want...); strings.Contains(page, "0 %") {
			t.Errorf("%s claims a share that nobody counted", target)
		}
	}
	blind := without(t, func(c *web.Config) { c.History = blind{} })
	for _, target := range []string{"/why?" + asksCreate, "/callers/search"} {
		holds(t, blind, target, "counters cannot be read", "unknown")
	}
	if w := get(blind, "/why.json?"+asksCreate); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"verdict":"unknown"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A value without a quota of its own is under new_key: live once the policy is.
func TestWhatNewKeyLimitsIsLiveWhereItsPolicyIs(t *testing.T) {
	f := newFixture(t)
	of := func(c *quotafile.Config, rate rlc.Rate) {
		s := c.Service("checkout")
		s.Bucket("callers").NewKey.Limit = &rlc.Limit{Rate: rate, Burst: 100}
	}
	of(f.desired, 50)
	const ask = "/why?service=checkout&caller=stranger&procedure=Get"
	holds(t, f.handler(t), ask, "desired, not live yet")
	if f.live == f.desired {
		t.Fatal("the fixture's live and desired are one")
	}
	of(f.live, 50)
	holds(t, f.handler(t), ask, "live in snapshot 3.41")
}
