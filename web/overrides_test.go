package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// override is one that stands in the fixture when it is asked for.
func override(id string, change func(*rlc.Override)) rlc.Override {
	held := rlc.Rate(120)
	o := rlc.Override{ID: id, Service: "checkout", Match: map[string][]string{"caller": {"batch-reports"}}, Action: "limit", Rate: &held,
		From: now.Add(-10 * time.Minute), Until: now.Add(18*time.Minute + 42*time.Second), Actor: "ana", Reason: "INC-944 runaway export"}
	if change != nil {
		change(&o)
	}
	return o
}

func (f *fixture) Overrides() []rlc.Override {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.overrides
}

func (f *fixture) OverridesSent() rlc.Version { return rlc.Version{Epoch: 3, Number: 7} }

func (f *fixture) SetOverride(_ context.Context, o rlc.Override, actor string) (rlc.Override, error) {
	o.ID, o.Actor = "override-new", actor
	f.did("override %s %s for %s by %s: %s", o.Subject(), o.Does(), o.Until.Sub(o.From), actor, o.Reason)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.overrides = append(f.overrides, o)
	return o, nil
}

// CheckOverride is the enforcers' check.
func (f *fixture) CheckOverride(o rlc.Override, actor string) error {
	o.ID, o.Actor = "override-to-be", actor
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("%w: %w", rlc.ErrInvalid, err)
	}
	var x enforcer.Override
	if err := json.Unmarshal(text, &x); err != nil {
		return err
	}
	return x.Valid()
}

func (f *fixture) OverridesTrouble() string { return f.trouble }

func (f *fixture) find(id string) (rlc.Override, error) {
	for _, o := range f.Overrides() {
		if o.ID == id {
			return o, nil
		}
	}
	return rlc.Override{}, fmt.Errorf("%w: override %q", rlc.ErrNotFound, id)
}

func (f *fixture) ExtendOverride(_ context.Context, id string, from time.Time, by time.Duration, actor string) (rlc.Override, error) {
	o, err := f.find(id)
	if err == nil {
		f.did("extend %s by %s, %s", id, by, actor)
		if !from.IsZero() {
			f.did("from %s", from.UTC().Format(time.RFC3339Nano))
		}
	}
	o.Until = o.Until.Add(by)
	return o, err
}

func (f *fixture) EndOverride(_ context.Context, id, actor string) (rlc.Override, error) {
	o, err := f.find(id)
	if err == nil {
		f.did("end %s by %s", id, actor)
	}
	o.EndedBy, o.Until = actor, now
	return o, err
}

func (f *fixture) KeepOverride(_ context.Context, id, actor string) (rlc.Commit, error) {
	_, err := f.find(id)
	if err == nil {
		f.did("keep %s by %s", id, actor)
	}
	return rlc.Commit{Hash: "abc"}, err
}

func (f *fixture) Switches() []rlc.KillSwitch {
	return []rlc.KillSwitch{{Name: rlc.StopAutomation}, {Name: rlc.AllToShadow, On: true, Actor: "ana", Reason: "INC-1"}}
}

func (f *fixture) SetSwitch(_ context.Context, name string, on bool, actor, reason string) error {
	f.did("switch %s %v by %s: %s", name, on, actor, reason)
	return nil
}

