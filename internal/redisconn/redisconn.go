// Package redisconn connects to Redis, single or Cluster: it reads URLs
// strictly, keeps secrets out of errors, and dials when it is first used, so
// that a Redis which is away keeps nobody from starting.
package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/openrlc/rlc"
)

// Config is what a connection is made from.
type Config struct {
	// URL is redis://[user:password@]host[:port][/database], or rediss:// for
	// TLS. Several host[:port], separated by commas, are the first to ask for a
	// Cluster's shape. Required. It is never repeated in an error.
	URL string
	// PasswordFile holds the password, read anew at each connection; "" takes
	// the URL's.
	PasswordFile string
	// RootCAs judge the server's certificate; nil takes the system's.
	RootCAs *x509.CertPool
	// DialTimeout bounds the making of a connection; required.
	DialTimeout time.Duration
	// Silence is how long a connection may owe an answer before it is taken for
	// dead; required.
	Silence time.Duration
	// Tune changes what else the library offers; nil for nothing.
	Tune func(*rueidis.ClientOption)
}

// Conn is a connection, or to a Cluster several, made when it is first needed.
// It is safe for use by many goroutines.
type Conn struct {
	server server
	option rueidis.ClientOption
	turns  atomic.Uint64

	mu      sync.Mutex
	open    rueidis.Client
	dialing *dialing
	conns   map[net.Conn]struct{}
	closed  bool
	waiting sync.WaitGroup
}

type dialing struct {
	done chan struct{}
	err  error // set before done is closed
}

// New checks c. It does not connect.
func New(c Config) (*Conn, error) {
	s, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	s.passwordFile = c.PasswordFile
	if _, err := s.credentials(); err != nil {
		return nil, fmt.Errorf("%w: %w", rlc.ErrInvalid, err)
	}
	o := rueidis.ClientOption{
		InitAddress:       s.addrs,
		SelectDB:          s.database,
		ClientName:        "rlc",
		ClientSetInfo:     rueidis.DisableClientSetInfo,
		AuthCredentialsFn: func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) { return s.credentials() },
		Dialer:            net.Dialer{Timeout: c.DialTimeout, KeepAlive: 5 * time.Second},
		ConnWriteTimeout:  c.Silence,
		// What failed is tried again by us, if at all; never replayed.
		DisableRetry: true,
		DisableCache: true,
	}
	if s.tls {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs}
		if len(s.addrs) == 1 {
			// The nodes of a Cluster may announce addresses that no certificate
			// names; the one host we were given is what theirs must carry.
			o.TLSConfig.ServerName = s.host
		}
	}
	if c.Tune != nil {
		c.Tune(&o)
	}
	return &Conn{server: s, option: o}, nil
}

// Authorities are the certificates in a PEM file that may sign a rediss://
// server's; nil, for the system's, where file is "".
func Authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: authorities of Redis: %w", rlc.ErrInvalid, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: authorities of Redis: %s holds no certificate", rlc.ErrInvalid, file)
	}
	return pool, nil
}

