package web

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

const (
	sessionLife = 12 * time.Hour   // whatever happens
	sessionIdle = 2 * time.Hour    // without a request
	recheck     = 50 * time.Second // the provider is asked again: a change counts within a minute
	patientWith = 15 * time.Minute // a provider that is away: what it said last stands so long
	loginLife   = 10 * time.Minute // from leaving for the provider to coming back
	seenEvery   = time.Minute      // how exactly last uses are noted
	maxKept     = 1000             // sign-ins and tokens kept for when the records are away
	maxFailures = 10               // failed sign-ins a minute from one address
)

// logins is what one process remembers: how often who failed, and whom the
// records named last, for the time that they are away.
type logins struct {
	now      func() time.Time
	mu       sync.Mutex
	sessions map[string]rlc.Session
	tokens   map[string]rlc.Token
	owed     map[string]string // sessions signed out of that the records do not know of yet, and whose
	taken    map[string]int
	minute   time.Time
	away     time.Time // until then the records are not asked
}

// take counts one more of name this minute, and reports whether that is at
// most n.
func (l *logins) take(name string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.now().Truncate(time.Minute); l.taken == nil || !m.Equal(l.minute) || len(l.taken) > 10_000 {
		l.minute, l.taken = m, map[string]int{}
	}
	l.taken[name]++
	return l.taken[name] <= n
}

// full reports whether name was counted n times this minute.
func (l *logins) full(name string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Truncate(time.Minute).Equal(l.minute) && l.taken[name] >= n
}

// keep remembers a value by its hash; where too many are kept, any one makes
// room.
func keep[T any](l *logins, all *map[string]T, hash string, value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *all == nil {
		*all = map[string]T{}
	}
	if len(*all) >= maxKept {
		for one := range maps.Keys(*all) {
			delete(*all, one)
			break
		}
	}
	(*all)[hash] = value
}

