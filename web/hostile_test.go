package web_test

import (
	"encoding/csv"
	"encoding/json"
	"html"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
	"github.com/openrlc/rlc/web"
)

// Names, reasons and addresses that are meant to become markup, script, a
// formula or a path are text in every answer of the routes list: pages, JSON,
// CSV, charts, headers and the names of files.
func TestHostileTextIsInertOnEveryRoute(t *testing.T) {
	f := newFixture(t)
	h := f.handler(t)
	plant(t, f, h)
	kinds := map[string]int{}
	shown := 0
	for _, route := range web.Routes() {
		if route.Method != "GET" || strings.HasPrefix(route.Path, "/static/") {
			continue
		}
		for _, target := range hostileTargets(route.Path) {
			w := request(h, "GET", target, "", bearer)
			kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
			if err != nil && w.Code < 300 || w.Code >= 500 {
				t.Errorf("%s: %d, %v", target, w.Code, err)
			}
			kinds[kind]++
			body := w.Body.String()
			if strings.Contains(body, "alert(") {
				shown++
			}
			inertHeaders(t, target, w.Header())
			switch {
			case kind == "text/html":
				inertPage(t, target, body)
			case kind == "text/csv":
				inertSheet(t, target, w)
			case strings.HasSuffix(kind, "json"):
				if !json.Valid([]byte(body)) || strings.ContainsAny(body, "<>") {
					t.Errorf("%s: no JSON, or with markup: %s", target, body[:min(len(body), 200)])
				}
			}
		}
	}
	t.Logf("answers by kind: %v; with a hostile text in them: %d", kinds, shown)
	if kinds["text/html"] < 500 || kinds["text/csv"] < 150 || kinds["application/json"] < 200 || shown < 500 {
		t.Errorf("too little was looked at: %v, %d", kinds, shown)
	}
}

// complainer is who hears what is not inert.
type complainer interface {
	Helper()
	Errorf(format string, args ...any)
}

// counted counts complaints.
type counted int

func (*counted) Helper()                 {}
func (c *counted) Errorf(string, ...any) { *c++ }

// What the test above looks for is found where it is.
func TestWhatIsNotInertIsNoticed(t *testing.T) {
	for _, page := range []string{
		`<p><script>alert(1)</script></p>`, `<img src=x onerror=alert(5)>`, `<img src="x">`, `<a href="javascript:alert(3)">x</a>`, `<a href="//evil.example">x</a>`,
		`<p onclick="x">y</p>`, `<p style="color: red">y</p>`, "<p>\u202egnp.exe</p>", `<script type="application/json">{"a": </script>`, `<script type="application/json">{}</script><script>alert(2)</script>`,
	} {
		var c counted
		inertPage(&c, "/", page)
		if c == 0 {
			t.Errorf("nobody complains about %s", page)
		}
	}
	for _, cell := range []string{`=1+1`, `+1+cmd`, `-2+3`, `@SUM(A1)`, "	=1", " =1"} {
		var c counted
		w := httptest.NewRecorder()
		w.Header().Set("Content-Disposition", `attachment; filename="a.csv"`)
		sheet := csv.NewWriter(w)
		if err := sheet.Write([]string{cell}); err != nil {
			t.Fatal(err)
		}
		sheet.Flush()
		if inertSheet(&c, "/", w); c == 0 {
			t.Errorf("nobody complains about the cell %q", cell)
		}
	}
	for _, h := range []http.Header{{"Location": {"//evil.example"}}, {"Location": {"https://evil.example/"}}, {"X": {"a\r\nb: c"}}} {
		var c counted
		if inertHeaders(&c, "/", h); c == 0 {
			t.Errorf("nobody complains about %v", h)
		}
	}
	var none counted
	inertPage(&none, "/", `<p class="a">&lt;script&gt;</p><a href="/x?y=&#34;">z</a><svg viewBox="0 0 1 1"><path d="M0 0"></path></svg><script type="application/json">{"a":1}</script><input disabled/>`)
	if none != 0 {
		t.Error("a tame page is complained about")
	}
}

