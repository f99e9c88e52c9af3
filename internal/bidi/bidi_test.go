package bidi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc/internal/mtls"
	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// raw is a codec of bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (raw) Name() string                       { return "raw" }

var _ encoding.Codec = raw{}

// started serves methods until the test ends, or end is called.
type started struct {
	server  *Server
	address string
	end     func()
}

func start(t *testing.T, c Config) *started {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	s, err := NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l, make(chan struct{})) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("served with %v", err)
		}
	})
	t.Cleanup(end)
	return &started{s, l.Addr().String(), end}
}

func dial(t *testing.T, address string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20))}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func open(t *testing.T, conn *grpc.ClientConn, method string, o ...grpc.CallOption) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, o...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func say(t *testing.T, s grpc.ClientStream, m []byte) {
	t.Helper()
	if err := s.SendMsg(&m); err != nil {
		t.Fatal(err)
	}
}

func hear(s grpc.ClientStream) (m []byte, err error) {
	err = s.RecvMsg(&m)
	return m, err
}

// echo says back what it hears, from a goroutine of its own.
func echo(s *Stream) error {
	queue := make(chan []byte, 1000)
	over := s.Deliver(func(m []byte) error {
		queue <- bytes.Clone(m)
		return nil
	})
	for {
		select {
		case m := <-queue:
			if err := s.Send(m[:len(m)/2], m[len(m)/2:]); err != nil {
				return err
			}
		case <-over:
			for len(queue) > 0 {
				if err := s.Send(<-queue); err != nil {
					return err
				}
			}
			if err := s.Err(); err != io.EOF {
				return err
			}
			return nil
		}
	}
}

// Messages of every size come and go in order, through windows smaller than they
// are, on several streams of one connection.
func TestWhatIsSaidIsHeard(t *testing.T) {
	s := start(t, Config{Methods: map[string]func(*Stream) error{"/s/echo": echo}})
	conn := dial(t, s.address, grpc.WithInitialWindowSize(70_000), grpc.WithInitialConnWindowSize(100_000))
	var group sync.WaitGroup
	for range 4 {
		stream := open(t, conn, "/s/echo")
		var sent [][]byte
		for _, n := range []int{0, 1, 4, 5, 100, 16<<10 - 5, 16 << 10, 16<<10 + 1, 70_000, 3 << 20, rand.IntN(200_000), 7} {
			m := bytes.Repeat([]byte{byte(rand.Uint32())}, n)
			sent = append(sent, m)
		}
		group.Go(func() {
			for _, m := range sent {
				if err := stream.SendMsg(&m); err != nil {
					t.Error(err)
				}
			}
			if err := stream.CloseSend(); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			for i, want := range sent {
				if got, err := hear(stream); err != nil || !bytes.Equal(got, want) {
					t.Errorf("message %d: heard %d bytes and %v, want %d as said", i, len(got), err, len(want))
				}
			}
			if _, err := hear(stream); err != io.EOF {
				t.Errorf("the stream ended with %v, want io.EOF", err)
			}
		})
	}
	group.Wait()
}