func TestAnOverrideIsPreviewedSetAndEndedByTheAPI(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	for in, want := range map[string]string{
		`{"service":"checkout","action":"block","ttl_seconds":60}`:                                             "needs a reason",
		`{"service":"checkout","action":"block","reason":"x"}`:                                                 "ttl_seconds must be",
		`{"service":"checkout","action":"block","reason":"x","ttl_seconds":604801}`:                            "7 days",
		`{"action":"block","reason":"x","ttl_seconds":60}`:                                                     "Name a service",
		`{"service":"checkout","action":"block","reason":"x\u0000y","ttl_seconds":60}`:                         "The reason holds U+0000",
		`{"service":"checkout","match":{"caller":["a\u0001"]},"action":"block","reason":"x","ttl_seconds":60}`: "match: caller is given as",
		`{"service":"checkout","match":{"caller":7},"reason":"x","ttl_seconds":60}`:                            "a pattern in match",
	} {
		w := post(h, "/api/v1/overrides", in, bearer)
		if w.Code != http.StatusBadRequest || !strings.Contains(strings.ToLower(w.Body.String()), strings.ToLower(want)) {
			t.Errorf("%s: %d %s, want %q", in, w.Code, w.Body, want)
		}
	}
	in := `{"service":"checkout","match":{"caller":"search","procedure":["A","B"]},"action":"limit","rate":500,"ttl_seconds":1800,"reason":"INC-1"}`
	if w := post(h, "/api/v1/overrides?preview=true", in, bearer); w.Code != 200 || !strings.Contains(w.Body.String(), `"known":true`) {
		t.Errorf("preview: %d %s", w.Code, w.Body)
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("a preview did %q", did)
	}
	out := body(t, post(h, "/api/v1/overrides", in, bearer), 201)
	if says, _ := out["says"].(string); !strings.HasPrefix(says, "checkout ← caller=search procedure=A|B sends ") {
		t.Errorf("says %q", says)
	}
	if out["id"] != "override-new" || out["expires_at"] != "2026-12-02T06:34:00Z" || out["state"] != "stands" {
		t.Errorf("override: %v", out)
	}
	listed := body(t, get(h, "/api/v1/overrides"), 200)
	if all := listed["overrides"].([]any); len(all) != 1 || listed["snapshot"] != "3.7" {
		t.Errorf("listed: %v", listed)
	}
	body(t, post(h, "/api/v1/overrides/override-new/extend", `{"by_seconds":600}`, bearer), 200)
	body(t, request(h, "DELETE", "/api/v1/overrides/override-new", "", bearer), 200)
	body(t, request(h, "DELETE", "/api/v1/overrides/none", "", bearer), 404)
	body(t, post(h, "/api/v1/switches/all-to-shadow", `{"on":false,"reason":"calm"}`, bearer), 200)
	want := []string{
		"override checkout ← caller=search procedure=A|B held to 500 req/s for 30m0s by token: INC-1",
		"extend override-new by 10m0s, token", "end override-new by token", "switch all-to-shadow false by token: calm",
	}
	if got, _ := json.Marshal(f.done()); string(got) != string(mustJSON(t, want)) {
		t.Errorf("did %s\nwant %s", got, mustJSON(t, want))
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAPreviewSaysWhatWouldBeDroppedAndWhoElseIsHit(t *testing.T) {
	f := newFixture(t)
	f.counts = []rlc.Count{ // of the last five minutes, and, in the fixture, of the hour
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "search"}, Offered: 300 * 100},
		{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "geo"}, Offered: 300 * 900},
		{Service: "checkout", Bucket: "mobile-create", Offered: 300 * 50},
	}
	h := f.handler(t)
	ask := func(in string) map[string]any {
		return body(t, post(h, "/api/v1/overrides?preview=true", in, bearer), 200)
	}
	out := ask(`{"service":"checkout","match":{"caller":"search"},"action":"limit","rate":40,"ttl_seconds":60,"reason":"x"}`)
	if out["offered"] != 100.0 || out["drops"] != 60.0 || out["at_most"] != false || len(out["affected"].([]any)) != 1 {
		t.Errorf("a limit on one caller: %v", out)
	}
	if says, _ := out["says"].(string); !strings.HasPrefix(says, "checkout ← caller=search sends 100 req/s now, ") || !strings.Contains(says, " in the mean of the last hour. This would drop about 60 req/s, 60 % of it.") {
		t.Errorf("says %q", says)
	}
	// A limit above what comes drops nothing, and that is said.
	out = ask(`{"service":"checkout","match":{"caller":"search"},"action":"limit","rate":500,"ttl_seconds":60,"reason":"x"}`)
	if says, _ := out["says"].(string); out["drops"] != 0.0 || !strings.HasSuffix(says, "This would drop nothing now: its limit of 500 req/s lies above what is sent.") {
		t.Errorf("a limit above what is sent: %v", out)
	}
	// Of mobile-create's requests the caller is in the match, of the callers'
	// the procedure is not known.
	out = ask(`{"service":"checkout","match":{"procedure":"Create"},"action":"drop","drop_ratio":0.5,"ttl_seconds":60,"reason":"x"}`)
	if out["offered"] != 1050.0 || out["drops"] != 525.0 || out["at_most"] != true {
		t.Errorf("a share of one procedure: %v", out)
	}
}

