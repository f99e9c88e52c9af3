package web

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/openrlc/rlc"
)

const (
	tokenPrefix = "rlc_"
	maxTokenAge = 366 * 24 * time.Hour
)

// rights are what a token may have.
var rights = []rlc.Right{rlc.MayRead, rlc.MayRun, rlc.MayOwn, rlc.MayActAll, rlc.MayAdmin}

// token finds the API token that a program sent; rlc.ErrNotFound where it is
// unknown, over or revoked. Tokens are looked up by their hash: no comparison
// tells how much of a guess was right.
func (s *server) token(ctx context.Context, bearer string) (rlc.Token, error) {
	none := rlc.ErrNotFound
	if !strings.HasPrefix(bearer, tokenPrefix) || len(bearer) > 64 {
		return rlc.Token{}, none
	}
	t, err := lookUp(ctx, &s.logins, &s.logins.tokens, hashOf(bearer), s.Identities.TokenByHash)
	if err != nil {
		return t, err
	}
	now := s.Now().UTC()
	if !t.Revoked.IsZero() || !now.Before(t.Until) {
		return t, none
	}
	if now.Sub(t.Used) > seenEvery {
		t.Used = now
		keep(&s.logins, &s.logins.tokens, t.Hash, t)
		if err := s.Identities.UseToken(ctx, t.ID, now); err != nil && !errors.Is(err, rlc.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return t, err
		}
	}
	return t, nil
}

func tokenJSON(t rlc.Token, now time.Time) object {
	state := "valid"
	switch {
	case !t.Revoked.IsZero():
		state = "revoked"
	case !now.Before(t.Until):
		state = "expired"
	}
	services := t.Services
	if services == nil {
		services = []string{}
	}
	return object{"id": t.ID, "name": t.Name, "role": t.Right, "services": services, "state": state, "created_by": t.Actor,
		"created_at": t.Created, "expires_at": t.Until, "last_used_at": instant(t.Used), "revoked_at": instant(t.Revoked)}
}

// instant is a time as JSON shows it: null for none.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (s *server) apiTokens(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	all, total, err := s.Identities.Tokens(v.ctx(), page)
	if err != nil {
		return err
	}
	out := make([]object, 0, len(all))
	for _, t := range all {
		out = append(out, tokenJSON(t, s.Now()))
	}
	return answer(v, http.StatusOK, paged("tokens", out, page, total))
}

// apiCreateToken makes a token. The answer is the one place that it is shown.
func (s *server) apiCreateToken(v *visit) error {
	var in struct {
		Name     string    `json:"name"`
		Role     rlc.Right `json:"role"`
		Services []string  `json:"services"`
		TTL      float64   `json:"ttl_seconds"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	in.Name = strings.TrimSpace(in.Name)
	switch {
	case in.Name == "" || len(in.Name) > 64 || strings.ContainsFunc(in.Name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalid("name must say in 1 to 64 printable characters what the token is for")
	case !slices.Contains(rights, in.Role):
		return invalid("role must be viewer, bot, owner, oncall or admin")
	case in.Role == rlc.MayOwn && len(in.Services) == 0:
		return invalid("a token with the role owner needs the services that it may act on")
	case in.Role == rlc.MayAdmin && len(in.Services) > 0:
		return invalid("an admin's token is not bound to services")
	case !(in.TTL >= 60 && in.TTL <= maxTokenAge.Seconds()):
		return invalid("ttl_seconds must be within 1 minute and 366 days (%s)", rlc.Number(maxTokenAge.Seconds()))
	case slices.Contains(in.Services, "*"):
		return invalid("services: * is no service's name; leave services out for a token that may act on all of them")
	case slices.Contains(in.Services, ""):
		return invalid("services: a name is empty")
	case len(in.Services) > 100:
		return invalid("services are %d names: at most 100", len(in.Services))
	}
	secret, now := tokenPrefix+rand.Text(), s.Now().UTC()
	t := rlc.Token{ID: reference(), Name: in.Name, Hash: hashOf(secret), Right: in.Role, Services: in.Services, Actor: v.who.name, Created: now, Until: now.Add(time.Duration(in.TTL * float64(time.Second)))}
	detail := in.Name + ", " + string(in.Role)
	if len(in.Services) > 0 {
		detail += " of " + strings.Join(in.Services, ", ")
	}
	if err := s.Identities.CreateToken(v.ctx(), t, rlc.AuditEntry{At: now, Actor: v.who.name, Action: "token.created", Object: t.ID, Detail: detail}); err != nil {
		return err
	}
	out := tokenJSON(t, now)
	out["token"] = secret
	return answer(v, http.StatusCreated, out)
}

func (s *server) apiRevokeToken(v *visit) error {
	id, now := v.r.PathValue("id"), s.Now().UTC()
	if err := s.Identities.RevokeToken(v.ctx(), id, now, rlc.AuditEntry{At: now, Actor: v.who.name, Action: "token.revoked", Object: id}); err != nil {
		return err
	}
	v.w.WriteHeader(http.StatusNoContent)
	return nil
}
