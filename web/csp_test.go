package web_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
)

// reporting has browsers report what violates the policy of a handler's pages.
// /bad is a page that does.
type reporting struct {
	http.Handler

	mu      sync.Mutex
	reports []string
}

func (x *reporting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/csp-report":
		b, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16)) // half a report is one
		x.mu.Lock()
		defer x.mu.Unlock()
		x.reports = append(x.reports, string(b))
		return
	case "/bad":
		answer := httptest.NewRecorder()
		r.URL.Path = "/login"
		x.Handler.ServeHTTP(answer, r)
		w.Header().Set("Content-Security-Policy", answer.Header().Get("Content-Security-Policy")+"; report-uri /csp-report")
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<!DOCTYPE html><p>bad</p><script>document.title = "ran"</script>`) //nolint:errcheck // the browser sees it
		return
	}
	x.Handler.ServeHTTP(&policed{ResponseWriter: w}, r)
}

func (x *reporting) said() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.reports
}

// policed adds where to report to the policy of an answer.
type policed struct {
	http.ResponseWriter
	begun bool
}

func (w *policed) WriteHeader(code int) {
	w.begun = true
	h := w.Header()
	if p := h.Get("Content-Security-Policy"); p != "" {
		h.Set("Content-Security-Policy", p+"; report-uri /csp-report")
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *policed) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// A page that is made to violate its policy is reported, and its script does
// not run.
func testPolicy(t *testing.T, ctx context.Context, server string, x *reporting) {
	t.Helper()
	visit(t, ctx, server+"/bad")
	waitFor(t, func() bool { return len(x.said()) == 1 })
	if title := value[string](t, ctx, `document.title`); title == "ran" {
		t.Error("a script within a page runs")
	}
}

// everyPage are the pages that the browser tests open, and more with hostile
// names on them.
func everyPage() map[string]string {
	out := pagePaths()
	for name, path := range map[string]string{
		"hostile-o": "/services/" + url.PathEscape(hostile[0]) + "/onboard",
		"hostile-w": "/why?service=" + url.QueryEscape(hostileService) + "&caller=" + url.QueryEscape(hostile[4]),
		"hostile-c": "/callers/" + url.PathEscape(hostile[4]),
		"hostile-r": "/services/" + url.PathEscape(hostileService) + "/replay",
		"accepted":  "/proposals/cron-2026-11-26T060000Z-checkout",
		"none":      "/proposals?service=ledger&done=onboarded",
	} {
		out[name] = path
	}
	return out
}
