package promhistory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/porttest"
	"github.com/openrlc/rlc/internal/promserver"
)

// say answers every request with one body.
func say(body string) func(http.ResponseWriter, *http.Request, url.Values) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ url.Values) bool {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
		return true
	}
}

// matrix is an answer with samples at the given minutes after the query's start.
func matrix(form url.Values, values map[int]string, more string, sets ...string) string {
	start, _ := strconv.ParseFloat(form.Get("start"), 64)
	var points []string
	for m := range 1440 {
		if v, ok := values[m]; ok {
			points = append(points, fmt.Sprintf(`[%d,"%s"]`, int64(start)+int64(60*m), v))
		}
	}
	var all []string
	for _, set := range sets {
		all = append(all, fmt.Sprintf(`{"metric":%s,"values":[%s]}`, set, strings.Join(points, ",")))
	}
	return `{"status":"success"` + more + `,"data":{"resultType":"matrix","result":[` + strings.Join(all, ",") + `]}}`
}

// onRange answers range queries only.
func onRange(answer func(form url.Values) string) func(http.ResponseWriter, *http.Request, url.Values) bool {
	return func(w http.ResponseWriter, r *http.Request, form url.Values) bool {
		if form.Get("step") == "" {
			return false
		}
		return say(answer(form))(w, r, form)
	}
}

