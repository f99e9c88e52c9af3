package loopwire

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// The pauses between two tries to connect: a random one up to firstPause,
// doubled with each failure in a row, at most lastPause.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	lastWord   = 2 * time.Second // for taking leave
)

// pause is the time to wait after so many failures in a row: full jitter, so
// that a fleet that lost its aggregator does not come back as one.
func pause(failures int, random func(int64) int64) time.Duration {
	most := lastPause
	if failures < 10 {
		most = min(firstPause<<failures, lastPause)
	}
	return time.Duration(random(int64(most)))
}

// spread is the addresses in the order that a node tries them: each node's own,
// so that a fleet spreads over all and over those that are left.
func spread(node string, addresses []string) []string {
	rank := func(address string) string {
		sum := sha256.Sum256([]byte(node + "\x00" + address))
		return string(sum[:])
	}
	out := slices.Clone(addresses)
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	return slices.Compact(out)
}

// Going over to another address, and home.
const (
	deafAfter = 5 * time.Second  // of silence, where there is somewhere else to go
	homeEvery = 30 * time.Second // up to twice that between two looks
	homeDial  = 2 * time.Second
)

// window is what may be under way downwards, in bytes, on a stream and on a
// connection. One that is set spares the pings that measure it.
const window = 1 << 20

// uplink keeps one stream to the tier above open.
type uplink[Up any] struct {
	addresses []string    // in the order to try them; the first is home
	tls       *tls.Config // nil: without
	log       *slog.Logger
	open      func(context.Context, grpc.ClientConnInterface) (grpc.BidiStreamingClient[Up, pb.Down], error)
	// begin is called for each new stream and returns its first message.
	begin func() *Up
	// next blocks until there is something to send, or returns ctx's error, or
	// errDone when there will be nothing more.
	next func(context.Context, *writer) (*Up, error)
	// directives, document and hello hear what comes down; hello may be nil.
	directives func(loop.Directives)
	document   func(*Document)
	hello      func(*pb.DownHello)
	homeEvery  time.Duration // 0: homeEvery
	onRefused  func()        // is told of each refusal; nil for nobody
	onPeers    func(int)     // hears how many nodes there are from who refuses; nil for nobody

	refused  atomic.Pointer[string] // why the tier above refuses this process; nil: it does not
	up       atomic.Bool            // a stream is open and has heard something
	connects atomic.Uint64          // streams opened so far
}

// run keeps a stream open until ctx ends or next says errDone. It returns nil. Of
// tries that fail in a row it warns once in complainEvery.
func (u *uplink[Up]) run(ctx context.Context) error {
	var said time.Time
	for failures, at := 0, 0; ; failures++ {
		heard, err := u.attempt(ctx, at)
		u.up.Store(false)
		if ctx.Err() != nil || err == errDone {
			return nil
		}
		if heard.Load() {
			failures = 0
		}
		if err == errHome {
			at = 0
			continue
		}
		u.hearRefusal(err)
		level := slog.LevelDebug
		if time.Since(said) >= complainEvery {
			level, said = slog.LevelWarn, time.Now()
		}
		u.log.Log(ctx, level, "the stream up broke", "address", u.addresses[at], "error", err, "failures", failures+1)
		at = (at + 1) % len(u.addresses)
		select {
		case <-time.After(pause(failures, rand.Int64N)):
		case <-ctx.Done():
			return nil
		}
	}
}

