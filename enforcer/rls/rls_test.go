package rls_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/rls"
)

// decides makes an enforcer with one service "s" on a clock that stands still;
// body are its policy's lines.
func decides(t testing.TB, c enforcer.Config, body string, files ...string) *enforcer.Enforcer {
	t.Helper()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	if c.Now == nil {
		c.Now = func() time.Time { return noon }
	}
	e, err := enforcer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(snapshotOf(body, files...)); err != nil {
		t.Fatal(err)
	}
	return e
}

// snapshotOf holds service "s" and more files, by path and text.
func snapshotOf(body string, files ...string) rlc.Snapshot {
	all := rlc.Files{"services/s/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\n" + body)}
	for i := 0; i < len(files); i += 2 {
		all[files[i]] = []byte(files[i+1])
	}
	return rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 7}, Files: all}
}

// listen serves c on a free port until the test ends.
func listen(t testing.TB, c rls.Config) (addr string, stop func() error) {
	t.Helper()
	s, err := rls.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	ended := false
	stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-served
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), stop
}

func dial(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if len(options) == 0 {
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	conn, err := grpc.NewClient(addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// client asks a server made of c, whose counters are in process.
func client(t testing.TB, c rls.Config) pb.RateLimitServiceClient {
	t.Helper()
	addr, _ := listen(t, c)
	return pb.NewRateLimitServiceClient(dial(t, addr))
}

// describe is a descriptor of keys and values.
func describe(kv ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(kv); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: kv[i], Value: kv[i+1]})
	}
	return d
}

func hits(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func ask(t testing.TB, c pb.RateLimitServiceClient, ds ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	t.Helper()
	out, err := c.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "s", Descriptors: ds})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// codesOf are the overall code, then each status's.
func codesOf(r *pb.RateLimitResponse) string {
	all := []string{r.OverallCode.String()}
	for _, s := range r.Statuses {
		all = append(all, s.Code.String())
	}
	return strings.Join(all, " ")
}

func wantAnswer(t testing.TB, got *pb.RateLimitResponse, want string) {
	t.Helper()
	var w pb.RateLimitResponse
	if err := protojson.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if protojson.Format(got) != protojson.Format(&w) {
		t.Errorf("got  %s\nwant %s", protojson.Format(got), protojson.Format(&w))
	}
}

const enforcing = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.5, burst: 2}}\n"

func TestAnswersSayWhatTheEnforcerDecided(t *testing.T) {
	c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, enforcing)})
	// 0.5/s with burst 2 on a clock that stands still: two, then a wait of 2 s.
	// In Envoy's units, 0.5/s is 30 a minute; five in ten seconds are a window's
	// worth, but the burst is all there can be: (2-1)/0.5 = 2 s.
	wantAnswer(t, ask(t, c, describe("caller", "a")), `{"overallCode":"OK",
		"statuses":[{"code":"OK","currentLimit":{"name":"callers","requestsPerUnit":30,"unit":"MINUTE"},"limitRemaining":1,"durationUntilReset":"2s"}],
		"dynamicMetadata":{"bucket":"callers","outcome":"admit","snapshot":"1.7"}}`)
	ask(t, c, describe("caller", "a"))
	wantAnswer(t, ask(t, c, describe("caller", "a")), `{"overallCode":"OVER_LIMIT",
		"statuses":[{"code":"OVER_LIMIT","currentLimit":{"name":"callers","requestsPerUnit":30,"unit":"MINUTE"},"limitRemaining":0,"durationUntilReset":"2s"}],
		"dynamicMetadata":{"bucket":"callers","outcome":"drop","snapshot":"1.7"}}`)
	// Statuses keep the descriptors' order; what nothing limits has no limit.
	wantAnswer(t, ask(t, c, describe("procedure", "Get"), describe("caller", "a"), describe("caller", "b")), `{"overallCode":"OVER_LIMIT","statuses":[
		{"code":"OK","limitRemaining":4294967295},
		{"code":"OVER_LIMIT","currentLimit":{"name":"callers","requestsPerUnit":30,"unit":"MINUTE"},"limitRemaining":0,"durationUntilReset":"2s"},
		{"code":"OK","currentLimit":{"name":"callers","requestsPerUnit":30,"unit":"MINUTE"},"limitRemaining":1,"durationUntilReset":"2s"}],
		"dynamicMetadata":{"bucket":"callers","outcome":"drop","snapshot":"1.7"}}`)
}

