package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/openrlc/rlc/quotafile"
)

// TestInChromium starts one browser; each part opens a tab of its own.
func TestInChromium(t *testing.T) {
	parent := browser(t)
	t.Run("axe finds what is wrong", func(t *testing.T) { testAxeFinds(t, parent) })
	t.Run("pages load cleanly and are accessible", func(t *testing.T) { testPagesLoadCleanly(t, parent) })
	t.Run("the chart is drawn and reads by keys", func(t *testing.T) { testChart(t, parent) })
	t.Run("reviews with scripts", func(t *testing.T) { testReview(t, parent, true) })
	t.Run("reviews without scripts", func(t *testing.T) { testReview(t, parent, false) })
	t.Run("pages refresh by themselves", func(t *testing.T) { testLive(t, parent) })
	t.Run("a drag zooms and the address says so", func(t *testing.T) { testZoom(t, parent) })
	t.Run("keyboard only", func(t *testing.T) { testKeyboard(t, parent) })
	t.Run("what if on a phone", func(t *testing.T) { testWhatIfOnAPhone(t, parent) })
	t.Run("every page reads on a phone without scripts", func(t *testing.T) { testPhoneWithoutScripts(t, parent) })
	t.Run("framed pages are blank", func(t *testing.T) { testFrames(t, parent) })
}

func browser(t *testing.T) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}

// tab opens a tab and collects what the browser complains about.
func tab(t *testing.T, parent context.Context) (context.Context, func() []string) {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	ctx, stop := context.WithTimeout(ctx, 15*time.Minute)
	t.Cleanup(stop)
	var mu sync.Mutex
	var said []string
	add := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
	}
	err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *log.EventEntryAdded:
			add("log: %s %s", e.Entry.Text, e.Entry.URL)
		case *cdpruntime.EventConsoleAPICalled:
			add("console: %s", e.Type)
		case *cdpruntime.EventExceptionThrown:
			add("exception: %s", e.ExceptionDetails.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return said
	}
}

var pages = map[string]string{
	"overview":  "/",
	"services":  "/services",
	"service":   "/services/checkout",
	"bucket":    "/services/checkout/buckets/mobile-create",
	"batch":     "/services/checkout/buckets/callers?key=" + url.QueryEscape("caller=batch-reports"),
	"young":     "/services/checkout/buckets/callers?key=" + url.QueryEscape("caller=recommendations"),
	"keys":      "/services/checkout/buckets/callers",
	"shadow":    "/services/checkout/shadow",
	"proposals": "/proposals",
	"proposal":  "/proposals/cron-2026-12-02T060000Z-checkout",
	"runs":      "/runs",
	"run":       "/runs/cron-2026-12-02T060000Z",
	"failed":    "/runs/person-2026-12-02T060230Z",
	"login":     "/login",
	"missing":   "/services/nothing",
	"hostile":   "/services/" + url.PathEscape(hostileService),
	"hostile-b": "/services/" + url.PathEscape(hostileService) + "/buckets/callers?key=" + url.QueryEscape("caller="+hostile[1]),
	"hostile-s": "/services/" + url.PathEscape(hostileService) + "/shadow",
	"onboard":   "/services/ledger/onboard",
	"unmanaged": "/services?show=unmanaged",
	"explained": "/why?service=checkout&caller=search&procedure=Create",
	"preview":   "/emergency?service=checkout&caller=search&action=limit&rate=100&ttl=30m&reason=INC-1",
}

