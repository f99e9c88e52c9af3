package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/identity/issuertest"
	"github.com/openrlc/rlc/internal/porttest"
)

// surfer is a browser that follows nothing by itself.
type surfer struct {
	t      *testing.T
	server string
	client *http.Client
}

func newSurfer(t *testing.T, server *process) *surfer {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &surfer{t, server.url, &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// goes asks as a browser does: for an address of the server's or of another,
// with a form where there is one. It returns the status, where it is sent, and
// the page.
func (s *surfer) goes(method, to string, form url.Values) (status int, next, page string) {
	s.t.Helper()
	if strings.HasPrefix(to, "/") {
		to = s.server + to
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, to, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Location"), string(b)
}

// leaves goes to the provider and returns the address that it sends back to.
func (s *surfer) leaves() (callback string) {
	s.t.Helper()
	_, authorize, page := s.goes("GET", "/login/provider?next=/runs", nil)
	if authorize == "" {
		s.t.Fatalf("not sent to the provider: %s", page)
	}
	_, callback, page = s.goes("GET", authorize, nil)
	if !strings.HasPrefix(callback, s.server+"/login/callback?") {
		s.t.Fatalf("the provider sends to %q: %s", callback, page)
	}
	return callback
}

// enters signs in by the provider.
func (s *surfer) enters() {
	s.t.Helper()
	if status, next, page := s.goes("GET", s.leaves(), nil); status != http.StatusSeeOther || next != "/runs" {
		s.t.Fatalf("coming back: %d to %q: %s", status, next, page)
	}
}

// signedIn starts the built program with a provider, and embedded parts for the
// rest: checkout is team-checkout's, search is team-search's.
func signedIn(t *testing.T) (*process, *issuertest.Issuer) {
	t.Helper()
	issuer := issuertest.New(t)
	w := &world{t: t, dir: t.TempDir(), config: filepath.Join(t.TempDir(), "rlc.yaml")}
	listen, repo := porttest.Free(t), filepath.Join(w.dir, "config.git")
	g := newGitServer(t, map[string]string{
		"defaults.yaml":                 "apiVersion: rlc/v1\nkind: Defaults\nprofile: rlc\n",
		"services/checkout/policy.yaml": strings.ReplaceAll(policy("checkout", ""), "team-a", "team-checkout"),
		"services/search/policy.yaml":   strings.ReplaceAll(policy("search", ""), "team-a", "team-search"),
	})
	git(t, w.dir, "clone", "-q", "--bare", g.bare, repo)
	w.write(w.config, fmt.Sprintf(`token: %s
listen: %s
repository: {url: %s}
oidc: {issuer: %s, client_id: rlc, public_url: "http://%s"}
roles: {admins: platform, oncall: sre}
poll: 200ms
`, token, listen, repo, issuer.URL, listen))
	server := w.launch(nil, "rlc", "serve", "--config", w.config, "--data", filepath.Join(w.dir, "data"))
	server.ready()
	return server, issuer
}

// What a person's groups say is what the built program lets that person do; the
// session ends where it is signed out of; with the provider away who is in stays
// in, nobody else comes in, and the server's token still does.
func TestSignInByAProviderSaysWhatAPersonMayDo(t *testing.T) {
	server, issuer := signedIn(t)
	nobody := newSurfer(t, server)
	if status, _, page := nobody.goes("GET", "/services", nil); status != http.StatusUnauthorized || !strings.Contains(page, "/login?next=") {
		t.Errorf("without a sign-in: %d %s", status, page)
	}
	ada := map[string]*surfer{}
	for _, c := range []struct {
		groups              []string
		own, others, tokens int // what acting on the one, on the other, and listing tokens answer
	}{
		{groups: []string{"team-checkout"}, own: 303, others: 403, tokens: 403},
		{groups: []string{"sre"}, own: 303, others: 303, tokens: 403},
		{groups: []string{"platform"}, own: 303, others: 303, tokens: 200},
		{groups: nil, own: 403, others: 403, tokens: 403},
	} {
		issuer.With(func(i *issuertest.Issuer) { i.Groups = c.groups })
		s := newSurfer(t, server)
		s.enters()
		ada[strings.Join(c.groups, ",")] = s
		read, _, page := s.goes("GET", "/services", nil)
		own, _, _ := s.goes("POST", "/runs?service=checkout", url.Values{})
		others, _, _ := s.goes("POST", "/runs?service=search", url.Values{})
		tokens, _, _ := s.goes("GET", "/api/v1/tokens", nil)
		if read != 200 || !strings.Contains(page, "ada@example.com") || own != c.own || others != c.others || tokens != c.tokens {
			t.Errorf("%v: reads %d, acts %d on its own and %d on others', tokens %d; want %+v", c.groups, read, own, others, tokens, c)
		}
	}
	var log struct {
		Audit []struct{ Actor, Action string } `json:"audit"`
	}
	if !server.get("/api/v1/audit?action=session.opened", &log) || len(log.Audit) != 4 || log.Audit[0].Actor != "ada@example.com" {
		t.Errorf("audit: %+v", log)
	}

	out := ada["sre"]
	at, err := url.Parse(server.url)
	if err != nil {
		t.Fatal(err)
	}
	old := out.client.Jar.Cookies(at)
	if status, _, page := out.goes("POST", "/logout", url.Values{}); status != http.StatusSeeOther || len(out.client.Jar.Cookies(at)) != 0 {
		t.Errorf("signing out: %d %s", status, page)
	}
	thief := newSurfer(t, server)
	thief.client.Jar.SetCookies(at, old)
	if status, _, page := thief.goes("GET", "/services", nil); status != http.StatusUnauthorized || !strings.Contains(page, "The session has ended") {
		t.Errorf("with the cookie of a session that was signed out of: %d %s", status, page)
	}

	issuer.Close()
	if status, _, _ := ada["team-checkout"].goes("POST", "/runs?service=checkout", url.Values{}); status != http.StatusSeeOther {
		t.Errorf("with the provider away, who is in: %d", status)
	}
	issuer.With(func(i *issuertest.Issuer) { i.Email = "bo@example.com" })
	late := newSurfer(t, server)
	_, authorize, _ := late.goes("GET", "/login/provider", nil)
	began, err := url.Parse(authorize)
	if err != nil {
		t.Fatal(err)
	}
	back := "/login/callback?" + url.Values{"code": {issuer.Consent(began)}, "state": {began.Query().Get("state")}}.Encode()
	if status, _, page := late.goes("GET", back, nil); status != http.StatusServiceUnavailable || !strings.Contains(page, "own token still signs in") {
		t.Errorf("with the provider away, who comes: %d %s", status, page)
	}
	if status, _, page := late.goes("POST", "/login", url.Values{"token": {token}, "name": {"Ana Lima"}, "next": {"/emergency"}}); status != http.StatusSeeOther {
		t.Errorf("with the provider away, by the server's token: %d %s", status, page)
	}
	if status, _, page := late.goes("GET", "/emergency", nil); status != 200 || !strings.Contains(page, "Ana Lima") {
		t.Errorf("the page after that: %d", status)
	}
}

// Of answers that are not the provider's word to this browser, now, the built
// program lets nobody in.
func TestAnswersThatAreNotTheProvidersWordLetNobodyIn(t *testing.T) {
	server, issuer := signedIn(t)
	refused := func(what string, s *surfer, callback string, want int) {
		t.Helper()
		status, _, page := s.goes("GET", callback, nil)
		in, _, _ := s.goes("GET", "/services", nil)
		if status != want || in != http.StatusUnauthorized {
			t.Errorf("%s: %d, want %d, and after it a page answers %d\n%s", what, status, want, in, page)
		}
	}
	set := func(name string, value any) func(map[string]any) { return func(c map[string]any) { c[name] = value } }
	for what, change := range map[string]func(map[string]any){
		"another audience": set("aud", "another"), "another issuer": set("iss", "https://evil.example"),
		"another nonce": set("nonce", "another"), "a token that has expired": set("exp", time.Now().Add(-time.Hour).Unix()),
		"an address that nobody verified": set("email_verified", false),
	} {
		issuer.With(func(i *issuertest.Issuer) { i.Change = change })
		s := newSurfer(t, server)
		refused(what, s, s.leaves(), http.StatusForbidden)
	}
	issuer.With(func(i *issuertest.Issuer) { i.Change = nil })

	s := newSurfer(t, server)
	callback := s.leaves()
	refused("another state", s, strings.Replace(callback, "state=", "state=X", 1), http.StatusBadRequest)
	refused("another browser", newSurfer(t, server), callback, http.StatusBadRequest)
	if status, _, page := s.goes("GET", callback, nil); status != http.StatusSeeOther {
		t.Fatalf("the answer itself, after what others tried: %d %s", status, page)
	}
	thief := newSurfer(t, server)
	thief.leaves() // it has a state of its own
	refused("an answer that was used", thief, callback, http.StatusBadRequest)
	if status, _, _ := s.goes("GET", callback, nil); status != http.StatusBadRequest {
		t.Errorf("an answer that was used, in its own browser: %d", status)
	}
}
