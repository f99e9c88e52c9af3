// Package bidi serves bidirectional gRPC streams to very many connections that each
// say little. What comes up is handed over by the goroutine that reads the
// connection, and what goes down is written by the one that has something to say:
// google.golang.org/grpc hands each message on to another goroutine in both
// directions, which costs more than a small message itself.
//
// It speaks gRPC over HTTP/2 (RFC 9113) and no more of either than such streams
// need: no compression, no deadlines, no unary shortcuts.
package bidi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc"
)

// Config is what a server is built from.
type Config struct {
	// Methods serve the streams of a method, "/package.Service/Method", each in a
	// goroutine of its own. The stream ends with the error that one returns: nil is
	// OK, others carry a gRPC status or are Unknown. Required.
	Methods map[string]func(*Stream) error
	// MaxMessage bounds what comes up in one message, in bytes; 0 means 4 MiB.
	MaxMessage int
	TLS        *tls.Config  // nil: without
	Log        *slog.Logger // nil: discarded
}

// The server's bounds and times.
const (
	maxMessage   = 4 << 20
	maxHeaders   = 16 << 10
	maxStreams   = 1000    // on one connection
	window       = 1 << 20 // bytes under way upwards, on a stream and on a connection
	readBuffer   = 2 << 10 // there are many connections
	keptBuffer   = 8 << 10 // of a message that came in parts
	roomFor      = 16 << 10
	sentAtOnce   = 64 << 10 // bytes of a long message that are written together, or a frame more
	greetWithin  = 5 * time.Second
	stopWithin   = 2 * time.Second
	pingAfter    = 10 // seconds without a word
	silentAfter  = 30 // seconds: more than a server that is behind takes to read the answer
	blockedAfter = 30 // seconds in which nothing that was written went out
)

// Server serves streams. It is safe for use by many goroutines.
type Server struct {
	config   Config
	second   atomic.Int64 // since the server began
	rooms    sync.Pool    // of *bytes.Buffer, in which connections write
	handlers sync.WaitGroup
	readers  sync.WaitGroup

	mu      sync.Mutex
	conns   map[*conn]struct{}
	stopped bool
}

// NewServer makes a server. The error wraps rlc.ErrInvalid.
func NewServer(c Config) (*Server, error) {
	if len(c.Methods) == 0 {
		return nil, fmt.Errorf("%w: a server of streams takes methods", rlc.ErrInvalid)
	}
	if c.MaxMessage <= 0 {
		c.MaxMessage = maxMessage
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.TLS != nil && !slices.Contains(c.TLS.NextProtos, http2.NextProtoTLS) {
		c.TLS = c.TLS.Clone()
		c.TLS.NextProtos = append(slices.Clone(c.TLS.NextProtos), http2.NextProtoTLS)
	}
	s := &Server{config: c, conns: map[*conn]struct{}{}}
	s.rooms.New = func() any { return bytes.NewBuffer(make([]byte, 0, roomFor)) }
	return s, nil
}

// Serve answers on l until ctx ends. Methods have stopWithin to return once ending
// is closed, which it closes; then their connections are closed.
func (s *Server) Serve(ctx context.Context, l net.Listener, ending chan<- struct{}) error {
	accepted := make(chan error, 1)
	go func() { accepted <- s.accept(l) }()
	defer s.handlers.Wait()
	defer s.readers.Wait()
	defer s.stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-accepted:
			return err
		case <-tick.C:
			s.look()
		case <-ctx.Done():
			close(ending)
			l.Close()
			<-accepted
			s.part()
			return nil
		}
	}
}

// accept takes connections in until l is closed. What only one connection suffers
// from, or a lack of descriptors, does not end it.
func (s *Server) accept(l net.Listener) error {
	for pause := 5 * time.Millisecond; ; {
		nc, err := l.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case err == nil:
			pause = 5 * time.Millisecond
			s.take(nc)
		case errors.As(err, &passing) && passing.Temporary():
			s.config.Log.Warn("a connection was not accepted", "error", err)
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		default:
			return err
		}
	}
}

func (s *Server) take(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		nc.Close()
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.readers.Go(func() {
		err := c.run()
		c.fail(err)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// look goes over the connections once a second.
func (s *Server) look() {
	now := s.second.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.look(now)
	}
}

// begin makes way for one more method, unless the server is to end.
func (s *Server) begin(method func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.handlers.Go(method)
	}
	return !s.stopped
}

// part waits for the methods to return, and begins no more.
func (s *Server) part() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.handlers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(stopWithin):
	}
}

// stop closes what is open.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for c := range s.conns {
		c.raw.Close()
	}
}

// rescue is deferred where a method may panic, and makes an error of that.
func (s *Server) rescue(method string, err *error) {
	if cause := recover(); cause != nil {
		s.config.Log.Error("a stream panicked", "method", method, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the stream panicked")
	}
}
