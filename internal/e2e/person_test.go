package e2e

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is one Chromium, for all the people of a test.
func browser(t *testing.T) context.Context {
	t.Helper()
	alloc, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}

// habits are how somebody uses a browser.
type habits struct {
	name    string
	keys    bool  // nothing but the keyboard
	scripts bool  // scripts run
	wide    int64 // of the window, px
}

// person is somebody at a browser of their own: sessions are not shared.
type person struct {
	habits
	t      *testing.T
	ctx    context.Context
	server string
}

func newPerson(t *testing.T, parent context.Context, server *process, h habits) *person {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	// The window lives as long as the context of its first act.
	err := chromedp.Do(ctx, chromedp.EmulateViewport(h.wide, 800), chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !h.scripts})
		return err
	}))
	if err != nil {
		t.Fatalf("open a window: %v", err)
	}
	return &person{habits: h, t: t, ctx: ctx, server: server.url}
}

func (p *person) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %s: %v; on the page:\n%s", p.name, what, err, p.reads("body"))
	}
}

// visit opens an address of the server, as a bookmark or a link in a chat does.
func (p *person) visit(path string) {
	p.t.Helper()
	p.do("visit "+path, chromedp.Navigate(p.server+path))
}

// holds asks the page once; a page that is leaving does not.
func (p *person) holds(condition string) bool {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`!!(`+condition+`)`))
	return err == nil && ok
}

func (p *person) until(condition string) {
	p.t.Helper()
	eventually(p.t, p.name+" sees that "+condition, func() bool { return p.holds(condition) })
}

// evaluate is a text that the page computes.
func (p *person) evaluate(expression string) string {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		return err.Error()
	}
	return text
}

// reads is the text of the first element, "" where there is none.
func (p *person) reads(selector string) string {
	return strings.Join(strings.Fields(p.evaluate(`document.querySelector(`+strconv.Quote(selector)+`)?.innerText ?? ""`)), " ")
}

// at is the address.
func (p *person) at() string { return p.evaluate(`location.pathname + location.search`) }

// wideParts names what is wider than the window; "" where nothing has to be
// scrolled sideways.
const wideParts = `document.documentElement.scrollWidth <= document.documentElement.clientWidth ? "" :
	[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .diff, nav")).slice(0, 4).map((e) => e.outerHTML.slice(0, 120)).join(" | ")`

// sees checks what the page says.
func (p *person) sees(selector string, want ...string) string {
	p.t.Helper()
	text := p.reads(selector)
	for _, s := range want {
		if !strings.Contains(text, s) {
			p.t.Errorf("%s does not see %q in %s: %s", p.name, s, selector, text)
		}
	}
	if wide := p.evaluate(wideParts); wide != "" {
		p.t.Errorf("%s has to scroll %s sideways because of %s", p.name, p.at(), wide)
	}
	return text
}

// press uses a link or a button, and waits for the page that it leads to.
func (p *person) press(selector string) {
	p.t.Helper()
	p.until(`document.readyState === 'complete' && document.querySelector(` + strconv.Quote(selector) + `)`)
	p.holds(`window.left = true`)
	if p.keys {
		p.reach(selector)
		p.key("\r")
	} else {
		p.do("press "+selector, chromedp.Click(chromedp.CSS(selector)))
	}
	p.until(`window.left === undefined && document.readyState === 'complete'`)
}

// fill writes into a field.
func (p *person) fill(selector, text string) {
	p.t.Helper()
	if p.keys {
		p.reach(selector)
		p.key(text)
		return
	}
	p.do("fill "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// reach presses Tab until the element has the focus, and checks that a person
// can see that it has.
func (p *person) reach(selector string) {
	p.t.Helper()
	for range 300 {
		if p.holds(`document.activeElement.matches(` + strconv.Quote(selector) + `)`) {
			if !p.holds(`getComputedStyle(document.activeElement).outlineStyle !== 'none'`) {
				p.t.Errorf("the focus on %s is not visible", selector)
			}
			return
		}
		p.key("\t")
	}
	p.t.Fatalf("Tab does not lead to %s", selector)
}

// key types. A key that leaves the page may never be answered; what it did is
// asked for by the next condition.
func (p *person) key(keys string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.KeyEvent(keys)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.t.Fatal(err)
	}
}

// signIn gives the token and the name.
func (p *person) signIn() {
	p.t.Helper()
	p.visit("/login")
	p.fill("#token", token)
	p.fill("#name", p.name)
	p.press("main button.primary")
}
