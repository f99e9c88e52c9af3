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
	if err := e.Load(rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 7}, Files: rlc.Files{
		"services/s/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\n" + body),
	}}); err != nil {
		t.Fatal(err)
	}
	return e
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
