package forge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

const (
	maxAnswer  = 8 << 20 // bytes of one answer
	maxSecret  = 64 << 10
	callWait   = 30 * time.Second // of one call
	firstPause = 30 * time.Second // after a refusal, doubled by each up to
	lastPause  = 15 * time.Minute
	maxPause   = time.Hour // that a server may ask for
)

// Server says where a forge's API is and how RLC shows who it is.
type Server struct {
	URL       string   // of the API's root; https, or http on this machine
	Hosts     []string // that URL may name, "host" or "host:port"; empty allows any
	TokenFile string   // one line; read again for every call
	CAFile    string   // PEM beside the system's authorities; read again for every new connection pool
	Networks  []netip.Prefix
	// Token takes the place of TokenFile where the token is made, not kept.
	Token func(context.Context) (string, error)
	// Header is the header that the token goes into, behind Prefix.
	Header, Prefix string
	Now            func() time.Time // time.Now by default
}

// Client returns an HTTP client for a forge's API: it adds the token to what
// goes to the API's own host and to nothing else, follows no redirect to
// another, keeps a pause that the server asked for (Retry-After, rate limits)
// or that a refusal calls for, and takes the token out of whatever comes back.
// An error is rlc.ErrInvalid.
func Client(s Server) (*http.Client, error) {
	u, err := baseURL(s.URL, s.Hosts)
	if err != nil {
		return nil, err
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Token == nil && s.TokenFile == "" {
		return nil, fmt.Errorf("%w: the forge needs a token file", rlc.ErrInvalid)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.MaxIdleConnsPerHost = nil, 4
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: CA file: %w", rlc.ErrInvalid, err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: the CA file holds no certificate", rlc.ErrInvalid)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if len(s.Networks) > 0 {
		t.DialContext = within(s.Networks)
	}
	return &http.Client{
		Timeout:   callWait,
		Transport: &gate{Server: s, host: u.Host, scheme: u.Scheme, next: t},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Host != u.Host || r.URL.Scheme != u.Scheme || len(via) > 3 {
				return fmt.Errorf("%w: a redirect to another host", rlc.ErrRefused)
			}
			return nil
		},
	}, nil
}

// within dials an address only inside the networks.
func within(all []netip.Prefix) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err != nil || !slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(at.Addr().Unmap()) }) {
			_ = conn.Close()
			return nil, fmt.Errorf("%w: the forge's host leads outside of the networks allowed", rlc.ErrRefused)
		}
		return conn, nil
	}
}

// baseURL checks the API's root before any library sees it.
func baseURL(raw string, hosts []string) (*url.URL, error) {
	u, err := url.Parse(raw)
	refuse := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("%w: the forge's URL %s; want https://host/path", rlc.ErrInvalid, why)
	}
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return refuse("is none")
	case u.User != nil:
		return refuse("holds a user or a password, which belongs into a file")
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, ".."):
		return refuse("has a query, a fragment or dots")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return refuse("would send the token in clear; http is for this machine only")
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse("has a scheme that is not allowed")
	case len(hosts) > 0 && !slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, u.Host) || strings.EqualFold(h, u.Hostname()) }):
		return refuse("is on a host that is not in the list")
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// gate is the one way to the server.
type gate struct {
	Server
	host, scheme string
	next         http.RoundTripper

	mu     sync.Mutex // guards what follows
	why    error      // of the pause
	until  time.Time
	wait   time.Duration
	tried  [32]byte // sum of the token that was refused
	forAll bool     // a new token does not end the pause
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != g.host || r.URL.Scheme != g.scheme {
		return nil, fmt.Errorf("%w: a request to another host", rlc.ErrRefused)
	}
	token, err := g.token(r.Context())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(token))
	if err := g.paused(sum); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(g.Header, g.Prefix+token)
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	_ = resp.Body.Close()
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("%w: the forge's answer has more than %d bytes", rlc.ErrInvalid, maxAnswer)
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 && token != "" {
		body = bytes.ReplaceAll(body, []byte(token), []byte("…"))
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	g.note(resp, sum)
	return resp, nil
}

// token reads the token as it is now.
func (g *gate) token(ctx context.Context) (string, error) {
	if g.Token != nil {
		return g.Token(ctx)
	}
	return ReadSecret(g.TokenFile)
}

// ReadSecret reads a file of one line.
func ReadSecret(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%w: secret file: %w", rlc.ErrInvalid, err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" || len(text) > maxSecret || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return "", fmt.Errorf("%w: secret file: want one line, the secret", rlc.ErrInvalid)
	}
	return text, nil
}

func (g *gate) paused(sum [32]byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why == nil || !g.Now().Before(g.until) || !g.forAll && sum != g.tried {
		return nil
	}
	return fmt.Errorf("%w; next try after %s", g.why, g.until.UTC().Format(time.RFC3339))
}

// note keeps what an answer says of the time until the next call.
func (g *gate) note(resp *http.Response, sum [32]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.Now()
	limited := resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusForbidden && (resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-RateLimit-Remaining") == "0")
	switch {
	case limited:
		g.why, g.forAll = fmt.Errorf("the forge's rate limit is reached (HTTP %d)", resp.StatusCode), true
		g.until = now.Add(min(max(asked(resp.Header, now), time.Second), maxPause))
	case resp.StatusCode == http.StatusUnauthorized:
		g.wait = min(max(2*g.wait, firstPause), lastPause)
		if sum != g.tried {
			g.wait = firstPause
		}
		g.why, g.forAll, g.tried = fmt.Errorf("%w: the forge refuses the credentials (HTTP 401)", rlc.ErrRefused), false, sum
		g.until = now.Add(g.wait/2 + rand.N(g.wait/2+1))
	case resp.StatusCode >= 500:
		g.wait = min(max(2*g.wait, time.Second), time.Minute)
		g.why, g.forAll = fmt.Errorf("the forge is out of order (HTTP %d)", resp.StatusCode), true
		g.until = now.Add(g.wait/2 + rand.N(g.wait/2+1))
	default:
		g.why, g.wait = nil, 0
	}
}

// asked is how long a server wants to be left alone; a minute where it does not say.
func asked(h http.Header, now time.Time) time.Duration {
	if after := h.Get("Retry-After"); after != "" {
		if n, err := strconv.ParseInt(after, 10, 32); err == nil && n >= 0 {
			return time.Duration(n) * time.Second
		}
		if at, err := http.ParseTime(after); err == nil {
			return at.Sub(now)
		}
	}
	for _, name := range []string{"X-RateLimit-Reset", "RateLimit-Reset"} {
		if n, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil {
			return time.Unix(n, 0).Sub(now)
		}
	}
	return time.Minute
}

// Failed is an adapter's error with the rlc error that its HTTP status means.
// status 0 says that there was no answer.
func Failed(did string, status int, err error) error {
	if err == nil {
		return nil
	}
	root := error(nil)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		root = rlc.ErrRefused
	case http.StatusNotFound:
		root = rlc.ErrNotFound
	case http.StatusConflict, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusPreconditionFailed:
		root = rlc.ErrConflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		root = rlc.ErrInvalid
	}
	if root == nil || errors.Is(err, root) {
		return fmt.Errorf("%s: %w", did, err)
	}
	return fmt.Errorf("%s: %w: %w", did, root, err)
}
