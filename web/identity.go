package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/openrlc/rlc"
)

// Identities are the records of who signed in, of API tokens, and of acts.
type Identities interface {
	OpenSession(ctx context.Context, s rlc.Session, audit *rlc.AuditEntry) error
	Session(ctx context.Context, id string) (rlc.Session, error)
	RefreshSession(ctx context.Context, s rlc.Session) error
	CloseSession(ctx context.Context, id string, audit *rlc.AuditEntry) (rlc.Session, error)
	CreateToken(ctx context.Context, t rlc.Token, audit rlc.AuditEntry) error
	TokenByHash(ctx context.Context, hash string) (rlc.Token, error)
	Tokens(ctx context.Context, p rlc.Page) ([]rlc.Token, int, error)
	UseToken(ctx context.Context, id string, at time.Time) error
	RevokeToken(ctx context.Context, id string, at time.Time, audit rlc.AuditEntry) error
	AddAudit(ctx context.Context, e rlc.AuditEntry) error
	AuditLog(ctx context.Context, f rlc.AuditFilter, p rlc.Page) ([]rlc.AuditEntry, int, error)
}

// Provider vouches for people in a browser.
type Provider interface {
	Origin() string // where browsers are sent, scheme and host
	Start(ctx context.Context, state, nonce, verifier string) (string, error)
	Finish(ctx context.Context, code, iss, nonce, verifier string) (rlc.SignIn, error)
	Again(ctx context.Context, grant []byte) (rlc.SignIn, error)
}

// Proxy vouches for people by a header. Trusted is about the connection.
type Proxy interface {
	Who(r *http.Request) (name string, groups []string, ok bool)
	Trusted(r *http.Request) bool
}

// identity is who asks.
type identity struct {
	role     role      // what routes it reaches
	right    rlc.Right // what it may do there
	name     string    // for the history; "" for anyone and on loopback
	groups   []string  // that a provider or a proxy named
	services []string  // of an API token: only these; empty: as right says
	server   bool      // has the server's own token: everything
	loopback bool      // a user of this machine, without credentials
	cookie   bool      // known by what a browser sends by itself, so it may be misled into asking
	wrong    bool      // sent a bearer token that is none
	ended    bool      // sent a session cookie that stands for no session
	err      error     // nobody could say who it is
}

// reach is the role of somebody with a right.
func reach(r rlc.Right) role {
	if r == rlc.MayRead {
		return viewer
	}
	return actor
}

// identify finds out who asks: by token, session, or trusted proxy; without an
// identity provider a viewer on loopback; else anyone. A loopback request that
// names a foreign host (a rebound DNS name) or that a proxy passed on is no
// loopback request.
func (s *server) identify(r *http.Request) identity {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return s.byToken(r.Context(), bearer)
	}
	ended := false
	if c, err := r.Cookie(s.cookieName(r)); err == nil {
		found, err := s.session(r.Context(), c.Value)
		if err == nil {
			return s.bySession(found)
		}
		if !errors.Is(err, rlc.ErrNotFound) {
			return identity{role: anyone, err: err}
		}
		ended = true
	}
	if s.Proxy != nil {
		if name, groups, ok := s.Proxy.Who(r); ok {
			name = personName(name)
			right := s.right(name, groups)
			return identity{role: reach(right), right: right, name: name, groups: groups, cookie: true}
		}
	}
	if s.Proxy == nil && s.Provider == nil && loopback(r) {
		return identity{role: viewer, right: rlc.MayRead, loopback: true, ended: ended}
	}
	return identity{role: anyone, ended: ended}
}

func (s *server) byToken(ctx context.Context, bearer string) identity {
	if s.isToken(bearer) {
		return identity{role: actor, right: rlc.MayAdmin, name: "token", server: true}
	}
	t, err := s.token(ctx, bearer)
	switch {
	case errors.Is(err, rlc.ErrNotFound):
		return identity{role: anyone, wrong: true}
	case err != nil:
		return identity{role: anyone, err: err}
	}
	return identity{role: reach(t.Right), right: t.Right, name: "token " + t.Name, services: t.Services}
}

func (s *server) bySession(found rlc.Session) identity {
	if found.Via == s.via() {
		return identity{role: actor, right: rlc.MayAdmin, name: found.Name, server: true, cookie: true}
	}
	right := s.right(found.Name, found.Groups)
	return identity{role: reach(right), right: right, name: found.Name, groups: found.Groups, cookie: true}
}

func loopback(r *http.Request) bool {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (s *server) isToken(given string) bool {
	if s.Token == "" {
		return false
	}
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.Token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// admit checks role and origin. A request that a session cookie vouches for
// must also say where it comes from: every browser of this decade does.
func (s *server) admit(v *visit, r route) error {
	acts := r.role == actor || r.role == admin
	switch {
	case r.role == anyone:
	case v.who.err != nil:
		return v.who.err
	case v.who.wrong:
		// Another sentence than "sign in": whoever sends a token believes in it.
		return fault{status: http.StatusUnauthorized, title: "That is not the token", detail: "That is not the token."}
	case (v.who.role == anyone || acts && v.who.role != actor) && v.who.ended:
		return fault{status: http.StatusUnauthorized, title: "The session has ended", detail: "Sign in again."}
	case v.who.role == anyone && (s.Provider != nil || s.Proxy != nil):
		return fault{status: http.StatusUnauthorized, detail: "Reading needs a sign-in or a token."}
	case v.who.role == anyone:
		return fault{status: http.StatusUnauthorized, detail: "Reading from another machine needs the token."}
	case acts && v.who.role != actor && v.who.name != "":
		return s.refuse(v, fault{status: http.StatusForbidden, detail: "You may read. Acting is for the owners of a service and for on-call."})
	case r.role == person && v.who.name == "":
		return fault{status: http.StatusUnauthorized, detail: "Asking for more needs a sign-in: it is done in your name."}
	case acts && v.who.role != actor:
		return fault{status: http.StatusUnauthorized, detail: "Acting needs the token: sign in, or send it as a bearer token."}
	}
	if v.r.Method == http.MethodGet || v.r.Method == http.MethodHead {
		return nil
	}
	if err := http.NewCrossOriginProtection().Check(v.r); err != nil {
		return fault{status: http.StatusForbidden, detail: "The request came from another site and was refused."}
	}
	if v.who.cookie && v.r.Header.Get("Sec-Fetch-Site") == "" && v.r.Header.Get("Origin") == "" {
		return fault{status: http.StatusForbidden, detail: "The browser did not say which site the request came from."}
	}
	if enc := v.r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return fault{status: http.StatusUnsupportedMediaType, detail: "Compressed request bodies are not accepted."}
	}
	return nil
}

// local is a path of this server to go on to; anything else becomes /.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(next, "/") ||
		strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}

// personName is what a person calls itself, fit for a commit's trailer.
func personName(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '<' || r == '>'
	}), " ")
	if r := []rune(s); len(r) > 64 {
		s = string(r[:64])
	}
	if s == "" {
		return "token"
	}
	return s
}

// Base64 of nothing secret: an id for a log line that a person can quote.
func reference() string {
	var b [6]byte
	rand.Read(b[:]) //nolint:errcheck // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
