package e2e

import (
	"context"
	"encoding/json"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// One installation, and the people who live with it, each at a browser with
// habits of their own. Owners take a service that has no policy to enforce: one
// on a phone that runs no scripts, one by keyboard alone, one by mouse. Then
// somebody asks where a number comes from, a caller asks why it is refused and
// gets an answer, and people on phones ask what if. What each did is looked for
// in git, in the records and at the enforcer.
func TestPeopleAtTheirBrowsers(t *testing.T) {
	const service = "payments"
	told := &inbox{}
	team := httptest.NewServer(told)
	t.Cleanup(team.Close)
	w := newWorld(t, flow{service, "web", storm(daily(10), 3)}, flow{service, "jobs", storm(daily(6), 4)})
	config, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(w.dir, "hook")
	w.write(hook, team.URL+"\n")
	w.write(w.config, string(config)+"rollout: {min_shadow: 1s, min_drops: 1000000}\nnotify: {webhook_file: "+hook+", digest: 1s}\n")
	server := w.serve("rlc")
	server.ready()
	t.Setenv("RLC_PAGES_URL", server.url)
	edge := w.edge("edge-1")
	send(t, edge, service, "web", 4)
	send(t, edge, service, "jobs", 1)
	chromium := browser(t)
	for i, part := range []struct {
		name string
		habits
		take func(*testing.T, *world, *process, *process, *person, string)
	}{
		{"onboard and review on a phone without scripts", habits{"Ben Ode", false, false, 360}, onboard},
		{"triage by keyboard alone", habits{"Kim Sol", true, true, 1024}, triage},
		{"enforce by mouse", habits{"Ana Lima", false, true, 1440}, enforce},
		{"why is my limit this", habits{"Vi Tor", true, true, 1440}, whyThisLimit},
		{"why is my limit this, on a phone without scripts", habits{"Pho Ne", false, false, 360}, whyThisLimitOnAPhone},
		{"why am I refused", habits{"Cal Ler", false, true, 360}, whyRefused},
		{"more is asked for and answered", habits{"Ana Lima", false, false, 1440}, answerAsk(told)},
		{"what if on a phone", habits{"Mo Bile", false, true, 360}, whatIfByTouch},
		{"what if on a phone without scripts", habits{"Pho Ne", false, false, 360}, whatIfByButton},
		{"the word of the triage is heard", habits{"Ana Lima", false, true, 1440}, heard},
	} {
		done := t.Run(part.name, func(t *testing.T) {
			part.take(t, w, server, edge, newPerson(t, chromium, server, part.habits), service)
		})
		if !done && i < 3 {
			return // the others ask about what these made
		}
	}
}

// storm is a rate with forty minutes of several times as much, eight days ago.
func storm(usual func(time.Time) float64, times float64) func(time.Time) float64 {
	from := time.Now().Add(-8 * 24 * time.Hour).Truncate(24 * time.Hour).Add(14 * time.Hour)
	return func(at time.Time) float64 {
		if at.Before(from) || !at.Before(from.Add(40*time.Minute)) {
			return usual(at)
		}
		return times * usual(at.Truncate(24*time.Hour).Add(12*time.Hour))
	}
}

// send keeps requests coming until the test ends: so many each tenth of a
// second.
func send(t *testing.T, edge *process, service, caller string, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	t.Cleanup(func() { cancel(); sending.Wait() })
	body := map[string]any{"service": service, "attributes": map[string]string{"caller": caller, "procedure": "Get"}}
	sending.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for range n {
					ask("POST", edge.url+"/v1/check", body)
				}
			}
		}
	})
}

// outcome is what the enforcer says of one request of web.
func outcome(edge *process, service string) string {
	_, text := ask("POST", edge.url+"/v1/check", map[string]any{"service": service, "attributes": map[string]string{"caller": "web", "procedure": "Get"}})
	var d struct{ Outcome string }
	_ = json.Unmarshal([]byte(text), &d) // an empty outcome is none
	return d.Outcome
}

