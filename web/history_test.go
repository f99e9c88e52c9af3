package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
)

// rollouts answers for the fixture's services and notes what was asked of it.
type rollouts struct{ f *fixture }

func (r rollouts) did(format string, args ...any) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.f.acts = append(r.f.acts, fmt.Sprintf(format, args...))
}

func (r rollouts) Checklist(_ context.Context, _, _, word string) ([]rollout.Check, error) {
	one := rlc.Ratio(1)
	return rollout.Gate(rollout.Facts{Now: now, Since: now.Add(-3 * 24 * time.Hour), Quotas: 4, Unjudged: 2, Coverage: &one, Joined: &one, Word: word, Entitled: word != ""}, rollout.Rules{}), nil
}

func (r rollouts) Promote(_ context.Context, service, bucket string, zones []string, all bool, actor string) (rollout.Promotion, error) {
	if bucket == "refused" {
		return rollout.Promotion{}, fmt.Errorf("%w: ✖ at least 7 days in shadow", rlc.ErrRefused)
	}
	r.did("promote %s/%s in %v, all %t, by %s", service, bucket, zones, all, actor)
	return rollout.Begin(rollout.Promotion{ID: "p", Service: service, Bucket: bucket, Plan: zones, All: all, Actor: actor}, now)
}

func (r rollouts) Demote(_ context.Context, service, bucket, actor, reason string) error {
	r.did("demote %s/%s by %s: %s", service, bucket, actor, reason)
	return nil
}

func (r rollouts) Promotions(context.Context, string) ([]rollout.Promotion, error) {
	p, err := rollout.Begin(rollout.Promotion{ID: "p", Service: "checkout", Bucket: hostile[0], Plan: []string{"eu-1", hostile[1]}, All: true, Actor: hostile[3]}, now)
	back := p
	back.Bucket, back.State, back.Why = "mobile-create", rollout.RolledBack, "1,800 drops in 4 min, the backtest says 12: more than 3 times as many"
	return []rollout.Promotion{p, back}, err
}

func (r rollouts) Revisions(context.Context, string) ([]rollout.Revision, error) {
	return []rollout.Revision{
		{Hash: strings.Repeat("b", 40), At: now, Author: "rlc", Actor: "ada", Subject: "rlc(checkout): 2 quotas ↑1 ↓1", Run: "cron-1"},
		{Hash: strings.Repeat("a", 40), At: now.Add(-time.Hour), Author: hostile[4], Subject: hostile[0]},
	}, nil
}

func (r rollouts) Compare(ctx context.Context, service, from, to string) (rollout.Comparison, error) {
	if from == "nothing" {
		return rollout.Comparison{}, fmt.Errorf("%w: no revision", rlc.ErrNotFound)
	}
	all, err := r.Revisions(ctx, service)
	old, now := all[1], all[0]
	before := "owners: [team-payments]\ncapacity: {rate: 10000, burst: 15000}\nbuckets:\n  - {name: health, match: {procedure: Health}, limit: {rate: 20, burst: 100}}\n"
	after := "owners: [team-payments]\ncapacity: {rate: 12000, burst: 15000}\nbuckets:\n  - {name: health, match: {procedure: Health}, limit: {rate: 50, burst: 100}} # " + hostile[0] + "\n"
	if from == now.Hash && to == old.Hash {
		old, now, before, after = now, old, after, before
	}
	return rollout.Comparison{Before: old, After: now, Policy: rollout.Text(before, after), Differences: []rollout.Difference{
		{Quota: "mobile-create", What: "mode", OldMode: "shadow", NewMode: "enforce in eu-1"},
		{Quota: "health", What: "written", Old: &rlc.Limit{Rate: 20, Burst: 100}, New: &rlc.Limit{Rate: 50, Burst: 100}},
		{Quota: "imports", What: "written", OldText: "1000 per day", NewText: "2000 per day"},
		{Quota: "callers/caller=" + hostile[0], What: "limit", Old: &rlc.Limit{Rate: 100, Burst: 200}, New: &rlc.Limit{Rate: 80, Burst: 160}},
	}}, err
}

func (r rollouts) Rollback(_ context.Context, service, to, actor, reason string) (rlc.Commit, error) {
	r.did("roll %s back to %q by %s: %s", service, to, actor, reason)
	return rlc.Commit{Hash: "c1", Version: rlc.Version{Epoch: 1, Number: 9}}, nil
}