func TestHowStreamsEnd(t *testing.T) {
	methods := map[string]func(*Stream) error{
		"/s/status": func(s *Stream) error {
			s.SetTrailer("who", "me")
			return status.Error(codes.AlreadyExists, "zone \"ä\" 100%\n")
		},
		"/s/plain": func(*Stream) error { return errors.New("broke") },
		"/s/panic": func(*Stream) error { panic("bug") },
		"/s/inner": func(s *Stream) error { <-s.Deliver(func([]byte) error { panic("bug") }); return s.Err() },
		"/s/fails": func(s *Stream) error {
			<-s.Deliver(func([]byte) error { return status.Error(codes.DataLoss, "") })
			return s.Err()
		},
		"/s/after": func(s *Stream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			return errors.Join(s.Send([]byte("a")), s.Send())
		},
		"/s/echo": echo,
	}
	s := start(t, Config{Methods: methods, MaxMessage: 100})
	conn := dial(t, s.address)
	for _, c := range []struct {
		method string
		size   int
		heard  []string
		want   error
		option grpc.CallOption
	}{
		{"/s/status", 1, nil, status.Error(codes.AlreadyExists, "zone \"ä\" 100%\n"), grpc.EmptyCallOption{}},
		{"/s/plain", 1, nil, status.Error(codes.Unknown, "broke"), grpc.EmptyCallOption{}},
		{"/s/panic", 1, nil, status.Error(codes.Internal, "the stream panicked"), grpc.EmptyCallOption{}},
		{"/s/inner", 1, nil, status.Error(codes.Internal, "the stream panicked"), grpc.EmptyCallOption{}},
		{"/s/fails", 1, nil, status.Error(codes.DataLoss, ""), grpc.EmptyCallOption{}},
		{"/s/after", 1, []string{"a", ""}, io.EOF, grpc.EmptyCallOption{}},
		{"/s/none", 1, nil, status.Error(codes.Unimplemented, "unknown method /s/none"), grpc.EmptyCallOption{}},
		{"/s/echo", 101, nil, status.Error(codes.ResourceExhausted, "a message of 101 bytes is longer than 100"), grpc.EmptyCallOption{}},
		{"/s/echo", 100, nil, status.Error(codes.Unimplemented, "a message is compressed"), grpc.UseCompressor(gzip.Name)},
	} {
		stream := open(t, conn, c.method, c.option)
		m := make([]byte, c.size)
		if err := stream.SendMsg(&m); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		var heard []string
		m, err := hear(stream)
		for ; err == nil; m, err = hear(stream) {
			heard = append(heard, string(m))
		}
		if !slices.Equal(heard, c.heard) || err.Error() != c.want.Error() {
			t.Errorf("%s: heard %q, then %v; want %q and %v", c.method, heard, err, c.heard, c.want)
		}
		if c.method == "/s/status" && stream.Trailer().Get("who")[0] != "me" {
			t.Errorf("trailer %v", stream.Trailer())
		}
	}
}

// A client that goes away, or gives a stream up, ends it.
func TestAStreamThatIsGivenUpEnds(t *testing.T) {
	ended, began := make(chan error, 2), make(chan bool, 2)
	s := start(t, Config{Methods: map[string]func(*Stream) error{"/s/wait": func(s *Stream) error {
		began <- true
		<-s.Deliver(func([]byte) error { return nil })
		ended <- s.Err()
		return s.Send([]byte("in vain"))
	}}})
	conn := dial(t, s.address)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/s/wait"); err != nil {
		t.Fatal(err)
	}
	<-began
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("a stream that was reset ended with %v", err)
	}
	open(t, conn, "/s/wait")
	<-began
	conn.Close()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("a stream whose connection closed ended with %v", err)
	}
}