// onboard commits a first policy as suggested, and accepts what a run makes of
// it.
func onboard(t *testing.T, w *world, server, _ *process, p *person, service string) {
	p.signIn()
	eventually(t, "the services without a policy are known", func() bool { return server.says("/services?show=unmanaged", service) })
	p.visit("/services?show=unmanaged")
	p.press(`main a[href="/services/` + service + `/onboard"]`)
	p.sees("main", service+" gets", "has no limit", "One quota for each caller", "high")
	row := p.sees(`main tbody tr:nth-child(1)`, "web") // the highest peak first
	suggested := figures(p.reads(`main tbody tr:nth-child(1) td:nth-child(5)`))
	if len(suggested) != 1 {
		t.Fatalf("no suggestion in %q", row)
	}
	p.fill("#owners", "team-pay")
	p.press(`main form button.primary`)
	p.sees(".banner[data-is=good]")
	policy := w.file("services/" + service + "/policy.yaml")
	if !strings.Contains(policy, "team-pay") || strings.Contains(policy, "enforce") {
		t.Errorf("committed:\n%s", policy)
	}
	w.authored(p.name, "Onboard "+service)
	server.audited(p.name, "service.onboard "+service)

	// The proposal holds what was suggested; accepting commits it.
	eventually(t, "a review", func() bool { return slices.Contains(server.open(), service) })
	p.visit("/proposals?service=" + service)
	p.press(`main tbody th a`)
	id := strings.TrimPrefix(p.at(), "/proposals/")
	if now := figures(p.reads(`tr:has(a[href*="caller%3Dweb"]) td[data-l=Proposed]`)); len(now) == 0 || math.Abs(now[0]/suggested[0]-1) > 0.02 {
		t.Errorf("suggested %v, proposed %v", suggested, now)
	}
	p.press(`form[action$="/accept"] button`)
	p.sees(".banner[data-is=good]")
	p.sees("main", "Accepted by "+p.name)
	quotas := w.file("services/" + service + "/quotas.yaml")
	if !strings.Contains(quotas, "caller: web") || !strings.Contains(quotas, "caller: jobs") {
		t.Errorf("committed:\n%s", quotas)
	}
	w.authored(p.name, "rlc("+service+")")
	server.audited(p.name, "proposal.accepted "+id)
}

// triage judges what shadow shows: the first episode is traffic, the others are
// not.
func triage(t *testing.T, _ *world, server, edge *process, p *person, service string) {
	p.signIn()
	eventually(t, "shadow counts and refuses nothing", func() bool { return outcome(edge, service) == "virtual_drop" })
	p.visit("/services/" + service + "/shadow")
	p.sees("main", "would have dropped", "callers / web", "callers / jobs")
	const undecided = `td > form[action*="/episodes"]` // a word that was given is changed in a fold
	if p.reads(undecided) == "" {
		t.Fatalf("no episode to judge: %s", p.reads("main"))
	}
	p.press(undecided + ` button[value=raise]`)
	for p.holds("document.querySelector('" + undecided + "')") {
		p.press(undecided + ` button[value=exclude]`)
	}
	p.sees("main", p.name+": counts as traffic", p.name+": left out")
	server.audited(p.name, "verdict.count", "verdict.exclude")
}

// enforce promotes the bucket as soon as the checklist lets it, and the
// enforcer refuses.
func enforce(t *testing.T, w *world, server, edge *process, p *person, service string) {
	p.signIn()
	checklist := "/services/" + service + "/buckets/callers/promote"
	eventually(t, "every check is passed", func() bool { return server.says(checklist, "Every check is passed") })
	p.visit(checklist)
	p.press(`main form button.danger`)
	p.sees("main", "approved by "+p.name)
	if policy := w.file("services/" + service + "/policy.yaml"); !strings.Contains(policy, "mode: enforce") {
		t.Errorf("committed:\n%s", policy)
	}
	eventually(t, "the enforcer refuses", func() bool { return outcome(edge, service) == "drop" })
	if code, _ := ask("GET", edge.url+"/v1/check?service="+service+"&caller=guest", nil); code != 200 {
		t.Errorf("a caller without a quota is answered %d", code)
	}
}

