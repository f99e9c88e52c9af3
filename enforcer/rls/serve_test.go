package rls_test

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/memory"
	"github.com/openrlc/rlc/enforcer/rls"
	"github.com/openrlc/rlc/internal/mtls"
	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

const admitting = "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 1000000, burst: 1000000}}\n"

var oneRequest = &pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{describe("caller", "a")}}

func TestATokenIsAskedForButNotByHealthChecks(t *testing.T) {
	addr, _ := listen(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, admitting), Token: "s3cret"})
	conn := dial(t, addr)
	c := pb.NewRateLimitServiceClient(conn)
	for given, want := range map[string]codes.Code{"": codes.Unauthenticated, "Bearer wrong": codes.Unauthenticated, "s3cret": codes.Unauthenticated, "Bearer s3cret": codes.OK} {
		ctx := t.Context()
		if given != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", given)
		}
		if _, err := c.ShouldRateLimit(ctx, oneRequest); status.Code(err) != want {
			t.Errorf("%q: %v, want %v", given, err, want)
		}
	}
	out, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "envoy.service.ratelimit.v3.RateLimitService"})
	if err != nil || out.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", out, err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without the token: %v", err)
	}
}

func TestReflectionNamesTheService(t *testing.T) {
	addr, _ := listen(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, admitting)})
	stream, err := reflectionpb.NewServerReflectionClient(dial(t, addr)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	out, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range out.GetListServicesResponse().GetService() {
		found = found || s.Name == "envoy.service.ratelimit.v3.RateLimitService"
	}
	if !found {
		t.Errorf("services: %v", out)
	}
}

func TestHealthSaysNotServingWithoutASnapshot(t *testing.T) {
	e, err := enforcer.New(enforcer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := listen(t, rls.Config{Enforcer: e})
	// The server accepts before it has looked once: wait for its first word.
	out, err := healthpb.NewHealthClient(dial(t, addr)).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || out.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health: %v, %v", out, err)
	}
}

// TLS on both ends: the names of those who ask are heard, and a rotation of
// every file under load fails no call.
func TestARotationUnderLoadFailsNoCall(t *testing.T) {
	dir := t.TempDir()
	ca := mtlstest.New(t)
	cert, key := ca.Issue(t, "server", time.Now().Add(time.Hour))
	config, err := mtls.Server(mtls.Config{Cert: mtlstest.Write(t, dir, "cert", cert), Key: mtlstest.Write(t, dir, "key", key), ClientCA: mtlstest.Write(t, dir, "ca", ca.PEM)})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	names := map[string]bool{}
	addr, _ := listen(t, rls.Config{Enforcer: decides(t, enforcer.Config{}, admitting), TLS: config, Observe: func(peer string, _ enforcer.Request, _ enforcer.Decision) {
		mu.Lock()
		names[peer] = true
		mu.Unlock()
	}})
	call := func(c *tls.Config) (serial string, err error) {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.String()
			return nil
		}
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(c)))
		if err != nil {
			return "", err
		}
		defer conn.Close()
		_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), oneRequest)
		return serial, err
	}
	if _, err := call(ca.Client(t, "")); err == nil {
		t.Error("a client without a certificate was answered")
	}

	var calls, failed atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	defer load.Wait()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	for range 2 {
		mine := ca.Client(t, "gateway")
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				calls.Add(1)
				if _, err := call(mine.Clone()); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	before, err := call(ca.Client(t, "gateway"))
	if err != nil {
		t.Fatal(err)
	}
	cert2, key2 := ca.Issue(t, "server", time.Now().Add(time.Hour))
	mtlstest.Write(t, dir, "cert", cert2)
	mtlstest.Write(t, dir, "key", key2)
	deadline := time.After(20 * time.Second)
	for after := before; after == before; {
		select {
		case <-deadline:
			t.Fatal("the new certificate is not shown")
		case <-time.After(20 * time.Millisecond):
		}
		if after, err = call(ca.Client(t, "gateway")); err != nil {
			t.Fatal(err)
		}
	}
	end()
	load.Wait()
	if failed.Load() > 0 || calls.Load() == 0 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
	mu.Lock()
	defer mu.Unlock()
	if len(names) != 1 || !names["gateway"] {
		t.Errorf("heard %v", names)
	}
}

// gate is a counter that waits to be let go.
type gate struct {
	enforcer.Counter
	entered, let chan struct{}
}

func (g gate) Set(c []gcra.Charge) enforcer.Set { return gateSet{g.Counter.Set(c), g} }

type gateSet struct {
	enforcer.Set
	gate gate
}

func (s gateSet) Take(ctx context.Context, now, cost int64) (gcra.Tally, error) {
	close(s.gate.entered)
	<-s.gate.let
	return s.Set.Take(ctx, now, cost)
}

func TestCallsUnderWayFinishAtTheEnd(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	g := gate{enforcer.InProcess(&memory.Memory{}), make(chan struct{}), make(chan struct{})}
	addr, stop := listen(t, rls.Config{Enforcer: decides(t, enforcer.Config{Counter: g}, admitting), Deadline: -1, Drain: time.Minute})
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answered, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), oneRequest)
		answered <- err
	}()
	<-g.entered
	go func() { ended <- stop() }()
	close(g.let)
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestCallsThatTakeTooLongAreCutAtTheEnd(t *testing.T) {
	g := gate{enforcer.InProcess(&memory.Memory{}), make(chan struct{}), make(chan struct{})}
	addr, stop := listen(t, rls.Config{Enforcer: decides(t, enforcer.Config{Counter: g}, admitting), Deadline: -1, Drain: time.Millisecond})
	conn := dial(t, addr)
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), oneRequest)
		answered <- err
	}()
	<-g.entered
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that hangs: %v", err)
	}
	close(g.let) // the server waits for its handlers
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}
