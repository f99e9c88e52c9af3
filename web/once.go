package web

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/openrlc/rlc"
)

// onceLife is how long a code that signs in once is good for.
const onceLife = 10 * time.Minute

// once is what a sign-in that waits for its code is recorded as.
const once = "once"

// apiOnce makes a code that signs in once, as the server's token does: whoever
// sets a server up need not carry the token itself into a browser. Only the
// token makes one, because the name that it stands for is taken as it is.
func (s *server) apiOnce(v *visit) error {
	var in struct {
		Name string `json:"name"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	if !v.who.server {
		return fault{status: http.StatusForbidden, detail: "Only the server's own token makes a code that signs in once."}
	}
	if in.Name == "" {
		return invalid("Name who signs in: it stands in the history.")
	}
	code, now, name := rand.Text(), s.Now().UTC(), personName(in.Name)
	open := rlc.Session{ID: hashOf(once + " " + code), Name: name, Via: once, Created: now, Checked: now, Seen: now, Until: now.Add(onceLife)}
	if err := s.Identities.OpenSession(v.ctx(), open, &rlc.AuditEntry{At: now, Actor: v.who.name, Action: "session.code", Object: name, Detail: "a code that signs in once"}); err != nil {
		return err
	}
	return answer(v, http.StatusCreated, object{"code": code, "name": name, "expires_at": open.Until})
}

// takeOnce is who a code signs in. It counts once, at whichever replica.
func (s *server) takeOnce(ctx context.Context, code string) (name string, ok bool, err error) {
	if len(code) != len(rand.Text()) {
		return "", false, nil
	}
	found, err := s.Identities.CloseSession(ctx, hashOf(once+" "+code), nil)
	switch {
	case errors.Is(err, rlc.ErrNotFound) || unavailable(err):
		return "", false, nil // with the records away nobody can say
	case err != nil:
		return "", false, err
	}
	return found.Name, found.Via == once && s.Now().Before(found.Until), nil
}
