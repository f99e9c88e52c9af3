package web

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/web/ui"
)

// Rollouts take buckets from shadow to enforce and services back to what they
// were.
type Rollouts interface {
	// Checklist is what stands between a bucket and enforce; word is "" where who
	// asks may not speak for the service.
	Checklist(ctx context.Context, service, bucket, word string) ([]rollout.Check, error)
	Promote(ctx context.Context, service, bucket string, zones []string, all bool, actor string) (rollout.Promotion, error)
	Demote(ctx context.Context, service, bucket, actor, reason string) error
	Promotions(ctx context.Context, service string) ([]rollout.Promotion, error) // the newest first
	Revisions(ctx context.Context, service string) ([]rollout.Revision, error)   // the newest first
	// Compare takes "" for the newest revision, and for the one before it.
	Compare(ctx context.Context, service, from, to string) (rollout.Comparison, error)
	Rollback(ctx context.Context, service, to, actor, reason string) (rlc.Commit, error)
	Pins(ctx context.Context, service string) ([]rollout.Pin, error)
	LiftPin(ctx context.Context, service, id, actor string) error
}

// word is the visitor's name where that counts for a service.
func (s *server) word(v *visit, service string) string {
	if v.who.server || v.who.name != "" && s.mayAct(v.who, service) {
		return v.who.name
	}
	return ""
}

// checklistURL is the page of what stands between a bucket and enforce.
func checklistURL(service, bucket string) string {
	return serviceURL(service) + "/buckets/" + segment(bucket) + "/promote"
}

// promotable reports whether a bucket is in shadow somewhere.
func promotable(b *rlc.Bucket) bool { return b.Mode == rlc.Shadow || b.Rollout != nil }

// checklists leads to the page of each bucket of a service that is in shadow.
func checklists(t *truth) (out []ui.Link) {
	if t.service == nil {
		return nil
	}
	for i := range t.service.Buckets {
		if b := &t.service.Buckets[i]; promotable(b) {
			out = append(out, ui.Link{Text: b.Name, URL: checklistURL(t.name, b.Name)})
		}
	}
	return out
}

// promotion is /services/{service}/buckets/{bucket}/promote.
func (s *server) promotion(v *visit) error {
	service, bucket := v.r.PathValue("service"), v.r.PathValue("bucket")
	t, err := s.truth(v.ctx(), service)
	if err != nil {
		return err
	}
	checks, err := s.Rollouts.Checklist(v.ctx(), service, bucket, s.word(v, service))
	if err != nil {
		return err
	}
	f, err := s.frame(v, service+" / "+bucket+" / promote", "services")
	if err != nil {
		return err
	}
	view := ui.Promote{
		Head: s.serviceHead(t, "From shadow to enforce", ui.Link{Text: service, URL: serviceURL(service)}, bucket),
		Post: v.r.URL.EscapedPath(), Open: rollout.Open(checks), SignIn: !v.may(),
		History: serviceURL(service) + "/history",
		Pager:   ui.Pager{Range: plural(len(checks), "check", "checks"), CSV: v.as(".csv"), JSON: v.as(".json")},
	}
	zones := map[string]bool{}
	for _, a := range s.Truths.Acks() {
		if a.Zone != "" {
			zones[a.Zone] = true
		}
	}
	view.Zones = strings.Join(slices.Sorted(maps.Keys(zones)), ", ")
	missing := 0
	for _, c := range checks {
		view.Checks = append(view.Checks, ui.CheckRow{OK: c.OK, Text: capital(c.Text), Found: c.Found, Fix: capital(c.Fix)})
		if !c.OK {
			missing++
		}
	}
	view.Verdict = []ui.Part{{Text: "Every check is passed.", Bold: true}, {Text: " What is enforced drops requests over the limit."}}
	if missing > 0 {
		view.Verdict = []ui.Part{{Text: plural(missing, "check", "checks") + " to go.", Bold: true}, {Text: " Until then the bucket stays in shadow."}}
	}
	return s.render(v, http.StatusOK, ui.PromotePage(f, view))
}

// may reports whether the visitor has shown who it is, so that forms are worth
// showing.
func (v *visit) may() bool { return v.who.role != viewer && v.who.role != anyone }

// zonesIn reads zones as people write them: by commas, lines or spaces.
func zonesIn(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
}

func (s *server) formPromote(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	service := v.r.PathValue("service")
	if _, err := s.Rollouts.Promote(v.ctx(), service, v.r.PathValue("bucket"), zonesIn(v.r.PostFormValue("zones")), v.r.PostFormValue("all") == "true", v.who.name); err != nil {
		return err
	}
	return v.back(serviceURL(service)+"/history", "promote")
}

func (s *server) formDemote(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	reason, err := reasonOf(v.r.PostFormValue("reason"), demoteNeeds)
	if err != nil {
		return err
	}
	service := v.r.PathValue("service")
	if err := s.Rollouts.Demote(v.ctx(), service, v.r.PathValue("bucket"), v.who.name, reason); err != nil {
		return err
	}
	return v.back(serviceURL(service)+"/history", "demote")
}

// apiChecklist answers what the gate says.
func (s *server) apiChecklist(v *visit) error {
	service := v.r.PathValue("service")
	checks, err := s.Rollouts.Checklist(v.ctx(), service, v.r.PathValue("bucket"), s.word(v, service))
	if err != nil {
		return err
	}
	return answer(v, http.StatusOK, object{"open": rollout.Open(checks), "checks": checks})
}

func (s *server) apiPromote(v *visit) error {
	var in struct {
		Zones []string `json:"zones"`
		All   bool     `json:"all"`
	}
	if err := read(v, &in); err != nil {
		return err
	}
	p, err := s.Rollouts.Promote(v.ctx(), v.r.PathValue("service"), v.r.PathValue("bucket"), in.Zones, in.All, v.who.name)
	if err != nil {
		return err
	}
	return answer(v, http.StatusCreated, promotionJSON(p))
}

func (s *server) apiDemote(v *visit) error {
	reason, err := s.reason(v)
	if err != nil {
		return err
	}
	if err := s.Rollouts.Demote(v.ctx(), v.r.PathValue("service"), v.r.PathValue("bucket"), v.who.name, reason); err != nil {
		return err
	}
	return answer(v, http.StatusOK, object{"mode": rlc.Shadow})
}

// reason reads a body of a reason alone.
func (s *server) reason(v *visit) (string, error) {
	var in struct {
		Reason string `json:"reason"`
	}
	if err := read(v, &in); err != nil {
		return "", err
	}
	return reasonOf(in.Reason, demoteNeeds)
}

func promotionJSON(p rollout.Promotion) object {
	plan := p.Plan
	if plan == nil {
		plan = []string{}
	}
	out := object{
		"id": p.ID, "service": p.Service, "bucket": p.Bucket, "actor": p.Actor, "state": p.State, "plan": plan, "all": p.All, "zones": p.Zones(),
		"expected_share": p.Expected, "stage_at": p.Stage.UTC(), "started_at": p.Started.UTC(), "ended_at": nil, "why": p.Why, "commit": p.Commit,
	}
	if !p.Ended.IsZero() {
		out["ended_at"] = p.Ended.UTC()
	}
	return out
}