func testChart(t *testing.T, parent context.Context) {
	server := httptest.NewServer(newFixture(t).handler(t))
	defer server.Close()
	ctx, said := tab(t, parent)
	err := chromedp.Do(ctx, chromedp.Navigate(server.URL+pages["bucket"]), chromedp.WaitReady(chromedp.CSS(".chart.on canvas")))
	if err != nil {
		t.Fatal(err)
	}
	idle, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS(".chart output")))
	if err != nil || !strings.Contains(idle, "Highest step") {
		t.Errorf("the chart says %q (%v)", idle, err)
	}
	press := `document.querySelector('.plot').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true})), new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(document.querySelector('.chart output').textContent))))`
	read, err := chromedp.Run(ctx, chromedp.Evaluate[string](press, chromedp.EvalAwaitPromise))
	if err != nil || !strings.Contains(read, "highest") || !strings.Contains(read, "limit") {
		t.Errorf("an arrow key reads %q (%v)", read, err)
	}
	if s := said(); len(s) > 0 {
		t.Error(s)
	}
}

// With scripts and without, a person signs in, accepts one proposal, and
// rejects another with a reason, by clicking.
func testReview(t *testing.T, parent context.Context, scripts bool) {
	f := newFixture(t)
	server := httptest.NewServer(f.handler(t))
	defer server.Close()
	ctx, _ := tab(t, parent)
	proposal := func(service string) string {
		return "/proposals/cron-2026-12-02T060000Z-" + quotafile.PathSegment(service)
	}
	cookies := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := cdp.Call(ctx, t, network.ClearBrowserCookies, struct{}{}); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !scripts})
		return err
	})
	err := chromedp.Do(ctx, cookies,
		chromedp.Navigate(server.URL+proposal("checkout")),
		chromedp.Click(chromedp.CSS(".head .acts a.btn")), // sign in to accept or reject
		chromedp.WaitVisible(chromedp.CSS("#token")),
		chromedp.SendKeys(chromedp.CSS("#token"), token),
		chromedp.SendKeys(chromedp.CSS("#name"), "Ana Lima"),
		chromedp.Click(chromedp.CSS("button.primary")),
		chromedp.WaitVisible(chromedp.CSS(`form[action$="/accept"] button`)),
		chromedp.Click(chromedp.CSS(`form[action$="/accept"] button`)),
		chromedp.WaitVisible(chromedp.CSS(`.banner[data-is=good]`)),
	)
	if err != nil {
		t.Fatal(err)
	}
	text, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("main")))
	if err != nil || !strings.Contains(text, "Accepted by Ana Lima") {
		t.Errorf("after accepting the page says %q (%v)", text[:min(len(text), 200)], err)
	}
	err = chromedp.Do(ctx,
		chromedp.Navigate(server.URL+proposal(hostileService)),
		chromedp.WaitVisible(chromedp.CSS("#reason")),
		chromedp.SendKeys(chromedp.CSS("#reason"), "The batch came once"),
		chromedp.Click(chromedp.CSS(`form[action$="/reject"] button`)),
		chromedp.WaitVisible(chromedp.CSS(`.banner[data-is=good]`)),
	)
	if err != nil {
		t.Fatal(err)
	}
	text, err = chromedp.Run(ctx, chromedp.Text(chromedp.CSS("main")))
	if err != nil || !strings.Contains(text, "Rejected by Ana Lima: The batch came once") {
		t.Errorf("after rejecting the page says %q (%v)", text[:min(len(text), 200)], err)
	}
	want := []string{
		"accept cron-2026-12-02T060000Z-checkout by Ana Lima",
		"reject " + strings.TrimPrefix(proposal(hostileService), "/proposals/") + " by Ana Lima: The batch came once",
	}
	if got := f.done(); !slices.Equal(got, want) {
		t.Errorf("done: %q, want %q", got, want)
	}
}

// Another page cannot show this one in a frame and have a click stolen.
func testFrames(t *testing.T, parent context.Context) {
	server := httptest.NewServer(newFixture(t).handler(t))
	defer server.Close()
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<iframe src="%s/proposals"></iframe>`, server.URL)
	}))
	defer evil.Close()
	ctx, said := tab(t, parent)
	if err := chromedp.Do(ctx, chromedp.Navigate(evil.URL)); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(said(), " "); !strings.Contains(all, "frame-ancestors") {
		t.Errorf("the browser did not refuse the frame: %s", all)
	}
}
