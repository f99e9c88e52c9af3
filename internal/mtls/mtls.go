// Package mtls is server TLS from files that are read again when they change,
// with the name that a client's verified certificate gives it.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
)

// Config names the files. All are PEM but Clients.
type Config struct {
	Cert string // the server's certificate with its chain; required
	Key  string // its private key; required
	// ClientCA holds the authorities whose clients may connect. "" asks
	// clients for no certificate.
	ClientCA string
	// Clients lists the names that may connect, one a line, "#" begins a
	// comment. "" lets every client of ClientCA in. A name that is taken out
	// is refused from the next handshake on.
	Clients string
	Log     *slog.Logger // nil: discarded
}

// checkEvery is how often the files are looked at, at most.
const checkEvery = time.Second

// files is the configuration in force and what it was read from.
type files struct {
	config  Config
	now     func() time.Time
	current atomic.Pointer[tls.Config]
	next    atomic.Int64 // when to look again, in Unix nanoseconds

	mu      sync.Mutex // one look at a time
	seen    contents   // of the configuration in force
	problem string     // logged last
}

// Server reads the files and makes a configuration that follows them: each
// handshake uses what they held at most a second before. Files that cannot be
// used, a key beside another's certificate for one, leave what is in force
// alone and are logged. Connections that stand are not touched.
//
// The error wraps rlc.ErrInvalid.
func Server(c Config) (*tls.Config, error) {
	if c.Cert == "" || c.Key == "" {
		return nil, fmt.Errorf("%w: TLS needs a certificate and its key", rlc.ErrInvalid)
	}
	if c.Clients != "" && c.ClientCA == "" {
		return nil, fmt.Errorf("%w: a list of clients needs the authority that vouches for them", rlc.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	f := &files{config: c, now: time.Now}
	f.seen = f.look()
	first, err := f.parse(f.seen)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rlc.ErrInvalid, err)
	}
	f.current.Store(first)
	f.next.Store(f.now().Add(checkEvery).UnixNano())
	out := first.Clone()
	out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.fresh(), nil }
	return out, nil
}

// fresh is the configuration in force, read anew where the files have changed.
func (f *files) fresh() *tls.Config {
	if f.now().UnixNano() < f.next.Load() || !f.mu.TryLock() {
		return f.current.Load()
	}
	defer f.mu.Unlock()
	f.next.Store(f.now().Add(checkEvery).UnixNano())
	seen := f.look()
	if seen == f.seen {
		return f.current.Load()
	}
	c, err := f.parse(seen)
	switch {
	case err != nil && err.Error() != f.problem:
		f.problem = err.Error()
		f.config.Log.Error("TLS files cannot be used; what was read before stays in force", "error", err)
	case err == nil:
		f.current.Store(c)
		f.seen, f.problem = seen, ""
		f.config.Log.Info("TLS files read again", "cert", f.config.Cert)
	}
	return f.current.Load()
}

// look reads the files, in the order of Config; of one that cannot be read the
// error stands in its content's place. They are small.
func (f *files) look() (c contents) {
	for i, name := range []string{f.config.Cert, f.config.Key, f.config.ClientCA, f.config.Clients} {
		if name == "" {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			c.err = err
		}
		c.text[i] = string(data)
	}
	return c
}

// contents are the files' own.
type contents struct {
	text [4]string
	err  error // the last of reading them
}

// parse makes a configuration of what the files held.
func (f *files) parse(seen contents) (*tls.Config, error) {
	if seen.err != nil {
		return nil, fmt.Errorf("read TLS files: %w", seen.err)
	}
	cert, key, authorities, clients := seen.text[0], seen.text[1], seen.text[2], seen.text[3]
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, fmt.Errorf("use TLS certificate %s with key %s: %w", f.config.Cert, f.config.Key, err)
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		// A resumed session would outlive the authority or the name that let
		// it in.
		SessionTicketsDisabled: true,
	}
	if f.config.ClientCA == "" {
		return c, nil
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM([]byte(authorities)) {
		return nil, fmt.Errorf("use TLS authorities of clients: %s holds no PEM certificate", f.config.ClientCA)
	}
	if f.config.Clients == "" {
		return c, nil
	}
	known := names(clients)
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if name := Name(&s); !known[name] {
			f.config.Log.Warn("TLS client refused: its name is not listed", "client", name)
			return errors.New("client's name is not listed")
		}
		return nil
	}
	return c, nil
}

// names reads a list of names, one a line.
func names(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "#")
		if name = strings.TrimSpace(name); name != "" {
			out[name] = true
		}
	}
	return out
}

// Name is who the verified peer of a connection is: its certificate's first
// URI (a SPIFFE identity), else its first DNS name, else its common name. ""
// for a connection without a verified certificate, nil included.
func Name(s *tls.ConnectionState) string {
	if s == nil || len(s.VerifiedChains) == 0 || len(s.VerifiedChains[0]) == 0 {
		return ""
	}
	switch cert := s.VerifiedChains[0][0]; {
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	default:
		return cert.Subject.CommonName
	}
}
