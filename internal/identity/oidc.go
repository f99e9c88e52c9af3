// Package identity asks an OpenID Connect provider who a person is, and reads
// what a trusted proxy says of one.
package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/dialcheck"
)

// OIDCConfig says which provider vouches for people. Issuer, ClientID and
// RedirectURL are required.
type OIDCConfig struct {
	Issuer      string                 // https, or http on loopback
	ClientID    string                 //
	Secret      func() (string, error) // the client's, read at each use; nil: a public client
	RedirectURL string                 // this server's /login/callback as browsers reach it
	Scopes      []string               // beside openid; nil: profile, email
	Groups      string                 // the claim that lists a person's groups; "": groups
	HTTP        *http.Client           // nil: one with a timeout of 10 s that follows no redirect and connects as dialcheck.Dialer does
	Now         func() time.Time       // nil: time.Now
}

// OIDC is a provider. It is found out when it is first needed, so that a
// server starts while it is away. It is safe for concurrent use.
type OIDC struct {
	c OIDCConfig

	mu       sync.Mutex
	provider *oidc.Provider // nil until it was found out
	says     metadata
}

type metadata struct {
	Iss  bool     `json:"authorization_response_iss_parameter_supported"`
	Algs []string `json:"id_token_signing_alg_values_supported"`
}

// grantOf is what a SignIn.Grant holds.
type grantOf struct {
	Subject string
	Token   oauth2.Token
}

// maxAnswer bounds what the provider may answer, in bytes.
const maxAnswer = 1 << 20

// bounded cuts answers off at maxAnswer: a cut document does not parse.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// NewOIDC checks c and asks nobody yet.
func NewOIDC(c OIDCConfig) (*OIDC, error) {
	for name, text := range map[string]string{"issuer": c.Issuer, "redirect URL": c.RedirectURL} {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "https" && (u.Scheme != "http" || !local(u.Hostname()))) {
			return nil, fmt.Errorf("%w: the %s must be an https URL, or http on loopback", rlc.ErrInvalid, name)
		}
	}
	if c.ClientID == "" {
		return nil, fmt.Errorf("%w: a client id is required", rlc.ErrInvalid)
	}
	if c.Scopes == nil {
		c.Scopes = []string{"profile", "email"}
	}
	if c.Groups == "" {
		c.Groups = "groups"
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: bounded{&http.Transport{DialContext: dialcheck.Dialer{Timeout: 5 * time.Second}.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: time.Minute}}, Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a redirect is not followed") }}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &OIDC{c: c}, nil
}

func local(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// Origin is where browsers are sent: the issuer's scheme and host.
func (o *OIDC) Origin() string {
	u, err := url.Parse(o.c.Issuer)
	if err != nil {
		return "" // NewOIDC has parsed it
	}
	return u.Scheme + "://" + u.Host
}

// Start is the address to send a browser to. state and nonce come back with
// the answer; verifier must be shown with its code (PKCE).
func (o *OIDC) Start(ctx context.Context, state, nonce, verifier string) (string, error) {
	config, _, _, err := o.ready(ctx)
	if err != nil {
		return "", err
	}
	return config.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)), nil
}

// Finish turns the answer's code into a person. iss is the answer's parameter
// of that name: another issuer's answer is refused (RFC 9207, mix-up). Whatever
// the provider says that is not acceptable is rlc.ErrRefused; a provider that
// cannot be reached is rlc.ErrUnavailable.
func (o *OIDC) Finish(ctx context.Context, code, iss, nonce, verifier string) (rlc.SignIn, error) {
	config, provider, says, err := o.ready(ctx)
	if err != nil {
		return rlc.SignIn{}, err
	}
	if iss != o.c.Issuer && (iss != "" || says.Iss) {
		return rlc.SignIn{}, refuse("the answer names another issuer")
	}
	ctx = oidc.ClientContext(ctx, o.c.HTTP)
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return rlc.SignIn{}, told("exchange the code", err)
	}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return rlc.SignIn{}, refuse("the provider sent no ID token")
	}
	// Only signatures by a key of the provider's: no "none", no shared secret.
	algs := slices.DeleteFunc(slices.Clone(says.Algs), func(a string) bool {
		return !slices.Contains([]string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}, a)
	})
	if len(algs) == 0 {
		algs = []string{oidc.RS256}
	}
	id, err := provider.Verifier(&oidc.Config{ClientID: o.c.ClientID, SupportedSigningAlgs: algs, Now: o.c.Now}).Verify(ctx, raw)
	if err != nil {
		return rlc.SignIn{}, refuse("the ID token is not acceptable: " + reason(err))
	}
	if id.Nonce == "" || id.Nonce != nonce {
		return rlc.SignIn{}, refuse("the ID token belongs to another sign-in")
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return rlc.SignIn{}, refuse("the ID token cannot be read")
	}
	if azp, ok := claims["azp"]; ok && azp != o.c.ClientID {
		return rlc.SignIn{}, refuse("the ID token was made for another client")
	}
	return o.person(claims, token)
}

