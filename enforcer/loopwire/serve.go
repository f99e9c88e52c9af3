package loopwire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/mtls"
)

// window is what may be under way on a stream and on a connection, in bytes.
const window = 1 << 20

// listener is the gRPC server of a tier.
type listener struct {
	server *grpc.Server
	log    *slog.Logger
	ending chan struct{} // closed when streams are to end
}

// newListener makes a server. Without TLS it may only listen on loopback.
func newListener(l net.Listener, c *tls.Config, log *slog.Logger) (*listener, error) {
	if err := safe(l.Addr(), c); err != nil {
		return nil, err
	}
	o := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.MaxConcurrentStreams(1000),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		// A set window spares the pings that measure one: two more frames a report.
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.WriteBufferSize(8 << 10), grpc.ReadBufferSize(8 << 10), // many small streams
		grpc.ForceServerCodecV2(newCodec()),
	}
	if c != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(c)))
	}
	s := &listener{log: log, ending: make(chan struct{})}
	o = append(o, grpc.StreamInterceptor(s.guard))
	s.server = grpc.NewServer(o...)
	return s, nil
}

// safe refuses to listen beyond this machine for anybody who comes.
func safe(a net.Addr, c *tls.Config) error {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() || c != nil && c.ClientAuth >= tls.RequireAndVerifyClientCert {
		return nil
	}
	if c != nil && c.GetConfigForClient != nil {
		return nil // chosen per handshake, by whoever made it
	}
	return fmt.Errorf("%w: %s can be reached from other machines: give it TLS with client certificates, or listen on 127.0.0.1", rlc.ErrInvalid, a)
}

// guard keeps a panic from ending the process.
func (s *listener) guard(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error("a stream panicked", "method", info.FullMethod, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the stream panicked")
		}
	}()
	return next(srv, ss)
}

// serve answers until ctx ends, then ends all streams.
func (s *listener) serve(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	close(s.ending)
	stop := time.AfterFunc(2*time.Second, s.server.Stop)
	s.server.GracefulStop()
	stop.Stop()
	return <-served
}

// exchange runs a stream: what comes up in a goroutine of its own, what goes
// down in one while there is anything. Both end with the stream, which ends when
// this function returns.
func exchange(s *listener, d *downstream, send func(any) error, receive func() error) error {
	d.open(send)
	defer d.shut()
	failed := make(chan error, 1)
	go func() {
		for {
			if err := receive(); err != nil {
				failed <- err
				return
			}
		}
	}()
	var err error
	select {
	case err = <-failed:
	case <-d.closed:
		err = d.why
	case <-s.ending:
		return status.Error(codes.Unavailable, "stopping")
	}
	if err == io.EOF {
		return nil // the other side has said all
	}
	if errors.Is(err, rlc.ErrInvalid) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// verified is the name that a peer's certificate gives it; "" without one.
func verified(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, _ := p.AuthInfo.(credentials.TLSInfo)
	return mtls.Name(&info.State)
}

// clock is a monotonic clock that starts at its making.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

// intoMinute is how far into a clock minute it started.
func (c clock) intoMinute() time.Duration { return c.start.Sub(c.start.Truncate(time.Minute)) }

// stamps gives numbers that grow, also over restarts: microseconds since 1970.
type stamps struct{ last atomic.Uint64 }

func (s *stamps) next() uint64 {
	for {
		last := s.last.Load()
		v := max(uint64(time.Now().UnixMicro()), last+1)
		if s.last.CompareAndSwap(last, v) {
			return v
		}
	}
}