// plant has people with hostile names do everything that is recorded, with
// hostile reasons.
func plant(t *testing.T, f *fixture, h http.Handler) {
	t.Helper()
	base := "/services/" + url.PathEscape(hostileService)
	done := 0
	for i, name := range hostile {
		key := url.QueryEscape(rlc.Key{"caller": name}.String())
		cookie := signInAs(t, h, name)
		if cookie == nil {
			continue // no name for a person
		}
		for target, form := range map[string]url.Values{
			"/why": {"service": {hostileService}, "bucket": {"callers"}, "key": {rlc.Key{"caller": name}.String()}, "rate": {"90000"}, "reason": {name}, "back": {name}},
			base + "/buckets/callers/verdicts?key=" + key: {"from": {"2026-11-24T20:00:00Z"}, "until": {"2026-11-24T21:00:00Z"}, "count": {"false"}, "reason": {name}},
			base + "/buckets/callers/episodes?key=" + key: {"from": {"2026-11-24T20:00:00Z"}, "until": {"2026-11-24T21:00:00Z"}, "verdict": {"snooze"}, "reason": {name}},
			"/emergency": {"service": {hostileService}, "caller": {name}, "procedure": {hostile[(i+1)%len(hostile)]}, "action": {"limit"}, "rate": {"5"}, "ttl": {"30m"}, "reason": {name}},
			"/runs?service=" + url.QueryEscape(hostileService): {},
		} {
			w := request(h, "POST", target, form.Encode(), func(r *http.Request) {
				r.AddCookie(cookie)
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				r.Header.Set("Origin", "http://127.0.0.1:8080")
			})
			inertHeaders(t, "POST "+target, w.Header())
			if w.Code == http.StatusSeeOther {
				done++
			}
		}
	}
	if done < 4*len(hostile) {
		t.Fatalf("%d acts by %d names", done, len(hostile))
	}
}

// signInAs is the session of a person of this name; nil where no person can
// have it.
func signInAs(t *testing.T, h http.Handler, name string) *http.Cookie {
	t.Helper()
	w := request(h, "POST", "/login", url.Values{"token": {token}, "name": {name}, "next": {name}}.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://127.0.0.1:8080")
	})
	inertHeaders(t, "sign in as "+name, w.Header())
	for _, c := range w.Result().Cookies() {
		if w.Code == http.StatusSeeOther && c.Value != "" {
			return c
		}
	}
	return nil
}

// hostileTargets are addresses of one route: the hostile service with each of
// its callers, each text in place of every name, and in every parameter that
// pages read.
func hostileTargets(path string) []string {
	fill := func(service, bucket, caller, id string) string {
		return strings.NewReplacer("{service}", url.PathEscape(service), "{bucket}", url.PathEscape(bucket), "{caller}", url.PathEscape(caller), "{id}", url.PathEscape(id), "{$}", "").Replace(path)
	}
	id := "cron-2026-12-02T060000Z"
	if strings.Contains(path, "proposals") {
		id += "-" + quotafile.PathSegment(hostileService)
	}
	out := []string{fill(hostileService, "callers", hostile[4], id)}
	if strings.HasSuffix(path, "}") {
		out = append(out, out[0]+".json", out[0]+".csv")
	}
	for i, text := range hostile {
		q := url.Values{"key": {rlc.Key{"caller": text}.String()}, "service": {hostileService}, "caller": {text}, "procedure": {hostile[(i+3)%len(hostile)]}}
		out = append(out, fill(hostileService, "callers", text, id)+"?"+q.Encode())
		if strings.HasSuffix(path, "}") {
			out = append(out, fill(hostileService, "callers", text, id)+".csv?"+q.Encode())
		}
		out = append(out, fill(text, text, text, text))
		if i%2 == 1 {
			continue // half of them in every parameter are enough
		}
		every := url.Values{}
		for _, p := range []string{"q", "sort", "dir", "show", "tz", "theme", "done", "next", "service", "caller", "procedure", "also", "reason", "rate", "action", "from", "to", "until", "stat", "window", "headroom", "exclude", "actor", "object", "days", "owner", "state", "mode", "page", text} {
			every.Set(p, text)
		}
		out = append(out, fill(hostileService, "callers", text, id)+"?"+every.Encode())
	}
	return out
}