func TestAnAnswerThatIsNoneIsATypedError(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       error
	}{
		{"empty object", `{}`, ErrNoResult},
		{"null data", `{"status":"success","data":null}`, ErrNoResult},
		{"no data", `{"status":"success"}`, ErrNoResult},
		{"empty data", `{"status":"success","data":{}}`, ErrWrongType},
		{"scalar", `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, ErrWrongType},
		{"string", `{"status":"success","data":{"resultType":"string","result":[1,"1"]}}`, ErrWrongType},
		{"cut", `{"status":"success","data":{"resultType":"matrix","result":[`, ErrNotPrometheus},
		{"html", `<!doctype html><title>Sign in</title>`, ErrNotPrometheus},
		{"nothing", ``, ErrNotPrometheus},
		{"error with 200", `{"status":"error","errorType":"bad_data","error":"no"}`, ErrQuery},
		{"histograms", `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,2]]}]}}`, ErrNotPrometheus},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.tamper = say(c.body)
			if _, err := w.tryRead(t.Context(), service(callers()), profile(), now); !errors.Is(err, c.want) {
				t.Errorf("read: %v, want %v", err, c.want)
			}
			if err := w.reader.Check(t.Context()); err == nil {
				t.Error("check is content")
			}
		})
	}
	w := newWorld(t, nil)
	if err := w.reader.Check(t.Context()); err != nil {
		t.Errorf("check of a real one: %v", err)
	}
	w.tamper = onRange(func(url.Values) string {
		return `{"status":"success","data":{"resultType":"vector","result":[]}}`
	})
	if _, err := w.tryRead(t.Context(), service(callers()), profile(), now); !errors.Is(err, ErrWrongType) {
		t.Errorf("a vector for a matrix: %v", err)
	}
}

func TestNobodyThereIsUnreachableAtOnce(t *testing.T) {
	addr := porttest.Free(t)
	w := newWorld(t, func(c *Config) { c.URL = "http://" + addr; c.MaxWait = time.Hour })
	_, err := w.tryRead(t.Context(), service(callers()), profile(), now)
	if !errors.Is(err, ErrUnreachable) || Reason(err) != "unreachable" {
		t.Errorf("%v", err)
	}
}

func TestASilentServerIsCutByTheDeadline(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(w http.ResponseWriter, r *http.Request)
	}{
		{"nothing at all", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"a byte and no more", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "{")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		{"a connection that breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int32
			w := newWorld(t, func(c *Config) { c.QueryTimeout = 5 * time.Millisecond })
			w.tamper = func(out http.ResponseWriter, r *http.Request, _ url.Values) bool {
				asked.Add(1)
				c.body(out, r)
				return true
			}
			_, err := w.tryRead(t.Context(), service(callers()), profile(), now)
			if err == nil || !strings.Contains(err.Error(), ErrTimeout.Error()) {
				t.Errorf("%v", err)
			}
			if n := asked.Load(); n > 10 {
				t.Errorf("asked %d times", n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := w.tryRead(ctx, service(callers()), profile(), now); !errors.Is(err, context.Canceled) {
				t.Errorf("canceled: %v", err)
			}
		})
	}
}

func TestAWarningHoldsTheSeriesAndSealsNothing(t *testing.T) {
	w := newWorld(t, nil)
	f := wave(10)
	w.fill(rates(now.Add(-4*day), now.Add(3*time.Hour), f, "client", "a"))
	s := service(callers())
	w.tamper = onRange(func(form url.Values) string {
		return matrix(form, map[int]string{0: "1"}, `,"warnings":["store gateway is down"]`, `{"client":"a"}`)
	})
	if _, err := w.tryRead(t.Context(), s, profile(), now); err == nil || !strings.Contains(err.Error(), "store gateway is down") {
		t.Errorf("nothing stored and a warning: %v", err)
	}
	tamper := w.tamper
	w.tamper = nil
	before := w.read(s, profile(), now)["callers/caller=a"]
	w.tamper = tamper
	held := w.read(s, profile(), now.Add(3*time.Hour))["callers/caller=a"]
	if p := held.Problems; len(p) != 1 || p[0].Rule != "warning" || p[0].Detail != "store gateway is down" {
		t.Errorf("problems %v", p)
	}
	if len(held.Hours) != len(before.Hours) || held.Newest.After(before.Newest) {
		t.Errorf("%d hours, want the %d of before", len(held.Hours), len(before.Hours))
	}
	w.tamper = nil
	if after := w.read(s, profile(), now.Add(3*time.Hour))["callers/caller=a"]; len(after.Problems) > 0 || len(after.Hours) != len(before.Hours)+3 {
		t.Errorf("after the warning: %d hours, problems %v", len(after.Hours), after.Problems)
	}
}

func TestInfosAreNotFatal(t *testing.T) {
	w := newWorld(t, nil)
	w.tamper = onRange(func(form url.Values) string {
		return matrix(form, map[int]string{0: "1"}, `,"infos":["x"],"warnings":["PromQL info: metric might not be a counter"]`, `{"client":"a"}`)
	})
	if h := w.read(service(callers()), profile(), now)["callers/caller=a"]; len(h.Hours) == 0 || strings.Contains(fmt.Sprint(rules(h)), "warning") {
		t.Errorf("%d hours, problems %v", len(h.Hours), h.Problems)
	}
}

func TestWhatIsNoRateIsMissing(t *testing.T) {
	w := newWorld(t, nil)
	w.tamper = onRange(func(form url.Values) string {
		return matrix(form, map[int]string{0: "NaN", 1: "+Inf", 2: "-Inf", 3: "-1", 4: "3", 5: "0"}, "", `{"client":"a"}`)
	})
	h := w.read(service(callers()), profile(), now)["callers/caller=a"]
	if x := h.Hours[0]; x.Present != 2 || x.Max != 3 || x.Mean != 1.5 {
		t.Errorf("hour %+v, want the 3 and the 0", x)
	}
}

func TestASumWithAnUnknownPartIsUnknown(t *testing.T) {
	w := newWorld(t, nil)
	w.tamper = onRange(func(form url.Values) string {
		a := matrix(form, map[int]string{0: "1", 1: "1"}, "", `{"client":"a","method":"G"}`)
		b := matrix(form, map[int]string{0: "NaN"}, "", `{"client":"a","method":"P"}`)
		i, j := strings.Index(a, `[{`)+1, strings.LastIndex(a, `]}}`)
		k, l := strings.Index(b, `[{`)+1, strings.LastIndex(b, `]}}`)
		return a[:i] + a[i:j] + "," + b[k:l] + a[j:]
	})
	h := w.read(service(callers()), profile(), now)["callers/caller=a"]
	if x := h.Hours[0]; x.Present != 1 || x.Max != 1 {
		t.Errorf("hour %+v, want only the step of which every part is known", x)
	}
}

func TestADoubledLabelSetHoldsItsBucketOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.tamper = onRange(func(form url.Values) string {
		return matrix(form, map[int]string{0: "1"}, "", `{"client":"a"}`, `{"client":"b"}`, `{"client":"b"}`)
	})
	got := w.read(service(rlc.Bucket{Name: "a", Match: exact("a")}, rlc.Bucket{Name: "b", Match: exact("b")}), profile(), now)
	if r := fmt.Sprint(rules(got["b"])); r != "[duplicate]" || len(got["b"].Hours) != 0 {
		t.Errorf("b: %v, %d hours", got["b"].Problems, len(got["b"].Hours))
	}
	if len(got["a"].Problems) != 0 || len(got["a"].Hours) == 0 {
		t.Errorf("a: %v, %d hours", got["a"].Problems, len(got["a"].Hours))
	}
}

func TestABodyBeyondItsBoundIsRefusedNotTruncated(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxBody = 50_000 })
	f := wave(1)
	w.fill(rates(now.Add(-30*time.Hour), now, f, "client", "a"), rates(now.Add(-30*time.Hour), now, f, "client", "b"), rates(now.Add(-30*time.Hour), now, f, "client", "c"))
	// A day of three series is 100 kB: the chunks shrink until they fit.
	if h := w.read(service(callers()), profile(), now)["callers/caller=a"]; len(h.Problems) > 0 || len(h.Hours) < 30 {
		t.Errorf("%d hours, problems %v", len(h.Hours), h.Problems)
	}
	for _, small := range []func(*Config){
		func(c *Config) { c.MaxBody = 300 },
		func(c *Config) { c.MaxSeries = 2 },
		func(c *Config) { c.MaxSamples = 100 },
	} {
		c := w.reader.cfg
		small(&c)
		tight, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		was := w.reader
		w.reader = tight
		h, err := w.tryRead(t.Context(), service(callers()), profile(), now)
		if fmt.Sprint(rules(h["callers/caller=a"])) != "[budget]" {
			t.Errorf("problems %v, error %v", h["callers/caller=a"].Problems, err)
		}
		tight.Close()
		w.reader = was
	}
}

func TestARedirectToAnotherHostIsRefused(t *testing.T) {
	var reached atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer elsewhere.Close()
	w := newWorld(t, nil)
	w.tamper = func(out http.ResponseWriter, r *http.Request, _ url.Values) bool {
		http.Redirect(out, r, elsewhere.URL, http.StatusTemporaryRedirect)
		return true
	}
	if _, err := w.tryRead(t.Context(), service(callers()), profile(), now); !errors.Is(err, ErrRedirect) || reached.Load() > 0 {
		t.Errorf("%v; the other host was reached %d times", err, reached.Load())
	}
	w.tamper = func(out http.ResponseWriter, r *http.Request, _ url.Values) bool {
		if strings.HasPrefix(r.URL.Path, "/moved") {
			r.URL.Path = strings.TrimPrefix(r.URL.Path, "/moved")
			return false
		}
		http.Redirect(out, r, "/moved"+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	}
	if _, err := w.tryRead(t.Context(), service(callers()), profile(), now); err != nil {
		t.Errorf("a redirect within the host: %v", err)
	}
}

// failing answers the first n range queries (all, where n < 0) with a status.
func failing(n int, code int, after string, asked *[]time.Duration) func(http.ResponseWriter, *http.Request, url.Values) bool {
	return func(w http.ResponseWriter, _ *http.Request, form url.Values) bool {
		if form.Get("step") == "" {
			return false
		}
		start, _ := strconv.ParseFloat(form.Get("start"), 64)
		end, _ := strconv.ParseFloat(form.Get("end"), 64)
		*asked = append(*asked, time.Duration(end-start)*time.Second+time.Minute)
		if n >= 0 && len(*asked) > n {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(code)
		fmt.Fprint(w, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`)
		return true
	}
}

