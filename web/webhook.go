package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxHook bounds a webhook's body, in bytes; GitHub sends up to 25 MB, and none
// of it is needed here.
const maxHook = 1 << 20

// Hook is what a forge may send. The zero value is off.
type Hook struct {
	// Kind is github, gitlab or gitea, which says how the sender shows that it
	// knows the secret.
	Kind string
	// Secret reads the shared secret as it is now; nil, an error or "" turns
	// the address off.
	Secret func() (string, error)
	// Wake is called after each message that proved itself. Nothing else is
	// taken from a message: what happened is looked up.
	Wake func()
}

// webhook answers a forge's message: 404 while off, 401 without proof, else 202.
func (s *server) webhook(v *visit) error {
	off := fault{status: http.StatusNotFound, detail: "No webhook is configured."}
	if s.Hook.Secret == nil || s.Hook.Wake == nil {
		return off
	}
	secret, err := s.Hook.Secret()
	if err != nil || secret == "" {
		return off
	}
	body, err := io.ReadAll(http.MaxBytesReader(v.w, v.r.Body, maxHook))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return fault{status: http.StatusRequestEntityTooLarge, detail: "The message is too long."}
	}
	if err != nil {
		return fault{status: http.StatusBadRequest, detail: "The message was cut off."}
	}
	if !proven(s.Hook.Kind, v.r.Header, body, secret) {
		return fault{status: http.StatusUnauthorized, detail: "The message's signature does not match."}
	}
	s.Hook.Wake()
	v.w.WriteHeader(http.StatusAccepted)
	return nil
}

// proven reports whether whoever sent a message knows the secret: GitHub and
// Gitea sign the body with HMAC-SHA-256, GitLab sends the secret itself. Each is
// compared in constant time; a header that is given twice proves nothing.
func proven(kind string, h http.Header, body []byte, secret string) bool {
	name := map[string]string{"github": "X-Hub-Signature-256", "gitea": "X-Gitea-Signature", "gitlab": "X-Gitlab-Token"}[kind]
	values := h.Values(name)
	if name == "" || len(values) != 1 {
		return false
	}
	shown := values[0]
	switch kind {
	case "gitlab":
		a, b := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(secret))
		return subtle.ConstantTimeCompare(a[:], b[:]) == 1
	case "github":
		var ok bool
		if shown, ok = strings.CutPrefix(shown, "sha256="); !ok {
			return false
		}
	}
	sum, err := hex.DecodeString(shown)
	if err != nil {
		return false
	}
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(body)
	return hmac.Equal(sum, m.Sum(nil))
}