func TestAnOverrideIsOnThePagesThatItConcernsOnly(t *testing.T) {
	f := newFixture(t)
	f.overrides = []rlc.Override{override("o1", nil)}
	h := f.handler(t)
	for target, want := range map[string]bool{
		"/": true, "/services/checkout": true, "/services/search": false,
		"/services/checkout/buckets/callers?key=" + url.QueryEscape("caller=batch-reports"): true,
		"/services/checkout/buckets/callers?key=" + url.QueryEscape("caller=search"):        false,
		"/emergency": true,
	} {
		page := get(h, target).Body.String()
		if got := strings.Contains(page, "18:42") && strings.Contains(page, "held to 120\u00a0req/s"); got != want {
			t.Errorf("%s: shown %v, want %v", target, got, want)
		}
	}
	if csv := get(h, "/emergency.csv").Body.String(); !strings.Contains(csv, "o1,checkout") {
		t.Errorf("csv: %s", csv)
	}
}

// The form's GET is the preview, its POST the act: no script is needed.
func TestTheEmergencyFormPreviewsAndApplies(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	form := url.Values{"service": {"checkout"}, "caller": {"search"}, "procedure": {""}, "also": {"tenant=a,b region=eu*"}, "action": {"drop"}, "rate": {""}, "drop": {"40"}, "ttl": {"30m"}, "other": {"2h"}, "reason": {"INC-7 it's a storm"}}
	page := get(h, "/emergency?"+form.Encode()).Body.String()
	for _, want := range []string{"This would drop about", "rlc throttle", "--drop 0.4", "tenant=a,b"} {
		if !strings.Contains(page, want) {
			t.Errorf("the preview lacks %q", want)
		}
	}
	cookie := signIn(t, h, nil)
	as := func(r *http.Request) {
		r.AddCookie(cookie)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if w := request(h, "POST", "/emergency", form.Encode(), as); w.Code != http.StatusSeeOther {
		t.Fatalf("apply: %d %s", w.Code, w.Body)
	}
	request(h, "POST", "/emergency/override-new/extend", "by=30m&from=2026-12-02T07:00:00.25Z", as)
	if w := request(h, "POST", "/emergency/override-new/extend", "by=30m&from=soon", as); w.Code != http.StatusBadRequest && w.Code != http.StatusUnprocessableEntity {
		t.Errorf("from soon: %d", w.Code)
	}
	request(h, "POST", "/emergency/override-new/keep", "", as)
	request(h, "POST", "/emergency/override-new/end", "", as)
	request(h, "POST", "/switches/stop-automation", "on=true&reason=INC", as)
	want := []string{
		"override checkout ← caller=search region=eu* tenant=a|b 40 % dropped for 2h0m0s by Ana b Lima: INC-7 it's a storm",
		"extend override-new by 30m0s, Ana b Lima", "from 2026-12-02T07:00:00.25Z", "keep override-new by Ana b Lima", "end override-new by Ana b Lima", "switch stop-automation true by Ana b Lima: INC",
	}
	if got := f.done(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("did\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
