package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

func act(id, action string) rlc.AuditEntry {
	return rlc.AuditEntry{ID: id, At: now, Actor: "ada", Action: action, Object: "thing", Detail: "because"}
}

func sessions(t *testing.T, db *store.DB) {
	s := rlc.Session{ID: "hash", Name: "ada@example.com", Via: "oidc", Groups: []string{"team-a", "on call"}, Sealed: []byte{0, 1, 255},
		Created: now, Checked: now, Seen: now, Until: now.Add(time.Hour)}
	filled(t, s)
	opened := act("a1", "session.opened")
	must(t, db.OpenSession(ctx(t), s, &opened))
	same(t, "opened", get(db.Session(ctx(t), "hash"))(t), s)
	fails(t, db.OpenSession(ctx(t), s, nil), rlc.ErrConflict)

	s.Groups, s.Sealed, s.Checked, s.Seen = nil, nil, now.Add(time.Minute), now.Add(2*time.Minute)
	must(t, db.RefreshSession(ctx(t), s))
	same(t, "refreshed", get(db.Session(ctx(t), "hash"))(t), s)

	closed := act("a2", "session.closed")
	same(t, "closed", get(db.CloseSession(ctx(t), "hash", &closed))(t), s)
	_, err := db.CloseSession(ctx(t), "hash", &closed)
	fails(t, err, rlc.ErrNotFound)
	must(t, db.RefreshSession(ctx(t), s)) // does not bring it back
	_, err = db.Session(ctx(t), "hash")
	fails(t, err, rlc.ErrNotFound)

	old := s
	old.ID, old.Until = "old", now.Add(time.Second)
	must(t, db.OpenSession(ctx(t), old, nil))
	s.ID, s.Created = "new", now.Add(time.Second)
	must(t, db.OpenSession(ctx(t), s, nil))
	_, err = db.Session(ctx(t), "old")
	fails(t, err, rlc.ErrNotFound) // it had ended
	_, total, err := db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	same(t, "audit rows", total, 2)
}

func tokens(t *testing.T, db *store.DB) {
	k := rlc.Token{ID: "t1", Name: "ci", Hash: strings.Repeat("ab", 32), Right: rlc.MayRun, Services: []string{"checkout"}, Actor: "ada",
		Created: now, Until: now.Add(time.Hour)}
	filled(t, k, "Used", "Revoked")
	must(t, db.CreateToken(ctx(t), k, act("a1", "token.created")))
	same(t, "by hash", get(db.TokenByHash(ctx(t), k.Hash))(t), k)
	_, err := db.TokenByHash(ctx(t), "t1")
	fails(t, err, rlc.ErrNotFound)
	twin := k
	twin.ID = "t2"
	fails(t, db.CreateToken(ctx(t), twin, act("a2", "token.created")), rlc.ErrConflict)
	twin.Hash = "plain text"
	fails(t, db.CreateToken(ctx(t), twin, act("a3", "token.created")), rlc.ErrInvalid)

	k.Used = now.Add(time.Minute)
	must(t, db.UseToken(ctx(t), "t1", k.Used))
	must(t, db.UseToken(ctx(t), "t1", now)) // an older word
	k.Revoked = now.Add(2 * time.Minute)
	must(t, db.RevokeToken(ctx(t), "t1", k.Revoked, act("a4", "token.revoked")))
	fails(t, db.RevokeToken(ctx(t), "t1", now, act("a5", "token.revoked")), rlc.ErrNotFound)
	all, total, err := db.Tokens(ctx(t), rlc.Page{})
	must(t, err)
	same(t, "all", all, []rlc.Token{k})
	same(t, "how many", total, 1)
	_, total, err = db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	same(t, "audit rows", total, 2)
}

func auditFilters(t *testing.T, db *store.DB) {
	entries := []rlc.AuditEntry{
		{ID: "e3", At: now.Add(2 * time.Second), Actor: "bob", Action: "override.set", Object: "o1", Detail: "100%_of Search"},
		{ID: "e2", At: now.Add(time.Second), Actor: "ada", Action: "proposals.other", Object: "p2"},
		{ID: "e1", At: now, Actor: "ada", Action: "proposal.accepted", Object: "p1", Detail: "checkout"},
	}
	for _, e := range entries {
		must(t, db.AddAudit(ctx(t), e))
	}
	for _, c := range []struct {
		name string
		f    rlc.AuditFilter
		want []rlc.AuditEntry
	}{
		{"all", rlc.AuditFilter{}, entries},
		{"actor", rlc.AuditFilter{Actor: "ada"}, entries[1:]},
		{"action", rlc.AuditFilter{Action: "override.set"}, entries[:1]},
		{"a kind of action", rlc.AuditFilter{Action: "proposal."}, entries[2:]},
		{"object", rlc.AuditFilter{Object: "P2"}, entries[1:2]},
		{"detail, whatever its case", rlc.AuditFilter{Object: "search"}, entries[:1]},
		{"text that LIKE would read", rlc.AuditFilter{Object: "100%_"}, entries[:1]},
		{"text that is not there", rlc.AuditFilter{Object: "1%h"}, nil},
		{"from, until", rlc.AuditFilter{From: now.Add(time.Second), Until: now.Add(2 * time.Second)}, entries[1:2]},
		{"a name that cannot be stored", rlc.AuditFilter{Actor: "a\x00"}, nil},
	} {
		got, total, err := db.AuditLog(ctx(t), c.f, rlc.Page{})
		must(t, err)
		same(t, c.name, got, c.want)
		same(t, c.name+", how many", total, len(c.want))
	}
}
