package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// explained is a quota as the API tells of it.
type explained struct {
	Live        *limit `json:"live"`
	Run         string `json:"run"`
	Reasons     []struct{ Rule, Detail string }
	Explanation struct{ Text string }
}

// whyThisLimit goes from the box at the top to where a number comes from, by
// keyboard alone: page, commands, API and base branch say the same.
func whyThisLimit(t *testing.T, w *world, server, _ *process, p *person, service string) {
	newest := "config-" + w.head()[:12]
	eventually(t, "the run over the newest policy is over", func() bool {
		var all struct{ Runs []run }
		return server.get("/api/v1/runs", &all) && slices.ContainsFunc(all.Runs, func(r run) bool { return strings.HasPrefix(r.ID, newest) && r.Finished != nil })
	})
	p.visit("/")
	p.key("/")
	p.until(`document.activeElement.id === 'q'`)
	p.holds(`(document.activeElement.value = '', true)`) // the browser takes a made key as typed, whatever it did
	p.key(service + "\r")
	p.until(`location.pathname === '/services/` + service + `' && document.readyState === 'complete'`)
	p.press(`main a[href*="caller%3Dweb"]`)
	want := theLimit(t, w, server, p, service)

	// The steps are those of the command, word by word, with the number at their end.
	var api explained
	server.get("/api/v1/services/"+service+"/buckets/callers?key=caller%3Dweb", &api)
	said, code := command(t, server, "explain", service, "callers", "caller=web")
	if code != 0 || strings.TrimSpace(said) != strings.TrimSpace(api.Explanation.Text) {
		t.Errorf("the command says, with exit code %d,\n%s\nthe API\n%s", code, said, api.Explanation.Text)
	}
	steps := p.reads(`[aria-labelledby=why] table`)
	for _, r := range api.Reasons {
		if r.Detail == "" || !strings.Contains(steps, strings.Join(strings.Fields(r.Detail), " ")) {
			t.Errorf("the step %+v is not in %s", r, steps)
		}
	}
	if len(api.Reasons) < 3 || !strings.Contains(steps, "Headroom") {
		t.Errorf("only %d steps: %s", len(api.Reasons), steps)
	}
	p.sees("main", "accepted", "by Ben Ode")

	// Its run, and the commit of the base branch at which that read the policy.
	var run struct{ Commit string }
	server.get("/api/v1/runs/"+api.Run, &run)
	if !strings.Contains(git(t, w.git.bare, "rev-list", "main"), run.Commit) || len(run.Commit) < 40 {
		t.Fatalf("run %s read policies at %q, which is not on the base branch", api.Run, run.Commit)
	}
	p.sees(`[aria-labelledby=why] header`, "Policies read at commit "+run.Commit[:7])
	p.press(`[aria-labelledby=why] header a`)
	if at := p.at(); at != "/runs/"+api.Run {
		t.Errorf("the number's run leads to %s, want %s", at, api.Run)
	}
	p.sees("main", "policies at "+run.Commit[:7])

	// While an override decides, each of them says so first.
	code, text := ask("POST", server.url+"/api/v1/overrides", map[string]any{"service": service, "match": map[string]string{"caller": "web"}, "action": "limit", "rate": 5, "ttl_seconds": 3600, "reason": "INC-7"})
	var over struct{ ID string }
	if err := json.Unmarshal([]byte(text), &over); err != nil || code != http.StatusCreated {
		t.Fatalf("override: %d %s", code, text)
	}
	p.visit("/services/" + service + "/buckets/callers?key=caller%3Dweb")
	p.sees(`[aria-label="Overrides that stand"]`, "held to 5 req/s", "INC-7")
	p.press(`main .facts a[href^="/why?"]`)
	p.sees(".say", "An override decides first", "held to 5 req/s", strconv.FormatFloat(want, 'f', -1, 64))
	if said, _ := command(t, server, "why", service, "--caller", "web"); !strings.HasPrefix(said, "Decided by an override") || !strings.Contains(said, "INC-7") {
		t.Errorf("the command says\n%s", said)
	}
	if code, text := ask("DELETE", server.url+"/api/v1/overrides/"+over.ID, nil); code/100 != 2 {
		t.Errorf("end the override: %d %s", code, text)
	}
}

