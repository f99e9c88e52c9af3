package httplimit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/httplimit"
	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// decides makes an enforcer with one service "s" on a clock that stands still;
// body are its policy's lines.
func decides(t testing.TB, c enforcer.Config, body string) *enforcer.Enforcer {
	t.Helper()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	if c.Now == nil {
		c.Now = func() time.Time { return noon }
	}
	e, err := enforcer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 7}, Files: rlc.Files{
		"services/s/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\n" + body),
	}}); err != nil {
		t.Fatal(err)
	}
	return e
}

// byCaller admits two requests of each caller.
const byCaller = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.5, burst: 2}}\n"

func limiter(t testing.TB, c httplimit.Config) *httplimit.Limiter {
	t.Helper()
	c.Service = "s"
	l, err := httplimit.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") })

// fixed makes every request caller a's.
func fixed(r *http.Request, attrs rlc.Attributes) { attrs["caller"] = "a" }

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func get() *http.Request { return httptest.NewRequest("GET", "/x", nil) }

func TestEveryAnswerOfALimitedBucketTellsHowItStands(t *testing.T) {
	h := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{PagesURL: "https://rlc.example"}, byCaller), Attributes: fixed}).Wrap(hello)
	bodies := map[string]bool{}
	for i := range 20 {
		rec := serve(h, get())
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			list, err := httpsfv.UnmarshalList(rec.Header().Values(name))
			if err != nil || len(list) != 1 || list[0].(httpsfv.Item).Value != "s/callers" {
				t.Fatalf("%s: %q: %v", name, rec.Header().Values(name), err)
			}
		}
		if i < 2 {
			if rec.Code != 200 || rec.Body.String() != "hello" || rec.Header().Get("Retry-After") != "" {
				t.Errorf("request %d: %d %q %v", i, rec.Code, rec.Body, rec.Header())
			}
			continue
		}
		after, err := strconv.Atoi(rec.Header().Get("Retry-After"))
		if rec.Code != 429 || err != nil || after < 2 || after > 4 {
			t.Fatalf("request %d: %d %v", i, rec.Code, rec.Header())
		}
		if rec.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(rec.Header().Get("Link"), "/services/s/buckets/callers?key=caller%3Da") {
			t.Errorf("request %d: %v", i, rec.Header())
		}
		bodies[rec.Body.String()] = true
	}
	if len(bodies) != 1 {
		t.Errorf("refusals differ: %v", bodies)
	}
	for body := range bodies {
		if len(body) > 200 {
			t.Errorf("a refusal has %d bytes", len(body))
		}
	}
}

func TestAShadowBucketIsNotSeen(t *testing.T) {
	var heard []enforcer.Outcome
	h := limiter(t, httplimit.Config{
		Enforcer: decides(t, enforcer.Config{}, strings.Replace(byCaller, "enforce", "shadow", 1)), Attributes: fixed,
		Observe: func(_ string, _ enforcer.Request, d enforcer.Decision) { heard = append(heard, d.Outcome) },
	}).Wrap(hello)
	for range 3 {
		rec := serve(h, get())
		if rec.Code != 200 || rec.Header().Get("RateLimit") != "" || rec.Header().Get("RateLimit-Policy") != "" {
			t.Errorf("%d %v", rec.Code, rec.Header())
		}
	}
	if fmt.Sprint(heard) != "[admit admit virtual_drop]" {
		t.Errorf("heard %v", heard)
	}
}

// caller is who the limiter takes a request's sender for.
func caller(t *testing.T, c httplimit.Config, r *http.Request) string {
	t.Helper()
	c.Enforcer = decides(t, enforcer.Config{}, byCaller)
	got := ""
	c.Observe = func(_ string, r enforcer.Request, _ enforcer.Decision) { got = r.Attributes["caller"] }
	serve(limiter(t, c).Wrap(hello), r)
	return got
}

func TestAHeaderNamesTheCallerForListedPeersOnly(t *testing.T) {
	c := httplimit.Config{CallerHeader: "X-Caller", PeerAddresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, PeerNames: []string{"gateway"}}
	for what, x := range map[string]struct {
		from    string
		headers []string
		want    string
	}{
		"a listed address":         {"10.1.2.3:4", []string{"search"}, "search"},
		"a listed address as IPv6": {"[::ffff:10.1.2.3]:4", []string{"search"}, "search"},
		"any other":                {"192.0.2.1:4", []string{"search"}, ""},
		"two headers":              {"10.1.2.3:4", []string{"search", "admin"}, ""},
		"none":                     {"10.1.2.3:4", nil, ""},
		"no address":               {"@", []string{"search"}, ""},
	} {
		r := get()
		r.RemoteAddr = x.from
		for _, v := range x.headers {
			r.Header.Add("X-Caller", v)
		}
		if got := caller(t, c, r); got != x.want {
			t.Errorf("%s: %q, want %q", what, got, x.want)
		}
	}
	r := get()
	r.RemoteAddr = "10.1.2.3:4"
	r.Header.Set("X-Caller", "search")
	if got := caller(t, httplimit.Config{}, r); got != "" {
		t.Errorf("without a header configured: %q", got)
	}
}

