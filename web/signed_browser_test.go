package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
	"github.com/openrlc/rlc/web"
)

// trouble is the fixture when people have to act: both switches are thrown.
type trouble struct{ *fixture }

func (trouble) Switches() []rlc.KillSwitch {
	return []rlc.KillSwitch{{Name: rlc.StopAutomation, On: true, Actor: hostile[2], Reason: hostile[4]}, {Name: rlc.AllToShadow, On: true, Actor: "ana", Reason: "INC-1"}}
}

// passed are rollouts whose checklist is passed by whoever has a word.
type passed struct{ rollouts }

func (passed) Checklist(_ context.Context, _, _, word string) ([]rollout.Check, error) {
	one := rlc.Ratio(1)
	return rollout.Gate(rollout.Facts{Now: now, Since: now.AddDate(0, 0, -30), Quotas: 4, Coverage: &one, Offered: 1e6, Joined: &one, Word: word, Entitled: word != ""}, rollout.Rules{}), nil
}

// Promotions are one that grows, beside those of the fixture.
func (p passed) Promotions(ctx context.Context, service string) ([]rollout.Promotion, error) {
	all, err := p.rollouts.Promotions(ctx, service)
	if err != nil {
		return nil, err
	}
	grows, err := rollout.Begin(rollout.Promotion{ID: "q", Service: service, Bucket: "callers", Plan: []string{"eu-1"}, All: true, Actor: "ana"}, now)
	return append(all, grows), err
}

// newTrouble is the world in which every form of every page is shown to who may
// act: overrides stand, switches are thrown, the base branch was rewritten, a
// caller asks for more, a checklist is passed.
func newTrouble(t *testing.T) http.Handler {
	t.Helper()
	f := newFixture(t)
	f.overrides = []rlc.Override{
		override("o1", nil),
		override("o2", func(o *rlc.Override) { o.Match, o.Action, o.Rate, o.Reason = nil, "block", nil, hostile[1] }),
	}
	f.judged = map[string]rlc.OverrideCount{"o1": {Judged: 123_000, Drops: 87_600}, "o2": {}}
	f.banners = append(f.banners,
		web.Banner{Level: "bad", Text: "All to shadow: no enforcer drops anything, and no override is applied.", Since: now},
		web.Banner{Level: "bad", Text: "The base branch was rewritten.", Detail: hostile[0], Since: now, Follow: true})
	e := rlc.AuditEntry{ID: "ask-1", At: now.Add(-time.Hour), Actor: hostile[3], Action: "quota.ask", Object: "/services/checkout/buckets/callers?key=caller%3Dsearch", Detail: "900 req/s: " + hostile[4]}
	if err := f.db.AddAudit(context.Background(), e); err != nil {
		t.Fatal(err)
	}
	config := f.config()
	config.Overrides, config.Rollouts = trouble{f}, passed{rollouts{f}}
	h, err := web.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// signedPages are the pages that are looked at by somebody who may act.
func signedPages() map[string]string {
	out := everyPage()
	out["promote-it"] = "/services/checkout/buckets/callers/promote"
	out["edit-it"] = editing + "?edit=callers%2Fcaller%3Dsearch&rate=300"
	out["roll-back"] = "/services/checkout/history?from=" + strings.Repeat("b", 40) + "&to=" + strings.Repeat("a", 40)
	return out
}

var postForm = regexp.MustCompile(`<form[^>]*method="post"[^>]*action="([^"?]+)`)

// Every act of the routes list has its form on a page that is looked at, signed
// in: what the browser's tests say of pages, they say of every form.
func TestEveryActHasItsFormOnAPageThatIsLookedAt(t *testing.T) {
	h := newTrouble(t)
	cookie := signIn(t, h, nil)
	pages := ""
	for name, path := range signedPages() {
		w := request(h, "GET", path, "", func(r *http.Request) { r.AddCookie(cookie) })
		if w.Code != http.StatusOK && name != "missing" {
			t.Errorf("%s: %d", name, w.Code)
		}
		pages += w.Body.String()
	}
	// The preview of an import is a page that only a form leads to.
	pages += paste(h, "/import", map[string][]string{"text": {envoyFile}}, func(r *http.Request) { r.AddCookie(cookie) }).Body.String()
	var actions []string
	for _, m := range postForm.FindAllStringSubmatch(pages, -1) {
		actions = append(actions, m[1])
	}
	parameter := regexp.MustCompile(`\\\{[^}]+\\\}`)
	for _, r := range web.Routes() {
		if r.Method != "POST" || strings.HasPrefix(r.Path, "/api/") || strings.HasPrefix(r.Path, "/hooks/") {
			continue
		}
		of := regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(r.Path), "[^/]+") + "$")
		if !slices.ContainsFunc(actions, of.MatchString) {
			t.Errorf("no page that is looked at has a form for POST %s", r.Path)
		}
	}
}