// lookUp asks the records for at most a second; while they are away it answers
// from what is kept, so that on-call people can act without them.
func lookUp[T any](ctx context.Context, l *logins, all *map[string]T, hash string, ask func(context.Context, string) (T, error)) (T, error) {
	l.mu.Lock()
	kept, known := (*all)[hash]
	away := l.now().Before(l.away)
	l.mu.Unlock()
	if known && away {
		return kept, nil
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found, err := ask(short, hash)
	switch {
	case err == nil:
		keep(l, all, hash, found)
	case errors.Is(err, rlc.ErrNotFound):
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(*all, hash)
	case known && ctx.Err() == nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.away = l.now().Add(5 * time.Second)
		return kept, nil
	}
	return found, err
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// via is what a sign-in with the server's token is recorded as: with another
// token it stands no more.
func (s *server) via() string { return "token:" + hashOf("via " + s.Token)[:16] }

// session finds the sign-in that a cookie stands for; rlc.ErrNotFound where it
// has ended.
func (s *server) session(ctx context.Context, cookie string) (rlc.Session, error) {
	none := fmt.Errorf("%w: session", rlc.ErrNotFound)
	if len(cookie) < 20 || len(cookie) > 64 {
		return rlc.Session{}, none
	}
	id := hashOf(cookie)
	s.logins.mu.Lock()
	_, over := s.logins.owed[id]
	s.logins.mu.Unlock()
	if over {
		return rlc.Session{}, none
	}
	found, err := lookUp(ctx, &s.logins, &s.logins.sessions, id, s.Identities.Session)
	if err != nil {
		return found, err
	}
	now := s.Now()
	if !now.Before(found.Until) || now.Sub(found.Seen) > sessionIdle || (found.Via != s.via() && (found.Via != "provider" || s.Provider == nil)) {
		return found, none
	}
	changed := false
	if found.Sealed != nil && now.Sub(found.Checked) > recheck {
		if err := s.again(ctx, &found, cookie); err != nil {
			return found, err
		}
		changed = true
	}
	if changed || now.Sub(found.Seen) > seenEvery {
		found.Seen = now.UTC()
		keep(&s.logins, &s.logins.sessions, found.ID, found)
		if err := s.Identities.RefreshSession(ctx, found); err != nil && !errors.Is(err, rlc.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return found, err
		}
	}
	return found, nil
}

// again asks the provider what it says of a person now.
func (s *server) again(ctx context.Context, found *rlc.Session, cookie string) error {
	grant, err := unseal(cookie, found.Sealed)
	if err != nil {
		return fmt.Errorf("%w: session", rlc.ErrNotFound)
	}
	said, err := s.Provider.Again(ctx, grant)
	switch {
	case err == nil && said.Name == found.Name:
		found.Groups, found.Checked, found.Sealed = said.Groups, s.Now().UTC(), seal(cookie, said.Grant)
		return nil
	case err == nil || errors.Is(err, rlc.ErrRefused):
		if err := s.endSession(ctx, found.ID, found.Name, "the identity provider vouches no more"); err != nil {
			return err
		}
		return fmt.Errorf("%w: session", rlc.ErrNotFound)
	case s.Now().Sub(found.Checked) < patientWith:
		return nil
	}
	return fault{status: http.StatusServiceUnavailable, detail: "The identity provider cannot be reached: nobody can say whether you may still do this."}
}

// sealer is AES-GCM under a key that only the cookie gives. The records hold
// the cookie's hash, which does not.
func sealer(cookie string) cipher.AEAD {
	key := sha256.Sum256([]byte("seal " + cookie))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block has 16 bytes
	}
	return aead
}

func seal(cookie string, text []byte) []byte { return sealer(cookie).Seal(nil, nil, text, nil) }

func unseal(cookie string, sealed []byte) ([]byte, error) {
	return sealer(cookie).Open(nil, nil, sealed, nil)
}

// enter opens a new session, ends the browser's old one, and sets the cookie.
func (s *server) enter(v *visit, said rlc.SignIn, via string) error {
	if old, err := v.r.Cookie(s.cookieName(v.r)); err == nil {
		if err := s.endSession(v.ctx(), hashOf(old.Value), "", ""); err != nil && !errors.Is(err, rlc.ErrUnavailable) {
			return err
		}
	}
	cookie, now := rand.Text(), s.Now().UTC()
	open := rlc.Session{ID: hashOf(cookie), Name: said.Name, Via: via, Groups: said.Groups, Created: now, Checked: now, Seen: now, Until: now.Add(sessionLife)}
	if said.Grant != nil {
		open.Sealed = seal(cookie, said.Grant)
	}
	vouched := "the server's token"
	if via == "provider" {
		vouched = "the identity provider"
	}
	err := s.Identities.OpenSession(v.ctx(), open, &rlc.AuditEntry{At: now, Actor: said.Name, Action: "session.opened", Object: said.Name, Detail: "by " + vouched})
	// With the records away whoever has the server's token still gets in, here.
	if err != nil && !(errors.Is(err, rlc.ErrUnavailable) && via == s.via()) {
		return err
	}
	if err != nil {
		s.logins.mu.Lock()
		s.logins.away = s.Now().Add(5 * time.Second)
		s.logins.mu.Unlock()
		s.Log.Warn("a session stands in this process only: the records are away", "actor", said.Name)
	}
	keep(&s.logins, &s.logins.sessions, open.ID, open)
	s.setCookie(v, s.cookieName(v.r), cookie, int(sessionLife.Seconds()))
	return nil
}

// endSession ends a session wherever it is known. Without a name no audit row
// is written. One that is not there is none to end.
func (s *server) endSession(ctx context.Context, id, name, why string) error {
	s.logins.mu.Lock()
	delete(s.logins.sessions, id)
	s.logins.mu.Unlock()
	var audit *rlc.AuditEntry
	if name != "" {
		audit = &rlc.AuditEntry{At: s.Now().UTC(), Actor: name, Action: "session.closed", Object: name, Detail: why}
	}
	_, err := s.Identities.CloseSession(ctx, id, audit)
	if errors.Is(err, rlc.ErrNotFound) {
		return nil
	}
	return err
}

// https reports whether the browser speaks TLS, with us or with a proxy that
// we trust.
func (s *server) https(r *http.Request) bool {
	return r.TLS != nil || s.Secure || s.Proxy != nil && s.Proxy.Trusted(r) && r.Header.Get("X-Forwarded-Proto") == "https"
}

func (s *server) cookieName(r *http.Request) string {
	if s.https(r) {
		return "__Host-rlc_session"
	}
	return "rlc_session"
}

func (s *server) setCookie(v *visit, name, value string, age int) {
	http.SetCookie(v.w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: s.https(v.r), SameSite: http.SameSiteLaxMode,
	})
}

func (s *server) login(v *visit) error {
	return s.loginForm(v, http.StatusOK, ui.Login{Next: local(v.r.URL.Query().Get("next"))})
}

func (s *server) loginForm(v *visit, status int, view ui.Login) error {
	view.Off = s.Token == ""
	view.Provider, view.Back = s.Provider != nil, url.QueryEscape(view.Next)
	return s.render(v, status, ui.LoginPage(s.bareFrame(v, "Sign in"), view))
}

func address(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return "login " + host
}

var tooMany = fault{status: http.StatusTooManyRequests, detail: "Too many failed attempts. Wait a minute."}

// signIn takes the server's token from the form, or a code that signs in once.
func (s *server) signIn(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	next, name := local(v.r.PostFormValue("next")), personName(v.r.PostFormValue("name"))
	if s.logins.full(address(v.r), maxFailures+1) {
		v.w.Header().Set("Retry-After", "60")
		return tooMany
	}
	if given := v.r.PostFormValue("token"); !s.isToken(given) {
		as, ok, err := s.takeOnce(v.ctx(), given)
		if err != nil {
			return err
		}
		if !ok {
			s.logins.take(address(v.r), maxFailures)
			return s.loginForm(v, http.StatusUnauthorized, ui.Login{Next: next, User: name, Error: "That is not the token, nor a code that is still good."})
		}
		name = as
	}
	if err := s.enter(v, rlc.SignIn{Name: name}, s.via()); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, next, http.StatusSeeOther)
	return nil
}

