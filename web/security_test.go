package web_test

import (
	"context"
	"crypto/tls"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// signIn returns the session cookie.
func signIn(t *testing.T, h http.Handler, change func(*http.Request)) *http.Cookie {
	t.Helper()
	w := request(h, "POST", "/login", url.Values{"token": {token}, "name": {"Ana <b>\nLima"}, "next": {"/runs"}}.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if change != nil {
			change(r)
		}
	})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/runs" {
		t.Fatalf("sign in: %d to %q", w.Code, w.Header().Get("Location"))
	}
	for _, c := range w.Result().Cookies() {
		if strings.HasSuffix(c.Name, "rlc_session") {
			return c
		}
	}
	t.Fatal("no session cookie")
	return nil
}

func TestSessionCookies(t *testing.T) {
	h := newFixture(t).handler(t)
	plain := signIn(t, h, nil)
	if plain.Name != "rlc_session" || !plain.HttpOnly || plain.Secure || plain.SameSite != http.SameSiteLaxMode {
		t.Errorf("over http: %+v", plain)
	}
	secure := signIn(t, h, func(r *http.Request) { r.TLS = &tls.ConnectionState{} })
	if secure.Name != "__Host-rlc_session" || !secure.Secure || secure.Path != "/" || secure.Domain != "" {
		t.Errorf("over https: %+v", secure)
	}
	if plain.Value == secure.Value {
		t.Error("two sign-ins share a session")
	}
	with := func(r *http.Request) { r.AddCookie(plain); r.Header.Set("Sec-Fetch-Site", "same-origin") }
	if w := request(h, "GET", "/", "", with); !strings.Contains(w.Body.String(), "Ana b Lima") {
		t.Error("the page does not name who has signed in")
	}
	request(h, "POST", "/logout", "", with)
	if w := request(h, "POST", "/api/v1/runs", "", with); w.Code != http.StatusUnauthorized {
		t.Errorf("after signing out the old cookie acts: %d", w.Code)
	}
}

func TestSigningInIsThrottledAndLeadsNowhereElse(t *testing.T) {
	h := newFixture(t).handler(t)
	try := func(token, next string) *httptest.ResponseRecorder {
		return request(h, "POST", "/login", url.Values{"token": {token}, "next": {next}}.Encode(), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}
	for _, next := range []string{"//evil.example", "https://evil.example", `/\evil.example`, "javascript:alert(1)", "/\nSet-Cookie: a=b"} {
		if w := try(token, next); w.Header().Get("Location") != "/" {
			t.Errorf("next %q leads to %q", next, w.Header().Get("Location"))
		}
	}
	last := 0
	for range 12 {
		last = try("wrong", "/").Code
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("after 12 wrong tokens: %d", last)
	}
}

func TestWithoutATokenNobodyActs(t *testing.T) {
	f := newFixture(t)
	c := f.config()
	c.Token = ""
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, auth := range []string{"Bearer ", "Bearer", "Bearer x"} {
		w := request(h, "POST", "/api/v1/runs", "", func(r *http.Request) { r.Header.Set("Authorization", auth) })
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%q acts: %d", auth, w.Code)
		}
	}
}

func TestRequestsFromOtherSitesAreRefused(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	cookie := signIn(t, h, nil)
	const target = "/proposals/cron-2026-12-02T060000Z-checkout/accept"
	for _, c := range []struct {
		name    string
		headers map[string]string
		want    int
	}{
		{"cross-site", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"same-site, another origin", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{"foreign Origin, old browser", map[string]string{"Origin": "https://evil.example"}, 403},
		{"null Origin", map[string]string{"Origin": "null"}, 403},
		{"no word on where from", nil, 403},
		{"own Origin, old browser", map[string]string{"Origin": "http://127.0.0.1:8080"}, 303},
	} {
		w := request(h, "POST", target, "", func(r *http.Request) {
			r.AddCookie(cookie)
			for k, v := range c.headers {
				r.Header.Set(k, v)
			}
		})
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", c.name, w.Code, c.want)
		}
	}
	if did := f.done(); len(did) != 1 {
		t.Errorf("done: %q", did)
	}
}