// look is one way of seeing a page.
type look struct {
	name  string
	wide  int64 // of the window, px
	theme string
	rules string // of axe, that can find what another look does not show
}

// looks are wide and narrow, light and dark. A theme changes colours alone, and
// no colour depends on the width. Wide and dark is for pictures.
func looks() []look {
	all := []look{{"light", 1440, "light", axeAll}, {"360", 360, "light", axeLayout}, {"360-dark", 360, "dark", axeColours}}
	if os.Getenv("RLC_WEB_SHOTS") != "" {
		all = append(all, look{"dark", 1440, "dark", axeColours})
	}
	return all
}

// examine looks at the page of the tab: nothing is wider than the window, axe
// finds nothing serious, no name became markup. RLC_WEB_SHOTS is a folder for
// pictures of each look.
func examine(t *testing.T, ctx context.Context, name string, all []look) {
	t.Helper()
	for _, l := range all {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(l.wide, 900)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.documentElement.dataset.theme = "`+l.theme+`", document.fonts.ready.then(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(true)))))`, chromedp.EvalAwaitPromise)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if wide := value[string](t, ctx, wideParts); wide != "" {
			t.Errorf("%s, %s, is too wide by %s", name, l.name, wide)
		}
		found, err := violations(ctx, l.rules)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, v := range found {
			t.Errorf("%s, %s: %s", name, l.name, v)
		}
		if dir := os.Getenv("RLC_WEB_SHOTS"); dir != "" {
			b, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+"-"+l.name+".png"), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if value[bool](t, ctx, `document.querySelector('main script:not([type="application/json"]), main img, main [onerror]') !== null`) {
		t.Errorf("%s: a name became markup", name)
	}
}

// Every page, with hostile names on it, loads without a word from the browser
// and without a report of what its policy forbids, and examine finds nothing:
// for readers, where acts have other words for them, and for somebody who may
// act, in trouble.
func testPagesLoadCleanly(t *testing.T, parent context.Context) {
	h := newTrouble(t)
	x := &reporting{Handler: h}
	server := httptest.NewServer(x)
	defer server.Close()
	ctx, said := tab(t, parent)
	for _, name := range []string{"proposal", "explained", "preview", "onboard"} { // each has other words for readers
		visit(t, ctx, server.URL+pages[name])
		if !value[bool](t, ctx, `document.querySelector('main a[href^="/login"]') !== null`) {
			t.Errorf("%s does not lead a reader to the sign-in", name)
		}
		examine(t, ctx, "reader-"+name, looks()[:1])
	}
	signInto(t, ctx, server.URL)
	for name, path := range signedPages() {
		visit(t, ctx, server.URL+path)
		if !value[bool](t, ctx, `document.querySelector('form.who') !== null`) {
			t.Fatalf("%s: not signed in", name)
		}
		examine(t, ctx, name, looks())
		if all := x.said(); len(all) > 0 {
			t.Fatalf("%s (%s): %s", name, path, all[0])
		}
	}
	// What only a form or a key leads to.
	visit(t, ctx, server.URL+"/import")
	value[bool](t, ctx, `(document.querySelector('#text').value = `+quoted(envoyFile)+`, document.querySelector('form[action="/import"] button').click(), true)`)
	until(t, ctx, `document.querySelector('form[action="/import/commit"]') && document.readyState === 'complete'`)
	examine(t, ctx, "import-preview", looks())
	visit(t, ctx, server.URL+"/")
	value[bool](t, ctx, `document.querySelector('[data-do=keys]').click(), true`)
	until(t, ctx, `document.querySelector('#keys-help').open`)
	examine(t, ctx, "keys", looks())
	for _, s := range said() {
		if !strings.Contains(s, "404") || !strings.Contains(s, pages["missing"]) {
			t.Errorf("the browser says %s", s)
		}
	}
	if all := x.said(); len(all) > 0 {
		t.Error(all)
	}
	if !reached(t, ctx) {
		t.Error("connect-src 'self' does not hold")
	}
	testPolicy(t, ctx, server.URL, x)
}

// reached reports whether a page may ask its own server.
func reached(t *testing.T, ctx context.Context) bool {
	t.Helper()
	ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`(async () => { const r = await fetch('/'); return r.ok })()`, chromedp.EvalAwaitPromise))
	return err == nil && ok
}

// signInto signs the browser of a tab in, and out when the test ends: sessions
// are the browser's.
func signInto(t *testing.T, ctx context.Context, server string) {
	t.Helper()
	visit(t, ctx, server+"/login")
	value[bool](t, ctx, `(document.querySelector('#name').value = 'Ana Lima', document.querySelector('#token').value = `+quoted(token)+`, document.querySelector('main form button').click(), true)`)
	until(t, ctx, `document.querySelector('form.who') && document.readyState === 'complete'`)
	t.Cleanup(func() {
		if err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, network.ClearBrowserCookies, struct{}{})
			return err
		})); err != nil {
			t.Errorf("sign out: %v", err)
		}
	})
}
