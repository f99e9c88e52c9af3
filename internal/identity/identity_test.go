package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/identity"
)

// issuer is a real OpenID Connect provider on loopback. change spoils the
// claims of its ID tokens, forge replaces the token.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey

	mu     sync.Mutex
	codes  map[string]url.Values // the request that each code answers; used once
	change func(claims map[string]any)
	forge  func(claims map[string]any) string
	says   map[string]any // beside the standard description
	info   int            // status of userinfo
	groups []string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, codes: map[string]url.Values{}, groups: []string{"team-checkout"}, info: 200}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		doc := map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "userinfo_endpoint": i.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"}}
		for k, v := range i.says {
			doc[k] = v
		}
		json.NewEncoder(w).Encode(doc)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.info != 200 || r.Header.Get("Authorization") != "Bearer access" {
			w.WriteHeader(max(i.info, 401))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(i.claims(nil))
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) claims(asked url.Values) map[string]any {
	return map[string]any{"iss": i.URL, "aud": "rlc", "sub": "u1", "email": "ada@example.com", "email_verified": true, "groups": i.groups,
		"nonce": asked.Get("nonce"), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()}
}

func (i *issuer) sign(t jose.SigningKey, claims map[string]any) string {
	s, err := jose.NewSigner(t, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		panic(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		panic(err)
	}
	return text
}

// token answers a code once, to whoever shows the verifier of its challenge.
func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked, ok := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || asked.Get("code_challenge_method") != "S256" || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims := i.claims(asked)
	if i.change != nil {
		i.change(claims)
	}
	id := ""
	if i.forge != nil {
		id = i.forge(claims)
	} else {
		id = i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, claims)
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 3600, "id_token": id})
}

// consent is a person's browser at the provider: it returns the code.
func (i *issuer) consent(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	code := rand.Text()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes[code] = u.Query()
	return code
}

func (i *issuer) provider(t *testing.T) *identity.OIDC {
	t.Helper()
	o, err := identity.NewOIDC(identity.OIDCConfig{Issuer: i.URL, ClientID: "rlc", RedirectURL: "https://rlc.example.com/login/callback"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// enter goes the whole way. verifier is what is shown at the end.
func (i *issuer) enter(t *testing.T, iss, verifier string) (rlc.SignIn, error) {
	t.Helper()
	o := i.provider(t)
	at, err := o.Start(t.Context(), "state", "nonce", "verifier-verifier-verifier-verifier-verifier")
	if err != nil {
		t.Fatal(err)
	}
	return o.Finish(t.Context(), i.consent(t, at), iss, "nonce", verifier)
}

const verifier = "verifier-verifier-verifier-verifier-verifier"

func TestAPersonIsWhoTheProviderVouchesFor(t *testing.T) {
	i := newIssuer(t)
	said, err := i.enter(t, "", verifier)
	if err != nil || said.Name != "ada@example.com" || !slices.Equal(said.Groups, []string{"team-checkout"}) {
		t.Errorf("got %q %q, %v", said.Name, said.Groups, err)
	}
	i.change = func(c map[string]any) { delete(c, "email") }
	if said, err := i.enter(t, i.URL, verifier); err != nil || said.Name != "u1" {
		t.Errorf("without an address: %q, %v", said.Name, err)
	}
}

func TestWhatTheProviderDidNotSayIsRefused(t *testing.T) {
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	set := func(name string, value any) func(map[string]any) { return func(c map[string]any) { c[name] = value } }
	for _, c := range []struct {
		name          string
		change        func(map[string]any)
		forge         func(*issuer, map[string]any) string
		says          map[string]any
		iss, verifier string
	}{
		{name: "another audience", change: set("aud", "another")},
		{name: "several audiences, made for another", change: func(c map[string]any) { c["aud"], c["azp"] = []string{"rlc", "another"}, "another" }},
		{name: "another issuer", change: set("iss", "https://evil.example")},
		{name: "expired", change: set("exp", time.Now().Add(-time.Hour).Unix())},
		{name: "another nonce", change: set("nonce", "another")},
		{name: "no nonce", change: func(c map[string]any) { delete(c, "nonce") }},
		{name: "an unverified address", change: set("email_verified", false)},
		{name: "nothing on whether it is verified", change: func(c map[string]any) { delete(c, "email_verified") }},
		{name: "verified as a text", change: set("email_verified", "true")},
		{name: "nobody", change: func(c map[string]any) { delete(c, "email"); delete(c, "sub") }},
		{name: "alg none", forge: func(_ *issuer, c map[string]any) string {
			b, _ := json.Marshal(c)
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(b) + "."
		}},
		{name: "signed with the public client id", forge: func(i *issuer, c map[string]any) string {
			return i.sign(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(strings.Repeat("rlc", 11))}, c)
		}},
		{name: "another's key", forge: func(i *issuer, c map[string]any) string {
			return i.sign(jose.SigningKey{Algorithm: jose.ES256, Key: other}, c)
		}},
		{name: "no ID token", forge: func(*issuer, map[string]any) string { return "" }},
		{name: "mix-up: another issuer answers", iss: "https://evil.example"},
		{name: "mix-up: the issuer should name itself", says: map[string]any{"authorization_response_iss_parameter_supported": true}},
		{name: "another verifier", verifier: "another-another-another-another-another-another"},
	} {
		i := newIssuer(t)
		i.change, i.says = c.change, c.says
		if c.forge != nil {
			i.forge = func(claims map[string]any) string { return c.forge(i, claims) }
		}
		if c.verifier == "" {
			c.verifier = verifier
		}
		if said, err := i.enter(t, c.iss, c.verifier); !errors.Is(err, rlc.ErrRefused) {
			t.Errorf("%s: let in %q, %v", c.name, said.Name, err)
		}
	}
}

func TestACodeIsTakenOnce(t *testing.T) {
	i := newIssuer(t)
	o := i.provider(t)
	at, err := o.Start(t.Context(), "state", "nonce", verifier)
	if err != nil {
		t.Fatal(err)
	}
	code := i.consent(t, at)
	if _, err := o.Finish(t.Context(), code, "", "nonce", verifier); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Finish(t.Context(), code, "", "nonce", verifier); !errors.Is(err, rlc.ErrRefused) || strings.Contains(err.Error(), code) {
		t.Errorf("the second time: %v", err)
	}
}

func TestTheProviderIsAskedAgain(t *testing.T) {
	i := newIssuer(t)
	said, err := i.enter(t, "", verifier)
	if err != nil {
		t.Fatal(err)
	}
	o := i.provider(t)
	i.groups = []string{"team-search"}
	again, err := o.Again(t.Context(), said.Grant)
	if err != nil || again.Name != "ada@example.com" || !slices.Equal(again.Groups, []string{"team-search"}) {
		t.Errorf("got %q %q, %v", again.Name, again.Groups, err)
	}
	i.info = 401 // the person is gone
	if _, err := o.Again(t.Context(), said.Grant); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("a person who is gone: %v", err)
	}
	i.info = 503
	if _, err := o.Again(t.Context(), said.Grant); !errors.Is(err, rlc.ErrUnavailable) {
		t.Errorf("a provider that is down: %v", err)
	}
	if _, err := o.Again(t.Context(), []byte("x")); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("no grant: %v", err)
	}
	i.Close()
	if _, err := i.provider(t).Start(context.WithoutCancel(t.Context()), "s", "n", verifier); !errors.Is(err, rlc.ErrUnavailable) {
		t.Errorf("a provider that is away: %v", err)
	}
}

