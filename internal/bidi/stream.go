package bidi

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stream is one bidirectional stream.
type Stream struct {
	conn    *conn
	id      uint32
	path    string
	content string // its type

	// Of the goroutine that reads the connection.
	credit  int    // bytes of its window that are used and not given back
	partial []byte // of a message that has not come whole
	said    bool   // there is nothing more to deliver

	messages chan []byte        // those that Recv is for
	ready    chan struct{}      // closed by Deliver
	gone     chan struct{}      // closed when the method has returned
	over     chan struct{}      // closed when nothing more comes up
	why      error              // set before over is closed
	to       func([]byte) error // set before ready is closed

	trailer [][2]string // of the method's goroutine

	// The connection's mu guards these.
	window int64
	opened bool // its headers have gone down
}

// head is what comes before each message: whether it is compressed, and its length.
const head = 5

// TLS is the connection's state; nil where it is not encrypted.
func (s *Stream) TLS() *tls.ConnectionState { return s.conn.tls }

// SetTrailer adds a field to what the stream ends with. It is for the goroutine of
// the method.
func (s *Stream) SetTrailer(name, value string) {
	s.trailer = append(s.trailer, [2]string{name, value})
}

// Recv is the next message. io.EOF is the end of what the client says.
func (s *Stream) Recv() ([]byte, error) {
	select {
	case m := <-s.messages:
		return m, nil
	case <-s.over:
		return nil, s.why
	}
}

// Deliver has each further message handed to f by the goroutine that reads the
// connection, which does nothing else meanwhile: f must not wait for Send. A message
// is good until f returns. It may be called once, after the last Recv. The channel
// is closed when nothing more comes; Err tells why.
func (s *Stream) Deliver(f func(message []byte) error) <-chan struct{} {
	s.to = f
	close(s.ready)
	return s.over
}

// Err is why nothing more comes, once that is so: io.EOF where the client has said
// all, the first error of Deliver's f, or what broke the stream.
func (s *Stream) Err() error { return s.why }

// deliver says that nothing more comes.
func (s *Stream) deliver(why error) {
	if !s.said {
		s.said, s.partial, s.why = true, nil, why
		close(s.over)
	}
}

// take cuts messages out of what comes.
func (s *Stream) take(data []byte) error {
	for len(data) > 0 && !s.said {
		if len(s.partial) > 0 || len(data) < head {
			// A message that does not come whole is gathered.
			want := head
			if len(s.partial) >= head {
				want += int(binary.BigEndian.Uint32(s.partial[1:]))
			}
			n := min(want-len(s.partial), len(data))
			s.partial, data = append(s.partial, data[:n]...), data[n:]
			if len(s.partial) < head {
				return nil
			}
			n, err := s.length(s.partial)
			if err != nil {
				return err
			}
			if len(s.partial) < head+n {
				continue
			}
			whole := s.partial[head:]
			if s.partial = s.partial[:0]; cap(s.partial) > keptBuffer {
				s.partial = nil
			}
			if err := s.hand(whole); err != nil {
				return err
			}
			continue
		}
		n, err := s.length(data)
		if err != nil {
			return err
		}
		if len(data) < head+n {
			s.partial, data = append(s.partial, data...), nil
			continue
		}
		if err := s.hand(data[head : head+n]); err != nil {
			return err
		}
		data = data[head+n:]
	}
	return nil
}

// length is that of the message that a head begins.
func (s *Stream) length(head []byte) (int, error) {
	if head[0] != 0 {
		return 0, status.Error(codes.Unimplemented, "a message is compressed")
	}
	n := binary.BigEndian.Uint32(head[1:])
	if int64(n) > int64(s.conn.server.config.MaxMessage) {
		return 0, status.Errorf(codes.ResourceExhausted, "a message of %d bytes is longer than %d", n, s.conn.server.config.MaxMessage)
	}
	return int(n), nil
}

// hand gives a message to whom it is for.
func (s *Stream) hand(m []byte) (err error) {
	defer s.conn.server.rescue(s.path, &err)
	select {
	case <-s.ready:
		return s.to(m)
	default:
	}
	select {
	case <-s.ready:
		return s.to(m)
	case s.messages <- bytes.Clone(m):
	case <-s.gone:
	}
	return nil
}