func TestABusyServerIsAskedForLessDownToAnHour(t *testing.T) {
	h := time.Hour
	for _, code := range []int{422, 429, 503, 502} {
		w := newWorld(t, nil)
		w.fill(rates(now.Add(-3*day).Truncate(day), now, wave(1), "client", "a"))
		s := service(callers(), rlc.Bucket{Name: "all", Role: rlc.CapRole})
		var asked []time.Duration
		w.tamper = failing(-1, code, "86400", &asked)
		got, err := w.tryRead(t.Context(), s, profile(), now)
		if err != nil && !strings.Contains(err.Error(), "too many samples") {
			t.Errorf("%d: %v", code, err)
		}
		if r := fmt.Sprint(rules(got["all"])); r != "[failed]" && err == nil {
			t.Errorf("%d: problems %v", code, got["all"].Problems)
		}
		if want := []time.Duration{24 * h, 12 * h, 6 * h, 3 * h, h, h}; fmt.Sprint(asked) != fmt.Sprint(want) {
			t.Errorf("%d: asked for %v, want %v", code, asked, want)
		}
		// It recovers: the first day in pieces, then on.
		asked = nil
		w.tamper = failing(2, code, "", &asked)
		got = w.read(s, profile(), now)
		if x := got["callers/caller=a"]; len(x.Problems) > 0 || len(x.Hours) < 3*24 {
			t.Errorf("%d: %d hours, problems %v", code, len(x.Hours), x.Problems)
		}
	}
}

func TestABadQueryFailsAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	var asked []time.Duration
	w.tamper = failing(-1, 400, "", &asked)
	_, err := w.tryRead(t.Context(), service(callers()), profile(), now)
	if !errors.Is(err, ErrQuery) || len(asked) != 1 {
		t.Errorf("asked %d times: %v", len(asked), err)
	}
}

func TestRetryAfterIsWaitedForUpToABound(t *testing.T) {
	c := &client{now: time.Now}
	for v, want := range map[string]time.Duration{"7": 7 * time.Second, "-3": 0, "x": 0, "99999999999": 1 << 20 * time.Second, "9999999": 1 << 20 * time.Second, "Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		var s *status
		if errors.As(c.status(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {v}}}, nil), &s); s.after != want {
			t.Errorf("Retry-After %q: %s, want %s", v, s.after, want)
		}
	}
}

func TestAClockThatIsOffIsAProblem(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(5 * time.Minute) } })
	w.fill(rates(now.Add(-2*day), now, always(1), "client", "a"))
	if h := w.read(service(callers()), profile(), now)["callers/caller=a"]; fmt.Sprint(rules(h)) != "[clock_skew]" {
		t.Errorf("problems %v", h.Problems)
	}
}

func TestAProfileThatCannotBeReadIsRefusedByName(t *testing.T) {
	for _, c := range []struct {
		change func(*rlc.Profile)
		says   string
	}{
		{func(p *rlc.Profile) { p.Sources = []string{`http_requests_total{service="${service}"}`} }, "http_requests_total"},
		{func(p *rlc.Profile) { p.Sources = []string{`sum by (x) (http_requests_total)`} }, "http_requests_total"},
		{func(p *rlc.Profile) { p.Sources = []string{`x{service=${service}}`} }, "outside a quoted string"},
		{func(p *rlc.Profile) { p.Sources = []string{`x{service="${service}}`} }, "not closed"},
		{func(p *rlc.Profile) { p.Sources = nil }, "names no source"},
		{func(p *rlc.Profile) { p.Step = 7 * time.Minute }, "does not divide an hour"},
	} {
		w := newWorld(t, nil)
		p := profile()
		c.change(p)
		if _, err := w.tryRead(t.Context(), service(callers()), p, now); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %s", err, c.says)
		}
		if len(w.queries) > 0 {
			t.Error("something was asked")
		}
	}
	for expr, want := range map[string]string{
		"foo_total": "foo_total", `foo_total{a="b"}`: "foo_total", "rate(foo_total[1m])": "", "job:foo_total:rate1m": "", "job:foo_total": "",
		"increase (foo_total[1m])": "", `x{a="foo_total"}`: "", "foo_totals": "", "sum(foo_total)/60": "foo_total",
	} {
		if got := rawCounter(expr); got != want {
			t.Errorf("rawCounter(%s) = %q, want %q", expr, got, want)
		}
	}
}

// names that break naive quoting.
var names = []string{
	`a"} or vector(1) or x{y="`, `\u0022`, `\`, `\\`, `a\"b`, "a'b", "a`b", "line\nbreak", "cr\rx", "nul\x00x", "bad\xff\xfeutf8", "}{", "${service}",
	"# comment", strings.Repeat("x", 64<<10), "\u202eRLO", "😀", "..", "a.*b", "(a*)*", "[", "$1", "tab\t", "\x7f", "",
}