// Again asks the provider what it says of a person now. rlc.ErrRefused means
// that it vouches no more.
func (o *OIDC) Again(ctx context.Context, grant []byte) (rlc.SignIn, error) {
	var held grantOf
	if err := json.Unmarshal(grant, &held); err != nil {
		return rlc.SignIn{}, refuse("the sign-in cannot be asked about")
	}
	config, provider, _, err := o.ready(ctx)
	if err != nil {
		return rlc.SignIn{}, err
	}
	ctx = oidc.ClientContext(ctx, o.c.HTTP)
	fresh, err := config.TokenSource(ctx, &held.Token).Token()
	if err != nil {
		return rlc.SignIn{}, told("refresh", err)
	}
	info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(fresh))
	if err != nil {
		// The library says an answer's status in the text only.
		if !strings.HasPrefix(err.Error(), "401 ") && !strings.HasPrefix(err.Error(), "403 ") {
			return rlc.SignIn{}, fmt.Errorf("%w: ask the identity provider", rlc.ErrUnavailable)
		}
		return rlc.SignIn{}, refuse("the provider knows the sign-in no more")
	}
	var claims map[string]any
	if err := info.Claims(&claims); err != nil {
		return rlc.SignIn{}, refuse("the provider's answer cannot be read")
	}
	if info.Subject != held.Subject {
		return rlc.SignIn{}, refuse("the provider answered about somebody else")
	}
	return o.person(claims, fresh)
}

// person reads claims. An address counts only where the provider verified it;
// without one a person goes by the provider's own name for it.
func (o *OIDC) person(claims map[string]any, token *oauth2.Token) (rlc.SignIn, error) {
	subject, _ := claims["sub"].(string)
	name := subject
	if email, _ := claims["email"].(string); email != "" {
		if verified, _ := claims["email_verified"].(bool); !verified {
			return rlc.SignIn{}, refuse("the provider has not verified the e-mail address")
		}
		name = email
	}
	if name == "" {
		return rlc.SignIn{}, refuse("the provider names nobody")
	}
	var groups []string
	switch all := claims[o.c.Groups].(type) {
	case string:
		groups = []string{all}
	case []any:
		for _, g := range all[:min(len(all), 1000)] {
			if text, ok := g.(string); ok {
				groups = append(groups, text)
			}
		}
	}
	grant, err := json.Marshal(grantOf{Subject: subject, Token: oauth2.Token{AccessToken: token.AccessToken, TokenType: token.TokenType, RefreshToken: token.RefreshToken, Expiry: token.Expiry}})
	if err != nil {
		return rlc.SignIn{}, err
	}
	return rlc.SignIn{Name: name, Groups: groups, Grant: grant}, nil
}

// ready finds the provider out, once.
func (o *OIDC) ready(ctx context.Context) (*oauth2.Config, *oidc.Provider, metadata, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider == nil {
		// Its keys are fetched later, so the request's end must not end it.
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.c.HTTP), o.c.Issuer)
		if err != nil {
			return nil, nil, metadata{}, fmt.Errorf("%w: find out the identity provider: %w", rlc.ErrUnavailable, err)
		}
		if err := found.Claims(&o.says); err != nil {
			return nil, nil, metadata{}, fmt.Errorf("%w: read the identity provider's description: %w", rlc.ErrUnavailable, err)
		}
		o.provider = found
	}
	config := &oauth2.Config{ClientID: o.c.ClientID, Endpoint: o.provider.Endpoint(), RedirectURL: o.c.RedirectURL, Scopes: append([]string{oidc.ScopeOpenID}, o.c.Scopes...)}
	if o.c.Secret != nil {
		secret, err := o.c.Secret()
		if err != nil {
			return nil, nil, metadata{}, fmt.Errorf("read the client's secret: %w", err)
		}
		config.ClientSecret = secret
	}
	return config, o.provider, o.says, nil
}

func refuse(why string) error { return fmt.Errorf("%w: %s", rlc.ErrRefused, why) }

// told is an error of the token endpoint: a refusal where it answered with
// one. Its body is not repeated: it may hold what was sent.
func told(what string, err error) error {
	var r *oauth2.RetrieveError
	if errors.As(err, &r) && r.Response != nil && r.Response.StatusCode < 500 {
		return refuse("the provider refused to " + what)
	}
	return fmt.Errorf("%w: %s with the identity provider", rlc.ErrUnavailable, what)
}

// reason is a library's word on a token, without the token's own text.
func reason(err error) string {
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return "it has expired"
	}
	return "signature, issuer, audience or time do not fit"
}