func TestBodiesAreBoundedAndTyped(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	for _, c := range []struct {
		name, target, kind, encoding, body string
		want                               int
	}{
		{"text/plain as JSON", "/api/v1/runs", "text/plain", "", `{}`, 415},
		{"a form as JSON", "/api/v1/verdicts", "application/x-www-form-urlencoded", "", `a=b`, 415},
		{"text/plain as a form", "/proposals/cron-2026-12-02T060000Z-checkout/reject", "text/plain", "", `reason=x`, 415},
		{"compressed", "/api/v1/runs", "application/json", "gzip", `{}`, 415},
		{"2 MiB of JSON", "/api/v1/verdicts", "application/json", "", `{"service":"` + strings.Repeat("x", 2<<20) + `"}`, 413},
		{"1 M form fields", "/proposals/cron-2026-12-02T060000Z-checkout/reject", "application/x-www-form-urlencoded", "", strings.Repeat("a&", 1<<20), 413},
		{"an unknown field", "/api/v1/runs", "application/json", "", `{"servce":"checkout"}`, 400},
		{"two documents", "/api/v1/runs", "application/json", "", `{}{}`, 400},
		{"no reason", "/proposals/cron-2026-12-02T060000Z-checkout/reject", "application/x-www-form-urlencoded", "", `reason=+`, 422},
		{"an unknown service", "/api/v1/runs", "application/json", "", `{"service":"nothing"}`, 404},
		{"a future now", "/api/v1/runs", "application/json", "", `{"now":"2030-01-01T00:00:00Z"}`, 400},
	} {
		w := request(h, "POST", c.target, c.body, func(r *http.Request) {
			bearer(r)
			r.Header.Set("Content-Type", c.kind)
			if c.encoding != "" {
				r.Header.Set("Content-Encoding", c.encoding)
			}
		})
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", c.name, w.Code, c.want, w.Body)
		}
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("done: %q", did)
	}
}

func TestServerLimitsAreSet(t *testing.T) {
	s := web.Server(http.NotFoundHandler())
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.WriteTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 || s.MaxHeaderBytes > 64<<10 {
		t.Errorf("limits: %+v", s)
	}
}

func TestEveryAnswerCarriesTheHeaders(t *testing.T) {
	h := newFixture(t).handler(t)
	for _, target := range []string{"/", "/services/nothing", "/nowhere", "/api/v1/services", "/static/x/app.css", "/healthz", "/services.csv"} {
		w := get(h, target)
		csp := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: policy %q lacks %q", target, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") == "" {
			t.Errorf("%s: headers %v", target, w.Header())
		}
	}
}

// refusing answers every reading with err.
type refusing struct {
	web.Records
	err error
}

func (r refusing) ProposalsBy(context.Context, rlc.ProposalFilter, rlc.Page) ([]rlc.Proposal, int, error) {
	return nil, 0, r.err
}

func TestErrorsTellNoPlaceOfThisMachine(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("open /var/lib/rlc/rlc.db: postgres://rlc:hunter2@10.0.0.7/rlc: goroutine 7 [running]"), 500},
		{fmt.Errorf("read /var/lib/rlc/rlc.db: %w", rlc.ErrInvalid), 400},
		{fmt.Errorf("at postgres://rlc:hunter2@10.0.0.7/rlc: %w", rlc.ErrRefused), 422},
		{fmt.Errorf("push (/var/lib/rlc/config.git): %w", rlc.ErrConflict), 409},
		{fmt.Errorf("row in /var/lib: %w", rlc.ErrNotFound), 404},
		{fmt.Errorf("epoch at /var/lib: %w", rlc.ErrFenced), 503},
		{context.DeadlineExceeded, 503},
	} {
		config := f.config()
		config.Records = refusing{f.db, c.err}
		h, err := web.New(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range []string{"/api/v1/proposals", "/proposals"} {
			w := get(h, target)
			if w.Code != c.want {
				t.Errorf("%v: %d, want %d", c.err, w.Code, c.want)
			}
			for _, secret := range []string{"/var", "hunter2", "10.0.0.7", "goroutine", "rlc.db"} {
				if strings.Contains(w.Body.String(), secret) {
					t.Errorf("%s shows %q of %v", target, secret, c.err)
				}
			}
			kind := w.Header().Get("Content-Type")
			if api := strings.HasPrefix(target, "/api"); api != (kind == "application/problem+json") {
				t.Errorf("%s answers with %q", target, kind)
			}
		}
	}
}