// serve runs the stream's method, and ends the stream.
func (s *Stream) serve() {
	s.finish(s.call())
}

func (s *Stream) call() (err error) {
	defer s.conn.server.rescue(s.path, &err)
	method := s.conn.server.config.Methods[s.path]
	switch {
	case !strings.HasPrefix(s.content, "application/grpc"):
		return status.Error(codes.Internal, "the content is no gRPC")
	case method == nil:
		return status.Errorf(codes.Unimplemented, "unknown method %.200s", s.path)
	}
	return method(s)
}

// Send sends a message, given in pieces, which it reads until it returns. It waits
// until the client has room for it, and fails once the stream is over. Only one may
// be under way.
func (s *Stream) Send(pieces ...[]byte) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.open(); err != nil {
		return err
	}
	m := message{pieces: pieces, piece: -1, left: head}
	for _, p := range pieces {
		m.left += len(p)
	}
	binary.BigEndian.PutUint32(m.head[1:], uint32(m.left-head))
	for m.left > 0 {
		room := int(min(c.window, s.window, int64(c.frame), int64(m.left)))
		if room <= 0 {
			if err := c.flush(); err != nil {
				return err
			}
			c.grown.Wait()
			if err := s.open(); err != nil {
				return err
			}
			continue
		}
		m.frame(&c.said, s.id, room)
		c.window -= int64(room)
		s.window -= int64(room)
		if c.said.size() >= sentAtOnce || m.left == 0 {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// message is what is left to say of one.
type message struct {
	head   [head]byte
	pieces [][]byte
	piece  int // the one that comes next; -1: the head
	at     int // bytes of it that are said
	left   int // bytes in all
}

// frame says the next n bytes in a frame of their own: its length, type, flags and
// stream (RFC 9113, 4.1), and then what a Framer would copy once more.
func (m *message) frame(to *outgoing, stream uint32, n int) {
	_, _ = to.Write([]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(http2.FrameData), 0,
		byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)})
	for m.left -= n; n > 0; {
		p := m.head[:]
		if m.piece >= 0 {
			p = m.pieces[m.piece]
		}
		k := min(n, len(p)-m.at)
		_, _ = to.Write(p[m.at : m.at+k])
		if n, m.at = n-k, m.at+k; m.at == len(p) {
			m.piece, m.at = m.piece+1, 0
		}
	}
}

// open makes sure that the stream can say something, and puts its headers out. The
// caller holds the connection's mu.
func (s *Stream) open() error {
	c := s.conn
	switch {
	case c.broken != nil:
		return c.broken
	case c.streams[s.id] != s:
		return status.Error(codes.Canceled, "the stream is over")
	case s.opened:
		return nil
	}
	s.opened = true
	return s.fields(false, [][2]string{{":status", "200"}, {"content-type", "application/grpc"}})
}

// fields puts a block of headers, or of trailers, out.
func (s *Stream) fields(last bool, list [][2]string) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0) // no block depends on another
	for _, f := range list {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	return s.conn.out.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: last})
}

// finish ends the stream: with its status, unless it is over already.
func (s *Stream) finish(err error) {
	close(s.gone)
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.streams[s.id] != s || c.broken != nil {
		return
	}
	delete(c.streams, s.id)
	c.grown.Broadcast()
	var list [][2]string
	if !s.opened {
		list = [][2]string{{":status", "200"}, {"content-type", "application/grpc"}}
	}
	st := status.Convert(err)
	list = append(list, [2]string{"grpc-status", strconv.Itoa(int(st.Code()))})
	if st.Message() != "" {
		list = append(list, [2]string{"grpc-message", escape(st.Message())})
	}
	list = append(list, s.trailer...)
	if s.fields(true, list) != nil {
		return
	}
	select {
	case <-s.over:
	default: // the client is not to say more
		if c.out.WriteRSTStream(s.id, http2.ErrCodeNo) != nil {
			return
		}
	}
	_ = c.flush()
}

// escape is a status's message as it travels: percent-encoded but for printable
// ASCII, and cut to a length that every client takes.
func escape(text string) string {
	var b strings.Builder
	for i := 0; i < min(len(text), maxStatus); i++ {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// maxStatus is how long a status's message may be, in bytes.
const maxStatus = 2000
