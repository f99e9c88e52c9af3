package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/openrlc/rlc/web"
)

// until asks the page until a JavaScript condition holds.
func until(t *testing.T, ctx context.Context, condition string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		// A page that is leaving may never answer.
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		ok, err := chromedp.Run(short, chromedp.Evaluate[bool](`!!(`+condition+`)`))
		cancel()
		if err == nil && ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location + " " + document.body.innerText.slice(-400)`))
			t.Fatalf("never held: %s (%v) at %s", condition, err, text)
		}
	}
}

func value[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func visit(t *testing.T, ctx context.Context, target string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Navigate(target)); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
}

// alarms is a server's word on itself that changes while pages are open.
type alarms struct {
	web.Status
	now atomic.Pointer[[]web.Banner]
}

func (a *alarms) Banners() []web.Banner { return *a.now.Load() }

func (a *alarms) say(all ...web.Banner) { a.now.Store(&all) }

// A page asks for its parts again, keeps focus and marked row, shows alarms as
// they come and go, waits while somebody edits or has paused it, and says when
// no answer comes or when it is signed out.
func testLive(t *testing.T, parent context.Context) {
	f := newFixture(t)
	told := &alarms{Status: f}
	told.say()
	config := f.config()
	config.Status = told
	h, err := web.New(config)
	if err != nil {
		t.Fatal(err)
	}
	var asked, refused atomic.Int64 // refused: the status in place of an answer; 0: none
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := int(refused.Load()); r.URL.Path == "/" {
			asked.Add(1)
			if code == http.StatusFound {
				http.Redirect(w, r, "/login", code)
				return
			}
			if code != 0 {
				http.Error(w, "refused", code)
				return
			}
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, _ := tab(t, parent)
	visit(t, ctx, server.URL+"/")
	const fast = `document.querySelector('.pulse').dataset.every = 0.1, true`
	value[bool](t, ctx, fast)
	pulse := func(is, says string) {
		t.Helper()
		until(t, ctx, `document.querySelector('.pulse').dataset.is === `+is+` && document.querySelector('.pulse p').innerText.includes(`+quoted(says)+`)`)
	}
	// Nothing changed: no part is replaced, the time of the page moves on.
	value[bool](t, ctx, `window.first = document.querySelector('#main').children[2], document.querySelector('#main a').focus(), true`)
	n := asked.Load()
	pulse("undefined", "Refreshes by itself")
	waitFor(t, func() bool { return asked.Load() >= n+2 })
	if !value[bool](t, ctx, `window.first.isConnected && document.activeElement.closest('#main') !== null`) {
		t.Error("a part that did not change was replaced, or the focus was lost")
	}
	// An alarm comes, within what a screen reader reads out, and goes.
	told.say(web.Banner{Level: "bad", Text: "All to shadow: no enforcer drops anything."})
	until(t, ctx, `document.querySelector('[aria-live=polite] .banner[data-is=bad]')?.innerText.includes('All to shadow')`)
	told.say()
	until(t, ctx, `!document.querySelector('.banner')`)
	// Another person accepts: the page says so without being asked.
	if !value[bool](t, ctx, `document.querySelector('#main').innerText.includes('checkout')`) {
		t.Fatal("checkout waits for nobody")
	}
	before := value[string](t, ctx, `document.querySelector('#main').innerText`)
	if err := f.decide(context.Background(), "cron-2026-12-02T060000Z-checkout", "accepted", "Ben", ""); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, `document.querySelector('#main').innerText !== `+quoted(before))
	// Paused, it asks nothing; the button goes on.
	value[bool](t, ctx, `document.querySelector('[data-do=pause]').click(), true`)
	pulse("undefined", "Paused")
	value[bool](t, ctx, `document.querySelector('[data-do=pause]').click(), true`)
	// The server is away, or leads elsewhere, or wants a sign-in: each has its
	// words, and passes.
	for _, x := range []struct {
		code int64
		says string
	}{{503, "Stale: the server does not answer"}, {302, "The server leads elsewhere now"}, {404, "The server refuses this page (404)"}, {401, "You are signed out"}} {
		refused.Store(x.code)
		pulse(`"stale"`, x.says)
	}
	if to := value[string](t, ctx, `document.querySelector('.pulse a:not([hidden])').getAttribute('href')`); to != "/login?next=%2F" {
		t.Errorf("signed out, the foot leads to %s", to)
	}
	refused.Store(0)
	pulse("undefined", "Refreshes by itself")
	// Whoever edits is left alone, until what was written is gone again.
	visit(t, ctx, server.URL+"/emergency")
	value[bool](t, ctx, fast)
	write := func(text string) {
		value[bool](t, ctx, `(() => { const el = document.querySelector('#ew'); el.value = `+quoted(text)+`; el.dispatchEvent(new Event('input', {bubbles: true})); return true })()`)
	}
	write("INC-1")
	pulse("undefined", "Waits while you edit")
	write("")
	pulse("undefined", "Refreshes by itself")
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never held")
		}
	}
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\u2028", `\u2028`, "\t", `\t`).Replace(s) + `"`
}