// whyThisLimitOnAPhone reads the same number and its steps at 360 px without
// scripts.
func whyThisLimitOnAPhone(t *testing.T, w *world, server, _ *process, p *person, service string) {
	p.visit("/services/" + service)
	p.press(`main a[href*="caller%3Dweb"]`)
	theLimit(t, w, server, p, service)
	p.sees(`[aria-labelledby=why]`, "Weekly peak that counts", "Headroom", "Policies read at commit")
}

// theLimit is the number in force of web, of which the page that p is on, the
// base branch, the API and the commands say the same.
func theLimit(t *testing.T, w *world, server *process, p *person, service string) float64 {
	t.Helper()
	want := server.limits(service)["web"].Rate
	text := strconv.FormatFloat(want, 'f', -1, 64)
	if want == 0 || !strings.Contains(w.file("services/"+service+"/quotas.yaml"), "rate: "+text) {
		t.Fatalf("live is %v, on the base branch is\n%s", want, w.file("services/"+service+"/quotas.yaml"))
	}
	if got := figures(p.reads(".truths")); !slices.Contains(got, want) {
		t.Errorf("the page shows %v, live is %v", got, want)
	}
	// Where a proposal waits its number is explained, and the one in force beside it.
	if got := p.reads("[aria-labelledby=why]"); !slices.Contains(figures(got), want) {
		t.Errorf("the page explains %s, live is %v", got, want)
	}
	var why struct {
		Bucket string
		Quota  struct{ Live limit }
	}
	server.get("/api/v1/why?service="+service+"&caller=web", &why)
	if why.Bucket != "callers" || why.Quota.Live.Rate != want {
		t.Errorf("the API explains %+v, live is %v", why, want)
	}
	said, code := command(t, server, "why", service, "--caller", "web")
	if code != 0 || !strings.Contains(said, "Charged to callers/caller=web: "+text) {
		t.Errorf("the command, with exit code %d, says\n%s", code, said)
	}
	return want
}

// refusal is where a real answer 429 to web, which asks for more than its burst
// at once, says that help is.
func refusal(t *testing.T, edge *process, service string) (link string) {
	t.Helper()
	eventually(t, "a request is answered 429", func() bool {
		res, err := http.Post(edge.url+"/v1/check", "application/json", strings.NewReader(`{"service":"`+service+`","attributes":{"caller":"web","procedure":"Get"},"cost":500}`))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		link, _, _ = strings.Cut(strings.TrimPrefix(res.Header.Get("Link"), "<"), ">")
		return res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") != ""
	})
	return link
}

// whyRefused is the caller's side, from the link of its 429: by which bucket,
// since when, how much, and how to get more.
func whyRefused(t *testing.T, w *world, server, edge *process, p *person, service string) {
	before := w.head()
	link, found := strings.CutPrefix(refusal(t, edge, service), server.url)
	if !found {
		t.Fatalf("the refusal leads to %q", link)
	}
	why := "/why?service=" + service + "&caller=web"
	eventually(t, "refusals are counted", func() bool { return server.says(why, " of its requests") })
	p.visit(link)
	p.press(`main .facts a[href="` + why + `"]`)
	verdict := p.sees(".say", "It is counted by callers / web", "enforce", "of its requests")
	if n := figures(verdict); !slices.Contains(n, server.limits(service)["web"].Rate) {
		t.Errorf("the limit is not in %q", verdict)
	}
	tiles := p.sees(".tiles", "Refused", "requests since", "Since", "that this limit has in four weeks")
	if !strings.Contains(tiles, "live in snapshot") {
		t.Errorf("the limit is not said to be live: %s", tiles)
	}
	// All that limits it.
	p.press(`.say a[href="/callers/web"]`)
	p.sees("main", service+" refused", "of what web sent since", "team-pay")
	p.press(`main .say a[href^="/why?service=` + service + `"]`)
	// The overview leads here, too.
	p.visit("/")
	p.press(`nav a[href="/why"]`)
	p.fill("#a-service", service)
	p.fill("#a-caller", "web")
	p.press("main form button.primary")
	p.sees(".say", "It is counted by callers / web")
	// What to do.
	p.sees("[aria-labelledby=more]", "Goes to team-pay")
	p.press(`[aria-labelledby=more] a`) // to sign in
	p.fill("#token", token)
	p.fill("#name", p.name)
	p.press("main button.primary")
	p.fill("#reason", "A sale from Monday")
	p.press(`form[action="/why"][method=post] button`)
	p.sees(".banner[data-is=good]")
	p.sees("[aria-labelledby=asked]", "A sale from Monday")
	server.audited(p.name, "quota.ask")
	if now := w.head(); now != before {
		t.Errorf("asking moved the base branch from %s to %s", before, now)
	}
}