var (
	anyTag    = regexp.MustCompile(`<[a-zA-Z]`)
	wholeTag  = regexp.MustCompile(`^<([a-zA-Z][a-zA-Z0-9-]*)((?:\s+[^\s=>"'/]+(?:="[^"]*")?)*)\s*/?>`)
	attribute = regexp.MustCompile(`([^\s=>"'/]+)(?:="([^"]*)")?`)
	dataBlock = regexp.MustCompile(`(?s)<script type="application/json"[^>]*>(.*?)</script>`)
	address   = regexp.MustCompile(`^(/([^/]|$)|#|\?|https?://127\.0\.0\.1|$)`)
)

// inertPage checks a page tag by tag: what templates write is regular, so that
// everything else is somebody's text.
func inertPage(t complainer, target, page string) {
	t.Helper()
	for _, m := range dataBlock.FindAllStringSubmatch(page, -1) {
		if !json.Valid([]byte(m[1])) {
			t.Errorf("%s: a chart's data are no JSON: %.200s", target, m[1])
		}
		page = strings.Replace(page, m[1], "", 1)
	}
	for _, at := range anyTag.FindAllStringIndex(page, -1) {
		m := wholeTag.FindStringSubmatch(page[at[0]:])
		if m == nil {
			t.Errorf("%s: half a tag: %.100s", target, page[at[0]:])
			continue
		}
		name, attributes := m[1], map[string]string{}
		for _, a := range attribute.FindAllStringSubmatch(m[2], -1) {
			attributes[strings.ToLower(a[1])] = html.UnescapeString(a[2])
		}
		if slices.Contains([]string{"img", "iframe", "object", "embed", "base", "style", "frame", "video", "audio", "applet"}, name) || name == "script" && !strings.HasPrefix(attributes["src"], "/static/") && attributes["type"] != "application/json" {
			t.Errorf("%s: a text became %s", target, m[0])
		}
		for a, value := range attributes {
			to := slices.Contains([]string{"href", "src", "action", "formaction"}, a)
			if strings.HasPrefix(a, "on") || a == "style" || a == "srcdoc" || to && !address.MatchString(value) {
				t.Errorf("%s: a text became %s=%q", target, a, value)
			}
		}
	}
	if i := strings.IndexAny(page, "\u202e\u202d\u2066\u2067\u0000"); i >= 0 {
		t.Errorf("%s turns the direction of text: %q", target, page[max(0, i-40):i+10])
	}
}

// inertSheet checks that no cell is a formula and that the file has a tame name.
func inertSheet(t complainer, target string, w *httptest.ResponseRecorder) {
	t.Helper()
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil {
		t.Errorf("%s: %v", target, err)
	}
	for _, row := range rows {
		for _, cell := range row {
			start := strings.TrimLeft(cell, " \u00a0\ufeff")
			if start == "" || !strings.ContainsAny(start[:1], "=+-@\t\r\n|%") {
				continue
			}
			if _, err := strconv.ParseFloat(cell, 64); err != nil && !strings.HasPrefix(start, "%") {
				t.Errorf("%s: cell %q is a formula", target, cell)
			}
		}
	}
	disposition, params, err := mime.ParseMediaType(w.Header().Get("Content-Disposition"))
	if name := params["filename"]; err != nil || disposition != "attachment" || !regexp.MustCompile(`^[A-Za-z0-9_-]{1,60}\.csv$`).MatchString(name) {
		t.Errorf("%s is saved as %q (%v)", target, name, err)
	}
}

// inertHeaders checks that no text breaks out of a header, and that nobody is
// sent elsewhere.
func inertHeaders(t complainer, target string, header http.Header) {
	t.Helper()
	for name, values := range header {
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00<>") {
				t.Errorf("%s: header %s is %q", target, name, v)
			}
		}
	}
	to, err := url.Parse(header.Get("Location"))
	if err != nil || to.Scheme != "" || to.Host != "" || to.Path != "" && !strings.HasPrefix(to.Path, "/") {
		t.Errorf("%s leads to %q (%v)", target, header.Get("Location"), err)
	}
}
