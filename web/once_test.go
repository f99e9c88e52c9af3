package web_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web"
)

// flaky are identities whose records go away and come back.
type flaky struct {
	web.Identities
	gone *atomic.Bool
}

func (f flaky) Session(ctx context.Context, id string) (rlc.Session, error) {
	if f.gone.Load() {
		return rlc.Session{}, rlc.ErrUnavailable
	}
	return f.Identities.Session(ctx, id)
}

func (f flaky) CloseSession(ctx context.Context, id string, audit *rlc.AuditEntry) (rlc.Session, error) {
	if f.gone.Load() {
		return rlc.Session{}, rlc.ErrUnavailable
	}
	return f.Identities.CloseSession(ctx, id, audit)
}

// Signing out while the records are away clears the cookie, ends the session
// here, and at every replica once they are back.
func TestSigningOutNeedsNoRecords(t *testing.T) {
	f := newFixture(t)
	gone, clock := &atomic.Bool{}, now
	c := f.config()
	c.Identities, c.Now = flaky{f.db, gone}, func() time.Time { return clock }
	here, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	there := f.handler(t)
	cookie := signIn(t, here, nil)
	with := func(r *http.Request) { r.AddCookie(cookie); r.Header.Set("Sec-Fetch-Site", "same-origin") }
	act := func(h http.Handler) int { return request(h, "POST", "/follow", "", with).Code }
	if got := act(here); got != 303 {
		t.Fatalf("signed in: %d", got)
	}

	gone.Store(true)
	w := request(here, "POST", "/logout", "", with)
	set := w.Result().Cookies()
	if w.Code != 303 || len(set) != 1 || set[0].Name != cookie.Name || set[0].MaxAge >= 0 {
		t.Errorf("signing out: %d, %v", w.Code, set)
	}
	if got := act(here); got != 401 {
		t.Errorf("the old cookie while they are away: %d", got)
	}
	gone.Store(false)
	if got := act(there); got != 303 {
		t.Errorf("at a replica that nobody told yet: %d", got)
	}
	clock = clock.Add(time.Minute)
	if got := act(here); got != 401 { // any request settles what is owed
		t.Errorf("the old cookie when they are back: %d", got)
	}
	if got := act(there); got != 401 {
		t.Errorf("at the other replica after that: %d", got)
	}
	log, _, err := f.db.AuditLog(t.Context(), rlc.AuditFilter{Action: "session.closed"}, rlc.Page{})
	if err != nil || len(log) != 1 || log[0].Actor != "Ana b Lima" || log[0].Detail != "signed out while the records were away" {
		t.Errorf("audit: %+v, %v", log, err)
	}
}

// A code signs in once, as its name, at whichever replica, within ten minutes;
// it is known by its hash, and only the server's own token makes one.
func TestACodeSignsInOnce(t *testing.T) {
	f := newFixture(t)
	clock := now
	c := f.config()
	c.Now = func() time.Time { return clock }
	a, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	code := func(secret string) (code string, status int) {
		w := request(a, "POST", "/api/v1/sign-in-codes", `{"name":"Ana Lima"}`, func(r *http.Request) {
			holder(secret)(r)
			r.Header.Set("Content-Type", "application/json")
		})
		var made struct {
			Code    string    `json:"code"`
			Expires time.Time `json:"expires_at"`
		}
		if w.Code == 201 && (json.Unmarshal(w.Body.Bytes(), &made) != nil || !made.Expires.Equal(clock.Add(10*time.Minute))) {
			t.Errorf("made %s", w.Body)
		}
		return made.Code, w.Code
	}
	enter := func(h http.Handler, code string) *httptest.ResponseRecorder {
		return request(h, "POST", "/login", url.Values{"token": {code}, "name": {"somebody else"}, "next": {"/runs"}}.Encode(), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}
	admin := issue(t, a, `{"name":"an admin","role":"admin","ttl_seconds":3600}`)
	if _, status := code(admin); status != 403 {
		t.Errorf("an admin's API token makes one: %d", status)
	}

	first, _ := code(token)
	in := enter(b, first)
	if in.Code != 303 || in.Header().Get("Location") != "/runs" || len(in.Result().Cookies()) != 1 {
		t.Fatalf("the first time: %d %s", in.Code, in.Body)
	}
	with := func(r *http.Request) {
		r.AddCookie(in.Result().Cookies()[0])
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if w := request(a, "GET", "/", "", with); !strings.Contains(w.Body.String(), "Ana Lima") || strings.Contains(w.Body.String(), "somebody else") {
		t.Error("the session does not bear the code's name")
	}
	if w := request(a, "POST", "/follow", "", with); w.Code != 303 {
		t.Errorf("acting: %d", w.Code)
	}
	for name, h := range map[string]http.Handler{"at the other": a, "at the same": b} {
		if w := enter(h, first); w.Code != 401 || len(w.Result().Cookies()) != 0 {
			t.Errorf("the second time, %s: %d", name, w.Code)
		}
	}
	late, _ := code(token)
	clock = clock.Add(10 * time.Minute)
	if w := enter(a, late); w.Code != 401 {
		t.Errorf("after ten minutes: %d", w.Code)
	}
	if w := request(a, "GET", "/", "", holder(late)); w.Code != 401 {
		t.Errorf("as a bearer token: %d", w.Code)
	}
}