// heard has the run that follows a word raise the quota whose episode was said
// to be traffic, and gives that quota a number of its own before it is accepted.
func heard(t *testing.T, w *world, server, edge *process, p *person, service string) {
	p.signIn()
	said := server.acts()
	i := slices.IndexFunc(said, func(act string) bool { return strings.HasPrefix(act, "Kim Sol: verdict.count") })
	eventually(t, "the next review", func() bool { return slices.Contains(server.open(), service) })
	p.visit("/proposals?service=" + service + "&state=open")
	p.press(`main tbody th a`)
	for _, caller := range []string{"web", "jobs"} {
		if strings.Contains(said[i], "caller="+caller) {
			row := `tr:has(a[href*="caller%3D` + caller + `"])`
			old, next := figures(p.reads(row+` td[data-l=Desired]`)), figures(p.reads(row+" td[data-l=Proposed]"))
			if len(old) == 0 || len(next) == 0 || next[0] <= old[0] {
				t.Errorf("%s; the next run proposes %v in place of %v: %s", said[i], next, old, p.reads(row))
				return
			}
			ownNumber(t, w, server, edge, p, service, caller, math.Round(1.05*next[0])+1)
			return
		}
	}
	t.Errorf("no caller in %q", said[i])
}

// ownNumber puts a number in place of what the review on the page proposes for a
// caller, sees it there, accepts it, and finds it in the config repository and at
// the enforcer.
func ownNumber(t *testing.T, w *world, server, edge *process, p *person, service, caller string, rate float64) {
	row := `tr:has(a[href*="caller%3D` + caller + `"])`
	id, text := strings.TrimPrefix(p.at(), "/proposals/"), strconv.FormatFloat(rate, 'f', -1, 64)
	const form = `section[aria-labelledby=edit] form `
	p.press(row + ` a[href*="?edit="]`)
	p.holds(`document.querySelector("#er").select() || true`) // what is written takes the place of the number
	p.fill("#er", text)
	p.fill("#ey", "load test of November")
	p.press(form + `button[formmethod=get]`)
	p.sees(form+".answer", text)
	p.press(form + `button:not([formmethod])`)
	p.sees(".banner[data-is=good]")
	if now := figures(p.reads(row + " td[data-l=Proposed]")); len(now) == 0 || now[0] != rate {
		t.Errorf("%s edited %g, the review says %s", p.name, rate, p.reads(row))
	}
	p.press(`form[action$="/accept"] button`)
	p.sees("main", "Accepted by "+p.name)
	server.audited(p.name, "proposal.edited "+id, "proposal.accepted "+id)
	quotas := w.file("services/" + service + "/quotas.yaml")
	if !regexp.MustCompile(`caller: ` + caller + `\b[^\n]*\n?[^\n]*rate: ` + text + `\b`).MatchString(quotas) {
		t.Errorf("the config repository has no %s of %s:\n%s", text, caller, quotas)
	}
	eventually(t, "the enforcer has a person's number", func() bool {
		_, answer := ask("POST", edge.url+"/v1/check", map[string]any{"service": service, "attributes": map[string]string{"caller": caller, "procedure": "Get"}})
		var d struct{ Limit struct{ Rate float64 } }
		return json.Unmarshal([]byte(answer), &d) == nil && d.Limit.Rate == rate
	})
}

// figures are the numbers in a text.
func figures(text string) (out []float64) {
	for _, s := range regexp.MustCompile(`\d[\d,]*(\.\d+)?`).FindAllString(text, -1) {
		if n, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// file is a file of the base branch.
func (w *world) file(path string) string {
	w.t.Helper()
	return git(w.t, w.git.bare, "show", "main:"+path)
}

// authored checks that a commit of the base branch with this subject names a
// person.
func (w *world) authored(name, subject string) {
	w.t.Helper()
	log := git(w.t, w.git.bare, "log", "main", "-1", "--fixed-strings", "--grep="+subject, "--format=%an%n%B")
	if !strings.Contains(log, subject) || !strings.Contains(log, name) {
		w.t.Errorf("the newest commit of %q does not name %s: %q", subject, name, log)
	}
}

// acts are the audit log's actors, acts and objects, the newest first.
func (p *process) acts() []string {
	var log struct {
		Audit []struct{ Actor, Action, Object string } `json:"audit"`
	}
	p.get("/api/v1/audit?per_page=1000", &log)
	var out []string
	for _, e := range log.Audit {
		out = append(out, e.Actor+": "+e.Action+" "+e.Object)
	}
	return out
}

// audited checks that the records hold acts of a person.
func (p *process) audited(name string, acts ...string) {
	p.t.Helper()
	all := p.acts()
	for _, act := range acts {
		if !slices.ContainsFunc(all, func(x string) bool { return strings.HasPrefix(x, name+": "+act) }) {
			p.t.Errorf("no %s of %s in the records:\n%s", act, name, strings.Join(all, "\n"))
		}
	}
}