// TestANameIsNeverQuery expands a template for a name and looks at the parsed
// tree: one selector, the same matchers, and the name itself as the value.
func TestANameIsNeverQuery(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	check := func(t interface{ Fatalf(string, ...any) }, name string) {
		for _, c := range []struct {
			template string
			kind     labels.MatchType
			raw      bool
		}{
			{`sum by (a) (rate(m{x="1",service="${service}",y='2'}[1m]))`, labels.MatchEqual, false},
			{`m{service='${service}'}`, labels.MatchEqual, false},
			{"m{service=`${service}`}", labels.MatchEqual, true},
			{`m{service != "${service}"}`, labels.MatchNotEqual, false},
			{`m{service=~"${service}"}`, labels.MatchRegexp, false},
			{`m{service !~ '${service}'} # ${service} "`, labels.MatchNotRegexp, false},
		} {
			expr, err := expand(c.template, name)
			if (c.kind == labels.MatchRegexp || c.kind == labels.MatchNotRegexp) && !utf8.ValidString(name) {
				if err == nil {
					t.Fatalf("%q in a regular expression is accepted", name)
				}
				continue
			}
			if c.raw && (strings.ContainsAny(name, "`\r\uFFFD") || !utf8.ValidString(name)) {
				if err == nil {
					t.Fatalf("%q between backticks is accepted", name)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%q in %s: %v", name, c.template, err)
			}
			tree, err := p.ParseExpr(expr)
			if err != nil {
				t.Fatalf("%q in %s gives %s: %v", name, c.template, expr, err)
			}
			selectors := parser.ExtractSelectors(tree)
			model, _ := p.ParseExpr(strings.ReplaceAll(c.template, "${service}", "plain"))
			if len(selectors) != 1 || len(selectors[0]) != len(parser.ExtractSelectors(model)[0]) {
				t.Fatalf("%q in %s gives %s", name, c.template, expr)
			}
			for _, m := range selectors[0] {
				if m.Name != "service" {
					continue
				}
				positive := c.kind == labels.MatchEqual || c.kind == labels.MatchRegexp
				if m.Type != c.kind || m.Matches(name) != positive || m.Matches(name+"x") == positive || (c.kind == labels.MatchEqual && m.Value != name) {
					t.Fatalf("%q in %s gives the matcher %s", name, c.template, m)
				}
			}
		}
	}
	for _, name := range names {
		check(t, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(names[:12]), rapid.String(), rapid.Map(rapid.Byte(), func(b byte) string { return string([]byte{b}) })), 0, 6).Draw(t, "pieces")
		check(t, strings.Join(pieces, ""))
	})
}

func TestAnOddServiceNameReadsItsOwnSeries(t *testing.T) {
	w := newWorld(t, nil)
	odd := "a\"} or x{y=\"\n\\é"
	w.fill(metric("rate1m", now.Add(-2*day), now, always(3), "service", odd, "client", "a\"b\n"), metric("rate1m", now.Add(-2*day), now, always(9), "service", "geo", "client", "z"))
	s := service(callers())
	s.Name = odd
	got := w.read(s, profile(), now)
	if h := got[rlc.QuotaID("callers", rlc.Key{"caller": "a\"b\n"})]; len(got) != 1 || len(h.Hours) < 48 || h.Hours[0].Max != 3 {
		t.Errorf("series %v", keysOf(got))
	}
}

func TestAKeyThatCannotBeWrittenDownIsLeftOut(t *testing.T) {
	w := newWorld(t, nil)
	w.tamper = onRange(func(form url.Values) string {
		return matrix(form, map[int]string{0: "1"}, "", `{"client":"a"}`, `{"client":"nul\u0000"}`, `{"client":"`+strings.Repeat("x", 2000)+`"}`)
	})
	got := w.read(service(callers()), profile(), now)
	if len(got) != 2 || len(got["callers/caller=a"].Hours) == 0 || !strings.Contains(got["callers"].Problems[0].Detail, "NUL") {
		t.Errorf("series %v", keysOf(got))
	}
}