// answerAsk has the owners be told, find the ask on the overview, and end it.
func answerAsk(told *inbox) func(*testing.T, *world, *process, *process, *person, string) {
	return func(t *testing.T, _ *world, server, _ *process, p *person, service string) {
		eventually(t, "the owners are told", func() bool { return len(told.of("ask")) > 0 })
		if n := told.of("ask")[0]; !slices.Equal(n.Owners, []string{"team-pay"}) || !strings.Contains(n.Text, "Cal Ler asks for") || !strings.HasSuffix(n.URL, "/services/"+service+"#asked") {
			t.Errorf("told %+v", n)
		}
		p.signIn()
		p.visit("/")
		p.sees("main", "Cal Ler asks for", "A sale from Monday")
		p.press(`main a[href="/services/` + service + `#asked"]`)
		p.fill(`[aria-labelledby=asked] input[name=reason]`, "The next review raises it")
		p.press(`[aria-labelledby=asked] form button`)
		server.audited(p.name, "quota.answer")
		p.visit("/")
		if text := p.reads("main"); strings.Contains(text, "Cal Ler asks for") {
			t.Errorf("answered, the overview still says %s", text)
		}
	}
}

// whatIfByTouch moves the slider: the answer follows, the address holds the
// question, and nothing is changed by asking.
func whatIfByTouch(t *testing.T, w *world, server, _ *process, p *person, service string) {
	head, acts := w.head(), server.acts()
	p.visit("/services/" + service + "/buckets/callers?key=caller%3Dweb")
	before := p.sees("#whatif-answer", "req/s")
	p.holds(`window.same = true`)
	p.do("focus the slider", chromedp.Focus(chromedp.CSS("#headroom")))
	p.key(strings.Repeat(kb.ArrowRight, 20))
	p.until(`new URL(location).searchParams.get('headroom') === document.querySelector('#headroom').value && document.querySelector('#whatif-answer').innerText.includes('req/s')`)
	after := p.sees("#whatif-answer", "req/s")
	if before == after || !p.holds(`window.same`) {
		t.Errorf("%s answers %q as before, or on another page: %q", p.at(), after, before)
	}
	if value, shown := figures(p.reads("output[for=headroom]")), p.at(); !strings.Contains(shown, "headroom="+strconv.FormatFloat(value[0]/100, 'f', -1, 64)) {
		t.Errorf("the slider says %v %%, the address %s", value, shown)
	}
	p.visit(p.at())
	if again := p.reads("#whatif-answer"); again != after {
		t.Errorf("the address answers\n%s\nnot\n%s", again, after)
	}
	if w.head() != head || !slices.Equal(server.acts(), acts) {
		t.Error("asking changed something")
	}
}

// whatIfByButton asks by the button, without scripts.
func whatIfByButton(t *testing.T, w *world, server, _ *process, p *person, service string) {
	head, acts := w.head(), server.acts()
	p.visit("/services/" + service + "/buckets/callers?key=caller%3Dweb")
	before := p.sees("#whatif-answer", "req/s")
	p.fill("#floor", kb.End+"000") // 1 becomes 1000 where the field holds 1
	p.press("form.whatif button")
	after := p.sees("#whatif-answer", "A limit of 1,000 req/s")
	if before == after || !strings.Contains(p.at(), "floor=1000") {
		t.Errorf("%s answers %q as before: %q", p.at(), after, before)
	}
	if w.head() != head || !slices.Equal(server.acts(), acts) {
		t.Error("asking changed something")
	}
}

// head is the newest commit of the base branch.
func (w *world) head() string { w.t.Helper(); return git(w.t, w.git.bare, "rev-parse", "main") }