func TestADomainWithoutAPolicyIsAdmitted(t *testing.T) {
	c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, enforcing)})
	out, err := c.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "else", Descriptors: []*common.RateLimitDescriptor{describe("caller", "a")}})
	if err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, out, `{"overallCode":"OK","statuses":[{"code":"OK","limitRemaining":4294967295}],"dynamicMetadata":{"bucket":"","outcome":"admit","snapshot":"1.7"}}`)
}

func TestHitsAddendIsTheCost(t *testing.T) {
	c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.001, burst: 10}}\n")})
	remaining := func(addend uint32, d *common.RateLimitDescriptor) string {
		out, err := c.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "s", HitsAddend: addend, Descriptors: []*common.RateLimitDescriptor{d}})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(out.Statuses[0].Code, " ", out.Statuses[0].LimitRemaining)
	}
	negative := hits(describe("caller", "a"), 5)
	negative.IsNegativeHits = true
	for i, step := range []struct {
		got, want string
	}{
		{remaining(0, describe("caller", "a")), "OK 9"},                      // unset is 1
		{remaining(3, describe("caller", "a")), "OK 6"},                      // the request's
		{remaining(3, hits(describe("caller", "a"), 1)), "OK 5"},             // the descriptor's own wins
		{remaining(3, hits(describe("caller", "a"), 0)), "OK 5"},             // an explicit 0 looks
		{remaining(1, negative), "OK 5"},                                     // and nothing mints tokens
		{remaining(6, describe("caller", "a")), "OVER_LIMIT 5"},              // more than is left takes none
		{remaining(5, describe("caller", "a")), "OK 0"},                      // so that five were left
		{remaining(0, hits(describe("caller", "a"), 0)), "OVER_LIMIT 0"},     // a look at nothing
		{remaining(0, hits(describe("caller", "b"), 1e11)), "OVER_LIMIT 10"}, // never
	} {
		if step.got != step.want {
			t.Errorf("step %d: %s, want %s", i, step.got, step.want)
		}
	}
}

func TestShadowNeverShowsThatItIsOverItsLimit(t *testing.T) {
	c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, strings.Replace(enforcing, "enforce", "shadow", 1)), Headers: true})
	for i, outcome := range []string{"admit", "admit", "virtual_drop"} {
		wantAnswer(t, ask(t, c, describe("caller", "a")), `{"overallCode":"OK","statuses":[{"code":"OK","limitRemaining":4294967295}],
			"dynamicMetadata":{"bucket":"callers","outcome":"`+outcome+`","snapshot":"1.7"},
			"responseHeadersToAdd":[{"key":"X-Rlc-Snapshot","value":"1.7"}]}`)
		if t.Failed() {
			t.Fatalf("request %d", i)
		}
	}
}

func TestResponseHeadersAreStructuredFields(t *testing.T) {
	c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{PagesURL: "https://rlc.example"}, enforcing), Headers: true})
	for i := range 3 {
		got := map[string]string{}
		for _, h := range ask(t, c, describe("caller", "a")).ResponseHeadersToAdd {
			got[h.Key] = h.Value
		}
		for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
			if _, err := httpsfv.UnmarshalList([]string{got[name]}); err != nil {
				t.Errorf("%s: %q: %v", name, got[name], err)
			}
		}
		if _, told := got["Retry-After"]; told != (i == 2) || (got["Link"] != "") != (i == 2) {
			t.Errorf("request %d: %v", i, got)
		}
	}
}

func TestAnOverrideOnACallerLinksToWhyThatCallerIsRefused(t *testing.T) {
	for match, link := range map[string]string{`{"caller":"a"}`: "/why?caller=a&service=s", `{}`: "/emergency"} {
		e := decides(t, enforcer.Config{PagesURL: "https://rlc.example"}, enforcing)
		if err := e.LoadOverrides(rlc.Version{Epoch: 1, Number: 1}, []byte(`{"overrides":[{"id":"o1","service":"s","match":`+match+`,"action":"block","from":"2026-11-02T12:00:00Z","until":"2026-11-02T13:00:00Z","actor":"ana","reason":"INC-1"}]}`)); err != nil {
			t.Fatal(err)
		}
		got := ask(t, client(t, rls.Config{Enforcer: e, Headers: true}), describe("caller", "a"))
		last := got.ResponseHeadersToAdd[len(got.ResponseHeadersToAdd)-1]
		if want := "<https://rlc.example" + link + `>; rel="help"`; got.OverallCode != pb.RateLimitResponse_OVER_LIMIT || last.Key != "Link" || last.Value != want {
			t.Errorf("%s: %v, want %s", match, got, want)
		}
	}
}

