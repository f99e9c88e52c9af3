package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// sightings are the fixture's services without a policy.
type sightings struct{ f *fixture }

func (sightings) Unmanaged() ([]string, time.Time, error) {
	return []string{"ledger", hostile[0]}, runAt, nil
}

func (s sightings) Begun() ([]string, string) { return s.f.begun, "rlc/_init" }

func (sightings) Look(_ context.Context, name string) (web.Sighting, error) {
	if name != "ledger" && name != hostile[0] {
		return web.Sighting{}, fmt.Errorf("%w: metrics name no service %q", rlc.ErrNotFound, name)
	}
	return web.Sighting{
		Profile: "grpc", Each: "caller", Why: "2 callers", Rate: 210, Doubts: []string{"retention is 9 days", `sum by (caller, procedure) (rate(rlc_enforcer_requests_total{service="ledger"}[1m])): no sample now`}, Policy: "service: ledger\n",
		Limits: []web.FirstLimit{
			{Bucket: "callers", Key: rlc.Key{"caller": "orders"}, Peak: 300, Days: 28, Coverage: 1, Limit: &rlc.Limit{Rate: 390, Burst: 780}, Why: "weekly peak 300 × 1.30"},
			{Bucket: "callers", Key: rlc.Key{"caller": hostile[4]}, Peak: 20, Days: 3, Coverage: .9, Limit: &rlc.Limit{Rate: 36, Burst: 72}},
		},
	}, nil
}

func (s sightings) Onboard(_ context.Context, name string, owners []string, actor string) error {
	s.f.did("onboard %s owners %q by %s", name, owners, actor)
	return nil
}

func TestAServiceWithoutAPolicyIsOnboardedIntoShadow(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	holds(t, h, "/services", "unmanaged 2", "/services?show=unmanaged")
	holds(t, h, "/services?show=unmanaged", "2 services have traffic and no policy", `href="/services/ledger/onboard"`)
	for _, path := range []string{"/services/ledger", "/services/ledger/shadow", "/why?service=ledger&caller=web"} {
		w := get(h, path)
		if page := w.Body.String(); w.Code != http.StatusNotFound || !strings.Contains(page, "ledger has traffic and no policy: no limit counts its requests.") || !strings.Contains(page, `href="/services/ledger/onboard"`) {
			t.Errorf("%s: %d %s", path, w.Code, page)
		}
	}
	if page := holds(t, h, "/proposals?service=ledger", "ledger has traffic and no policy, so no run looks at it.", `href="/services/ledger/onboard"`); strings.Contains(page, "No service is called") {
		t.Error("a service that metrics name is said not to exist")
	}
	holds(t, h, "/services/ledger/onboard", "210 req/s and has no limit", "One quota for each caller", "2 quotas, 1 of them with high confidence", "390", "low", "retention is 9 days", "service: ledger", "to put it in shadow")
	if w := get(h, "/services/nosuch/onboard"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown service: %d", w.Code)
	}
	if w := get(h, "/services/checkout/onboard"); w.Code != http.StatusSeeOther {
		t.Errorf("a service with a policy: %d", w.Code)
	}
	w := request(h, "POST", "/services/ledger/onboard", url.Values{"owners": {"team-money, team-risk"}}.Encode(), func(r *http.Request) {
		bearer(r)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != "/proposals?service=ledger&done=onboarded" {
		t.Errorf("%d to %q", w.Code, to)
	}
	if want := []string{`onboard ledger owners ["team-money" "team-risk"] by token`}; !slices.Equal(f.done(), want) {
		t.Errorf("done %q, want %q", f.done(), want)
	}
}

// slow is a source of history that never answers; what it saw by then, it
// tells where partial.
type slow struct {
	sightings
	partial bool
	began   chan struct{}
}

func (s *slow) Look(ctx context.Context, name string) (web.Sighting, error) {
	close(s.began)
	<-ctx.Done()
	if s.partial {
		seen, err := s.sightings.Look(ctx, name)
		seen.Limits, seen.Doubts = nil, []string{"limits are missing here"}
		return seen, err
	}
	return web.Sighting{}, fmt.Errorf("look at %s: %w", name, ctx.Err())
}

// A look that takes too long ends with a page that says so, or with what was
// seen by then, before the request is given up; plans go on meanwhile.
func TestALongLookEndsWithAPageAndStopsNoPlan(t *testing.T) {
	for partial, want := range map[bool]string{
		false: "What ledger sends could not be looked at within 15s",
		true:  "limits are missing here",
	} {
		f := newFixture(t)
		history := &slow{sightings: sightings{f}, partial: partial}
		c := f.config()
		c.Onboarding = history
		h, err := web.New(c)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			history.began = make(chan struct{})
			page := make(chan string)
			go func() { page <- get(h, "/services/ledger/onboard").Body.String() }()
			<-history.began
			if w := get(h, "/services/ledger/onboard"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "Another look at history is under way") {
				t.Errorf("a second look: %d", w.Code)
			}
			if w := post(h, "/api/v1/plan", `{"service":"checkout"}`, nil); w.Code != http.StatusOK {
				t.Errorf("a plan during a look: %d %s", w.Code, w.Body)
			}
			if got := <-page; !strings.Contains(got, want) {
				t.Errorf("partial %t: want %q in\n%s", partial, want, got)
			}
		})
	}
}

func TestTheSheetsOfUnmanagedServicesListThose(t *testing.T) {
	h := newFixture(t).handler(t)
	for target, want := range map[string]string{
		"/services.csv?show=unmanaged":         "service\nledger\n",
		"/services.json?show=unmanaged&q=ledg": `{"unmanaged":["ledger"]}`,
	} {
		got := strings.ReplaceAll(get(h, target).Body.String(), "\r", "")
		if !strings.HasPrefix(strings.TrimSpace(got)+"\n", want) || strings.Contains(got, "checkout") {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// First policies that wait on a branch are said where somebody would begin anew.
func TestFirstPoliciesThatWaitAreMergedAndNotMadeAnew(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	const waits = "A first policy of it waits on the branch rlc/_init"
	if strings.Contains(get(h, "/services/ledger/onboard").Body.String(), waits) {
		t.Error("one waits where there is none")
	}
	f.begun = []string{"ledger"}
	holds(t, h, "/services/ledger/onboard", waits, "merge that branch instead, or delete it first")
	f.files, f.desired = rlc.Files{}, quotafile.Parse(rlc.Files{}, policies.Builtin().Check)
	holds(t, h, "/", "The first step: merge rlc/_init", "has first policies of 1 service: ledger. Nothing is limited until it is merged", "git merge origin/rlc/_init")
}
