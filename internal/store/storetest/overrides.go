package storetest

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/store"
)

func override(id string, from time.Time) rlc.Override {
	rate, burst := rlc.Rate(500), rlc.Burst(10)
	return rlc.Override{
		ID: id, Service: "checkout", Match: map[string][]string{"caller": {"search", "geo"}}, Action: "limit", Rate: &rate, Burst: &burst,
		DropRatio: 0.5, From: from, Until: from.Add(time.Hour), RampSeconds: 5, Actor: "ada", Reason: "INC-1", EndedBy: "",
	}
}

func overrides(t *testing.T, db *store.DB) {
	entry := func(id string) rlc.AuditEntry {
		return rlc.AuditEntry{ID: id, At: now, Actor: "ada", Action: "override.set", Object: "o1"}
	}
	first, second := override("o1", now), override("o2", now.Add(time.Minute))
	filled(t, first, "EndedBy")
	must(t, db.SetOverride(ctx(t), second, entry("e2")))
	must(t, db.SetOverride(ctx(t), first, entry("e1")))
	same(t, "standing", get(db.Overrides(ctx(t), now))(t), []rlc.Override{first, second})
	same(t, "after the first ended", get(db.Overrides(ctx(t), first.Until))(t), []rlc.Override{second})

	fails(t, db.SetOverride(ctx(t), first, entry("e1")), rlc.ErrConflict) // the same act again
	first.Until, first.EndedBy = now.Add(time.Second), "bob"
	must(t, db.SetOverride(ctx(t), first, entry("e3")))
	again := first
	again.EndedBy, again.Until = "", now.Add(2*time.Hour)
	fails(t, db.SetOverride(ctx(t), again, entry("e4")), rlc.ErrConflict) // it was ended
	fails(t, db.SetOverride(ctx(t), override("o3", now), rlc.AuditEntry{}), rlc.ErrInvalid)
	backwards := override("o3", now)
	backwards.Until = now
	fails(t, db.SetOverride(ctx(t), backwards, entry("e5")), rlc.ErrInvalid)

	log, total, err := db.OverrideLog(ctx(t), rlc.Page{Number: 1, Size: 1})
	must(t, err)
	same(t, "log", log, []rlc.Override{second})
	same(t, "how many", total, 2)
	log, _, err = db.OverrideLog(ctx(t), rlc.Page{Number: 2, Size: 1})
	must(t, err)
	same(t, "log, second page", log, []rlc.Override{first})
	entries, _, err := db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	same(t, "audit", len(entries), 3)
}
