package bidi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// conn is one connection. One goroutine reads it; whoever has something to say
// writes it.
type conn struct {
	server *Server
	raw    net.Conn
	tls    *tls.ConnectionState // nil: without
	in     *http2.Framer
	heard  atomic.Int64 // the second of the last frame
	pinged atomic.Bool  // since it was heard
	since  atomic.Int64 // the second since when a write is under way, and one; 0: none is

	// Of the goroutine that reads.
	credit int    // bytes of the connection's window that are used and not given back
	newest uint32 // stream

	mu      sync.Mutex
	nc      net.Conn      // what is written to: raw, or what encrypts it
	grown   *sync.Cond    // a window has grown, or all is over
	out     *http2.Framer // of all but data, to said
	said    outgoing
	streams map[uint32]*Stream
	running int   // methods
	window  int64 // bytes that may go down
	initial int64 // the window of a new stream
	frame   int   // the longest that may go down
	broken  error // nil: it stands
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, raw: nc, nc: nc, streams: map[uint32]*Stream{}, window: 65535, initial: 65535, frame: 16 << 10}
	c.grown = sync.NewCond(&c.mu)
	c.said.rooms = &s.rooms
	c.out = http2.NewFramer(&c.said, nil)
	c.heard.Store(s.second.Load())
	return c
}

// run reads the connection until it ends.
func (c *conn) run() error {
	defer c.raw.Close()
	if err := c.greet(); err != nil {
		return err
	}
	for {
		f, err := c.in.ReadFrame()
		if err != nil {
			var bad http2.StreamError
			if errors.As(err, &bad) {
				c.reset(bad.StreamID, bad.Code)
				continue
			}
			return c.part(err)
		}
		c.heard.Store(c.server.second.Load())
		c.pinged.Store(false)
		if err := c.obey(f); err != nil {
			return c.part(err)
		}
	}
}

// greet does what comes before the first stream, within greetWithin.
func (c *conn) greet() error {
	if err := c.raw.SetDeadline(time.Now().Add(greetWithin)); err != nil {
		return err
	}
	plain := c.raw
	if c.server.config.TLS != nil {
		secured := tls.Server(c.raw, c.server.config.TLS)
		if err := secured.HandshakeContext(context.Background()); err != nil {
			return err
		}
		state := secured.ConnectionState()
		if state.NegotiatedProtocol != http2.NextProtoTLS {
			return errors.New("the client does not speak HTTP/2")
		}
		plain, c.tls = secured, &state
		c.mu.Lock()
		c.nc = secured
		c.mu.Unlock()
	}
	r := bufio.NewReaderSize(plain, readBuffer)
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, preface); err != nil {
		return err
	}
	if string(preface) != http2.ClientPreface {
		return errors.New("the client does not speak HTTP/2")
	}
	c.in = http2.NewFramer(nil, r)
	c.in.SetReuseFrames()
	c.in.SetMaxReadFrameSize(16 << 10)
	c.in.MaxHeaderListSize = maxHeaders
	c.in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	err := c.write(func() error {
		err := c.out.WriteSettings(
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: window},
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaders})
		return errors.Join(err, c.out.WriteWindowUpdate(0, window-65535))
	})
	if err != nil {
		return err
	}
	return c.raw.SetDeadline(time.Time{})
}

// outgoing is what a connection says next. Its room is borrowed from all connections
// while there is anything: most say little, and some of that is long.
type outgoing struct {
	rooms *sync.Pool
	room  *bytes.Buffer // nil: nothing to say
}

func (o *outgoing) Write(p []byte) (int, error) {
	if o.room == nil {
		o.room = o.rooms.Get().(*bytes.Buffer)
	}
	return o.room.Write(p)
}

func (o *outgoing) size() int {
	if o.room == nil {
		return 0
	}
	return o.room.Len()
}

// flush writes it to w, and gives its room back.
func (o *outgoing) flush(w io.Writer) error {
	if o.room == nil {
		return nil
	}
	_, err := w.Write(o.room.Bytes())
	o.room.Reset()
	o.rooms.Put(o.room)
	o.room = nil
	return err
}

// write lets f fill out, and sends it. It fails where the connection is broken.
func (c *conn) write(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	if err := f(); err != nil {
		return err
	}
	return c.flush()
}

// flush sends what is said. The caller holds mu.
func (c *conn) flush() error {
	c.since.Store(c.server.second.Load() + 1)
	err := c.said.flush(c.nc)
	c.since.Store(0)
	if err != nil {
		c.raw.Close() // the reader ends and tells the streams
	}
	return err
}

// look is called each second: a connection that says nothing is asked, and closed
// where it does not answer, or reads nothing.
func (c *conn) look(now int64) {
	silent := now - c.heard.Load()
	if since := c.since.Load(); silent >= silentAfter || since > 0 && now-since >= blockedAfter {
		c.raw.Close()
		return
	}
	if silent < pingAfter || c.pinged.Swap(true) {
		return
	}
	c.server.readers.Go(func() { _ = c.write(func() error { return c.out.WritePing(false, [8]byte{}) }) })
}