func TestDescriptorsAreNamedByTheServicesProfile(t *testing.T) {
	e := decides(t, enforcer.Config{}, "profile: mesh\n"+enforcing, "profiles/mesh.yaml", `apiVersion: rlc/v1
kind: Profile
name: mesh
attributes:
  caller: {metric: app, descriptor: remote_app}
history: {step: 1m, sources: ['x{s="${service}"}']}
`)
	c := client(t, rls.Config{Enforcer: e})
	for range 2 {
		ask(t, c, describe("remote_app", "a"))
	}
	for what, want := range map[string]struct {
		d    *common.RateLimitDescriptor
		code string
	}{
		"the profile's name":                  {describe("remote_app", "a"), "OVER_LIMIT OVER_LIMIT"},
		"the attribute's own says nothing":    {describe("caller", "a"), "OK OK"},
		"and cannot change what the other is": {describe("caller", "b", "remote_app", "a"), "OVER_LIMIT OVER_LIMIT"},
		"a key twice is one joined value":     {describe("remote_app", "a", "remote_app", "a"), "OK OK"},
	} {
		if got := codesOf(ask(t, c, want.d)); got != want.code {
			t.Errorf("%s: %s", what, got)
		}
	}
}

func TestLimitsAreToldInTheNearestUnit(t *testing.T) {
	for limit, want := range map[string]string{
		"{rate: 1840, burst: 3}":           `{"name":"callers","requestsPerUnit":1840,"unit":"SECOND"}`,
		"{rate: 0.5, burst: 2}":            `{"name":"callers","requestsPerUnit":30,"unit":"MINUTE"}`,
		"{rate: 61.3, burst: 2}":           `{"name":"callers","requestsPerUnit":3678,"unit":"MINUTE"}`,
		"{rate: 0.01, burst: 1}":           `{"name":"callers","requestsPerUnit":36,"unit":"HOUR"}`,
		"{rate: 0.3333333, burst: 1}":      `{"name":"callers","requestsPerUnit":20,"unit":"MINUTE"}`,
		"{rate: 0.00001, burst: 1}":        `{"name":"callers","requestsPerUnit":1,"unit":"DAY"}`,
		"{rate: 99999999999, burst: 9}":    `{"name":"callers","requestsPerUnit":4294967295,"unit":"SECOND"}`,
		"{rate: 3000000000.5, burst: 9}":   `{"name":"callers","requestsPerUnit":3000000001,"unit":"SECOND"}`,
		"{rate: 0.000005, burst: 1}":       `{"name":"callers","requestsPerUnit":3,"unit":"WEEK"}`,
		"{rate: 0.0000005, burst: 1}":      `{"name":"callers","requestsPerUnit":1,"unit":"MONTH"}`,
		"{rate: 0.0000001, burst: 1}":      `{"name":"callers","requestsPerUnit":3,"unit":"YEAR"}`,
		"{rate: 0, burst: 0}":              `{"name":"callers","requestsPerUnit":0,"unit":"DAY"}`,
		"{rate: 5, burst: 99999999999}":    `{"name":"callers","requestsPerUnit":5,"unit":"SECOND"}`,
		"{rate: 0.0115740741, burst: 100}": `{"name":"callers","requestsPerUnit":1000,"unit":"DAY"}`,
	} {
		c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: "+limit+"}\n")})
		got := ask(t, c, describe("caller", "a")).Statuses[0]
		var w pb.RateLimitResponse_RateLimit
		if err := protojson.Unmarshal([]byte(want), &w); err != nil {
			t.Fatal(err)
		}
		if protojson.Format(got.CurrentLimit) != protojson.Format(&w) {
			t.Errorf("%s: %v, want %s", limit, got.CurrentLimit, want)
		}
		if strings.Contains(limit, "burst: 99999999999") && got.LimitRemaining != math.MaxUint32 {
			t.Errorf("%s: remaining %d is not clamped", limit, got.LimitRemaining)
		}
	}
}

