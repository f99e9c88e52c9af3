package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/openrlc/rlc/web/ui"
)

// identity is who asks.
type identity struct {
	role   role
	name   string // of an actor, for the history
	cookie bool   // known by a session cookie, so a browser may be misled into asking
	wrong  bool   // sent a bearer token that is not the server's
	ended  bool   // sent a session cookie that stands for no session
}

const (
	sessionLife = 12 * time.Hour
	maxSessions = 1000
	maxFailures = 10 // failed sign-ins a minute from one address
)

// sessions are the sign-ins of this process. Signing out, or a restart, ends
// them here, whatever a browser keeps.
type sessions struct {
	now      func() time.Time
	mu       sync.Mutex
	byID     map[string]session
	failures map[string]int
	minute   time.Time
}

type session struct {
	name  string
	until time.Time
}

func (s *sessions) open(name string) string {
	id := rand.Text()
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]session{}
	}
	for k, old := range s.byID {
		if now.After(old.until) {
			delete(s.byID, k)
		}
	}
	for k := range s.byID { // too many: any one makes room
		if len(s.byID) < maxSessions {
			break
		}
		delete(s.byID, k)
	}
	s.byID[id] = session{name, now.Add(sessionLife)}
	return id
}

func (s *sessions) find(id string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byID[id]
	return found, ok && s.now().Before(found.until)
}

func (s *sessions) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// throttled reports whether addr has failed too often this minute; fail counts
// one more failure.
func (s *sessions) throttled(addr string, fail bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.now().Truncate(time.Minute); s.failures == nil || !m.Equal(s.minute) || len(s.failures) > 10_000 {
		s.minute, s.failures = m, map[string]int{}
	}
	if fail {
		s.failures[addr]++
	}
	return s.failures[addr] > maxFailures
}

// identify finds out who asks: an actor by token or session, a viewer on
// loopback, else anyone. A loopback request that names a foreign host (a
// rebound DNS name) or that a proxy passed on is no loopback request.
func (s *server) identify(r *http.Request) identity {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		if s.isToken(bearer) {
			return identity{role: actor, name: "token"}
		}
		return identity{role: anyone, wrong: true}
	}
	ended := false
	if c, err := r.Cookie(cookieName(r)); err == nil {
		if found, ok := s.sessions.find(c.Value); ok {
			return identity{role: actor, name: found.name, cookie: true}
		}
		ended = true
	}
	if loopback(r) {
		return identity{role: viewer, ended: ended}
	}
	return identity{role: anyone, ended: ended}
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
	switch {
	case r.role == anyone:
	case (v.who.role == anyone || r.role == actor) && v.who.wrong:
		// Another sentence than "sign in": whoever sends a token believes in it.
		return fault{status: http.StatusUnauthorized, title: "That is not the token", detail: "That is not the token."}
	case (v.who.role == anyone || r.role == actor && v.who.role != actor) && v.who.ended:
		return fault{status: http.StatusUnauthorized, title: "The session has ended", detail: "Sign in again with the token."}
	case v.who.role == anyone:
		return fault{status: http.StatusUnauthorized, detail: "Reading from another machine needs the token."}
	case r.role == actor && v.who.role != actor:
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

func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-rlc_session"
	}
	return "rlc_session"
}

func (s *server) login(v *visit) error {
	return s.loginForm(v, http.StatusOK, ui.Login{Next: local(v.r.URL.Query().Get("next"))})
}

func (s *server) loginForm(v *visit, status int, view ui.Login) error {
	view.Off = s.Token == ""
	f, err := s.frame(v, "Sign in", "")
	if err != nil {
		return err
	}
	return s.render(v, status, ui.LoginPage(f, view))
}

func (s *server) signIn(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	next, name := local(v.r.PostFormValue("next")), personName(v.r.PostFormValue("name"))
	addr, _, _ := net.SplitHostPort(v.r.RemoteAddr)
	if s.sessions.throttled(addr, false) {
		v.w.Header().Set("Retry-After", "60")
		return fault{status: http.StatusTooManyRequests, detail: "Too many failed attempts. Wait a minute."}
	}
	if !s.isToken(v.r.PostFormValue("token")) {
		s.sessions.throttled(addr, true)
		return s.loginForm(v, http.StatusUnauthorized, ui.Login{Next: next, User: name, Error: "That is not the token."})
	}
	if old, err := v.r.Cookie(cookieName(v.r)); err == nil {
		s.sessions.close(old.Value)
	}
	s.setSession(v, s.sessions.open(name), int(sessionLife.Seconds()))
	http.Redirect(v.w, v.r, next, http.StatusSeeOther)
	return nil
}

func (s *server) signOut(v *visit) error {
	if c, err := v.r.Cookie(cookieName(v.r)); err == nil {
		s.sessions.close(c.Value)
	}
	s.setSession(v, "", -1)
	http.Redirect(v.w, v.r, "/", http.StatusSeeOther)
	return nil
}

func (s *server) setSession(v *visit, value string, age int) {
	http.SetCookie(v.w, &http.Cookie{
		Name: cookieName(v.r), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: v.r.TLS != nil, SameSite: http.SameSiteLaxMode,
	})
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
