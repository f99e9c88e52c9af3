package web_test

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/openrlc/rlc/web"
)

// axe is axe-core 4.14.1, unmodified (MPL-2.0, licence beside it).
//
//go:embed testdata/axe/axe.min.js
var axe string

// pagePaths are all pages that the list of routes names, filled with things of
// the fixture, and those of pages that it cannot name, by a short name each.
func pagePaths() map[string]string {
	out := map[string]string{}
	for _, r := range web.Routes() {
		if !isPage(r) {
			continue
		}
		path := filled(r.Path)
		name := strings.Trim(strings.NewReplacer("/services/{service}/", "", "/buckets/{bucket}", "bucket", "/", "-", "{id}", "one", "{$}", "", "{service}", "one").Replace(r.Path), "-")
		out[name] = path
	}
	for name, path := range pages {
		if !hasValue(out, path) {
			out[name] = path
		}
	}
	return out
}

// isPage reports whether a route answers a person's browser with a page.
func isPage(r web.Route) bool {
	if r.Method != "GET" || strings.HasSuffix(r.Path, ".json") || strings.HasSuffix(r.Path, ".csv") || strings.HasSuffix(r.Path, ".yaml") {
		return false
	}
	for _, other := range []string{"/api/", "/static/", "/healthz", "/readyz", "/metrics", "/favicon.ico", "/login/"} {
		if strings.HasPrefix(r.Path, other) {
			return false
		}
	}
	return true
}

func hasValue(m map[string]string, want string) bool {
	for _, v := range m {
		if v == want {
			return true
		}
	}
	return false
}

// axeColours are the rules that look at colours, axeLayout those whose word
// depends on how wide the window is; the other rules look at the markup alone.
const (
	axeAll     = `{runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}`
	axeColours = `{runOnly: {type: "rule", values: ["color-contrast", "link-in-text-block"]}}`
	axeLayout  = `{runOnly: {type: "rule", values: ["target-size", "scrollable-region-focusable"]}}`
)

// violations runs axe on the page of the tab. Only serious and critical ones
// are returned, each with the first elements that it concerns.
func violations(ctx context.Context, rules string) ([]string, error) {
	there, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`!!window.axe`))
	if err != nil {
		return nil, err
	}
	if !there {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](axe+"\n;true")); err != nil {
			return nil, fmt.Errorf("load axe: %w", err)
		}
	}
	return chromedp.Run(ctx, chromedp.Evaluate[[]string](`axe.run(document, Object.assign({resultTypes: ["violations"], elementRef: false}, `+rules+`)).then((r) => r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => v.impact + " " + v.id + ": " + v.help + ": " + v.nodes.slice(0, 4).map((n) => n.html.slice(0, 120) + " (" + (n.any[0]?.message ?? n.failureSummary).slice(0, 160) + ")").join(" | ")))`, chromedp.EvalAwaitPromise))
}

// The list that the browser tests open holds every page of the routes list.
func TestEveryPageIsOpenedInTheBrowser(t *testing.T) {
	paths := pagePaths()
	for _, want := range []string{"/", "/services", "/services/checkout", "/proposals", "/runs", "/audit", "/emergency", "/loop", "/login", "/services/checkout/shadow", "/services/checkout/whatif", "/services/checkout/replay", "/services/checkout/history", "/services/checkout/buckets/mobile-create", "/services/checkout/buckets/mobile-create/promote", "/services/" + url.PathEscape(hostileService)} {
		if !hasValue(paths, want) {
			t.Errorf("%s is not opened", want)
		}
	}
	n := 0
	for _, r := range web.Routes() {
		if isPage(r) {
			n++
		}
	}
	if n < 16 || len(paths) < n {
		t.Errorf("%d pages in the routes list, %d opened", n, len(paths))
	}
}

// axe itself works here: it finds a button without a name and grey on grey.
func testAxeFinds(t *testing.T, parent context.Context) {
	ctx, _ := tab(t, parent)
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.body.innerHTML = '<button></button><p><font color="#999999">grey</font></p>', true`)); err != nil {
		t.Fatal(err)
	}
	found, err := violations(ctx, axeAll)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(found, "\n")
	if !strings.Contains(all, "button-name") || !strings.Contains(all, "color-contrast") || !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, "critical") }) {
		t.Errorf("found only:\n%s", all)
	}
}
