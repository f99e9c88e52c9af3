// Package issuertest is an OpenID Connect provider on loopback that lies when a
// test wants it to.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer vouches for one person to the client "rlc". Its fields say for whom,
// and how it misbehaves; they are read while it answers, and set through With
// where requests may be under way.
type Issuer struct {
	*httptest.Server
	Email  string
	Groups []string
	Change func(claims map[string]any)        // spoils the claims of ID tokens; nil: nothing
	Forge  func(claims map[string]any) string // is the ID token instead; nil: a signed one
	Says   map[string]any                     // beside the standard description
	Info   int                                // status of userinfo; 0 is 200

	key   *ecdsa.PrivateKey
	mu    sync.Mutex
	codes map[string]url.Values // the request that each code answers; used once
}

// New starts a provider that vouches for ada@example.com of team-checkout. It
// ends with the test at the latest.
func New(t testing.TB) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &Issuer{Email: "ada@example.com", Groups: []string{"team-checkout"}, key: key, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.describe)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /userinfo", i.userinfo)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// With changes the provider between two of its answers.
func (i *Issuer) With(change func(*Issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // who asked may have left
}

func (i *Issuer) describe(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	doc := map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "userinfo_endpoint": i.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"}}
	for k, v := range i.Says {
		doc[k] = v
	}
	answer(w, doc)
}

// authorize sends a browser back at once: the person has agreed before.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	back, err := url.Parse(r.URL.Query().Get("redirect_uri"))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	back.RawQuery = url.Values{"code": {i.Consent(r.URL)}, "state": {r.URL.Query().Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// Consent is what a person does at the provider, at the address that the client
// sent the browser to: it returns the code.
func (i *Issuer) Consent(at *url.URL) string {
	code := rand.Text()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes[code] = at.Query()
	return code
}

// claims are what the provider says of its person. The caller holds the lock.
func (i *Issuer) claims(asked url.Values) map[string]any {
	return map[string]any{"iss": i.URL, "aud": "rlc", "sub": "u1", "email": i.Email, "email_verified": true, "groups": i.Groups,
		"nonce": asked.Get("nonce"), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()}
}

// Sign is a token of these claims. A nil key is the provider's own.
func (i *Issuer) Sign(alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	if key == nil {
		key = i.key
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		panic(err) // a test's own mistake
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		panic(err) // as above
	}
	return text
}

// token answers a code once, to whoever shows the verifier of its challenge.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked, ok := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !ok || asked.Get("code_challenge_method") != "S256" || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := i.claims(asked)
	if i.Change != nil {
		i.Change(claims)
	}
	id := ""
	if i.Forge != nil {
		id = i.Forge(claims)
	} else {
		id = i.Sign(jose.ES256, nil, claims)
	}
	answer(w, map[string]any{"access_token": "access", "token_type": "Bearer", "expires_in": 3600, "id_token": id})
}

func (i *Issuer) userinfo(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.Info != 0 || r.Header.Get("Authorization") != "Bearer access" {
		w.WriteHeader(max(i.Info, http.StatusUnauthorized))
		return
	}
	answer(w, i.claims(nil))
}
