package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/web/ui"
)

// Onboarding is about services that metrics name and no policy is about.
type Onboarding interface {
	Unmanaged() (names []string, at time.Time, err error) // as of the last look; it asks nobody
	// Begun are those of them whose first policies wait on a branch to be merged, and
	// that branch.
	Begun() (services []string, branch string)
	Look(ctx context.Context, service string) (Sighting, error)
	Onboard(ctx context.Context, service string, owners []string, actor string) error
}

// Sighting is what history tells of one service, and its first policy.
type Sighting struct {
	Profile string
	Each    string // what its bucket counts by; "" for one counter
	Why     string
	Rate    rlc.Rate // mean of the last day
	Doubts  []string
	Policy  string // policy.yaml
	Limits  []FirstLimit
	More    int // limits that were not computed: there are too many
}

// FirstLimit is what a first run would propose. Limit is nil where it abstains;
// Why says why.
type FirstLimit struct {
	Bucket   string
	Key      rlc.Key
	Peak     rlc.Rate
	Days     int // with samples
	Coverage rlc.Ratio
	Limit    *rlc.Limit
	Why      string
}

// confidence is how sure a first limit is, in a word.
func (l FirstLimit) confidence() ui.Sign {
	switch {
	case l.Limit == nil:
		return ui.Sign{Level: "bad", After: "none yet"}
	case l.Days >= 21 && l.Coverage >= 0.95:
		return ui.Sign{Level: "good", After: "high"}
	case l.Days >= 14:
		return ui.Sign{Level: "note", After: "fair"}
	}
	return ui.Sign{Level: "warn", After: "low"}
}

// suggested is the limit, or below two weeks of history the range that it may
// come to: from the peak that counts so far up to it.
func (l FirstLimit) suggested() string {
	if l.Limit == nil || l.Days >= 14 || l.Peak <= 0 || l.Limit.Rate <= l.Peak {
		return limitText(l.Limit)
	}
	return rate(float64(l.Peak)) + "–" + limitText(l.Limit)
}

// lookPatience is how long history may take: the rest of patience is for the
// page that says what was seen by then.
const lookPatience = patience * 3 / 4

// look reads history, one look at a time: plans have a turn of their own.
func (s *server) look(v *visit, name string) (Sighting, error) {
	if !s.looking.TryLock() {
		return Sighting{}, fault{status: http.StatusServiceUnavailable, detail: "Another look at history is under way. Try again in a few seconds."}
	}
	defer s.looking.Unlock()
	ctx, cancel := context.WithTimeout(v.ctx(), lookPatience)
	defer cancel()
	seen, err := s.Onboarding.Look(ctx, name)
	switch {
	case err == nil || errors.Is(err, rlc.ErrNotFound) || errors.Is(err, rlc.ErrConflict) || v.ctx().Err() != nil:
		return seen, err
	case ctx.Err() != nil:
		return seen, fault{status: http.StatusServiceUnavailable, title: "Too much history for a page", detail: "What " + name + " sends could not be looked at within " + rlc.DurationText(lookPatience) + ". rlc init --from-prometheus has no such limit, nor have runs: a policy.yaml written by hand gets its limits from the next one."}
	}
	return seen, fault{status: http.StatusServiceUnavailable, title: "History cannot be read", detail: "Nothing can be suggested for " + name + ": " + plain(err) + "."}
}

// onboard is /services/{service}/onboard.
func (s *server) onboard(v *visit) error {
	name := v.r.PathValue("service")
	if s.serviceExists(name) {
		http.Redirect(v.w, v.r, serviceURL(name), http.StatusSeeOther)
		return nil
	}
	seen, err := s.seen(v)
	if err != nil {
		return err
	}
	f, err := s.frame(v, name+" / onboard", "services")
	if err != nil {
		return err
	}
	each := "One counter for all"
	if seen.Each != "" {
		each = "One quota for each " + seen.Each
	}
	view := ui.Onboard{
		Head: ui.Head{Margin: "No policy yet", Title: name, Facts: []ui.Link{{Text: "seen through profile " + seen.Profile}}}, Post: serviceURL(name) + "/onboard", CanAct: v.may(), SignIn: "/login?next=" + query(v.r.URL.RequestURI()), Policy: seen.Policy,
		Grid: ui.Grid{Caption: "Suggested limits", Columns: []ui.Column{{Label: "Quota"}, {Label: "Peak that counts, req/s", Class: "num"}, {Label: "Days seen", Class: "num"}, {Label: "Coverage", Class: "num"}, {Label: "Suggested, req/s", Class: "num"}, {Label: "Confidence"}, {Label: "Why", Class: "wide"}}},
	}
	sure := 0
	for _, l := range seen.Limits {
		c := l.confidence()
		if c.Level == "good" {
			sure++
		}
		view.Grid.Rows = append(view.Grid.Rows, []ui.Cell{{Text: quotaName(l.Bucket, l.Key)}, {Text: rate(float64(l.Peak))}, {Text: count(float64(l.Days))}, {Text: percent(float64(l.Coverage))}, {Text: l.suggested()}, {Text: c.After}, {Text: l.Why}})
	}
	view.Verdict = []ui.Part{{Text: name + " gets " + rate(float64(seen.Rate)) + " req/s and has no limit. "}, {Text: each, Bold: true}, {Text: " fits its traffic (" + seen.Why + "): " + plural(len(seen.Limits), "quota", "quotas") + ", " + count(float64(sure)) + " of them with high confidence."}}
	for _, d := range seen.Doubts {
		view.Doubts = append(view.Doubts, ui.Sign{Level: "warn", Before: d})
	}
	if begun, branch := s.Onboarding.Begun(); slices.Contains(begun, name) {
		view.Doubts = append([]ui.Sign{{Level: "warn", Before: "A first policy of it waits on the branch " + branch, Soft: "merge that branch instead, or delete it first"}}, view.Doubts...)
	}
	if len(seen.Doubts) == 0 {
		view.Doubts = []ui.Sign{{Level: "good", Before: "Every check of the history source passed"}}
	}
	view.Pager = ui.Pager{Range: plural(len(seen.Limits), "quota", "quotas"), CSV: v.as(".csv"), JSON: v.as(".json")}
	if seen.More > 0 {
		view.Pager.Range += ", and " + plural(seen.More, "more", "more")
	}
	if len(seen.Limits) == 0 {
		view.Empty = &ui.Empty{Title: "No series", Reason: "History has no sample of this service in four weeks, or cannot be read.", Query: "rlc doctor", Fix: ui.Link{Text: "Services", URL: "/services?show=unmanaged"}}
	}
	return s.render(v, http.StatusOK, ui.OnboardPage(f, view))
}

