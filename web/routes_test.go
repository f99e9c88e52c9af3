package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openrlc/rlc/web"
)

// request sends one request from a loopback address; change adjusts it.
func request(h http.Handler, method, target, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host, r.RemoteAddr = "127.0.0.1:8080", "127.0.0.1:50000"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	return request(h, "GET", target, "", nil)
}

func bearer(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }

// filled puts things of the fixture into a route's path.
func filled(path string) string {
	return strings.NewReplacer("{service}", "checkout", "{bucket}", "mobile-create", "{caller}", "search", "{pin}", "1", "{id}", map[bool]string{true: "cron-2026-12-02T060000Z", false: "cron-2026-12-02T060000Z-checkout"}[strings.Contains(path, "/runs/")],
		"{version}", "x", "{path...}", "app.css", "{$}", "").Replace(path)
}

func TestEveryRouteHasARole(t *testing.T) {
	computes := []string{"/api/v1/plan", "/api/v1/backtest", "/api/v1/replay", "/import"} // a POST that changes nothing
	session := []string{"/hooks/forge", "/login", "/logout"}
	for _, r := range web.Routes() {
		want := "actor"
		switch {
		case r.Method == "GET" && (slices.Contains([]string{"/healthz", "/readyz", "/favicon.ico", "/login", "/login/provider", "/login/callback"}, r.Path) || strings.HasPrefix(r.Path, "/static/")):
			want = "anyone"
		case slices.Contains(session, r.Path):
			want = "anyone"
		case strings.HasPrefix(r.Path, "/api/v1/tokens"), r.Path == "/api/v1/sign-in-codes":
			want = "admin"
		case r.Method == "POST" && r.Path == "/why": // it asks; anybody known by name may
			want = "person"
		case r.Method == "GET", slices.Contains(computes, r.Path):
			want = "viewer"
		}
		if r.Role != want {
			t.Errorf("%s %s is for %q, want %q", r.Method, r.Path, r.Role, want)
		}
	}
}

// Every route is asked by five identities; only those whose role reaches may
// pass.
func TestRolesDecide(t *testing.T) {
	identities := []struct {
		name   string
		reach  string
		change func(*http.Request)
	}{
		{"loopback", "viewer", nil},
		{"another machine", "anyone", func(r *http.Request) { r.RemoteAddr = "192.0.2.7:4000" }},
		{"a rebound name", "anyone", func(r *http.Request) { r.Host = "evil.example:8080" }},
		{"through a proxy", "anyone", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7") }},
		{"a wrong token", "anyone", func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }},
		{"the token", "admin", bearer},
	}
	rank := map[string]int{"anyone": 0, "viewer": 1, "person": 2, "actor": 2, "admin": 3}
	f := newFixture(t)
	h := f.handler(t)
	for _, route := range web.Routes() {
		for _, who := range identities {
			w := request(h, route.Method, filled(route.Path), "", who.change)
			refused := w.Code == http.StatusUnauthorized && route.Path != "/login" // where 401 means that the token was wrong
			if want := rank[who.reach] < rank[route.Role]; refused != want {
				t.Errorf("%s %s by %s: status %d, want refused %v", route.Method, route.Path, who.name, w.Code, want)
			}
		}
	}
}

func TestNoGETChangesAnything(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	for _, route := range web.Routes() {
		if route.Method == "GET" {
			if w := request(h, "GET", filled(route.Path), "", bearer); w.Code >= 500 {
				t.Errorf("GET %s: %d %s", route.Path, w.Code, w.Body)
			}
		}
	}
	if did := f.done(); len(did) > 0 {
		t.Errorf("reading did %q", did)
	}
}

