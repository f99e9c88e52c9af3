package web_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// docs holds the pages that show the pictures, img the pictures.
const docs = "../docs"

// shot is one picture: a page of the fixture as it is first seen.
type shot struct {
	name, path string
	wide, high int64
	theme      string
}

// shots are the pictures of the documents.
func shots() []shot {
	batch := "/services/checkout/buckets/callers?key=" + url.QueryEscape("caller=batch-reports")
	return []shot{
		{"overview", "/", 1440, 860, "light"},
		{"services", "/services", 1440, 620, "light"},
		{"service", "/services/checkout", 1440, 800, "light"},
		{"bucket", pages["bucket"], 1440, 1500, "light"},
		{"bucket-dark", batch, 1440, 1000, "dark"},
		{"shadow", "/services/checkout/shadow", 1440, 1000, "light"},
		{"onboard", "/services/ledger/onboard", 1440, 760, "light"},
		{"whatif", "/services/checkout/whatif", 1440, 980, "light"},
		{"phone", pages["bucket"] + "#what-if", 360, 760, "light"},
		{"replay", "/services/checkout/replay", 1440, 720, "light"},
		{"why", pages["explained"], 1440, 820, "light"},
		{"proposal", pages["proposal"], 1440, 1300, "light"},
		{"run", pages["run"], 1440, 760, "light"},
		{"history", "/services/checkout/history", 1440, 860, "light"},
		{"emergency", "/emergency?service=checkout&caller=search", 1440, 900, "light"},
		{"emergency-phone", "/emergency?service=checkout&caller=search", 360, 760, "dark"},
		{"audit", "/audit", 1440, 620, "light"},
		{"loop", "/loop", 1440, 620, "dark"},
		{"scorecard", "/scorecard", 1440, 860, "light"},
		{"proposals", "/proposals", 1440, 520, "light"},
		{"caller", "/callers/search", 1440, 720, "light"},
		{"settings", "/settings", 1440, 980, "light"},
		{"policy", "/services/checkout/policy", 1440, 760, "light"},
		{"promote", "/services/checkout/buckets/callers/promote", 1440, 720, "light"},
		{"import", "/import", 1440, 720, "light"},
		{"export", "/services/checkout/export", 1440, 760, "light"},
		{"login", "/login", 1440, 480, "light"},
		{"unmanaged", "/services?show=unmanaged", 1440, 520, "light"},
	}
}

var picture = regexp.MustCompile(`!\[[^\]]+\]\((?:\.\./)*(?:docs/)?img/([a-z-]+)\.webp\)`)

// The pictures that documents show are those that make screenshots makes, each
// is shown, and together they are small.
func TestDocumentsShowThePicturesThatAreMade(t *testing.T) {
	var shown, made []string
	for _, s := range shots() {
		made = append(made, s.name)
	}
	documents, err := filepath.Glob(docs + "/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		text, err := os.ReadFile(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range picture.FindAllStringSubmatch(string(text), -1) {
			shown = append(shown, m[1])
		}
	}
	files, err := filepath.Glob(docs + "/img/*")
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	size := int64(0)
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
		there = append(there, strings.TrimSuffix(filepath.Base(f), ".webp"))
	}
	slices.Sort(shown)
	slices.Sort(there)
	slices.Sort(made)
	if !slices.Equal(slices.Compact(shown), made) || !slices.Equal(there, made) {
		t.Errorf("documents show %q\nthe folder holds %q\nmade are %q", shown, there, made)
	}
	if size > 2_000_000 {
		t.Errorf("the pictures are %d bytes", size)
	}
}

// Each picture's page is there, and with RLC_DOCS_SHOTS, a folder, its picture
// is taken: by make screenshots.
func TestScreenshots(t *testing.T) {
	f := newFixtureOf(t, "payments", "team-payments", []string{"web", "ios", "android", "partners", "refunds"})
	f.banners = nil
	h := f.handler(t)
	for _, s := range shots() {
		if w := get(h, strings.Split(s.path, "#")[0]); w.Code != 200 {
			t.Errorf("%s: %d", s.path, w.Code)
		}
	}
	dir := os.Getenv("RLC_DOCS_SHOTS")
	if dir == "" {
		return
	}
	server := httptest.NewServer(h)
	defer server.Close()
	ctx, _ := tab(t, browser(t))
	for _, s := range shots() {
		b, err := shoot(ctx, server.URL, s)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, s.name+".webp"), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shoot takes one picture, when fonts and chart are drawn.
func shoot(ctx context.Context, server string, s shot) ([]byte, error) {
	err := chromedp.Do(ctx, chromedp.EmulateViewport(s.wide, s.high), chromedp.Navigate(server+s.path))
	if err != nil {
		return nil, err
	}
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(`document.documentElement.dataset.theme = %q, document.querySelector(".pulse")?.remove(),
		document.fonts.ready.then(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(true)))))`, s.theme), chromedp.EvalAwaitPromise)); err != nil {
		return nil, err
	}
	var b []byte
	err = chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		quality := int64(60)
		got, err := cdp.Call(ctx, tab, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
		if err == nil {
			b = got.Data
		}
		return err
	}))
	return b, err
}
