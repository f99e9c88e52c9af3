package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/grpclimit"
)

// decides makes an enforcer with one service "s" on a clock that stands still;
// body are its policy's lines.
func decides(t testing.TB, body string) *enforcer.Enforcer {
	t.Helper()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	e, err := enforcer.New(enforcer.Config{Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(snapshotOf(body)); err != nil {
		t.Fatal(err)
	}
	return e
}

func snapshotOf(body string) rlc.Snapshot {
	return rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 7}, Files: rlc.Files{
		"services/s/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\n" + body),
	}}
}

const byCaller = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0.5, burst: 2}}\n"

// echo is a service with one unary and one streaming method; do is what both
// do.
type echo struct {
	do func(ctx context.Context) error
}

func (e *echo) call(ctx context.Context) error {
	if e.do == nil {
		return nil
	}
	return e.do(ctx)
}

// service describes echo, as generated code would.
var service = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		in := new(emptypb.Empty)
		if err := dec(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) { return in, srv.(*echo).call(ctx) }
		if i == nil {
			return handle(ctx, in)
		}
		return i(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Echo/Say"}, handle)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Listen", ServerStreams: true, Handler: func(srv any, ss grpc.ServerStream) error {
		return srv.(*echo).call(ss.Context())
	}}},
}

// serve puts a limiter of c before e and returns a client's connection.
func serve(t testing.TB, c grpclimit.Config, e *echo) *grpc.ClientConn {
	t.Helper()
	c.Service = "s"
	limiter, err := grpclimit.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limiter.Unary), grpc.StreamInterceptor(limiter.Stream))
	server.RegisterService(&service, e)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func say(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error {
	return conn.Invoke(ctx, "/test.Echo/Say", &emptypb.Empty{}, &emptypb.Empty{}, options...)
}

// hear opens a stream and reads it to its end.
func hear(ctx context.Context, conn *grpc.ClientConn) (metadata.MD, error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/Listen")
	if err != nil {
		return nil, err
	}
	if err = s.CloseSend(); err == nil {
		err = s.RecvMsg(&emptypb.Empty{})
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return s.Trailer(), err
}

// fixed makes every call caller a's.
func fixed(_ context.Context, _ string, attrs rlc.Attributes) { attrs["caller"] = "a" }

func TestRefusalsAreExhaustedAndSayWhenToComeBack(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		conn := serve(t, grpclimit.Config{Enforcer: decides(t, byCaller), Attributes: fixed}, &echo{})
		for i := range 3 {
			var trailer metadata.MD
			var err error
			if kind == "unary" {
				err = say(t.Context(), conn, grpc.Trailer(&trailer))
			} else {
				trailer, err = hear(t.Context(), conn)
			}
			if i < 2 {
				if err != nil {
					t.Errorf("%s %d: %v", kind, i, err)
				}
				continue
			}
			s := status.Convert(err)
			if s.Code() != codes.ResourceExhausted || len(s.Details()) != 2 {
				t.Fatalf("%s: %v %v", kind, err, s.Details())
			}
			// 0.5/s with nothing left: 2 s, and up to half of that for jitter.
			wait := s.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration()
			if wait < 2*time.Second || wait > 3*time.Second {
				t.Errorf("%s: wait %v", kind, wait)
			}
			quota := s.Details()[1].(*errdetails.QuotaFailure).Violations
			if len(quota) != 1 || quota[0].Subject != "caller=a" || quota[0].Description != "bucket callers" {
				t.Errorf("%s: %v", kind, quota)
			}
			if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != strconv.FormatInt(wait.Milliseconds(), 10) {
				t.Errorf("%s: pushback %v beside %v", kind, got, wait)
			}
		}
	}
}

func TestAnOverrideSaysWhichItIsAndWhomItRefuses(t *testing.T) {
	for match, subject := range map[string]string{`{"caller":"a"}`: "caller=a", `{}`: "id=o1"} {
		e := decides(t, byCaller)
		if err := e.LoadOverrides(rlc.Version{Epoch: 1, Number: 1}, []byte(`{"overrides":[{"id":"o1","service":"s","match":`+match+`,"action":"block","from":"2026-11-02T12:00:00Z","until":"2026-11-02T13:00:00Z","actor":"ana","reason":"INC-1"}]}`)); err != nil {
			t.Fatal(err)
		}
		s := status.Convert(say(t.Context(), serve(t, grpclimit.Config{Enforcer: e, Attributes: fixed}, &echo{})))
		if s.Code() != codes.ResourceExhausted || s.Message() != "refused by override o1" || len(s.Details()) != 2 {
			t.Fatalf("%s: %v", match, s)
		}
		if quota := s.Details()[1].(*errdetails.QuotaFailure).Violations; len(quota) != 1 || quota[0].Subject != subject || quota[0].Description != "override o1" {
			t.Errorf("%s: %v", match, quota)
		}
	}
}

// A client with gRPC's own retries heeds the pushback: it gives up at once
// where the wait is longer than its call may last.
func TestGRPCsOwnRetriesHeedThePushback(t *testing.T) {
	var calls atomic.Int64
	conn := serve(t, grpclimit.Config{Enforcer: decides(t, "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 0, burst: 0}}\n"), Attributes: fixed,
		Observe: func(string, enforcer.Request, enforcer.Decision) { calls.Add(1) }}, &echo{})
	retrying, err := grpc.NewClient(conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(
		`{"methodConfig":[{"name":[{"service":"test.Echo"}],"retryPolicy":{"maxAttempts":5,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer retrying.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := say(ctx, retrying); err == nil {
		t.Error("admitted")
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1: the pushback says an hour", n)
	}
}

func TestTheCallerIsClaimedByListedPeersOnly(t *testing.T) {
	for what, x := range map[string]struct {
		peers   string
		claimed []string
		want    string
	}{
		"a listed peer": {"127.0.0.0/8", []string{"search"}, "search Say"},
		"any other":     {"10.0.0.0/8", []string{"search"}, " Say"},
		"two claims":    {"127.0.0.0/8", []string{"search", "admin"}, " Say"},
		"no claim":      {"127.0.0.0/8", nil, " Say"},
	} {
		got := ""
		conn := serve(t, grpclimit.Config{Enforcer: decides(t, byCaller), CallerKey: "X-Caller", PeerAddresses: []netip.Prefix{netip.MustParsePrefix(x.peers)},
			Observe: func(_ string, r enforcer.Request, _ enforcer.Decision) {
				got = fmt.Sprint(r.Attributes["caller"], " ", r.Attributes["procedure"])
			}}, &echo{})
		ctx := t.Context()
		for _, c := range x.claimed {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-caller", c)
		}
		if err := say(ctx, conn); err != nil {
			t.Fatal(err)
		}
		if got != x.want {
			t.Errorf("%s: %q, want %q", what, got, x.want)
		}
	}
}

const inFlight = "defaults: {mode: enforce}\nbuckets:\n  - {name: one, role: cap, algorithm: concurrency, limit: {concurrent: 1, timeout: 30s}}\n"

func TestAPlaceInFlightIsFreeWhenTheCallEnds(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		entered, let := make(chan struct{}, 1), make(chan struct{})
		conn := serve(t, grpclimit.Config{Enforcer: decides(t, inFlight)}, &echo{do: func(context.Context) error {
			entered <- struct{}{}
			<-let
			return nil
		}})
		call := func() error {
			if kind == "unary" {
				return say(t.Context(), conn)
			}
			_, err := hear(t.Context(), conn)
			return err
		}
		first := make(chan error, 1)
		go func() { first <- call() }()
		<-entered
		if err := call(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: a second one meanwhile: %v", kind, err)
		}
		close(let)
		if err := <-first; err != nil {
			t.Errorf("%s: the first: %v", kind, err)
		}
		if err := call(); err != nil {
			t.Errorf("%s: after it: %v", kind, err)
		}
	}
}

func TestAPanicPassesThroughAndHoldsNothing(t *testing.T) {
	limiter, err := grpclimit.New(grpclimit.Config{Enforcer: decides(t, inFlight), Service: "s"})
	if err != nil {
		t.Fatal(err)
	}
	info := &grpc.UnaryServerInfo{FullMethod: "/test.Echo/Say"}
	func() {
		defer func() {
			if cause := recover(); cause != "boom" {
				t.Errorf("recovered %v", cause)
			}
		}()
		_, _ = limiter.Unary(t.Context(), nil, info, func(context.Context, any) (any, error) { panic("boom") })
	}()
	if _, err := limiter.Unary(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

// A cost is heard in the header or the trailer, set in any of gRPC's ways.
func TestACostKnownAfterwardsIsReadFromTheMetadata(t *testing.T) {
	const policy = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], cost: {from: response_header, name: X-Cost, reserve: 10}, limit: {rate: 0.001, burst: 10}}\n"
	for what, set := range map[string]func(context.Context, metadata.MD) error{
		"a header":      grpc.SetHeader,
		"a sent header": grpc.SendHeader,
		"a trailer":     grpc.SetTrailer,
	} {
		for _, kind := range []string{"unary", "stream"} {
			e := decides(t, policy)
			conn := serve(t, grpclimit.Config{Enforcer: e, Attributes: fixed}, &echo{do: func(ctx context.Context) error { return set(ctx, metadata.Pairs("x-cost", "4")) }})
			call := func() error {
				if kind == "unary" {
					return say(t.Context(), conn)
				}
				_, err := hear(t.Context(), conn)
				return err
			}
			if err := call(); err != nil {
				t.Fatal(err)
			}
			// 10 were reserved, 4 spent: 6 are left.
			awaitRemaining(t, e, what+" of a "+kind, 6)
		}
	}
}

// awaitRemaining looks until caller a has so many tokens left: a server settles
// after its client has the answer.
func awaitRemaining(t *testing.T, e *enforcer.Enforcer, what string, want int64) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		got := e.Decide(enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": "a"}, Peek: true}).Remaining
		if got == want {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: %d left, want %d", what, got, want)
		case <-time.After(time.Millisecond):
		}
	}
}

const paced = "defaults: {mode: enforce}\nbuckets:\n  - {name: all, role: cap, algorithm: leaky_bucket, limit: {rate: 1, burst: 10}}\n"

func TestALeakyBucketIsPacedAndACancelledCallIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := enforcer.New(enforcer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Load(snapshotOf(paced)); err != nil {
			t.Fatal(err)
		}
		limiter, err := grpclimit.New(grpclimit.Config{Enforcer: e, Service: "s"})
		if err != nil {
			t.Fatal(err)
		}
		served := 0
		call := func(ctx context.Context) (time.Duration, error) {
			began := time.Now()
			_, err := limiter.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/test.Echo/Say"}, func(context.Context, any) (any, error) { served++; return nil, nil })
			return time.Since(began), err
		}
		for i, want := range []time.Duration{0, time.Second} {
			if took, err := call(t.Context()); took != want || err != nil {
				t.Errorf("call %d: %v after %v, want %v", i, err, took, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if took, err := call(ctx); took != 100*time.Millisecond || status.Code(err) != codes.DeadlineExceeded || served != 2 {
			t.Errorf("cancelled: %v after %v, %d served", err, took, served)
		}
	})
}

func TestWhatCannotLimitIsRefused(t *testing.T) {
	e := decides(t, byCaller)
	for _, c := range []grpclimit.Config{{}, {Service: "s"}, {Enforcer: e}, {Enforcer: e, Service: "s", CallerKey: "x-caller"}} {
		if _, err := grpclimit.New(c); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

const manyByCaller = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 1000000, burst: 100000000}}\n"

func admitting(t testing.TB) (*grpclimit.Limiter, *grpc.UnaryServerInfo, grpc.UnaryHandler) {
	limiter, err := grpclimit.New(grpclimit.Config{Enforcer: decides(t, manyByCaller), Service: "s", Attributes: fixed})
	if err != nil {
		t.Fatal(err)
	}
	return limiter, &grpc.UnaryServerInfo{FullMethod: "/test.Echo/Say"}, func(_ context.Context, in any) (any, error) { return in, nil }
}

func TestAnAdmittedCallTakesNoAllocation(t *testing.T) {
	limiter, info, next := admitting(t)
	ctx := context.Background()
	call := func() { _, _ = limiter.Unary(ctx, nil, info, next) }
	call()
	if n := testing.AllocsPerRun(100, call); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkUnary(b *testing.B) {
	limiter, info, next := admitting(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = limiter.Unary(ctx, nil, info, next)
	}
}