func TestTheDescriptionNamesEveryRouteOfTheAPI(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(web.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var described, routed []string
	for path, methods := range doc.Paths {
		for m := range methods {
			described = append(described, strings.ToUpper(m)+" "+path)
		}
	}
	for _, r := range web.Routes() {
		if strings.HasPrefix(r.Path, "/api/v1/") || r.Path == "/hooks/forge" || r.Path != "/api/openapi.json" && sheetEnding.MatchString(r.Path) {
			routed = append(routed, r.Method+" "+r.Path)
		}
	}
	for _, page := range endings {
		routed = append(routed, "GET "+page+".json", "GET "+page+".csv")
	}
	slices.Sort(described)
	slices.Sort(routed)
	if !slices.Equal(described, routed) {
		t.Errorf("described\n%s\nrouted\n%s", strings.Join(described, "\n"), strings.Join(routed, "\n"))
	}
}

var sheetEnding = regexp.MustCompile(`\.(json|csv|yaml)$`)

// endings are the pages whose own address, with an ending, is a sheet.
var endings = []string{"/services/{service}", "/services/{service}/buckets/{bucket}", "/runs/{id}", "/proposals/{id}", "/callers/{caller}"}

// Each sheet that is described answers as described; no page answers under an
// ending that is not.
func TestEverySheetThatIsDescribedAnswers(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct{ Content map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(web.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	h := newFixture(t).handler(t)
	for path, methods := range doc.Paths {
		if strings.HasPrefix(path, "/api/") || !sheetEnding.MatchString(path) {
			continue
		}
		target := filled(path)
		switch {
		case strings.Contains(path, "/onboard"):
			target = strings.Replace(path, "{service}", "ledger", 1)
		case strings.HasPrefix(path, "/why"):
			target += "?service=checkout"
		}
		w := get(h, target)
		kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
		if _, ok := methods["get"].Responses["200"].Content[kind]; !ok && w.Code == http.StatusOK || w.Code >= 500 {
			t.Errorf("%s answers %d, %s", target, w.Code, kind)
		}
	}
	for _, r := range web.Routes() {
		if r.Method != "GET" || sheetEnding.MatchString(r.Path) || !isPage(r) {
			continue
		}
		for _, ending := range []string{".json", ".csv"} {
			if _, known := doc.Paths[strings.TrimSuffix(r.Path, "{$}")+ending]; !known && get(h, filled(r.Path)+ending).Code == http.StatusOK {
				t.Errorf("%s%s is not described", r.Path, ending)
			}
		}
	}
}

// Every query parameter that a handler reads by name is described somewhere, but
// those of pages alone.
func TestEveryParameterIsDescribed(t *testing.T) {
	pages := []string{"tz", "theme", "done", "token", "next", "code", "iss", "json", // the frame's, and signing in
		"standing", "snoozed", "edit", "try", "rate", "reason", "action", "also", "drop", "other", "ttl"} // forms and parts of pages
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reads := regexp.MustCompile(`(?:\bq|Query\(\))\.(?:Get|Has)\("([a-z_]+)"\)|v\.flag\("([a-z_]+)"\)`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reads.FindAllStringSubmatch(string(text), -1) {
			name := m[1] + m[2]
			if !slices.Contains(pages, name) && !strings.Contains(string(web.OpenAPI), `"name": "`+name+`"`) {
				t.Errorf("%s reads ?%s=, which no operation describes", file, name)
			}
		}
	}
}

func TestAnotherMethodNamesTheRightOne(t *testing.T) {
	w := request(newFixture(t).handler(t), "POST", "/api/v1/services", "{}", bearer)
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET" {
		t.Errorf("status %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

var current = regexp.MustCompile(`(?i)current`)

var hrefs = regexp.MustCompile(`(?:href|action)="([^"]*)"`)

// Every link on every page leads somewhere, and no page calls a limit by the
// word that mixes desired with live.
func TestNoDeadLinks(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	seen := map[string]bool{}
	todo := []string{"/"}
	for len(todo) > 0 && len(seen) < 400 {
		target := todo[0]
		todo = todo[1:]
		if seen[target] {
			continue
		}
		seen[target] = true
		w := request(h, "GET", target, "", bearer)
		if w.Code != http.StatusOK && w.Code != http.StatusFound {
			t.Errorf("GET %s: %d", target, w.Code)
			continue
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		page := w.Body.String()
		if current.MatchString(strings.NewReplacer("aria-current", "", "current-password", "", "currentColor", "").Replace(page)) {
			t.Errorf("%s says %q", target, "current")
		}
		for _, m := range hrefs.FindAllStringSubmatch(page, -1) {
			u, err := url.Parse(strings.NewReplacer("&amp;", "&", "&#34;", `"`, "&#39;", "'").Replace(m[1]))
			if err != nil || u.Scheme != "" || u.Host != "" {
				t.Errorf("%s leads to %q", target, m[1])
				continue
			}
			if !strings.HasPrefix(u.EscapedPath(), "/") || strings.Contains(m[0], "action=") || u.Query().Has("dir") {
				continue
			}
			todo = append(todo, u.RequestURI())
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d addresses were found", len(seen))
	}
}

func TestReadinessSaysWhyToViewersOnly(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	if w := get(h, "/readyz"); w.Code != 200 {
		t.Errorf("ready: %d", w.Code)
	}
	f.notReady = []string{"no snapshot yet"}
	if w := get(h, "/readyz"); w.Code != 503 || !strings.Contains(w.Body.String(), "no snapshot yet") {
		t.Errorf("not ready: %d %s", w.Code, w.Body)
	}
	w := request(h, "GET", "/readyz", "", func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1" })
	if b, _ := io.ReadAll(w.Body); w.Code != 503 || strings.Contains(string(b), "snapshot") {
		t.Errorf("from another machine: %d %s", w.Code, b)
	}
}