func TestWindowsAreToldAsTheyAre(t *testing.T) {
	c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, `defaults: {mode: enforce}
buckets:
  - {name: daily, each: [caller], algorithm: fixed_window, limit: {requests: 2, per: day}}
`), Headers: true})
	// The clock stands at noon: the day ends in twelve hours, and nobody is told
	// to wait longer than one.
	for i, want := range []string{
		`{"code":"OK","currentLimit":{"name":"daily","requestsPerUnit":2,"unit":"DAY"},"limitRemaining":1,"durationUntilReset":"3600s"}`,
		`{"code":"OK","currentLimit":{"name":"daily","requestsPerUnit":2,"unit":"DAY"},"limitRemaining":0,"durationUntilReset":"3600s"}`,
		`{"code":"OVER_LIMIT","currentLimit":{"name":"daily","requestsPerUnit":2,"unit":"DAY"},"limitRemaining":0,"durationUntilReset":"3600s"}`,
	} {
		out := ask(t, c, describe("caller", "a"))
		var w pb.RateLimitResponse_DescriptorStatus
		if err := protojson.Unmarshal([]byte(want), &w); err != nil {
			t.Fatal(err)
		}
		if protojson.Format(out.Statuses[0]) != protojson.Format(&w) {
			t.Errorf("request %d: %v, want %s", i, out.Statuses[0], want)
		}
		if got := out.ResponseHeadersToAdd[0]; got.Key != "Ratelimit-Policy" || got.Value != `"s/daily";q=2;w=86400` {
			t.Errorf("request %d: %v", i, got)
		}
	}
}

// down is a store that does not answer.
type down struct{}

func (down) Set([]gcra.Charge) enforcer.Set { return down{} }
func (down) Take(context.Context, int64, int64) (gcra.Tally, error) {
	return gcra.Tally{}, errors.New("down")
}

func TestAStoreThatIsDownIsUnavailableForBucketsThatFailClosed(t *testing.T) {
	e := decides(t, enforcer.Config{Counter: down{}}, `defaults: {mode: enforce}
buckets:
  - {name: logins, match: {procedure: Login}, on_failure: closed, limit: {rate: 10, burst: 10}}
  - {name: reads, match: {procedure: Get}, on_failure: open, limit: {rate: 0.001, burst: 1}}
`)
	c := client(t, rls.Config{Enforcer: e})
	login, get := describe("procedure", "Login"), describe("procedure", "Get")
	_, err := c.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{get, login}})
	if s, _ := status.FromError(err); s.Code() != codes.Unavailable || !strings.Contains(s.Message(), "logins") {
		t.Errorf("one that fails closed: %v", err)
	}
	if got := codesOf(ask(t, c, get)); got != "OVER_LIMIT OVER_LIMIT" {
		t.Errorf("one that is open is bounded too: %s", got)
	}
	// What is over its limit anyway needs no store to be told.
	if got := codesOf(ask(t, c, login, get)); got != "OVER_LIMIT OVER_LIMIT OVER_LIMIT" {
		t.Errorf("both: %s", got)
	}
}