// Who does not read holds nobody else up, on the same connection either, and can be
// ended.
func TestOneThatDoesNotRead(t *testing.T) {
	sent := make(chan int, 1)
	s := start(t, Config{Methods: map[string]func(*Stream) error{"/s/echo": echo, "/s/flood": func(s *Stream) error {
		n := 0
		for s.Send(make([]byte, 10_000)) == nil {
			n++
		}
		sent <- n
		return nil
	}}})
	conn := dial(t, s.address, grpc.WithInitialWindowSize(100_000), grpc.WithInitialConnWindowSize(1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/s/flood"); err != nil {
		t.Fatal(err)
	}
	other := open(t, conn, "/s/echo")
	for range 100 {
		say(t, other, []byte("hello"))
		if m, err := hear(other); err != nil || string(m) != "hello" {
			t.Fatalf("heard %q, %v", m, err)
		}
	}
	cancel()
	if n := <-sent; n > 20 {
		t.Errorf("%d messages of 10,000 bytes went out, want as many as a window of 100,000 takes", n)
	}
}

// A stop lets methods say why before the connections close.
func TestAStopIsTold(t *testing.T) {
	stop := make(chan struct{})
	server, err := NewServer(Config{Methods: map[string]func(*Stream) error{"/s/wait": func(s *Stream) error {
		if err := s.Send([]byte("hello")); err != nil {
			return err
		}
		<-stop
		return status.Error(codes.Unavailable, "stopping")
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l, stop) }()
	stream := open(t, dial(t, l.Addr().String()), "/s/wait")
	if m, err := hear(stream); err != nil || string(m) != "hello" {
		t.Fatal(m, err)
	}
	cancel()
	if _, err := hear(stream); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "stopping" {
		t.Errorf("ended with %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The name is the certificate's, and without HTTP/2 nobody is served.
func TestEncryptedStreams(t *testing.T) {
	dir, ca := t.TempDir(), mtlstest.New(t)
	cert, key := ca.Issue(t, "127.0.0.1", time.Now().Add(time.Hour))
	config, err := mtls.Server(mtls.Config{Cert: mtlstest.Write(t, dir, "c", cert), Key: mtlstest.Write(t, dir, "k", key), ClientCA: mtlstest.Write(t, dir, "ca", ca.PEM)})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Config{TLS: config, Methods: map[string]func(*Stream) error{"/s/name": func(s *Stream) error { return s.Send([]byte(mtls.Name(s.TLS()))) }}})
	stream := open(t, dial(t, s.address, grpc.WithTransportCredentials(credentials.NewTLS(ca.Client(t, "node")))), "/s/name")
	if m, err := hear(stream); err != nil || string(m) != "node" {
		t.Errorf("heard %q, %v", m, err)
	}
	if _, err := hear(stream); err != io.EOF {
		t.Error(err)
	}
	plain, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	fmt.Fprint(plain, http2.ClientPreface)
	if _, err := io.ReadAll(plain); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

// A connection that says nothing is asked after ten seconds, and closed twenty
// seconds later where it does not answer.
func TestASilentConnection(t *testing.T) {
	s := start(t, Config{Methods: map[string]func(*Stream) error{"/s/echo": echo}})
	nc, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fmt.Fprint(nc, http2.ClientPreface)
	f := http2.NewFramer(nc, nc)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	next := func() http2.Frame {
		for {
			got, err := f.ReadFrame()
			if err != nil {
				return nil
			}
			if _, ok := got.(*http2.SettingsFrame); !ok {
				return got
			}
		}
	}
	if _, ok := next().(*http2.WindowUpdateFrame); !ok {
		t.Error("the connection's window is not widened")
	}
	for range 2 * pingAfter { // beside what passes by itself
		s.server.look()
		if s.server.second.Load() == pingAfter {
			break
		}
	}
	ping, ok := next().(*http2.PingFrame)
	if !ok {
		t.Fatal("nobody asks whether it is there")
	}
	if err := f.WritePing(true, ping.Data); err != nil {
		t.Fatal(err)
	}
	if err := f.WritePing(false, [8]byte{1}); err != nil {
		t.Fatal(err)
	}
	if pong, ok := next().(*http2.PingFrame); !ok || pong.Data[0] != 1 {
		t.Error("a ping is not answered") // so the answer before it was heard
	}
	s.server.look()
	for range silentAfter + pingAfter {
		s.server.look()
	}
	if got := next(); got != nil {
		if got = next(); got != nil {
			t.Errorf("heard %v, want the end", got)
		}
	}
}

// What is no HTTP/2 ends the connection and nothing else.
func TestFaultsEndTheConnection(t *testing.T) {
	s := start(t, Config{Methods: map[string]func(*Stream) error{"/s/echo": echo}})
	for name, write := range map[string]func(*http2.Framer) error{
		"data of no stream": func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) },
		"an even stream": func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: []byte{0x82}, EndHeaders: true})
		},
		"a window beyond all": func(f *http2.Framer) error { return f.WriteWindowUpdate(0, 1<<31-1) },
		"damaged headers": func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff}, EndHeaders: true})
		},
		"settings out of range": func(f *http2.Framer) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1})
		},
	} {
		nc, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(nc, http2.ClientPreface)
		f := http2.NewFramer(nc, nc)
		if err := errors.Join(f.WriteSettings(), write(f)); err != nil {
			t.Fatal(err)
		}
		told := false
		for {
			got, err := f.ReadFrame()
			if err != nil {
				break
			}
			if _, ok := got.(*http2.GoAwayFrame); ok {
				told = true
			}
		}
		if nc.Close(); !told {
			t.Errorf("%s: the client is not told", name)
		}
	}
	if m, err := hear(said(t, open(t, dial(t, s.address), "/s/echo"))); err != nil || string(m) != "still here" {
		t.Errorf("afterwards %q, %v", m, err)
	}
}