func TestHostileNamesAreInert(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	base := "/services/" + url.PathEscape(hostileService)
	targets := []string{"/", "/services", base, base + "/shadow", "/proposals", "/runs", "/runs/cron-2026-12-02T060000Z?show=all", "/runs/person-2026-12-02T060230Z",
		"/services?q=" + url.QueryEscape(hostile[0]), "/services/" + url.PathEscape(hostile[0]), "/nowhere/" + url.PathEscape(hostile[1]), "/login?next=" + url.QueryEscape(hostile[0])}
	for _, name := range hostile {
		targets = append(targets, base+"/buckets/callers?key="+url.QueryEscape(rlc.Key{"caller": name}.String()))
	}
	for _, target := range targets {
		w := get(h, target)
		page := w.Body.String()
		for _, bad := range []string{"<script>alert", "<img src=x", "<b>bold", `href="javascript`, "\u202e"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s holds %q", target, bad)
			}
		}
		if strings.Contains(page, "<script>") || strings.Contains(page, " onclick") || strings.Contains(page, " style=") {
			t.Errorf("%s holds inline script or style", target)
		}
		if w.Code >= 500 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	for _, target := range []string{"/services.json", base + ".json", base + "/shadow.json", "/proposals.json", "/runs.json"} {
		w := get(h, target)
		if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" || strings.Contains(w.Body.String(), "<script") {
			t.Errorf("%s: %s", target, w.Body.String()[:min(200, w.Body.Len())])
		}
	}
	for _, target := range []string{"/services.csv", base + ".csv", base + "/shadow.csv", "/proposals.csv", "/runs.csv", "/runs/cron-2026-12-02T060000Z.csv", base + "/buckets/callers.csv"} {
		w := get(h, target)
		rows, err := csv.NewReader(w.Body).ReadAll()
		if err != nil || len(rows) < 2 || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %d rows, %v, %v", target, len(rows), err, w.Header())
		}
		for _, row := range rows {
			for _, cell := range row {
				if cell != "" && strings.ContainsRune("=+@\t\r", rune(cell[0])) {
					t.Errorf("%s: cell %q is a formula", target, cell)
				}
			}
		}
	}
}

func TestCellsThatWouldBeFormulasAreText(t *testing.T) {
	for in, want := range map[string]string{
		"=1+1": "'=1+1", "+1": "'+1", "@A1": "'@A1", "-2+3": "'-2+3", "-2.5": "-2.5", "2.5": "2.5", " =1": "' =1", "\t=1": "'\t=1", "＝1": "'＝1", "caller=-1": "caller=-1", "": "", "a\x00=1": "a=1",
	} {
		if got := web.Inert(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// Whoever presses Sign in on the page that signs in still gets to where they were going.
func TestSignInLeadsFromItselfToWhereItWasToLead(t *testing.T) {
	h := newFixture(t).handler(t)
	for path, want := range map[string]string{"/login?next=%2Fruns%3Fpage%3D2": "%2Fruns%3Fpage%3D2", "/login": "%2F", "/login?next=%2F%2Fevil": "%2F"} {
		holds(t, h, path, `class="who" href="/login?next=`+want+`"`)
	}
}
