package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// proxied believes X-User and X-Groups from 10.0.0.0/8.
type proxied struct{}

func (proxied) Trusted(r *http.Request) bool { return strings.HasPrefix(r.RemoteAddr, "10.") }

func (p proxied) Who(r *http.Request) (string, []string, bool) {
	if !p.Trusted(r) || r.Header.Get("X-User") == "" {
		return "", nil, false
	}
	return r.Header.Get("X-User"), strings.Split(r.Header.Get("X-Groups"), ","), true
}

// as is a request of a person through the proxy.
func as(name, groups string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = "10.0.0.1:4000"
		r.Header.Set("X-User", name)
		r.Header.Set("X-Groups", groups)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if r.Method != http.MethodGet && r.Header.Get("Content-Type") == "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
}

// company is the fixture behind a proxy, with admins and people on call.
func company(t *testing.T, f *fixture, change func(*web.Config)) http.Handler {
	t.Helper()
	c := f.config()
	c.Proxy, c.Access = proxied{}, web.Access{Admins: []string{"admins"}, OnCall: []string{"sre"}}
	if change != nil {
		change(&c)
	}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// issue makes an API token and returns it.
func issue(t *testing.T, h http.Handler, body string) string {
	t.Helper()
	w := request(h, "POST", "/api/v1/tokens", body, func(r *http.Request) { bearer(r); r.Header.Set("Content-Type", "application/json") })
	var out struct{ Token string }
	if err := json.Unmarshal(w.Body.Bytes(), &out); w.Code != http.StatusCreated || err != nil || !strings.HasPrefix(out.Token, "rlc_") {
		t.Fatalf("token: %d %s", w.Code, w.Body)
	}
	return out.Token
}

func holder(token string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = "192.0.2.7:4000"
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

// Every route of the list is asked by every identity, about a service of its
// own and about another's, in both ways of reading. What should be refused must
// be, and what should pass must not be refused: the rules are written here a
// second time, from the page on identity.
func TestEveryRouteByEveryIdentityOnOwnAndOthersObjects(t *testing.T) {
	type who struct {
		name   string
		role   string // nobody, viewer, owner, caller, bot, oncall, admin, bound
		own    bool   // of checkout
		change func(*http.Request)
	}
	allowed := func(w who, r web.Route, private bool) bool {
		path, reads := r.Path, r.Method == "GET" || r.Role == "person" || slices.Contains([]string{"/api/v1/plan", "/api/v1/backtest", "/api/v1/replay", "/import"}, r.Path)
		of := strings.Contains(path, "{service}") || strings.Contains(path, "/proposals/{id}") || slices.Contains([]string{
			"POST /api/v1/runs", "POST /runs", "POST /api/v1/plan", "POST /api/v1/backtest", "POST /api/v1/replay", "POST /api/v1/verdicts", "POST /api/v1/overrides", "POST /emergency",
			"GET /api/v1/why", "GET /api/v1/verdicts", "GET /why", "GET /why.json", "GET /why.csv", "POST /why", "POST /import/commit",
		}, r.Method+" "+path)
		switch {
		case r.Role == "anyone", w.role == "admin":
			return true
		case w.role == "nobody", r.Role == "admin":
			return false
		case reads && (!private || path == "/api/openapi.json" || strings.HasPrefix(path, "/find") || w.role == "oncall"):
			return true
		case path == "/callers/{caller}": // search, whose owner asks
			return w.role == "caller"
		case reads:
			return of && (w.own || w.role == "caller")
		case w.role == "oncall":
			return true
		case w.role == "owner", w.role == "bound":
			return of && w.own && !(private && w.role == "owner" && !w.own)
		case w.role == "bot":
			return strings.HasSuffix(path, "/runs") && !private
		}
		return false
	}
	asked, passed := 0, 0
	for _, private := range []bool{false, true} {
		f := newFixture(t)
		h := company(t, f, func(c *web.Config) { c.Access.Private = private })
		all := []who{
			{"nobody", "nobody", false, func(r *http.Request) { r.RemoteAddr = "192.0.2.7:4000" }},
			{"nobody on loopback", "nobody", false, nil},
			{"a header from elsewhere", "nobody", false, func(r *http.Request) { as("eve", "admins")(r); r.RemoteAddr = "192.0.2.7:4000" }},
			{"a viewer", "viewer", false, as("vic", "")},
			{"an owner of the service", "owner", true, as("ana", "team-payments")},
			{"an owner of another", "viewer", false, as("bo", "team <b>bold</b>")},
			{"an owner of a caller", "caller", false, as("cal", "team-discovery")},
			{"on-call", "oncall", false, as("sue", "sre")},
			{"an admin", "admin", false, as("root", "x,admins")},
			{"a bot's token", "bot", false, holder(issue(t, h, `{"name":"cron","role":"bot","ttl_seconds":3600}`))},
			{"a token for the service", "bound", true, holder(issue(t, h, `{"name":"ci","role":"owner","services":["checkout"],"ttl_seconds":3600}`))},
			{"a token for another", "viewer", false, holder(issue(t, h, `{"name":"ci2","role":"owner","services":["media"],"ttl_seconds":3600}`))},
			{"an on-call token for another", "viewer", false, holder(issue(t, h, `{"name":"ci3","role":"oncall","services":["media"],"ttl_seconds":3600}`))},
		}
		for _, route := range web.Routes() {
			for _, w := range all {
				target, body, kind := filled(route.Path), "service=checkout", "application/x-www-form-urlencoded"
				if strings.HasPrefix(route.Path, "/api/") {
					body, kind = `{"service":"checkout"}`, "application/json"
				}
				switch route.Path {
				case "/runs", "/api/v1/why", "/api/v1/verdicts", "/why", "/why.json", "/why.csv":
					target += "?service=checkout"
				}
				answer := request(h, route.Method, target, body, func(r *http.Request) {
					r.Header.Set("Content-Type", kind)
					if w.change != nil {
						w.change(r)
					}
				})
				asked++
				// A route that is for anyone refuses by itself: a wrong token, no such file.
				refused := answer.Code == 401 || answer.Code == 403 || answer.Code == 404 && strings.Contains(answer.Body.String(), "not for you")
				want := allowed(w, route, private)
				if !want && answer.Code < 300 {
					passed++
				}
				if route.Role != "anyone" && refused == want {
					t.Errorf("private %v: %s %s by %s: %d, want it let through: %v\n%.300s", private, route.Method, target, w.name, answer.Code, want, "")
				}
			}
		}
	}
	t.Logf("%d requests, %d unexpected 2xx", asked, passed)
	if passed > 0 {
		t.Errorf("%d unexpected 2xx", passed)
	}
}

// Handlers and the check read one service, whatever a body says twice, and a
// form's address wins where the handler reads the address.
func TestABodyCannotNameOneServiceAndActOnAnother(t *testing.T) {
	f := newFixture(t)
	h := company(t, f, nil)
	owner := as("ana", "team-payments")
	for _, c := range []struct{ name, target, kind, body string }{
		{"twice", "/api/v1/runs", "application/json", `{"service":"checkout","service":"search"}`},
		{"in another case", "/api/v1/runs", "application/json", `{"service":"checkout","SERVICE":"search"}`},
		{"null", "/api/v1/runs", "application/json", `{"service":null}`},
		{"a query beside the body", "/api/v1/runs?service=checkout", "application/json", `{}`},
		{"a body beside the query", "/runs", "application/x-www-form-urlencoded", `service=checkout`},
		{"a form for JSON", "/api/v1/runs", "application/x-www-form-urlencoded", `service=search`},
	} {
		w := request(h, "POST", c.target, c.body, func(r *http.Request) { r.Header.Set("Content-Type", c.kind); owner(r) })
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", c.name, w.Code)
		}
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("done: %q", did)
	}
}

// A refusal leaves a row; a flood of them leaves sixty a minute.
func TestRefusalsAreAudited(t *testing.T) {
	f := newFixture(t)
	h := company(t, f, nil)
	for range 80 {
		request(h, "POST", "/proposals/cron-2026-12-02T060000Z-checkout/accept", "", as("eve", ""))
	}
	got, total, err := f.db.AuditLog(t.Context(), rlc.AuditFilter{Action: "access.refused"}, rlc.Page{Size: 1})
	if err != nil || total != 60 || got[0].Actor != "eve" || got[0].Object != "POST /proposals/cron-2026-12-02T060000Z-checkout/accept" {
		t.Errorf("%d rows, %+v, %v", total, got, err)
	}
}

func TestWhoAskedForARunDoesNotAcceptIt(t *testing.T) {
	for eyes, want := range map[bool]int{false: 303, true: 403} {
		h := requested(t, newFixture(t), eyes)
		if w := request(h, "POST", "/proposals/person-1-media/accept", "", as("sue", "sre")); w.Code != want {
			t.Errorf("four eyes %v: %d, want %d", eyes, w.Code, want)
		}
		if w := request(h, "POST", "/proposals/person-1-media/accept", "", as("tom", "sre")); eyes && w.Code != 303 {
			t.Errorf("four eyes, somebody else: %d", w.Code)
		}
	}
}

// requested has an open proposal of a run that sue asked for.
func requested(t *testing.T, f *fixture, eyes bool) http.Handler {
	t.Helper()
	run := rlc.Run{ID: "person-1", Trigger: rlc.ByPerson, Actor: "sue", Now: runAt, Started: runAt, Finished: runAt.Add(time.Second), Result: rlc.ResultOK}
	p := rlc.Proposal{ID: "person-1-media", RunID: run.ID, Service: "media", State: rlc.Pending, Created: runAt, Content: "cc"}
	f.run(t, run, nil, []rlc.Proposal{p})
	p.State = rlc.Open
	if err := f.db.SetProposal(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	return company(t, f, func(c *web.Config) { c.Access.FourEyes = eyes })
}

func TestTokensEndAndAreKnownByTheirHash(t *testing.T) {
	f := newFixture(t)
	clock := now
	h := company(t, f, func(c *web.Config) { c.Now = func() time.Time { return clock } })
	secret := issue(t, h, `{"name":"ci","role":"viewer","ttl_seconds":3600}`)
	status := func(change func(*http.Request)) int { return request(h, "GET", "/api/v1/services", "", change).Code }
	if got := status(holder(secret)); got != 200 {
		t.Errorf("a new token: %d", got)
	}
	for name, change := range map[string]func(*http.Request){
		"in the address": func(r *http.Request) {
			r.RemoteAddr, r.URL.RawQuery = "192.0.2.7:1", "access_token="+secret+"&token="+secret
		},
		"as a cookie": func(r *http.Request) {
			r.RemoteAddr = "192.0.2.7:1"
			r.AddCookie(&http.Cookie{Name: "rlc_session", Value: secret})
		},
		"its hash":      holder(fmt.Sprintf("rlc_%x", secret)),
		"one letter on": holder(secret + "A"),
	} {
		if got := status(change); got != 401 {
			t.Errorf("%s: %d", name, got)
		}
	}
	w := request(h, "GET", "/api/v1/tokens", "", bearer)
	var list struct {
		Tokens []struct {
			ID, State string
			Used      *time.Time `json:"last_used_at"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Tokens) != 1 || list.Tokens[0].Used == nil || !list.Tokens[0].Used.Equal(now) || strings.Contains(w.Body.String(), secret) {
		t.Fatalf("list: %s, %v", w.Body, err)
	}
	clock = now.Add(time.Hour)
	if got := status(holder(secret)); got != 401 {
		t.Errorf("when it is over: %d", got)
	}
	clock = now
	if got := request(h, "DELETE", "/api/v1/tokens/"+list.Tokens[0].ID, "", bearer).Code; got != 204 {
		t.Errorf("revoke: %d", got)
	}
	if got := status(holder(secret)); got != 401 {
		t.Errorf("revoked: %d", got)
	}
	for _, bad := range []string{`{"name":"","role":"bot","ttl_seconds":60}`, `{"name":"x","role":"god","ttl_seconds":60}`, `{"name":"x","role":"owner","ttl_seconds":60}`, `{"name":"x","role":"bot","ttl_seconds":1e12}`, `{"name":"x","role":"bot"}`, `{"name":"x","role":"admin","services":["a"],"ttl_seconds":60}`, `{"name":"x","role":"oncall","services":["*"],"ttl_seconds":60}`} {
		w := request(h, "POST", "/api/v1/tokens", bad, func(r *http.Request) { bearer(r); r.Header.Set("Content-Type", "application/json") })
		if w.Code != 400 {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
}

// vouching is a provider whose word can be changed.
type vouching struct {
	mu     sync.Mutex
	groups []string
	err    error
	asked  int
	nonce  string
}

func (p *vouching) Origin() string { return "https://login.example.com" }

func (p *vouching) Start(_ context.Context, state, nonce, verifier string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nonce = nonce
	return "https://login.example.com/authorize?state=" + state, nil
}

func (p *vouching) Finish(_ context.Context, code, iss, nonce, verifier string) (rlc.SignIn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if code != "good" || nonce != p.nonce || len(verifier) < 43 {
		return rlc.SignIn{}, fmt.Errorf("%w: no", rlc.ErrRefused)
	}
	return rlc.SignIn{Name: "ada@example.com", Groups: p.groups, Grant: []byte("canary-refresh-token")}, nil
}

func (p *vouching) Again(_ context.Context, grant []byte) (rlc.SignIn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if string(grant) != "canary-refresh-token" {
		return rlc.SignIn{}, fmt.Errorf("%w: another grant", rlc.ErrRefused)
	}
	return rlc.SignIn{Name: "ada@example.com", Groups: p.groups, Grant: grant}, p.err
}

// depart leaves for the provider and returns its state and the cookie.
func depart(t *testing.T, h http.Handler) (state string, cookie *http.Cookie) {
	t.Helper()
	w := request(h, "GET", "/login/provider?next=/runs", "", nil)
	u, err := url.Parse(w.Header().Get("Location"))
	if w.Code != 303 || err != nil || u.Host != "login.example.com" || len(w.Result().Cookies()) != 1 {
		t.Fatalf("leave: %d %v", w.Code, w.Header())
	}
	return u.Query().Get("state"), w.Result().Cookies()[0]
}

func comeBack(h http.Handler, query string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
	return request(h, "GET", "/login/callback?"+query, "", func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	})
}

func TestAProvidersAnswerCountsOnceAndInItsBrowserOnly(t *testing.T) {
	f := newFixture(t)
	h := company(t, f, func(c *web.Config) { c.Proxy, c.Provider, c.Secure = nil, &vouching{}, true })
	mine, cookie := depart(t, h)
	others, _ := depart(t, h)
	if cookie.Name != "__Host-rlc_session_state" || !cookie.HttpOnly || !cookie.Secure {
		t.Errorf("the state's cookie: %+v", cookie)
	}
	mine2, cookie2 := depart(t, h)
	for _, c := range []struct {
		name, query string
		cookies     []*http.Cookie
		want        int
	}{
		{"no cookie", "code=good&state=" + mine, nil, 400},
		{"another's state", "code=good&state=" + others, []*http.Cookie{cookie}, 400},
		{"no state", "code=good", []*http.Cookie{cookie}, 400},
		{"a made-up state", "code=good&state=X", []*http.Cookie{{Name: cookie.Name, Value: "X"}}, 400},
		{"good", "code=good&state=" + mine2, []*http.Cookie{cookie2}, 303},
		{"replayed", "code=good&state=" + mine2, []*http.Cookie{cookie2}, 400},
		{"a code of another sign-in", "code=bad&state=" + mine, []*http.Cookie{cookie}, 403},
		{"after that", "code=good&state=" + mine, []*http.Cookie{cookie}, 400},
	} {
		w := comeBack(h, c.query, c.cookies...)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d", c.name, w.Code, c.want)
		}
	}
}

func TestAChangeAtTheProviderCountsWithinAMinute(t *testing.T) {
	f := newFixture(t)
	clock := now
	p := &vouching{groups: []string{"team-payments"}}
	h := company(t, f, func(c *web.Config) {
		c.Proxy, c.Provider, c.Secure, c.Now = nil, p, true, func() time.Time { return clock }
	})
	enter := func() func(*http.Request) {
		state, cookie := depart(t, h)
		w := comeBack(h, "code=good&state="+state, cookie)
		if w.Code != 303 || w.Header().Get("Location") != "/runs" {
			t.Fatalf("come back: %d %v", w.Code, w.Header())
		}
		all := w.Result().Cookies()
		session := all[len(all)-1]
		if session.Name != "__Host-rlc_session" || !session.Secure || !session.HttpOnly || session.Path != "/" || session.Domain != "" {
			t.Errorf("the cookie: %+v", session)
		}
		return func(r *http.Request) {
			r.AddCookie(session)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.Header.Set("Content-Type", "application/json")
		}
	}
	act := func(who func(*http.Request)) int {
		return request(h, "POST", "/api/v1/runs", `{"service":"checkout"}`, who).Code
	}
	ada := enter()
	if got := act(ada); got != 202 || p.asked != 0 {
		t.Errorf("an owner: %d, the provider asked %d times", got, p.asked)
	}
	p.groups = nil
	clock = clock.Add(time.Minute)
	if got := act(ada); got != 403 {
		t.Errorf("a minute after the group was taken: %d", got)
	}
	p.groups = []string{"team-payments"}
	clock = clock.Add(time.Minute)
	if got := act(ada); got != 202 {
		t.Errorf("a minute after it was given: %d", got)
	}
	p.err = fmt.Errorf("%w: away", rlc.ErrUnavailable)
	clock = clock.Add(10 * time.Minute)
	if got := act(ada); got != 202 {
		t.Errorf("the provider is away for ten minutes: %d", got)
	}
	clock = clock.Add(10 * time.Minute)
	if got := act(ada); got != 503 {
		t.Errorf("the provider is away for twenty minutes: %d", got)
	}
	p.err = fmt.Errorf("%w: gone", rlc.ErrRefused)
	if got := act(ada); got != 401 {
		t.Errorf("the person is gone: %d", got)
	}
	p.err = nil
	if got := act(ada); got != 401 {
		t.Errorf("the old session after that: %d", got)
	}
	bo := enter()
	clock = clock.Add(3 * time.Hour)
	if got := act(bo); got != 401 {
		t.Errorf("idle for three hours: %d", got)
	}
	cy := enter()
	for range 13 {
		clock = clock.Add(time.Hour)
		act(cy)
	}
	if got := act(cy); got != 401 {
		t.Errorf("busy for 13 hours: %d", got)
	}
}

// Two replicas share the records: a session opened at one is known at the
// other, and ended at one it is ended at both.
func TestSessionsAreSharedByReplicas(t *testing.T) {
	f := newFixture(t)
	a, b := f.handler(t), f.handler(t)
	cookie := signIn(t, a, nil)
	with := func(r *http.Request) { r.AddCookie(cookie); r.Header.Set("Sec-Fetch-Site", "same-origin") }
	if w := request(b, "POST", "/follow", "", with); w.Code != 303 {
		t.Errorf("at the other replica: %d", w.Code)
	}
	request(b, "POST", "/logout", "", with)
	if w := request(a, "POST", "/follow", "", with); w.Code != 401 {
		t.Errorf("after signing out at the other: %d", w.Code)
	}
	c := f.config()
	c.Token = "another-token-of-the-server"
	cookie = signIn(t, a, nil)
	changed, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if w := request(changed, "POST", "/follow", "", with); w.Code != 401 {
		t.Errorf("with another token the old session acts: %d", w.Code)
	}
}

// away are identities in records that cannot be reached.
type away struct{ web.Identities }

func (away) Session(context.Context, string) (rlc.Session, error) {
	return rlc.Session{}, rlc.ErrUnavailable
}
func (away) OpenSession(context.Context, rlc.Session, *rlc.AuditEntry) error {
	return rlc.ErrUnavailable
}

func TestWithTheRecordsAwayTheServersTokenStillSignsIn(t *testing.T) {
	f := newFixture(t)
	c := f.config()
	c.Identities, c.Records = away{f.db}, unread{}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	// A user of this machine is a viewer, whose other pages read the records.
	if home, form := get(h, "/"), get(h, "/login"); home.Code != 503 || form.Code != 200 || !strings.Contains(form.Body.String(), `id="token"`) {
		t.Errorf("the overview answers %d, the form to sign in %d %s", home.Code, form.Code, form.Body)
	}
	cookie := signIn(t, h, nil)
	if w := request(h, "POST", "/follow", "", func(r *http.Request) { r.AddCookie(cookie); r.Header.Set("Sec-Fetch-Site", "same-origin") }); w.Code != 303 {
		t.Errorf("acting: %d %s", w.Code, w.Body)
	}
	if w := request(h, "POST", "/follow", "", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "rlc_session", Value: strings.Repeat("A", 26)})
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}); w.Code != 503 {
		t.Errorf("with a cookie that nobody can look up: %d", w.Code)
	}
}
