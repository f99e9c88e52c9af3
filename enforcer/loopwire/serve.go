package loopwire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/bidi"
)

// newServer serves the streams of one method on l. Without TLS it may only listen on
// loopback.
func newServer(l net.Listener, c *tls.Config, log *slog.Logger, method string, serve func(*bidi.Stream) error) (*bidi.Server, error) {
	if err := safe(l.Addr(), c); err != nil {
		return nil, err
	}
	return bidi.NewServer(bidi.Config{Methods: map[string]func(*bidi.Stream) error{method: serve}, MaxMessage: maxMessage, TLS: c, Log: log})
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

// first reads the message that a stream begins with.
func first(s *bidi.Stream, m proto.Message) error {
	data, err := s.Recv()
	if err != nil {
		return err
	}
	return damaged(proto.Unmarshal(data, m))
}

// damaged is an error in what was sent, nil for none.
func damaged(err error) error {
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// exchange runs a stream until it is to end: what comes up goes to receive, what
// goes down is sent by a goroutine while there is anything. Ending is closed when all
// streams are to end.
func exchange(s *bidi.Stream, d *downstream, receive func([]byte) error, ending <-chan struct{}) error {
	over := s.Deliver(receive)
	return d.serve(func(v any) error {
		pieces, err := encode(v)
		if err != nil {
			return err
		}
		return s.Send(pieces...)
	}, over, s.Err, ending)
}

// serve sends what there is to send until the stream is to end: somebody wants that,
// everything is to end, or nothing more comes up: over is closed then, and why tells.
func (d *downstream) serve(send func(any) error, over <-chan struct{}, why func() error, ending <-chan struct{}) error {
	d.open(send)
	defer d.shut()
	var err error
	select {
	case <-over:
		err = why()
	case <-d.closed:
		err = d.why
	case <-ending:
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