// obey takes a frame. An error ends the connection.
func (c *conn) obey(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(f)
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.RSTStreamFrame:
		c.end(f.StreamID, status.Error(codes.Canceled, "the stream was reset"))
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.write(func() error { return c.out.WritePing(true, f.Data) })
		}
	case *http2.WindowUpdateFrame:
		return c.grow(f)
	}
	return nil
}

// grow widens a window downwards.
func (c *conn) grow(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := &c.window
	if f.StreamID > 0 {
		s := c.streams[f.StreamID]
		if s == nil {
			return nil
		}
		to = &s.window
	}
	if *to += int64(f.Increment); *to > 1<<31-1 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	c.grown.Broadcast()
	return nil
}

func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	return c.write(func() error {
		err := f.ForeachSetting(func(v http2.Setting) error {
			if err := v.Valid(); err != nil {
				return err
			}
			switch v.ID {
			case http2.SettingInitialWindowSize:
				for _, s := range c.streams {
					s.window += int64(v.Val) - c.initial
				}
				c.initial = int64(v.Val)
				c.grown.Broadcast()
			case http2.SettingMaxFrameSize:
				c.frame = int(v.Val)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return c.out.WriteSettingsAck()
	})
}

// headers begins a stream, or ends what its client has to say.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	c.mu.Lock()
	s, running := c.streams[f.StreamID], c.running
	c.mu.Unlock()
	switch {
	case s != nil && f.StreamEnded():
		s.deliver(io.EOF)
		return nil
	case s != nil || f.StreamID%2 == 0 || f.StreamID <= c.newest && !f.StreamEnded():
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case f.StreamID <= c.newest:
		return nil // of one that has ended here
	}
	c.newest = f.StreamID
	if f.Truncated || running >= maxStreams {
		c.reset(f.StreamID, http2.ErrCodeRefusedStream)
		return nil
	}
	s = &Stream{conn: c, id: f.StreamID, path: f.PseudoValue("path"), messages: make(chan []byte),
		over: make(chan struct{}), ready: make(chan struct{}), gone: make(chan struct{})}
	for _, h := range f.RegularFields() {
		if h.Name == "content-type" {
			s.content = h.Value
		}
	}
	c.mu.Lock()
	s.window = c.initial
	c.streams[s.id] = s
	c.running++
	c.mu.Unlock()
	if f.StreamEnded() {
		s.deliver(io.EOF)
	}
	if !c.server.begin(s.serve) {
		s.finish(status.Error(codes.Unavailable, "the server stops"))
	}
	return nil
}

// data takes what came of a stream's messages.
func (c *conn) data(f *http2.DataFrame) error {
	n := int(f.Length) // with what pads it
	if c.credit += n; c.credit > window {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	c.mu.Lock()
	s := c.streams[f.StreamID]
	c.mu.Unlock()
	if s == nil && f.StreamID > c.newest {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	back := 0
	if s != nil {
		if s.credit += n; s.credit > window {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		if err := s.take(f.Data()); err != nil {
			s.deliver(err)
		} else if f.StreamEnded() {
			s.deliver(io.EOF)
		}
		if s.credit >= window/2 {
			back, s.credit = s.credit, 0
		}
	}
	if c.credit < window/2 && back == 0 {
		return nil
	}
	whole := c.credit
	c.credit = 0
	return c.write(func() error {
		var err error
		if whole > 0 {
			err = c.out.WriteWindowUpdate(0, uint32(whole))
		}
		if back > 0 {
			err = errors.Join(err, c.out.WriteWindowUpdate(f.StreamID, uint32(back)))
		}
		return err
	})
}

// reset ends a stream for its client, and here.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.end(id, status.Errorf(codes.Internal, "the stream was reset: %v", code))
	_ = c.write(func() error { return c.out.WriteRSTStream(id, code) })
}

// end ends a stream here.
func (c *conn) end(id uint32, why error) {
	c.mu.Lock()
	s := c.streams[id]
	delete(c.streams, id)
	c.grown.Broadcast()
	c.mu.Unlock()
	if s != nil {
		s.deliver(why)
	}
}

// part says why the connection ends, where it is the client's fault, and returns it.
func (c *conn) part(err error) error {
	var fault http2.ConnectionError
	if errors.As(err, &fault) {
		_ = c.write(func() error { return c.out.WriteGoAway(c.newest, http2.ErrCode(fault), nil) })
	}
	return err
}

// fail ends all streams of a connection that is over.
func (c *conn) fail(err error) {
	if err == nil || err == io.EOF {
		err = errors.New("the client has closed the connection")
	}
	c.mu.Lock()
	c.broken = fmt.Errorf("the connection broke: %w", err)
	left := c.streams
	c.streams = map[uint32]*Stream{}
	c.grown.Broadcast()
	c.mu.Unlock()
	for _, s := range left {
		s.deliver(status.Error(codes.Canceled, c.broken.Error()))
	}
}