func TestAnIssuerIsReachedByTLS(t *testing.T) {
	for _, c := range []identity.OIDCConfig{
		{Issuer: "http://login.example.com", ClientID: "rlc", RedirectURL: "https://rlc.example.com/login/callback"},
		{Issuer: "https://login.example.com", ClientID: "rlc", RedirectURL: "http://rlc.example.com/login/callback"},
		{Issuer: "https://login.example.com", RedirectURL: "https://rlc.example.com/login/callback"},
		{Issuer: "https://u:p@login.example.com", ClientID: "rlc", RedirectURL: "https://rlc.example.com/login/callback"},
	} {
		if _, err := identity.NewOIDC(c); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: %v", c.Issuer, err)
		}
	}
}

func TestAProxyIsBelievedFromItsNetworksOnly(t *testing.T) {
	p := identity.Proxy{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, User: "X-Auth-User", Groups: "X-Auth-Groups"}
	for _, c := range []struct {
		name, from string
		headers    http.Header
		want       string
		groups     []string
	}{
		{"the proxy", "10.1.2.3:4000", http.Header{"X-Auth-User": {"ada"}, "X-Auth-Groups": {"a, b,"}}, "ada", []string{"a", "b"}},
		{"the proxy by IPv6", "[::ffff:10.1.2.3]:4000", http.Header{"X-Auth-User": {"ada"}}, "ada", nil},
		{"elsewhere", "10.2.0.1:4000", http.Header{"X-Auth-User": {"ada"}}, "", nil},
		{"loopback", "127.0.0.1:4000", http.Header{"X-Auth-User": {"ada"}}, "", nil},
		{"nobody", "10.1.2.3:4000", nil, "", nil},
		{"an empty name", "10.1.2.3:4000", http.Header{"X-Auth-User": {" "}}, "", nil},
		{"two names", "10.1.2.3:4000", http.Header{"X-Auth-User": {"eve", "ada"}}, "", nil},
		{"two lists", "10.1.2.3:4000", http.Header{"X-Auth-User": {"ada"}, "X-Auth-Groups": {"admins", "a"}}, "", nil},
		{"no address", "@", http.Header{"X-Auth-User": {"ada"}}, "", nil},
	} {
		name, groups, ok := p.Who(&http.Request{RemoteAddr: c.from, Header: c.headers})
		if name != c.want && ok || ok != (c.want != "") || ok && !slices.Equal(groups, c.groups) {
			t.Errorf("%s: %q %q %v", c.name, name, groups, ok)
		}
	}
}