// formOnboard is POST /services/{service}/onboard.
func (s *server) formOnboard(v *visit) error {
	if err := form(v); err != nil {
		return err
	}
	name := v.r.PathValue("service")
	if s.Onboarding == nil {
		return missing("service", name)
	}
	owners, err := ownersIn(v.r.PostFormValue("owners"))
	if err != nil {
		return err
	}
	if err := s.Onboarding.Onboard(v.ctx(), name, owners, v.who.name); err != nil {
		return err
	}
	return v.back("/proposals?service="+query(name), "onboarded")
}

// unmanaged is /services?show=unmanaged.
func (s *server) unmanaged(v *visit) error {
	page, err := v.page()
	if err != nil {
		return err
	}
	var names []string
	var at time.Time
	err = errors.New("this server does not look for services")
	if s.Onboarding != nil {
		names, at, err = s.Onboarding.Unmanaged()
	}
	f, ferr := s.frame(v, "Unmanaged services", "services")
	if ferr != nil {
		return ferr
	}
	q := strings.ToLower(strings.TrimSpace(v.r.URL.Query().Get("q")))
	var fit []string
	for _, n := range names {
		if strings.Contains(strings.ToLower(n), q) {
			fit = append(fit, n)
		}
	}
	switch {
	case wantsJSON(v.r):
		return answer(v, http.StatusOK, object{"unmanaged": append([]string{}, cut(fit, page)...)})
	case strings.HasSuffix(v.r.URL.Path, ".csv"):
		var rows [][]string
		for _, n := range cut(fit, page) {
			rows = append(rows, []string{n})
		}
		return sheet(v, "unmanaged", []string{"service"}, rows)
	}
	view := ui.Caller{Head: ui.Head{Margin: "Without a policy", Title: "Unmanaged services", Facts: []ui.Link{{Text: "all services", URL: "/services"}, {Text: "import from Envoy", URL: "/import"}}}, Section: "Seen in metrics", About: "Services that the metrics of the last day name. Onboarding starts in shadow: nothing is dropped.", Pager: v.pager(page, len(cut(fit, page)), len(fit)),
		Grid:    ui.Grid{Caption: "Unmanaged services", Columns: []ui.Column{{Label: "Service"}, {Label: ""}}},
		Verdict: []ui.Part{{Text: plural(len(names), "service has", "services have") + " traffic and no policy: nothing limits them."}},
	}
	for _, n := range cut(fit, page) {
		view.Grid.Rows = append(view.Grid.Rows, []ui.Cell{{Text: n}, {Text: "Onboard", URL: serviceURL(n) + "/onboard"}})
	}
	view.Note = "As the metrics' labels named them on " + v.time(at).Text + "; looked for every five minutes."
	if at.IsZero() {
		view.Verdict, view.Note = []ui.Part{{Text: "Nobody has looked yet which services have traffic and no policy."}}, ""
	}
	if len(fit) == 0 {
		because := "Every service that metrics of the last day name has a policy."
		switch {
		case at.IsZero():
			because = "Metrics are asked within seconds after the server's start."
		case q != "":
			because = "No name of a service without a policy has this in it."
		}
		view.Empty = &ui.Empty{Title: "None", Reason: because, Query: "rlc init --from-prometheus URL --profile P --out DIR", Fix: ui.Link{Text: "All services", URL: "/services"}}
	}
	if err != nil {
		view.Note = "Not every profile could be asked: " + plain(err) + "."
	}
	return s.render(v, http.StatusOK, ui.CallerPage(f, view))
}

// unmanagedCount is how many services have no policy; "" where nobody has
// looked.
func (s *server) unmanagedCount() string {
	if s.Onboarding == nil {
		return ""
	}
	names, at, _ := s.Onboarding.Unmanaged()
	if at.IsZero() {
		return ""
	}
	return count(float64(len(names)))
}