func said(t *testing.T, s grpc.ClientStream) grpc.ClientStream {
	say(t, s, []byte("still here"))
	return s
}

// Bytes of any kind come to an end.
func FuzzConnection(f *testing.F) {
	var begin bytes.Buffer
	begin.WriteString(http2.ClientPreface)
	w := http2.NewFramer(&begin, nil)
	_ = w.WriteSettings()
	_ = w.WriteWindowUpdate(0, 1000)
	_ = w.WritePing(false, [8]byte{})
	f.Add(begin.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := NewServer(Config{Methods: map[string]func(*Stream) error{"/s/echo": echo}})
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, here) }()
		c := newConn(s, there)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.fail(c.run())
		}()
		_, _ = here.Write(data)
		here.Close()
		<-done
		s.handlers.Wait()
	})
}

// A message up costs no allocation once its stream stands.
func TestAMessageUpAllocatesNothing(t *testing.T) {
	s, err := NewServer(Config{Methods: map[string]func(*Stream) error{"/s/x": nil}})
	if err != nil {
		t.Fatal(err)
	}
	stream := &Stream{conn: &conn{server: s}, ready: make(chan struct{}), over: make(chan struct{})}
	n := 0
	stream.Deliver(func(m []byte) error { n += len(m); return nil })
	message := append([]byte{0, 0, 0, 1, 0}, make([]byte, 256)...)
	if allocated := testing.AllocsPerRun(100, func() {
		for _, part := range [][]byte{message, message[:3], message[3:100], message[100:]} {
			if err := stream.take(part); err != nil {
				t.Fatal(err)
			}
		}
	}); allocated > 0 || n != 101*2*256 {
		t.Errorf("%v allocations, %d bytes heard; want none, and %d", allocated, n, 101*2*256)
	}
}

// paper is a connection on which writes are counted.
type paper struct {
	net.Conn
	writes int
	last   []byte
}

func (p *paper) Write(data []byte) (int, error) {
	p.writes++
	p.last = append(p.last[:0], data...)
	return len(data), nil
}

// A message down costs one write and no allocation, however long it is, and its
// connection keeps nothing of it.
func TestAMessageDownIsOneWrite(t *testing.T) {
	s, err := NewServer(Config{Methods: map[string]func(*Stream) error{"/s/x": nil}})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 200, 12_000, 40_000} {
		nc := &paper{last: make([]byte, 0, 64<<10)}
		c := newConn(s, nc)
		c.window = 1 << 30
		stream := &Stream{conn: c, id: 1, window: 1 << 30, opened: true}
		c.streams[1] = stream
		pieces := [][]byte{bytes.Repeat([]byte{1}, size/4), bytes.Repeat([]byte{2}, size-size/4)}
		allocated := testing.AllocsPerRun(100, func() {
			if err := stream.Send(pieces...); err != nil {
				t.Fatal(err)
			}
		})
		if allocated > 0 || nc.writes != 101 || c.said.room != nil {
			t.Errorf("%d bytes: %v allocations and %d writes a message, %d bytes kept; want 0, 1 and none", size, allocated, nc.writes/101, c.said.size())
		}
		var got []byte
		f := http2.NewFramer(nil, bytes.NewReader(nc.last))
		for len(got) < head+size {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, frame.(*http2.DataFrame).Data()...)
		}
		want := slices.Concat([]byte{0, 0, 0, byte(size >> 8), byte(size)}, pieces[0], pieces[1])
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: said %d that are others", size, len(got))
		}
	}
}