// signOut has the browser forget, whatever the records say. While they are away
// the session is over in this process, and they are told when they are back.
func (s *server) signOut(v *visit) error {
	s.setCookie(v, s.cookieName(v.r), "", -1)
	if c, err := v.r.Cookie(s.cookieName(v.r)); err == nil {
		ctx, cancel := context.WithTimeout(v.ctx(), time.Second)
		defer cancel()
		id := hashOf(c.Value)
		err := s.endSession(ctx, id, v.who.name, "signed out")
		if unavailable(err) {
			keep(&s.logins, &s.logins.owed, id, v.who.name)
		} else if err != nil {
			return err
		}
	}
	http.Redirect(v.w, v.r, "/", http.StatusSeeOther)
	return nil
}

// settle tells the records, unless they were away a moment ago, of the sessions
// that ended while they were. What cannot be told stays owed.
func (s *server) settle(ctx context.Context) {
	s.logins.mu.Lock()
	owed, away := maps.Clone(s.logins.owed), s.Now().Before(s.logins.away)
	s.logins.mu.Unlock()
	if len(owed) == 0 || away {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for id, name := range owed {
		if err := s.endSession(ctx, id, name, "signed out while the records were away"); err != nil {
			s.logins.mu.Lock()
			s.logins.away = s.Now().Add(5 * time.Second)
			s.logins.mu.Unlock()
			return
		}
		s.logins.mu.Lock()
		delete(s.logins.owed, id)
		s.logins.mu.Unlock()
	}
}

// begun is what is kept, sealed, of a sign-in on its way to the provider.
type begun struct{ Nonce, Verifier, Next string }

// stateName is the cookie that ties a provider's answer to the browser that
// left for it.
func (s *server) stateName(r *http.Request) string { return s.cookieName(r) + "_state" }

// leave sends a browser to the provider. What comes back is taken once, by
// whichever replica.
func (s *server) leave(v *visit) error {
	if s.Provider == nil {
		return fault{status: http.StatusNotFound, detail: "This server has no identity provider."}
	}
	if !s.logins.take("leave "+address(v.r), 30) {
		v.w.Header().Set("Retry-After", "60")
		return tooMany
	}
	state, now := rand.Text(), s.Now().UTC()
	on := begun{Nonce: rand.Text(), Verifier: rand.Text() + rand.Text(), Next: local(v.r.URL.Query().Get("next"))}
	to, err := s.Provider.Start(v.ctx(), state, on.Nonce, on.Verifier)
	if err != nil {
		return s.providerFault(err)
	}
	text, err := json.Marshal(on)
	if err != nil {
		return err
	}
	if err := s.Identities.OpenSession(v.ctx(), rlc.Session{ID: hashOf("state " + state), Via: "leaving", Sealed: seal(state, text), Created: now, Checked: now, Seen: now, Until: now.Add(loginLife)}, nil); err != nil {
		return err
	}
	s.setCookie(v, s.stateName(v.r), state, int(loginLife.Seconds()))
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

// comeBack takes the provider's answer.
func (s *server) comeBack(v *visit) error {
	if s.Provider == nil {
		return fault{status: http.StatusNotFound, detail: "This server has no identity provider."}
	}
	q := v.r.URL.Query()
	stale := fault{status: http.StatusBadRequest, title: "Sign in again", detail: "This answer of the identity provider belongs to no sign-in of this browser, or it was used already."}
	c, err := v.r.Cookie(s.stateName(v.r))
	if err != nil || q.Get("state") == "" || q.Get("state") != c.Value || len(c.Value) > 64 {
		return stale
	}
	s.setCookie(v, s.stateName(v.r), "", -1)
	found, err := s.Identities.CloseSession(v.ctx(), hashOf("state "+c.Value), nil)
	if errors.Is(err, rlc.ErrNotFound) {
		return stale
	}
	if err != nil {
		return err
	}
	text, err := unseal(c.Value, found.Sealed)
	var on begun
	if err != nil || found.Via != "leaving" || !s.Now().Before(found.Until) || json.Unmarshal(text, &on) != nil {
		return stale
	}
	if q.Get("code") == "" {
		return fault{status: http.StatusForbidden, detail: "The identity provider did not let you in."}
	}
	said, err := s.Provider.Finish(v.ctx(), q.Get("code"), q.Get("iss"), on.Nonce, on.Verifier)
	if err != nil {
		return s.providerFault(err)
	}
	if said.Name = personName(said.Name); said.Name == "token" || len(said.Groups) > 1000 {
		return fault{status: http.StatusForbidden, detail: "The identity provider's name for you cannot be used."}
	}
	if err := s.enter(v, said, "provider"); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, on.Next, http.StatusSeeOther)
	return nil
}

func (s *server) providerFault(err error) error {
	s.Log.Warn("sign in", "err", err)
	if errors.Is(err, rlc.ErrRefused) {
		return fault{status: http.StatusForbidden, detail: "You cannot be let in: " + plain(err) + "."}
	}
	return fault{status: http.StatusServiceUnavailable, detail: "The identity provider cannot be reached. The server's own token still signs in."}
}
