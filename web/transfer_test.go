package web_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

func (f *fixture) ImportPolicy(_ context.Context, service string, policy []byte, actor string) error {
	f.did("import %s by %s: %s", service, actor, policy)
	return nil
}

func (f *fixture) ServiceFiles(_ context.Context, service string) (rlc.Commit, rlc.Files, error) {
	out := rlc.Files{}
	for _, path := range []string{quotafile.PolicyPath(service), quotafile.QuotasPath(service)} {
		if f.files[path] != nil {
			out[path] = f.files[path]
		}
	}
	return f.commit, out, nil
}

const envoyFile = `domain: wallet
descriptors:
  - key: caller
    rate_limit: {unit: minute, requests_per_unit: 600}
  - key: caller
    value: mobile
    detailed_metric: true
    rate_limit: {unit: second, requests_per_unit: 50}
`

func paste(h http.Handler, target string, form url.Values, change func(*http.Request)) *httptest.ResponseRecorder {
	return request(h, "POST", target, form.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if change != nil {
			change(r)
		}
	})
}

func TestAnImportIsPreviewedInShadowWithWhatGetsLost(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	holds(t, h, "/import", "Preview", "rlc import envoy-ratelimit", "1,024 KiB")
	text := strings.ReplaceAll(envoyFile, "\n", "\r\n") // as browsers send it
	w := paste(h, "/import", url.Values{"text": {text}}, nil)
	page := w.Body.String()
	for _, want := range []string{"wallet</b>", "gets 2 buckets", "1 thing is said otherwise", "metrics", "caller mobile", "each caller", "600 per 1 min", "50 per 1 s", "services/wallet/policy.yaml", "defaults: {mode: shadow,", "Sign in"} {
		if !strings.Contains(page, want) {
			t.Errorf("the preview lacks %q", want)
		}
	}
	if w.Code != http.StatusOK || strings.Contains(page, "/import/commit") || strings.Contains(page, "mode: enforce") {
		t.Errorf("a viewer's preview: %d", w.Code)
	}
	if page = paste(h, "/import", url.Values{"text": {envoyFile}}, bearer).Body.String(); !strings.Contains(page, `action="/import/commit"`) {
		t.Error("an actor is not offered the act")
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("looking did %q", did)
	}
}

func TestAnImportIsCommittedInShadowByWhoMay(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	form := url.Values{"text": {envoyFile}, "service": {"wallet"}, "owners": {"team-pay, @sre"}}
	if w := paste(h, "/import/commit", form, nil); w.Code != http.StatusUnauthorized {
		t.Errorf("a viewer: %d", w.Code)
	}
	form.Set("service", "checkout") // whose owners may act on it, not on wallet
	if w := paste(h, "/import/commit", form, bearer); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("another service's name beside the text: %d", w.Code)
	}
	form.Set("service", "wallet")
	w := paste(h, "/import/commit", form, bearer)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/services?done=imported" {
		t.Errorf("committed: %d to %q", w.Code, w.Header().Get("Location"))
	}
	want := `import wallet by token: apiVersion: rlc/v1
kind: ServicePolicy
service: wallet
owners: ["team-pay","@sre"]
defaults: {mode: shadow, on_failure: open}
buckets:
  - {name: each-caller, each: [caller], algorithm: fixed_window, limit: {requests: 600, per: minute}}
  - {name: caller-mobile, match: {caller: mobile}, algorithm: fixed_window, limit: {requests: 50, per: second}}
`
	if got := f.done(); fmt.Sprint(got) != fmt.Sprint([]string{want}) {
		t.Errorf("done\n%s\nwant\n%s", got, want)
	}
}

func TestAnImportSaysWhereItsErrorsAre(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	for name, c := range map[string]struct {
		text string
		code int
		want string
	}{
		"shadow_mode in the wrong place": {strings.Replace(envoyFile, "unit: minute,", "unit: minute, shadow_mode: true,", 1), 422, "pasted:4:"},
		"no YAML":                        {"a: [", 422, "pasted:1:"},
		"hostile":                        {"domain: \"" + hostile[1] + "\"\n", 422, "&lt;/script&gt;"},
		"nothing":                        {" \n", 422, "Paste a file"},
		"a service with a policy":        {strings.Replace(envoyFile, "wallet", "checkout", 1), 200, "an import never replaces one"},
		"2 MiB":                          {strings.Repeat("x", 2<<20), 413, "1,048,576 bytes"},
		"a form of 4 MiB":                {strings.Repeat("x", 4<<20), 413, "3,149,824 bytes"},
	} {
		w := paste(h, "/import", url.Values{"text": {c.text}}, bearer)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) || strings.Contains(w.Body.String(), "/import/commit") {
			t.Errorf("%s: %d, want %d with %q: %.300s", name, w.Code, c.code, c.want, w.Body)
		}
	}
}

func TestAServiceIsExportedWithWhatGetsLost(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/services/checkout/export", "Envoy ratelimit", "otherwise or not at all", "burst", "domain: checkout", "requests_per_unit: 1900", "rlc export envoy-ratelimit --service checkout", "/services/checkout/export.yaml")
	holds(t, h, "/services/checkout/export?kind=istio&instances=4&headers=caller%3Dx-client", "EnvoyFilter", "x-client", "each of 4 instances", "--header caller=x-client --instances 4")
	w := get(h, "/services/checkout/export.yaml?kind=envoy-gateway")
	if got := w.Header().Get("Content-Disposition"); w.Code != 200 || got != "attachment; filename=checkout.yaml" || !strings.HasPrefix(w.Body.String(), "# Written by rlc") {
		t.Errorf("download: %d %q %.80s", w.Code, got, w.Body)
	}
	var doc struct {
		Kind, Text string
		Losses     []struct{ Kind string }
	}
	if err := json.Unmarshal(get(h, "/services/checkout/export.json").Body.Bytes(), &doc); err != nil || doc.Kind != "envoy-ratelimit" || len(doc.Losses) == 0 {
		t.Errorf("json: %v, %+v", err, doc)
	}
	rows, err := csv.NewReader(get(h, "/services/checkout/export.csv").Body).ReadAll()
	if err != nil || len(rows) != len(doc.Losses)+1 {
		t.Errorf("csv: %d rows (%v), want %d", len(rows), err, len(doc.Losses)+1)
	}
	for target, want := range map[string]int{"?kind=haproxy": 400, "?headers=x": 400, "?instances=0": 400} {
		if w := get(h, "/services/checkout/export"+target); w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
	holds(t, h, "/services/pricing/export", "Nothing to export", "unknown parameter")
	if w := get(h, "/services/pricing/export.yaml"); w.Code != 422 {
		t.Errorf("a broken policy's file: %d", w.Code)
	}
}

func TestAPolicyIsShownAsItIsWrittenWithItsErrors(t *testing.T) {
	h := newFixture(t).handler(t)
	holds(t, h, "/services/checkout/policy", "services/checkout/policy.yaml", "reserve: 0.1", "The policy is valid", "quotas.yaml", "git show 9f2c1ab0d3:services/checkout/policy.yaml")
	holds(t, h, "/services/pricing/policy", "is not valid on the base branch", "headrooom", "<del> unknown")
	var doc struct {
		Commit string
		Files  map[string]string
	}
	if err := json.Unmarshal(get(h, "/services/checkout/policy.json").Body.Bytes(), &doc); err != nil || doc.Files["services/checkout/policy.yaml"] != checkoutPolicy {
		t.Errorf("json: %v, %+v", err, doc)
	}
	if w := get(h, "/services/nothing/policy"); w.Code != 404 {
		t.Errorf("an unknown service: %d", w.Code)
	}
}