func TestTheVerifiedPeerIsTheCaller(t *testing.T) {
	ca := mtlstest.New(t)
	var got string
	l := limiter(t, httplimit.Config{
		Enforcer: decides(t, enforcer.Config{}, byCaller), CallerHeader: "X-Caller", PeerNames: []string{"gateway"},
		Observe: func(peer string, r enforcer.Request, _ enforcer.Decision) {
			got = peer + " for " + r.Attributes["caller"]
		},
	})
	server := httptest.NewUnstartedServer(l.Wrap(hello))
	pair, err := tls.X509KeyPair(ca.Issue(t, "server", time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: ca.Pool(), ClientAuth: tls.VerifyClientCertIfGiven}
	server.StartTLS()
	defer server.Close()
	for name, want := range map[string]string{"gateway": "gateway for search", "spiffe://mesh/web": "spiffe://mesh/web for spiffe://mesh/web", "": " for "} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(t, name), DisableKeepAlives: true}}
		r, _ := http.NewRequest("GET", server.URL, nil)
		r.Header.Set("X-Caller", "search")
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestTheProcedureIsThePattern(t *testing.T) {
	var got string
	l := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{}, byCaller), Observe: func(_ string, r enforcer.Request, _ enforcer.Decision) { got = r.Attributes["procedure"] }})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", hello)
	inside := http.NewServeMux()
	inside.Handle("GET /users/{id}", l.Wrap(hello))
	for what, x := range map[string]struct {
		h          http.Handler
		path, want string
	}{
		"around a mux":             {l.Wrap(mux), "/users/7", "GET /users/{id}"},
		"inside a mux":             {inside, "/users/7", "GET /users/{id}"},
		"nothing the mux knows":    {l.Wrap(mux), "/else", "/else"},
		"around any other handler": {l.Wrap(hello), "/users/7", "/users/7"},
	} {
		serve(x.h, httptest.NewRequest("GET", x.path, nil))
		if got != x.want {
			t.Errorf("%s: %q, want %q", what, got, x.want)
		}
	}
}

// inFlight admits one request at a time.
const inFlight = "defaults: {mode: enforce}\nbuckets:\n  - {name: one, role: cap, algorithm: concurrency, limit: {concurrent: 1, timeout: 30s}}\n"

func TestAPlaceInFlightIsFreeWhenTheHandlerEnds(t *testing.T) {
	entered, let := make(chan struct{}), make(chan struct{})
	l := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{}, inFlight)})
	slow := l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-let
	}))
	first := make(chan int)
	go func() { first <- serve(slow, get()).Code }()
	<-entered
	rec := serve(l.Wrap(hello), get())
	if rec.Code != 503 || rec.Header().Get("Retry-After") == "" || rec.Header().Get("RateLimit") != "" || !strings.Contains(rec.Body.String(), "sheds load") {
		t.Errorf("a second one meanwhile: %d %v", rec.Code, rec.Header())
	}
	close(let)
	if code := <-first; code != 200 {
		t.Errorf("the first: %d", code)
	}
	if code := serve(l.Wrap(hello), get()).Code; code != 200 {
		t.Errorf("after it: %d", code)
	}
}

func TestAPanicPassesThroughAndHoldsNothing(t *testing.T) {
	l := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{}, inFlight)})
	func() {
		defer func() {
			if cause := recover(); cause != http.ErrAbortHandler {
				t.Errorf("recovered %v", cause)
			}
		}()
		serve(l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })), get())
	}()
	if code := serve(l.Wrap(hello), get()).Code; code != 200 {
		t.Errorf("after the panic: %d", code)
	}
}