// attempt connects to an address and serves one stream.
func (u *uplink[Up]) attempt(ctx context.Context, at int) (heard *atomic.Bool, err error) {
	creds := insecure.NewCredentials()
	if u.tls != nil {
		creds = credentials.NewTLS(u.tls)
	}
	conn, err := grpc.NewClient("passthrough:///"+u.addresses[at], grpc.WithTransportCredentials(creds),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		// Our own pauses are shorter than gRPC's, and jittered from the first.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second}))
	if err != nil {
		return &atomic.Bool{}, err
	}
	defer conn.Close()
	ctx, leave := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer leave(nil)
	if at != 0 {
		looking.Go(func() { u.lookHome(ctx, leave) })
	}
	if heard, err = u.stream(ctx, leave, conn); err != errDone {
		if cause := context.Cause(ctx); cause == errHome || cause == errDeaf {
			err = cause
		}
	}
	return heard, err
}

// Why a stream that works is left.
var (
	errHome = errors.New("home answers again")
	errDeaf = errors.New("nothing was heard for 5 s")
)

// lookHome leaves the stream once the first address answers.
func (u *uplink[Up]) lookHome(ctx context.Context, leave context.CancelCauseFunc) {
	d := net.Dialer{Timeout: homeDial}
	every := u.homeEvery
	if every == 0 {
		every = homeEvery
	}
	for {
		select {
		case <-time.After(every + time.Duration(rand.Int64N(int64(every)))):
		case <-ctx.Done():
			return
		}
		if conn, err := d.DialContext(ctx, "tcp", u.addresses[0]); err == nil {
			conn.Close()
			leave(errHome)
			return
		}
	}
}

// part ends the link once the last word is out: at once where nobody hears it,
// after lastWord at the latest.
func (u *uplink[Up]) part(cancel context.CancelFunc) {
	if !u.up.Load() {
		cancel()
		return
	}
	time.AfterFunc(lastWord, cancel)
}

// errDone says that the sender has nothing more to say.
var errDone = errors.New("done")

// stream opens one stream and serves it until it breaks.
func (u *uplink[Up]) stream(ctx context.Context, leave context.CancelCauseFunc, conn *grpc.ClientConn) (heard *atomic.Bool, err error) {
	heard = &atomic.Bool{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := u.open(ctx, conn)
	if err != nil {
		return heard, err
	}
	received := make(chan error, 1)
	go func() {
		received <- u.receive(s, heard, leave)
		cancel()
	}()
	err = u.send(ctx, s)
	if err == errDone {
		_ = s.CloseSend()
		// The tier above ends the stream once it has read all of it.
		select {
		case <-received:
		case <-time.After(time.Second):
			cancel()
			<-received
		}
		return heard, err
	}
	cancel()
	if cause := <-received; cause != nil && ctx.Err() != nil {
		err = cause // what broke it; sending only saw the end
	}
	return heard, err
}

func (u *uplink[Up]) send(ctx context.Context, s grpc.BidiStreamingClient[Up, pb.Down]) error {
	u.connects.Add(1)
	if err := s.Send(u.begin()); err != nil {
		return err
	}
	w := newWriter()
	for {
		m, err := u.next(ctx, w)
		if err != nil {
			return err
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

func (u *uplink[Up]) receive(s grpc.BidiStreamingClient[Up, pb.Down], heard *atomic.Bool, leave context.CancelCauseFunc) error {
	var names reader
	var docs assembly
	// A tier that has begun to direct does so each second.
	var deaf *time.Timer
	defer func() {
		if deaf != nil {
			deaf.Stop()
		}
	}()
	for {
		m, err := s.Recv()
		if err != nil {
			u.hearPeers(s.Trailer())
			return err
		}
		heard.Store(true)
		u.up.Store(true)
		u.refused.Store(nil)
		if _, err := names.learn(m.Names); err != nil {
			return err
		}
		if m.Hello != nil && u.hello != nil {
			u.hello(m.Hello)
		}
		if m.Document != nil {
			d, err := docs.add(m.Document)
			if err != nil {
				return err
			}
			if d != nil {
				u.document(d)
			}
		}
		if m.Directives != nil {
			if deaf != nil {
				deaf.Reset(deafAfter)
			} else if len(u.addresses) > 1 {
				deaf = time.AfterFunc(deafAfter, func() { leave(errDeaf) })
			}
			d, err := decodeDirectives(&names, m.Directives)
			if err != nil {
				return err
			}
			u.directives(d)
		}
	}
}