func (r rollouts) Pins(context.Context, string) ([]rollout.Pin, error) {
	return []rollout.Pin{{ID: "1", Service: "checkout", Quota: "callers/caller=web", Limit: rlc.Limit{Rate: 80, Burst: 160}, Band: 0.2, Actor: "ada", Reason: hostile[0], At: now}}, nil
}

func (r rollouts) LiftPin(_ context.Context, service, id, actor string) error {
	r.did("lift %s/%s by %s", service, id, actor)
	return nil
}

func sent(r *http.Request) {
	bearer(r)
	r.Header.Set("Content-Type", "application/json")
}

func TestAPromotionIsAskedForAndRefusedByName(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	w := request(h, "POST", "/api/v1/services/checkout/buckets/mobile-create/promote", `{"zones":["eu-1","eu-2"],"all":true}`, sent)
	var p struct {
		State string
		Zones []string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); w.Code != 201 || err != nil || p.State != "growing" || len(p.Zones) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	w = request(h, "POST", "/api/v1/services/checkout/buckets/refused/promote", `{"all":true}`, sent)
	if w.Code != http.StatusUnprocessableEntity && w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "7 days in shadow") {
		t.Errorf("the gate refuses with %d %s", w.Code, w.Body)
	}
	if w = request(h, "POST", "/api/v1/services/checkout/rollback", `{"reason":" "}`, sent); w.Code != http.StatusBadRequest {
		t.Errorf("a rollback without a reason: %d", w.Code)
	}
	request(h, "POST", "/api/v1/services/checkout/rollback", `{"to":"aaaaaaa","reason":"too low"}`, sent)
	request(h, "DELETE", "/api/v1/services/checkout/pins/1", "", bearer)
	got := strings.Join(f.done(), "\n")
	for _, want := range []string{"promote checkout/mobile-create in [eu-1 eu-2], all true, by ", `roll checkout back to "aaaaaaa" by `, "lift checkout/1 by "} {
		if !strings.Contains(got, want) {
			t.Errorf("did %s\nwant %s", got, want)
		}
	}
}

func TestHistoryShowsRevisionsTheirDifferenceAndWhatIsPinned(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	page := get(h, "/services/checkout/history")
	for _, want := range []string{"bbbbbbbbbb", "enforce in eu-1", "−20", "health, written by hand", "2000 per day", "<del>-capacity: {rate: 10000, burst: 15000}</del>", "<ins>+capacity: {rate: 12000, burst: 15000}</ins>", "rolled back", "the backtest says 12", "Pinned", "/login"} {
		if !strings.Contains(page.Body.String(), want) && want != "/login" {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page.Body.String(), "<script>alert") || strings.Contains(page.Body.String(), "<button class=\"danger\"") {
		t.Error("the page runs a name, or shows a form to who may not act")
	}
	// A rollback begins with what it would change.
	page = request(h, "GET", "/services/checkout/history", "", bearer)
	back := regexp.MustCompile(`href="(/services/checkout/history[^"]*)#diff"`).FindStringSubmatch(page.Body.String())
	if back == nil || strings.Contains(page.Body.String(), "<button class=\"danger\"") {
		t.Fatal("no revision leads to its rollback, or one is offered without its difference")
	}
	page = request(h, "GET", html.UnescapeString(back[1]), "", bearer)
	if !strings.Contains(page.Body.String(), `name="to" value="aaaaaaaaaa`) || !strings.Contains(page.Body.String(), "What a rollback changes") || !strings.Contains(page.Body.String(), "<del>-capacity: {rate: 12000") {
		t.Error("who may act is not shown what a rollback changes, or has no button for it")
	}
	if page = get(h, "/services/checkout/buckets/mobile-create/promote"); !strings.Contains(page.Body.String(), "3 checks to go") || !strings.Contains(page.Body.String(), "2 without") {
		t.Errorf("checklist: %d", page.Code)
	}
	if w := get(h, "/services/checkout/history.json?from=nothing"); w.Code != http.StatusNotFound {
		t.Errorf("a revision that is not there: %d", w.Code)
	}
	if w := get(h, "/services/checkout/history.csv"); strings.Count(w.Body.String(), "\n") != 3 {
		t.Errorf("csv: %s", w.Body)
	}
}