func TestCountsLoseNoFirstSampleAndSurviveRestarts(t *testing.T) {
	w := newWorld(t, nil)
	at := time.Now().UTC().Truncate(time.Minute)
	var all []promserver.LabelledSeries
	counter := func(f func(minute int) float64, from time.Duration, labels ...string) {
		begin := at.Add(-from)
		all = append(all, metric("rlc_enforcer_requests_total", begin, at, func(t time.Time) float64 { return f(int(t.Sub(begin) / time.Minute)) },
			append([]string{"service", "geo", "bucket", "callers"}, labels...)...))
	}
	counter(func(m int) float64 { return float64(100 + 10*m) }, 48*time.Hour, "caller", "a", "outcome", "admit")          // 1440 × 10 in a day
	counter(func(m int) float64 { return float64(7 + m) }, 10*time.Minute, "caller", "a", "outcome", "virtual_drop")      // young: 7 + 9
	counter(func(m int) float64 { return float64(m % 720) }, 48*time.Hour, "caller", "b", "outcome", "drop")              // resets to 0 every 12 h
	counter(func(m int) float64 { return 5 }, 30*time.Minute, "caller", "b", "procedure", "P", "outcome", "virtual_drop") // young and still: 5
	w.fill(append(all, metric("rlc_enforcer_requests_total", at.Add(-time.Hour), at, always(3), "service", "geo", "bucket", "__unmatched__", "outcome", "admit"))...)
	each := map[string][]string{"callers": {"caller"}}
	w.reader.cfg.Each = func(_, bucket string) ([]string, bool) { e, ok := each[bucket]; return e, ok }
	got, err := w.reader.Counts(t.Context(), "geo", day, at)
	if err != nil {
		t.Fatal(err)
	}
	want := []rlc.Count{
		{Service: "geo", Bucket: "__unmatched__", Offered: 3},
		{Service: "geo", Bucket: "callers", Key: rlc.Key{"caller": "a"}, Offered: 14400 + 16, VirtualDrops: 16},
		{Service: "geo", Bucket: "callers", Key: rlc.Key{"caller": "b"}, Offered: 1438 + 5, Drops: 1438, VirtualDrops: 5},
	}
	if len(got) != len(want) {
		t.Fatalf("counts %+v", got)
	}
	for i, g := range got {
		x := want[i]
		near := func(a, b float64) bool { return math.Abs(a-b) <= 2 } // a restarted counter is extrapolated
		if g.Bucket != x.Bucket || !g.Key.Equal(x.Key) || !near(g.Offered, x.Offered) || !near(g.Drops, x.Drops) || g.VirtualDrops != x.VirtualDrops {
			t.Errorf("%+v, want %+v", g, x)
		}
	}
	got, err = w.reader.Counts(t.Context(), "", day, at)
	if err != nil || len(got) != 2 || got[1].Key != nil || got[1].VirtualDrops != 21 {
		t.Errorf("of all services: %+v, %v", got, err)
	}
}

func TestOverridesAreCountedEachByItsID(t *testing.T) {
	w := newWorld(t, nil)
	at := time.Now().UTC().Truncate(time.Minute)
	counter := func(value float64, rise float64, labels ...string) promserver.LabelledSeries {
		begin := at.Add(-4 * time.Minute)
		return metric("rlc_enforcer_override_requests_total", begin, at, func(t time.Time) float64 { return value + rise*t.Sub(begin).Minutes() }, append([]string{"service", "geo"}, labels...)...)
	}
	w.fill(
		counter(0, 10, "override", "a", "outcome", "drop", "instance", "1"),
		counter(3, 1, "override", "a", "outcome", "drop", "instance", "2"),
		counter(0, 2, "override", "a", "outcome", "admit", "instance", "1"),
		counter(0, 0, "override", "b", "outcome", "drop", "instance", "1"),
		counter(0, 0, "override", "b", "outcome", "admit", "instance", "1"),
	)
	got, err := w.reader.OverrideCounts(t.Context(), 5*time.Minute, at)
	want := map[string]rlc.OverrideCount{"a": {Judged: 42, Drops: 36}, "b": {}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	w.http.Close()
	if _, err := w.reader.OverrideCounts(t.Context(), time.Minute, at); !errors.Is(err, ErrUnreachable) {
		t.Errorf("without Prometheus: %v", err)
	}
}

func TestTheURLMustBeOne(t *testing.T) {
	for _, u := range []string{"", "localhost:9090", "file:///etc/passwd", "http://", "ftp://x"} {
		if _, err := New(Config{URL: u, Store: newWorld(t, nil).store}); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%q: %v", u, err)
		}
	}
	if _, err := New(Config{URL: "http://x"}); err == nil {
		t.Error("no store is accepted")
	}
}