// A drag zooms, the address says so, the page that the address names shows the
// same part, and refreshing waits.
func testZoom(t *testing.T, parent context.Context) {
	server := httptest.NewServer(newFixture(t).handler(t))
	defer server.Close()
	ctx, said := tab(t, parent)
	visit(t, ctx, server.URL+pages["bucket"])
	until(t, ctx, `document.querySelector('.chart.on canvas')`)
	value[bool](t, ctx, `document.querySelector('.plot').scrollIntoView({block: 'center'}), new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(true)))), true`)
	box := value[[]float64](t, ctx, `(() => { const r = document.querySelector('.u-over').getBoundingClientRect(); return [r.left, r.top, r.width, r.height] })()`)
	y := box[1] + box[3]/2
	if err := chromedp.Do(ctx, chromedp.DragAndDropXY(box[0]+box[2]*.5, y, box[0]+box[2]*.75, y, 5)); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, `new URL(location).searchParams.has('from') && new URL(location).searchParams.has('to')`)
	until(t, ctx, `document.querySelector('.say-pulse').textContent.startsWith('Waits while the chart is zoomed')`)
	// 28 days: half to three quarters of them are 7 days, give or take a pixel.
	days := value[float64](t, ctx, `(new Date(new URL(location).searchParams.get('to')) - new Date(new URL(location).searchParams.get('from'))) / 864e5`)
	if days < 6.5 || days > 7.5 {
		t.Errorf("the zoom is %.2f days wide, want 7", days)
	}
	at := value[string](t, ctx, `location.href`)
	visit(t, ctx, at)
	until(t, ctx, `document.querySelector('.chart.on canvas')`)
	if again := value[string](t, ctx, `location.href`); again != at {
		t.Errorf("loading changed the address from %s to %s", at, again)
	}
	if s := said(); len(s) > 0 {
		t.Error(s)
	}
}

// Only the keyboard: skip link, search, rows, going places, theme, help.
func testKeyboard(t *testing.T, parent context.Context) {
	server := httptest.NewServer(newFixture(t).handler(t))
	defer server.Close()
	ctx, said := tab(t, parent)
	press := func(keys string) {
		t.Helper()
		// A key that leaves the page may never be answered; what it did is
		// asked for by the next condition.
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := chromedp.Do(short, chromedp.KeyEvent(keys)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	visit(t, ctx, server.URL+"/")
	press("\t")
	if s := value[string](t, ctx, `document.activeElement.className + " " + (document.activeElement.getBoundingClientRect().left >= 0) + " " + getComputedStyle(document.activeElement).outlineStyle`); s != "skip true solid" {
		t.Errorf("the first Tab leads to %q, want the skip link, visible and outlined", s)
	}
	press("?")
	until(t, ctx, `document.querySelector('#keys-help').open`)
	press("\u001b")
	until(t, ctx, `!document.querySelector('#keys-help').open`)
	press("gs")
	until(t, ctx, `location.pathname === '/services' && document.readyState === 'complete'`)
	press("/")
	until(t, ctx, `document.activeElement.id === 'q'`)
	// The browser takes a made character as typed, whatever its key did.
	value[bool](t, ctx, `document.activeElement.value = '', true`)
	press("check\r")
	until(t, ctx, `location.pathname + location.search === '/find?q=check' && document.readyState === 'complete'`)
	press("j")
	until(t, ctx, `document.activeElement.matches('tr.at a')`)
	press("\r")
	until(t, ctx, `location.pathname === '/services/checkout' && document.readyState === 'complete'`)
	press("jjk")
	if i := value[int](t, ctx, `[...document.querySelectorAll('.grid tbody tr')].filter(r => r.checkVisibility() && r.querySelector('a')).findIndex(r => r.classList.contains('at'))`); i != 0 {
		t.Errorf("down, down, up marks row %d, want 0", i)
	}
	press("\r")
	until(t, ctx, `location.pathname.includes('/buckets/') && document.querySelector('.chart.on canvas')`)
	was := value[string](t, ctx, `document.documentElement.dataset.theme ?? ''`)
	press("t")
	until(t, ctx, `document.documentElement.dataset.theme !== `+quoted(was))
	for key, path := range map[string]string{"o": "/", "p": "/proposals", "r": "/runs", "w": "/why", "e": "/emergency"} {
		press("g" + key)
		until(t, ctx, `location.pathname === `+quoted(path)+` && document.readyState === 'complete'`)
	}
	if s := said(); len(s) > 0 {
		t.Error(s)
	}
}

// On a phone a person opens a quota, asks what if, and reads the answer
// without sideways scrolling; the address holds the question.
func testWhatIfOnAPhone(t *testing.T, parent context.Context) {
	server := httptest.NewServer(newFixture(t).handler(t))
	defer server.Close()
	ctx, said := tab(t, parent)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 740)); err != nil {
		t.Fatal(err)
	}
	visit(t, ctx, server.URL+pages["bucket"])
	until(t, ctx, `document.querySelector('#headroom, [name=headroom]')`)
	before := value[string](t, ctx, `document.querySelector('#whatif-answer').innerText`)
	value[bool](t, ctx, `window.heard = document.querySelector('#whatif-answer [aria-live=polite]'), window.said = heard.innerText, true`)
	value[bool](t, ctx, `(() => { const h = document.querySelector('[name=headroom]'); h.value = h.max; h.dispatchEvent(new Event('input', {bubbles: true})); return true })()`)
	until(t, ctx, `document.querySelector('#whatif-answer').innerText !== `+quoted(before))
	until(t, ctx, `new URL(location).searchParams.get('headroom') === document.querySelector('[name=headroom]').max`)
	if !value[bool](t, ctx, `heard.isConnected && heard.innerText !== said`) {
		t.Error("what is read out is another element, so that nothing is read out")
	}
	if over := value[float64](t, ctx, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("the page is %.0f px too wide", over)
	}
	answer := value[string](t, ctx, `document.querySelector('#whatif-answer').innerText`)
	visit(t, ctx, value[string](t, ctx, `location.href`))
	if again := value[string](t, ctx, `document.querySelector('#whatif-answer').innerText`); again != answer {
		t.Errorf("the address answers %q, the page said %q", again, answer)
	}
	if s := said(); len(s) > 0 {
		t.Error(s)
	}
}
