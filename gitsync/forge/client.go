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
	readWait   = 10 * time.Second // of one that only reads: the follower waits for it
	firstPause = 30 * time.Second // after a refusal, doubled by each up to
	lastPause  = 15 * time.Minute
	maxPause   = time.Hour // that a server may ask for
)

// Server says where a forge's API is and how RLC shows who it is.
type Server struct {
	URL       string   // of the API's root; https, or http on this machine
	Hosts     []string // that URL may name, "host" or "host:port"; empty allows any
	TokenFile string   // one line; read again for every call
	CAFile    string   // PEM beside the system's authorities; read once, by Client
	Networks  []netip.Prefix
	// Token takes the place of TokenFile where the token is made, not kept; MadeFrom
	// is the file that it is made from: other content ends a refusal's pause. "": it is
	// always the same one.
	Token    func(context.Context) (string, error)
	MadeFrom string
	// Header is the header that the token goes into, behind Prefix.
	Header, Prefix string
	Now            func() time.Time // time.Now by default
	ReadWait       time.Duration    // of one call that only reads, 10 s by default
}

// Client returns an HTTP client for a forge's API: it adds the token to what
// goes to the API's own host and to nothing else, follows no redirect to
// another, keeps a pause that the server asked for (Retry-After, rate limits) or
// that a refusal or no answer calls for, and takes the token out of whatever comes
// back. What is forbidden, or not there to be read, pauses its own address alone.
// An error is rlc.ErrInvalid.
func Client(s Server) (*http.Client, error) {
	u, err := baseURL(s.URL, s.Hosts)
	if err != nil {
		return nil, err
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.ReadWait <= 0 {
		s.ReadWait = readWait
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
		Transport: &gate{Server: s, host: u.Host, scheme: u.Scheme, next: t, closed: map[string]*pause{}},
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

	mu     sync.Mutex        // guards what follows
	all    pause             // of every call
	closed map[string]*pause // of calls that are refused, by method and address
}

// pause keeps calls away from the server. The zero value keeps none.
type pause struct {
	why   error // nil: it is over
	until time.Time
	wait  time.Duration // of the last one, which the next doubles
	token *[32]byte     // sum of the token that was refused: another ends it; nil: none does
}

// over reports whether a call with a token may be made.
func (p *pause) over(now time.Time, sum [32]byte) bool {
	return p.why == nil || !now.Before(p.until) || p.token != nil && *p.token != sum
}

// refused lengthens the pause after one more refusal, of a token where that is not
// nil: half of it to all of it, so that not all replicas ask at once.
func (p *pause) refused(now time.Time, why error, token *[32]byte, first, last time.Duration) {
	if token != nil && p.token != nil && *p.token != *token {
		p.wait = 0
	}
	p.wait = min(max(2*p.wait, first), last)
	p.why, p.token, p.until = why, token, now.Add(p.wait/2+rand.N(p.wait/2+1))
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != g.host || r.URL.Scheme != g.scheme {
		return nil, fmt.Errorf("%w: a request to another host", rlc.ErrRefused)
	}
	sum, err := g.identity()
	if err != nil {
		return nil, err
	}
	call := r.Method + " " + r.URL.EscapedPath()
	if err := g.paused(call, sum); err != nil {
		return nil, err
	}
	token, err := g.token(r.Context())
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	if r.Method == http.MethodGet {
		limited, cancel := context.WithTimeout(ctx, g.ReadWait)
		defer cancel() // the body is read by then
		ctx = limited
	}
	r = r.Clone(ctx)
	r.Header.Set(g.Header, g.Prefix+token)
	asked := g.Now()
	resp, body, err := g.answer(r)
	if err != nil {
		g.silent(ctx, g.Now().Sub(asked), err)
		return nil, err
	}
	if len(body) > maxAnswer {
		err = fmt.Errorf("%w: the forge's answer has more than %d bytes", rlc.ErrInvalid, maxAnswer)
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 && token != "" {
		body = bytes.ReplaceAll(body, []byte(token), []byte("…"))
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	g.note(call, resp, sum)
	return resp, nil
}

// answer is what the server says, with its body, of which one byte too many is read.
func (g *gate) answer(r *http.Request) (*http.Response, []byte, error) {
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	_ = resp.Body.Close()
	return resp, body, err
}

// silent keeps the next calls from waiting for a server that did not answer: three
// times as long as this one waited.
func (g *gate) silent(ctx context.Context, waited time.Duration, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // whoever asked gave up
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all.wait = min(max(2*g.all.wait, 3*waited, time.Second), time.Minute)
	g.all.why, g.all.token = fmt.Errorf("the forge does not answer: %w", err), nil
	g.all.until = g.Now().Add(g.all.wait)
}

// identity is the sum of what RLC shows who it is by, as that is now.
func (g *gate) identity() ([32]byte, error) {
	file := g.TokenFile
	if g.Token != nil {
		file = g.MadeFrom
	}
	if file == "" {
		return [32]byte{}, nil // it stays what it is
	}
	text, err := os.ReadFile(file)
	if err != nil {
		err = fmt.Errorf("%w: secret file: %w", rlc.ErrInvalid, err)
	}
	return sha256.Sum256(text), err
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

func (g *gate) paused(call string, sum [32]byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &g.all
	if p.over(g.Now(), sum) && g.closed[call] != nil {
		p = g.closed[call]
	}
	if p.over(g.Now(), sum) {
		return nil
	}
	return fmt.Errorf("%w; next try after %s", p.why, p.until.UTC().Format(time.RFC3339))
}

// mostClosed bounds how many refused calls are remembered.
const mostClosed = 1000

// note keeps what an answer says of the time until the next call.
func (g *gate) note(call string, resp *http.Response, sum [32]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, status := g.Now(), resp.StatusCode
	limited := status == http.StatusTooManyRequests ||
		status == http.StatusForbidden && (resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-RateLimit-Remaining") == "0")
	switch {
	case limited:
		g.all.why, g.all.token = fmt.Errorf("the forge's rate limit is reached (HTTP %d)", status), nil
		g.all.until = now.Add(min(max(asked(resp.Header, now), time.Second), maxPause))
		return
	case status == http.StatusUnauthorized:
		g.all.refused(now, fmt.Errorf("%w: the forge refuses the credentials (HTTP 401)", rlc.ErrRefused), &sum, firstPause, lastPause)
		return
	case status >= 500:
		g.all.refused(now, fmt.Errorf("the forge is out of order (HTTP %d)", status), nil, time.Second, time.Minute)
		return
	}
	g.all = pause{}
	root := rlc.ErrRefused
	switch {
	case status == http.StatusNotFound && resp.Request.Method == http.MethodGet:
		root = rlc.ErrNotFound // of what the token may not see servers say this, too
	case status != http.StatusForbidden:
		delete(g.closed, call)
		return
	}
	if g.closed[call] == nil {
		if len(g.closed) >= mostClosed {
			clear(g.closed)
		}
		g.closed[call] = &pause{}
	}
	g.closed[call].refused(now, fmt.Errorf("%w: the forge answers HTTP %d", root, status), &sum, firstPause, lastPause)
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
