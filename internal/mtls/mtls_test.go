package mtls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// server answers each handshake with one byte; refusals end the connection.
func server(t *testing.T, c *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				_, _ = tls.Server(conn, c).Write([]byte("y"))
			})
		}
	})
	t.Cleanup(func() { l.Close(); open.Wait() })
	return l.Addr().String()
}

// try connects and reports why the server did not answer; nil when it did.
func try(t *testing.T, addr string, c *tls.Config) error {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, c)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.ReadFull(conn, make([]byte, 1)) // TLS 1.3: a refused certificate is told here
	return err
}

func TestOnlyListedClientsOfTheAuthorityConnect(t *testing.T) {
	dir := t.TempDir()
	ca, other := mtlstest.New(t), mtlstest.New(t)
	cert, key := ca.Issue(t, "server", time.Now().Add(time.Hour))
	config, err := Server(Config{
		Cert: mtlstest.Write(t, dir, "cert", cert), Key: mtlstest.Write(t, dir, "key", key), ClientCA: mtlstest.Write(t, dir, "ca", ca.PEM),
		Clients: mtlstest.Write(t, dir, "clients", []byte("# the gateways\ngateway\nspiffe://mesh/gateway # the other\n\n")),
	})
	if err != nil {
		t.Fatal(err)
	}
	addr := server(t, config)

	expired := &tls.Config{RootCAs: ca.Pool()}
	pair, err := tls.X509KeyPair(ca.Issue(t, "gateway", time.Now().Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	expired.Certificates = []tls.Certificate{pair}
	wrong := other.Client(t, "gateway")
	wrong.RootCAs = ca.Pool()
	for what, c := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"a listed client":             {ca.Client(t, "gateway"), true},
		"a listed identity":           {ca.Client(t, "spiffe://mesh/gateway"), true},
		"no certificate":              {ca.Client(t, ""), false},
		"another authority's":         {wrong, false},
		"an expired certificate":      {expired, false},
		"a name that is not listed":   {ca.Client(t, "laptop"), false},
		"a comment's word for a name": {ca.Client(t, "the other"), false},
	} {
		if err := try(t, addr, c.config); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFilesAreReadAgainAndBadOnesLeaveWhatIsInForce(t *testing.T) {
	dir := t.TempDir()
	old, next := mtlstest.New(t), mtlstest.New(t)
	cert, key := old.Issue(t, "server", time.Now().Add(time.Hour))
	var log bytes.Buffer
	now := time.Now()
	c := Config{
		Cert: mtlstest.Write(t, dir, "cert", cert), Key: mtlstest.Write(t, dir, "key", key), ClientCA: mtlstest.Write(t, dir, "ca", old.PEM),
		Clients: mtlstest.Write(t, dir, "clients", []byte("gateway\n")), Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	if _, err := Server(c); err != nil {
		t.Fatal(err)
	}
	f := &files{config: c, now: func() time.Time { return now }}
	f.seen = f.look()
	first, err := f.parse(f.seen)
	if err != nil {
		t.Fatal(err)
	}
	f.current.Store(first)
	serial := func(c *tls.Config) string { return string(c.Certificates[0].Certificate[0]) }

	// A certificate without its key yet: half a rotation.
	cert2, key2 := next.Issue(t, "server", time.Now().Add(time.Hour))
	mtlstest.Write(t, dir, "cert", cert2)
	now = now.Add(2 * checkEvery)
	for range 3 {
		now = now.Add(2 * checkEvery)
		if got := f.fresh(); got != first {
			t.Fatal("a certificate without its key was taken")
		}
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("%d complaints, want one:\n%s", n, &log)
	}
	mtlstest.Write(t, dir, "key", key2)
	mtlstest.Write(t, dir, "ca", next.PEM)
	if got := f.fresh(); got != first {
		t.Error("files are looked at more often than once a second")
	}
	now = now.Add(2 * checkEvery)
	second := f.fresh()
	if serial(second) == serial(first) || second.ClientCAs.Equal(first.ClientCAs) {
		t.Error("the new files are not in force")
	}
	// A name taken out of the list.
	mtlstest.Write(t, dir, "clients", []byte("nobody-at-all\n"))
	now = now.Add(2 * checkEvery)
	addr := server(t, f.fresh())
	mine := next.Client(t, "gateway")
	if err := try(t, addr, mine); err == nil {
		t.Error("a name that was taken out still connects")
	}
}

func TestWhatCannotBeUsedIsRefusedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	ca := mtlstest.New(t)
	cert, key := ca.Issue(t, "server", time.Now().Add(time.Hour))
	certFile, keyFile := mtlstest.Write(t, dir, "cert", cert), mtlstest.Write(t, dir, "key", key)
	empty := mtlstest.Write(t, dir, "empty", nil)
	for _, c := range []Config{
		{}, {Cert: certFile}, {Cert: certFile, Key: certFile}, {Cert: certFile, Key: "/no/such/file"},
		{Cert: certFile, Key: keyFile, ClientCA: empty}, {Cert: certFile, Key: keyFile, Clients: empty},
		{Cert: certFile, Key: keyFile, ClientCA: certFile, Clients: "/no/such/file"},
	} {
		if _, err := Server(c); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
