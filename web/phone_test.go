package web_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// wideParts names what makes a page wider than its window; "" for nothing.
const wideParts = `(() => {
	const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
	if (over <= 0) return "";
	const parts = [...document.querySelectorAll("main *, header *, .banner *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .diff, nav"));
	return over + " px: " + parts.slice(0, 4).map((e) => e.outerHTML.slice(0, 120)).join(" | ");
})()`

// A phone that runs no scripts, 360 px wide, scrolls no page sideways.
func testPhoneWithoutScripts(t *testing.T, parent context.Context) {
	server := httptest.NewServer(newFixture(t).handler(t))
	defer server.Close()
	ctx, _ := tab(t, parent)
	off := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	})
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 780), off); err != nil {
		t.Fatal(err)
	}
	for name, path := range everyPage() {
		visit(t, ctx, server.URL+path)
		if wide := value[string](t, ctx, wideParts); wide != "" {
			t.Errorf("%s (%s) is too wide by %s", name, path, wide)
		}
	}
}
