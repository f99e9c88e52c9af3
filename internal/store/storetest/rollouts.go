package storetest

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/internal/store"
)

func promotions(t *testing.T, db *store.DB) {
	entry := func(action string) rlc.AuditEntry {
		return rlc.AuditEntry{At: now, Actor: "ada", Action: action, Object: "checkout/callers"}
	}
	first := rollout.Promotion{
		ID: "p1", Service: "checkout", Bucket: "callers", Actor: "ada", State: rollout.Growing, Plan: []string{"a", "b"}, All: true, Reached: 1,
		Fleet: []string{"a", "b"}, Expected: 0.01, Stage: now, Started: now, Ended: now.Add(time.Hour), Why: "w", Commit: "c",
	}
	filled(t, first)
	second := first
	second.ID, second.Started = "p2", now.Add(time.Minute)
	must(t, db.SavePromotion(ctx(t), first, entry("promotion.begin")))
	fails(t, db.SavePromotion(ctx(t), second, entry("promotion.begin")), rlc.ErrConflict)
	same(t, "growing", get(db.GrowingPromotions(ctx(t)))(t), []rollout.Promotion{first})
	first.State, first.Reached = rollout.Halted, 2
	must(t, db.SavePromotion(ctx(t), first, entry("promotion.halt")))
	must(t, db.SavePromotion(ctx(t), second, entry("promotion.begin")))
	same(t, "of the service", get(db.Promotions(ctx(t), "checkout"))(t), []rollout.Promotion{second, first})
	same(t, "growing", get(db.GrowingPromotions(ctx(t)))(t), []rollout.Promotion{second})
	entries, _, err := db.Audit(ctx(t), rlc.Page{})
	must(t, err)
	same(t, "audit", len(entries), 3)
	fails(t, db.SavePromotion(ctx(t), second, rlc.AuditEntry{}), rlc.ErrInvalid)
}

func pins(t *testing.T, db *store.DB) {
	entry := rlc.AuditEntry{At: now, Actor: "ada", Action: "rollback", Object: "checkout"}
	pin := rollout.Pin{ID: "1", Service: "checkout", Quota: "callers/caller=web", Limit: rlc.Limit{Rate: 10, Burst: 20}, Band: 0.2, Actor: "ada", Reason: "too low", At: now}
	filled(t, pin)
	other := pin
	other.ID, other.Service = "2", "search"
	must(t, db.SetPins(ctx(t), []rollout.Pin{pin, other}, entry))
	must(t, db.SetPins(ctx(t), []rollout.Pin{pin}, entry))
	same(t, "of the service", get(db.Pins(ctx(t), "checkout"))(t), []rollout.Pin{pin})
	entry.Action = "pin.lift"
	fails(t, db.LiftPin(ctx(t), "search", "1", entry), rlc.ErrNotFound) // another service's
	must(t, db.LiftPin(ctx(t), "checkout", "1", entry))
	fails(t, db.LiftPin(ctx(t), "checkout", "1", entry), rlc.ErrNotFound)
	same(t, "after it was lifted", get(db.Pins(ctx(t), "checkout"))(t), []rollout.Pin(nil))
}

func notices(t *testing.T, db *store.DB) {
	n := rlc.Notice{ID: "n1", Kind: "halt", Service: "checkout", Owners: []string{"team-a"}, At: now, Text: "halted", URL: "http://x/", Urgent: true}
	filled(t, n)
	must(t, db.AddNotice(ctx(t), n, []string{"slack", "hook"}))
	again := n
	again.Text = "told differently"
	must(t, db.AddNotice(ctx(t), again, []string{"slack", "hook"}))
	due := now.Add(time.Minute)
	must(t, db.NoticesFailed(ctx(t), "hook", []string{"n1"}, "503", due))
	same(t, "unsent", get(db.UnsentNotices(ctx(t)))(t), []rlc.OutgoingNotice{
		{Notice: n, Target: "hook", Attempts: 1, NotBefore: due, Error: "503"}, {Notice: n, Target: "slack"},
	})
	must(t, db.NoticesSent(ctx(t), "slack", []string{"n1"}, now))
	must(t, db.NoticesSent(ctx(t), "hook", []string{"n1"}, now))
	must(t, db.NoticesFailed(ctx(t), "hook", []string{"n1"}, "late", due)) // it was sent
	must(t, db.AddNotice(ctx(t), n, []string{"slack", "hook"}))            // told once
	same(t, "after all were sent", get(db.UnsentNotices(ctx(t)))(t), []rlc.OutgoingNotice(nil))
}
