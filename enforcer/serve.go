package enforcer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// HTTPServer answers HTTP. Slow, large and idle connections are cut: nobody
// can hold it by doing nothing. The zero fields mean the defaults.
type HTTPServer struct {
	Handler http.Handler
	TLS     *tls.Config   // nil: in clear
	Drain   time.Duration // how long requests under way may take to finish at the end; default 10 s
	Header  time.Duration // for a request's header to arrive; default 5 s, then the connection is closed
	Body    time.Duration // for the whole request to arrive; default 10 s, then 408
	Answer  time.Duration // for the whole answer to be taken; default 30 s
	Idle    time.Duration // for an unused connection; default 2 min
	// MaxHeader is the most bytes of a request's header, default 16 KiB; a
	// larger one is 431.
	MaxHeader int
}

// Serve answers on l until ctx ends, then stops accepting and lets the
// requests under way finish. It returns nil after a clean end; those that took
// longer than Drain are cut, which is clean too.
func (s HTTPServer) Serve(ctx context.Context, l net.Listener) error {
	orElse := func(d, otherwise time.Duration) time.Duration {
		if d == 0 {
			return otherwise
		}
		return d
	}
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: orElse(s.Header, 5*time.Second),
		ReadTimeout:       orElse(s.Body, 10*time.Second),
		WriteTimeout:      orElse(s.Answer, 30*time.Second),
		IdleTimeout:       orElse(s.Idle, 2*time.Minute),
		MaxHeaderBytes:    s.MaxHeader,
		TLSConfig:         s.TLS,
		ErrorLog:          log.New(io.Discard, "", 0), // clients' faults, not ours
	}
	if s.MaxHeader == 0 {
		server.MaxHeaderBytes = 16 << 10
	}
	served := make(chan error, 1)
	go func() {
		if s.TLS != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.Background(), orElse(s.Drain, 10*time.Second))
	defer cancel()
	// The first call ends accepting; a connection that was accepted at that
	// moment is known only once Serve has returned, and waited for by the second.
	err := server.Shutdown(stop)
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	if err == nil {
		err = server.Shutdown(stop)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close() // the last ones took too long
	}
	return err
}

// Serve answers on l with h until ctx ends, with the defaults of HTTPServer.
func Serve(ctx context.Context, l net.Listener, h http.Handler, drain time.Duration) error {
	return HTTPServer{Handler: h, Drain: drain}.Serve(ctx, l)
}

// sparedFiles are the file descriptors kept for everything that is not a
// client's connection: the state folder, the bus, the counters' store, logs.
const sparedFiles = 64

// MaxConnections is how many clients' connections the process can hold by its
// limit of file descriptors, which it reports too: all but 64 of them, at
// least 16 and at most 65,536.
func MaxConnections() (most, descriptors int) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 1 << 16, 1 << 30
	}
	descriptors = int(limit.Cur)
	return min(max(descriptors-sparedFiles, 16), 1<<16), descriptors
}

// Bound accepts from l while fewer than most connections of it are open;
// others wait in the kernel's queue until one is closed. It logs, at most every
// ten seconds, that the bound or the process's file descriptors are used up. A
// nil log discards.
func Bound(l net.Listener, most int, log *slog.Logger) net.Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &boundListener{Listener: l, slots: make(chan struct{}, max(most, 1)), closed: make(chan struct{}), log: log}
}

type boundListener struct {
	net.Listener
	slots  chan struct{} // holds one for each open connection
	closed chan struct{}
	close  sync.Once
	log    *slog.Logger
	noted  time.Time // of the last word in the log; Accept's alone
}

// Accept is called by one goroutine.
func (l *boundListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	default:
		l.note("connections wait: all that are allowed are open", "address", l.Addr().String(), "open", cap(l.slots))
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.note("connections wait: no file descriptor is left; raise the limit (LimitNOFILE= of the unit, ulimit -n)", "error", err)
		}
		return nil, err
	}
	return &boundConn{Conn: c, slots: l.slots}, nil
}

func (l *boundListener) note(text string, args ...any) {
	if now := time.Now(); now.Sub(l.noted) > 10*time.Second {
		l.noted = now
		l.log.Warn(text, args...)
	}
}

func (l *boundListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundConn gives its place back when it is closed.
type boundConn struct {
	net.Conn
	slots chan struct{}
	close sync.Once
}

func (c *boundConn) Close() error {
	err := c.Conn.Close()
	c.close.Do(func() { <-c.slots })
	return err
}