func TestRequestsThatSayNothingAreInvalid(t *testing.T) {
	c := client(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, enforcing)})
	many := make([]*common.RateLimitDescriptor, 65)
	for i := range many {
		many[i] = describe("caller", "a")
	}
	wide := &common.RateLimitDescriptor{}
	for i := range 65 {
		wide.Entries = append(wide.Entries, &common.RateLimitDescriptor_Entry{Key: fmt.Sprint("k", i)})
	}
	for _, x := range []struct {
		in   *pb.RateLimitRequest
		code codes.Code
		want string
	}{
		{&pb.RateLimitRequest{Descriptors: many[:1]}, codes.InvalidArgument, "domain is missing"},
		{&pb.RateLimitRequest{Domain: strings.Repeat("d", 2000), Descriptors: many[:1]}, codes.InvalidArgument, "domain is longer"},
		{&pb.RateLimitRequest{Domain: "s"}, codes.InvalidArgument, "descriptors are missing"},
		{&pb.RateLimitRequest{Domain: "s", Descriptors: many}, codes.InvalidArgument, "65 descriptors"},
		{&pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{wide}}, codes.InvalidArgument, "65 entries"},
		{&pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{describe("", "x")}}, codes.InvalidArgument, "key has 0 bytes"},
		{&pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{hits(describe("caller", "a"), 1e11+1)}}, codes.InvalidArgument, "hits_addend 100,000,000,001"},
		{&pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{hits(describe("caller", "a"), math.MaxUint64)}}, codes.InvalidArgument, "hits_addend"},
		{&pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{describe("caller", strings.Repeat("x", 70_000))}}, codes.ResourceExhausted, "larger than max"},
	} {
		_, err := c.ShouldRateLimit(t.Context(), x.in)
		if s, _ := status.FromError(err); s.Code() != x.code || !strings.Contains(s.Message(), x.want) {
			t.Errorf("got %v, want %v %q", err, x.code, x.want)
		}
	}
	// An attribute without entries is a request without attributes.
	if got := codesOf(ask(t, c, describe())); got != "OK OK" {
		t.Errorf("a descriptor without entries: %s", got)
	}
}

// silent is a store that never answers.
type silent struct{}

func (silent) Set([]gcra.Charge) enforcer.Set { return silent{} }

func (silent) Take(ctx context.Context, _, _ int64) (gcra.Tally, error) {
	<-ctx.Done()
	return gcra.Tally{}, ctx.Err()
}

func TestAStoreThatNeverAnswersIsDecidedWithoutBeforeEnvoyGivesUp(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	metrics := prometheus.NewRegistry()
	s, err := rls.New(rls.Config{Enforcer: decides(t, enforcer.Config{Counter: silent{}, Registerer: metrics}, `defaults: {mode: enforce}
buckets:
  - {name: logins, match: {procedure: Login}, on_failure: closed, limit: {rate: 10, burst: 10}}
  - {name: reads, match: {procedure: Get}, on_failure: open, limit: {rate: 0.001, burst: 1}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	metrics.MustRegister(s)
	in := &pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{describe("procedure", "Get"), describe("procedure", "Get")}}
	if out, err := s.ShouldRateLimit(t.Context(), in); err != nil || len(out.Statuses) != 2 || out.OverallCode != pb.RateLimitResponse_OVER_LIMIT {
		t.Errorf("two of a bucket that is open, burst 1: %v, %v", out, err)
	}
	in.Descriptors = append(in.Descriptors[:1], describe("procedure", "Login"))
	in.Descriptors[0].Entries[0].Value = "other"
	if _, err := s.ShouldRateLimit(t.Context(), in); status.Code(err) != codes.Unavailable {
		t.Errorf("one that fails closed: %v", err)
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "reason" && m.Counter.GetValue() > 0 {
					got[f.GetName()+" "+l.GetValue()] += m.Counter.GetValue()
				}
			}
			if f.GetName() == "rlc_enforcer_rls_late_total" {
				got[f.GetName()] = m.Counter.GetValue()
			}
		}
	}
	if want := map[string]float64{"rlc_enforcer_rls_late_total": 2, "rlc_enforcer_fallbacks_total timeout": 3}; !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// Descriptors beyond the first are decided in goroutines of their own, where
// nobody but the server can catch a panic.
func TestAPanicOfWhoHearsADecisionStopsNothing(t *testing.T) {
	heard := make(chan string, 3)
	c := client(t, rls.Config{
		Enforcer: decides(t, enforcer.Config{}, "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.001, burst: 1}}\n"),
		Observe: func(_ string, r enforcer.Request, _ enforcer.Decision) {
			heard <- r.Attributes["caller"]
			panic("a bug in the access log")
		},
	})
	if got := codesOf(ask(t, c, describe("caller", "a"), describe("caller", "b"), describe("caller", "a"))); !strings.Contains(got, "OVER_LIMIT") || strings.Count(got, "OK") != 2 {
		t.Errorf("three descriptors: %s, want the second of caller a refused", got)
	}
	if len(heard) != 3 {
		t.Errorf("%d decisions heard of", len(heard))
	}
}
