package web_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// wideParts names what makes a page wider than its window; "" for nothing.
const wideParts = `(() => {
	const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
	if (over <= 0) return "";
	const parts = [...document.querySelectorAll("main *, header *, .banner *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .diff, nav"));
	return over + " px: " + parts.slice(0, 4).map((e) => e.outerHTML.slice(0, 120)).join(" | ");
})()`

// cutParts names what is there and cannot be seen whole: an entry of the
// navigation, a sign that was squeezed, a word of a drawing beside the window.
const cutParts = `(() => {
	const box = (e) => e.getBoundingClientRect();
	const parts = [
		...[...document.querySelectorAll("header nav a")].filter((e) => box(e).right > innerWidth),
		...[...document.querySelectorAll(".sign")].filter((e) => e.checkVisibility() && box(e).width < 14),
		...[...document.querySelectorAll("svg text")].filter((e) => box(e).width > 0 && (box(e).left < 0 || box(e).right > innerWidth)),
	];
	return parts.slice(0, 4).map((e) => e.outerHTML.slice(0, 120)).join(" | ");
})()`

// statuses keeps the status of each page that a handler answered last.
type statuses struct {
	http.Handler
	last sync.Map // of path and query
}

func (s *statuses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	s.Handler.ServeHTTP(answer, r)
	s.last.Store(r.URL.RequestURI(), answer.Code)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes()) //nolint:errcheck // the browser sees it
}

// On a phone that runs no scripts, 360 px wide, every page is there, is no
// error, offers nothing that needs scripts and scrolls nothing sideways; a
// what-if is asked by its button.
func testPhoneWithoutScripts(t *testing.T, parent context.Context) {
	h := &statuses{Handler: newTrouble(t)}
	server := httptest.NewServer(h)
	defer server.Close()
	ctx, _ := tab(t, parent)
	off := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	})
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 780), off); err != nil {
		t.Fatal(err)
	}
	for name, path := range signedPages() {
		visit(t, ctx, server.URL+path)
		want := http.StatusOK
		if name == "missing" {
			want = http.StatusNotFound
		}
		if code, _ := h.last.Load(path); code != want {
			t.Errorf("%s (%s) is answered %v, want %d", name, path, code, want)
		}
		if fault := value[bool](t, ctx, `document.querySelector('main [aria-label="What to do"]') !== null`); fault != (name == "missing") {
			t.Errorf("%s (%s) shows an error: %v", name, path, fault)
		}
		if text := value[string](t, ctx, `document.querySelector('main h1')?.innerText ?? ''`); strings.TrimSpace(text) == "" {
			t.Errorf("%s (%s) has no heading", name, path)
		}
		if offered := value[string](t, ctx, `[...document.querySelectorAll('[data-do=pause], [data-do=keys], [data-do=again], .plot canvas')].filter((e) => e.checkVisibility()).map((e) => e.outerHTML).join()`); offered != "" {
			t.Errorf("%s (%s) offers what needs scripts: %s", name, path, offered)
		}
		if wide := value[string](t, ctx, wideParts); wide != "" {
			t.Errorf("%s (%s) is too wide by %s", name, path, wide)
		}
		if cut := value[string](t, ctx, cutParts); cut != "" {
			t.Errorf("%s (%s) cuts %s", name, path, cut)
		}
	}
	visit(t, ctx, server.URL+pages["bucket"])
	answer := func() string {
		return value[string](t, ctx, `document.querySelector('#whatif-answer').innerText`)
	}
	before := answer()
	if err := chromedp.Do(ctx, chromedp.WaitVisible(chromedp.CSS("svg.static")), chromedp.SendKeys(chromedp.CSS("#floor"), kb.End+"00000"), chromedp.Click(chromedp.CSS("form.whatif button"))); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, `location.search.includes('floor=100000') && document.readyState === 'complete'`)
	if after := answer(); after == before || !strings.Contains(after, "100,000\u00a0req/s") {
		t.Errorf("the button answers %q", after)
	}
}