// CheckPrefix says what is wrong with a prefix of keys. A prefix cannot hold
// braces, so that it never chooses a shard.
func CheckPrefix(prefix string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9:._-]{1,64}$`).MatchString(prefix) {
		return fmt.Errorf("%w: key prefix %.80q: want 1 to 64 letters, digits and :._-", rlc.ErrInvalid, prefix)
	}
	return nil
}

// Addr is where Redis is, for logs: host:port, several separated by commas.
func (c *Conn) Addr() string { return strings.Join(c.server.addrs, ",") }

// Turns is how often a connection was made or ended so far. When a server
// starts anew it turns before any answer of the new one comes.
func (c *Conn) Turns() uint64 { return c.turns.Load() }

// Client waits for the connection at most as long as ctx lasts: the library
// takes no context for that.
func (c *Conn) Client(ctx context.Context) (rueidis.Client, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, net.ErrClosed
	}
	if c.open != nil {
		defer c.mu.Unlock()
		return c.open, nil
	}
	d := c.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		c.dialing = d
		c.waiting.Go(func() { c.connect(d) })
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.done:
	}
	if d.err != nil {
		return nil, d.err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return nil, net.ErrClosed
	}
	return c.open, nil
}

func (c *Conn) connect(d *dialing) {
	o := c.option
	o.DialCtxFn = c.dial
	client, err := rueidis.NewClient(o)
	c.mu.Lock()
	c.dialing, d.err = nil, err
	if err == nil && !c.closed {
		c.open, client = client, nil
	}
	c.mu.Unlock()
	if err == nil && client != nil {
		client.Close()
	}
	close(d.done)
}

// dial remembers the connection, so that Close need not wait for a server that
// does not answer.
func (c *Conn) dial(ctx context.Context, addr string, dialer *net.Dialer, conf *tls.Config) (net.Conn, error) {
	var n net.Conn
	var err error
	if conf != nil {
		n, err = (&tls.Dialer{NetDialer: dialer, Config: conf}).DialContext(ctx, "tcp", addr)
	} else {
		n, err = dialer.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	c.turns.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		n.Close()
		return nil, net.ErrClosed
	}
	if c.conns == nil {
		c.conns = map[net.Conn]struct{}{}
	}
	known := &conn{Conn: n, owner: c}
	c.conns[known] = struct{}{}
	return known, nil
}

// conn forgets itself when it is closed.
type conn struct {
	net.Conn
	owner *Conn
}

func (n *conn) Close() error {
	n.owner.turns.Add(1)
	n.owner.mu.Lock()
	delete(n.owner.conns, n)
	n.owner.mu.Unlock()
	return n.Conn.Close()
}

// Drop ends the connections that there are; what is under way on them fails,
// and the next call connects anew.
func (c *Conn) Drop() {
	c.mu.Lock()
	cut := make([]net.Conn, 0, len(c.conns))
	for known := range c.conns {
		cut = append(cut, known)
	}
	c.mu.Unlock()
	for _, known := range cut {
		_ = known.Close() // it is over either way
	}
}

// Close ends every connection and waits for those being made. What is under
// way fails.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	client := c.open
	c.open = nil
	c.mu.Unlock()
	c.Drop()
	if client != nil {
		client.Close()
	}
	c.waiting.Wait()
}

// server is where Redis is and how to get in.
type server struct {
	addrs        []string // host:port
	host         string   // of the first
	user         string
	password     string
	passwordFile string
	database     int
	tls          bool
}

// parse reads a URL strictly. Its errors never repeat it.
func parse(raw string) (s server, err error) {
	invalid := func(what string) (server, error) {
		return server{}, fmt.Errorf("%w: the URL of redis %s; want redis://[user:password@]host[:port][/database], or rediss:// for TLS, with special characters of the password as %%XX", rlc.ErrInvalid, what)
	}
	first, others, many := splitHosts(raw)
	u, err := url.Parse(first)
	switch {
	case err != nil:
		return invalid("cannot be read")
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return invalid("is neither redis:// nor rediss://")
	case u.Opaque != "" || u.Hostname() == "":
		return invalid("names no host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return invalid("has a query or a fragment")
	}
	s = server{host: u.Hostname(), tls: u.Scheme == "rediss"}
	for _, host := range append([]string{u.Host}, others...) {
		one, err := url.Parse("redis://" + host)
		if err != nil || one.Hostname() == "" || one.Host != host {
			return invalid("names a host that cannot be read")
		}
		port := one.Port()
		if port == "" {
			port = "6379"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return invalid("has no port between 1 and 65535")
		}
		s.addrs = append(s.addrs, net.JoinHostPort(one.Hostname(), port))
	}
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
	}
	if db := strings.TrimPrefix(u.Path, "/"); db != "" {
		if s.database, err = strconv.Atoi(db); err != nil || s.database < 0 {
			return invalid("has a database that is no number")
		}
	}
	if many && s.database != 0 {
		return invalid("has a database, and a Cluster has only one")
	}
	return s, nil
}

// splitHosts takes the hosts after the first out of a URL.
func splitHosts(raw string) (first string, others []string, many bool) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw, nil, false
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	hosts := rest[strings.LastIndexByte(rest[:end], '@')+1 : end]
	one, more, many := strings.Cut(hosts, ",")
	if !many {
		return raw, nil, false
	}
	return scheme + "://" + rest[:end-len(hosts)] + one + rest[end:], strings.Split(more, ","), true
}

// credentials are read at each connection: a password's file may change.
func (s server) credentials() (rueidis.AuthCredentials, error) {
	c := rueidis.AuthCredentials{Username: s.user, Password: s.password}
	if s.passwordFile != "" {
		b, err := os.ReadFile(s.passwordFile)
		if err != nil {
			return c, fmt.Errorf("password of redis: %w", err)
		}
		if c.Password = strings.TrimSpace(string(b)); c.Password == "" {
			return c, fmt.Errorf("password of redis: %s is empty", s.passwordFile)
		}
	}
	return c, nil
}

// Timeout reports whether an error of the library or of a context means that
// no answer came in time.
func Timeout(err error) bool {
	n := net.Error(nil)
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
