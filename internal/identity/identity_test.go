package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/identity"
	"github.com/openrlc/rlc/internal/identity/issuertest"
)

func provider(t *testing.T, i *issuertest.Issuer) *identity.OIDC {
	t.Helper()
	o, err := identity.NewOIDC(identity.OIDCConfig{Issuer: i.URL, ClientID: "rlc", RedirectURL: "https://rlc.example.com/login/callback"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// consent is a person's browser at the provider: it returns the code.
func consent(t *testing.T, i *issuertest.Issuer, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return i.Consent(u)
}

// enter goes the whole way. verifier is what is shown at the end.
func enter(t *testing.T, i *issuertest.Issuer, iss, verifier string) (rlc.SignIn, error) {
	t.Helper()
	o := provider(t, i)
	at, err := o.Start(t.Context(), "state", "nonce", "verifier-verifier-verifier-verifier-verifier")
	if err != nil {
		t.Fatal(err)
	}
	return o.Finish(t.Context(), consent(t, i, at), iss, "nonce", verifier)
}

const verifier = "verifier-verifier-verifier-verifier-verifier"

func TestAPersonIsWhoTheProviderVouchesFor(t *testing.T) {
	i := issuertest.New(t)
	said, err := enter(t, i, "", verifier)
	if err != nil || said.Name != "ada@example.com" || !slices.Equal(said.Groups, []string{"team-checkout"}) {
		t.Errorf("got %q %q, %v", said.Name, said.Groups, err)
	}
	i.Change = func(c map[string]any) { delete(c, "email") }
	if said, err := enter(t, i, i.URL, verifier); err != nil || said.Name != "u1" {
		t.Errorf("without an address: %q, %v", said.Name, err)
	}
}

func TestWhatTheProviderDidNotSayIsRefused(t *testing.T) {
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	set := func(name string, value any) func(map[string]any) { return func(c map[string]any) { c[name] = value } }
	for _, c := range []struct {
		name          string
		change        func(map[string]any)
		forge         func(*issuertest.Issuer, map[string]any) string
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
		{name: "alg none", forge: func(_ *issuertest.Issuer, c map[string]any) string {
			b, _ := json.Marshal(c)
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(b) + "."
		}},
		{name: "signed with the public client id", forge: func(i *issuertest.Issuer, c map[string]any) string {
			return i.Sign(jose.HS256, []byte(strings.Repeat("rlc", 11)), c)
		}},
		{name: "another's key", forge: func(i *issuertest.Issuer, c map[string]any) string {
			return i.Sign(jose.ES256, other, c)
		}},
		{name: "no ID token", forge: func(*issuertest.Issuer, map[string]any) string { return "" }},
		{name: "mix-up: another issuer answers", iss: "https://evil.example"},
		{name: "mix-up: the issuer should name itself", says: map[string]any{"authorization_response_iss_parameter_supported": true}},
		{name: "another verifier", verifier: "another-another-another-another-another-another"},
	} {
		i := issuertest.New(t)
		i.Change, i.Says = c.change, c.says
		if c.forge != nil {
			i.Forge = func(claims map[string]any) string { return c.forge(i, claims) }
		}
		if c.verifier == "" {
			c.verifier = verifier
		}
		if said, err := enter(t, i, c.iss, c.verifier); !errors.Is(err, rlc.ErrRefused) {
			t.Errorf("%s: let in %q, %v", c.name, said.Name, err)
		}
	}
}

func TestACodeIsTakenOnce(t *testing.T) {
	i := issuertest.New(t)
	o := provider(t, i)
	at, err := o.Start(t.Context(), "state", "nonce", verifier)
	if err != nil {
		t.Fatal(err)
	}
	code := consent(t, i, at)
	if _, err := o.Finish(t.Context(), code, "", "nonce", verifier); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Finish(t.Context(), code, "", "nonce", verifier); !errors.Is(err, rlc.ErrRefused) || strings.Contains(err.Error(), code) {
		t.Errorf("the second time: %v", err)
	}
}

func TestTheProviderIsAskedAgain(t *testing.T) {
	i := issuertest.New(t)
	said, err := enter(t, i, "", verifier)
	if err != nil {
		t.Fatal(err)
	}
	o := provider(t, i)
	i.Groups = []string{"team-search"}
	again, err := o.Again(t.Context(), said.Grant)
	if err != nil || again.Name != "ada@example.com" || !slices.Equal(again.Groups, []string{"team-search"}) {
		t.Errorf("got %q %q, %v", again.Name, again.Groups, err)
	}
	i.Info = 401 // the person is gone
	if _, err := o.Again(t.Context(), said.Grant); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("a person who is gone: %v", err)
	}
	i.Info = 503
	if _, err := o.Again(t.Context(), said.Grant); !errors.Is(err, rlc.ErrUnavailable) {
		t.Errorf("a provider that is down: %v", err)
	}
	if _, err := o.Again(t.Context(), []byte("x")); !errors.Is(err, rlc.ErrRefused) {
		t.Errorf("no grant: %v", err)
	}
	i.Close()
	if _, err := provider(t, i).Start(context.WithoutCancel(t.Context()), "s", "n", verifier); !errors.Is(err, rlc.ErrUnavailable) {
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