func TestACostKnownAfterwardsIsReadFromTheAnswer(t *testing.T) {
	const policy = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], cost: {from: response_header, name: X-Cost, reserve: 10}, limit: {rate: 0.001, burst: 100}}\n"
	l := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{}, policy), Attributes: fixed})
	left := func(cost string) string {
		rec := serve(l.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if cost != "" {
				w.Header().Set("X-Cost", cost)
			}
		})), get())
		list, err := httpsfv.UnmarshalList(rec.Header().Values("RateLimit"))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := list[0].(httpsfv.Item).Params.Get("r")
		return fmt.Sprint(r)
	}
	for i, step := range []struct{ got, want string }{
		{left("3"), "90"},    // reserves 10, costs 3: 97 are left
		{left("25"), "87"},   // reserves 10, costs 25: 72
		{left("0"), "62"},    // nothing: 72
		{left(""), "62"},     // does not say: 62
		{left("many"), "52"}, // nonsense: 52
		{left("-5"), "42"},   // negative: 42
		{left("1"), "32"},
	} {
		if step.got != step.want {
			t.Errorf("step %d: r=%s, want %s", i, step.got, step.want)
		}
	}
}

const paced = "defaults: {mode: enforce}\nbuckets:\n  - {name: all, role: cap, algorithm: leaky_bucket, limit: {rate: 1, burst: 10}}\n"

func TestALeakyBucketIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{Now: time.Now}, paced)}).Wrap(hello)
		var wg sync.WaitGroup
		var mu sync.Mutex
		passed := map[time.Duration]int{}
		for range 4 {
			wg.Go(func() {
				if code := serve(h, get()).Code; code != 200 {
					t.Errorf("answered %d", code)
				}
				mu.Lock()
				passed[time.Since(began)]++
				mu.Unlock()
			})
		}
		wg.Wait()
		// 1/s: the first at once, the others a second apart.
		if want := map[time.Duration]int{0: 1, time.Second: 1, 2 * time.Second: 1, 3 * time.Second: 1}; !maps.Equal(passed, want) {
			t.Errorf("passed after %v, want %v", passed, want)
		}
	})
}

func TestAClientThatLeavesWhileItWaitsIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		h := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{Now: time.Now}, paced)}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		serve(h, get())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		serve(h, get().WithContext(ctx))
		if served != 1 || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%d served, left after %v", served, time.Since(began))
		}
	})
}

// down is a store that does not answer.
type down struct{}

func (down) Set([]gcra.Charge) enforcer.Set { return down{} }
func (down) Take(context.Context, int64, int64) (gcra.Tally, error) {
	return gcra.Tally{}, errors.New("down")
}

func TestABucketThatFailsClosedShedsLoad(t *testing.T) {
	h := limiter(t, httplimit.Config{
		Enforcer:   decides(t, enforcer.Config{Counter: down{}}, strings.Replace(byCaller, "each: [caller],", "each: [caller], on_failure: closed,", 1)),
		Attributes: fixed,
	}).Wrap(hello)
	rec := serve(h, get())
	if after, err := strconv.Atoi(rec.Header().Get("Retry-After")); rec.Code != 503 || err != nil || after < 1 {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
}

func TestWhatCannotLimitIsRefused(t *testing.T) {
	e := decides(t, enforcer.Config{}, byCaller)
	for _, c := range []httplimit.Config{{}, {Service: "s"}, {Enforcer: e}, {Enforcer: e, Service: "s", CallerHeader: "X-Caller"}} {
		if _, err := httplimit.New(c); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The limiter's own work: the fields' text, the slice of their values, and the
// header's map, which a server makes anyway.
func TestAnAdmittedRequestTakesTwoAllocations(t *testing.T) {
	h := limiter(t, httplimit.Config{Enforcer: decides(t, enforcer.Config{}, manyByCaller), Attributes: fixed}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w, r := &recorder{h: http.Header{}}, get()
	h.ServeHTTP(w, r)
	if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); n > 2 {
		t.Errorf("%g allocations", n)
	}
}

const manyByCaller = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 1000000, burst: 100000000}}\n"

// recorder is a ResponseWriter that keeps its header's map.
type recorder struct{ h http.Header }

func (w *recorder) Header() http.Header         { return w.h }
func (w *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (w *recorder) WriteHeader(int)             {}

func BenchmarkWrap(b *testing.B) {
	for _, x := range []struct{ name, policy string }{{"admitted", manyByCaller}, {"refused", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.0001, burst: 1}}\n"}} {
		b.Run(x.name, func(b *testing.B) {
			h := limiter(b, httplimit.Config{Enforcer: decides(b, enforcer.Config{Now: time.Now}, x.policy), Attributes: fixed}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			w, r := &recorder{h: http.Header{}}, get()
			h.ServeHTTP(w, r)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
