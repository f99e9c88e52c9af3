package rls

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	grpcmeta "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// Serve answers on l until ctx ends, then refuses new calls and lets those
// under way finish. The health service says SERVING while the enforcer is
// ready for traffic. It returns nil after a clean end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(s.options()...)
	pb.RegisterRateLimitServiceServer(server, s)
	state := health.NewServer()
	healthpb.RegisterHealthServer(server, state)
	reflection.Register(server)

	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		s.report(state)
		select {
		case err := <-served:
			return err
		case <-look.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	state.Shutdown()
	// GracefulStop waits for the calls under way, Stop ends its waiting.
	end := time.AfterFunc(s.config.Drain, server.Stop)
	server.GracefulStop()
	end.Stop()
	return <-served
}

// report tells the health service whether the enforcer is ready.
func (s *Server) report(state *health.Server) {
	is := healthpb.HealthCheckResponse_SERVING
	if reasons, _ := s.enforcer.Ready(); len(reasons) > 0 {
		is = healthpb.HealthCheckResponse_NOT_SERVING
	}
	state.SetServingStatus("", is)
	state.SetServingStatus(pb.RateLimitService_ServiceDesc.ServiceName, is)
}

// streamWorkers is how many goroutines answer calls one after another. A new one
// for each call has to grow its stack, which costs a tenth of the call; beyond
// these, calls get one all the same.
const streamWorkers = 128

// options bound what a client can hold: messages, headers, streams, the time
// for a handshake, and the time that a connection lives, so that a renewed or
// withdrawn certificate comes to bear.
func (s *Server) options() []grpc.ServerOption {
	o := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(1000),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 15 * time.Minute, MaxConnectionAge: 30 * time.Minute, MaxConnectionAgeGrace: 10 * time.Second,
			Time: time.Minute, Timeout: 10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
	}
	if s.config.TLS != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(s.config.TLS)))
	}
	return o
}

// unary asks for the token and keeps a panic from ending the process.
func (s *Server) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.config.Log.Error("a call panicked", "method", info.FullMethod, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = status.Error(codes.Unavailable, "the call panicked")
		}
	}()
	if err := s.authorised(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, in)
}

// stream asks for the token: reflection and watching health are streams.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := s.authorised(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, ss)
}

// authorised asks for the token, where there is one. Health checks need none:
// probes cannot carry it.
func (s *Server) authorised(ctx context.Context, method string) error {
	if s.config.Token == "" || strings.HasPrefix(method, "/"+healthpb.Health_ServiceDesc.ServiceName+"/") {
		return nil
	}
	given := ""
	if md := grpcmeta.ValueFromIncomingContext(ctx, "authorization"); len(md) == 1 {
		given = md[0]
	}
	got, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte("Bearer "+s.config.Token))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return status.Error(codes.Unauthenticated, "this enforcer asks for a token: send authorization: Bearer …")
	}
	return nil
}
