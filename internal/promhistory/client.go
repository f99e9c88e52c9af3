package promhistory

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/dialcheck"
)

// Why a query gave no history. Service, Counts and Check wrap these.
var (
	ErrUnreachable   = errors.New("history source is unreachable")
	ErrTimeout       = errors.New("history source did not answer in time")
	ErrNotPrometheus = errors.New("not a Prometheus")
	ErrNoResult      = errors.New("no result")
	ErrWrongType     = errors.New("answer of the wrong type")
	ErrTooLarge      = errors.New("answer is too large")
	ErrRedirect      = errors.New("redirect to another host refused")
	ErrBusy          = errors.New("history source is busy or the query too expensive") // 422, 429, 5xx
	ErrQuery         = errors.New("query refused")                                     // any other 4xx
)

// Reason names an error of this package for a metric's label: unreachable,
// timeout, not_prometheus, no_result, wrong_type, too_large, redirect, busy,
// query, warning, other.
func Reason(err error) string {
	for _, c := range []struct {
		err  error
		name string
	}{
		{ErrRedirect, "redirect"}, {ErrUnreachable, "unreachable"}, {ErrTimeout, "timeout"}, {ErrNotPrometheus, "not_prometheus"},
		{ErrNoResult, "no_result"}, {ErrWrongType, "wrong_type"}, {ErrTooLarge, "too_large"}, {ErrBusy, "busy"}, {ErrQuery, "query"},
	} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	if w := (*warning)(nil); errors.As(err, &w) {
		return "warning"
	}
	return "other"
}

// warning is an answer that the server itself calls incomplete.
type warning struct{ text string }

func (w *warning) Error() string { return "partial answer: " + w.text }

// warningText joins what warns. Servers before Prometheus 3 put infos among
// the warnings.
func warningText(warnings v1.Warnings) string {
	var texts []string
	for _, w := range warnings {
		if !strings.HasPrefix(w, "PromQL info:") {
			texts = append(texts, clip(w))
		}
	}
	return clip(strings.Join(texts, "; "))
}

// status is an answer other than 2xx.
type status struct {
	kind    error // ErrBusy or ErrQuery
	code    int
	message string
	after   time.Duration // Retry-After; 0 for none
}

func (s *status) Error() string { return fmt.Sprintf("%s: status %d: %s", s.kind, s.code, s.message) }
func (s *status) Unwrap() error { return s.kind }

// client sends requests for the API library, within the limits of Config.
type client struct {
	base    *url.URL
	http    *http.Client
	turns   chan struct{}
	maxBody int64
	timeout time.Duration
	now     func() time.Time
	access  *access
	skew    atomic.Int64 // the server's clock minus ours in the last answer
	sent    atomic.Int64 // requests
}

var _ api.Client = (*client)(nil)

func newClient(c Config) (*client, error) {
	// The URL may hold a password: it is not passed on.
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%w: the URL of the history source: want http://host:port or https://…", rlc.ErrInvalid)
	}
	a, err := newAccess(c)
	if err != nil {
		return nil, err
	}
	var h http.Client
	if c.Client != nil {
		h = *c.Client
	} else {
		h.Transport = transport(c, nil)
	}
	h.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Host != base.Host || r.URL.Scheme != base.Scheme || len(via) > 5 {
			return fmt.Errorf("%w: %s", ErrRedirect, r.URL.Host)
		}
		return nil
	}
	return &client{base: base, http: &h, turns: make(chan struct{}, c.MaxQueries), maxBody: c.MaxBody, timeout: c.QueryTimeout, now: c.Now, access: a}, nil
}

// transport reaches the history source and nothing else.
func transport(c Config, certificates *tls.Config) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = dialcheck.Dialer{Networks: c.Networks}.DialContext
	t.DisableCompression = true
	t.ReadBufferSize = 64 << 10 // a stream of chunks is read in large pieces
	t.MaxIdleConnsPerHost = c.MaxQueries
	if certificates != nil {
		t.TLSClientConfig = certificates
	}
	return t
}

// URL implements api.Client.
func (c *client) URL(path string, args map[string]string) *url.URL {
	for name, v := range args {
		path = strings.ReplaceAll(path, ":"+name, url.PathEscape(v))
	}
	return c.base.JoinPath(path)
}

// Do implements api.Client. The body is complete and looks like JSON, or there
// is an error.
func (c *client) Do(ctx context.Context, req *http.Request) (*http.Response, []byte, error) {
	var got *http.Response
	var body []byte
	err := c.send(ctx, req, func(res *http.Response) (err error) {
		if body, err = io.ReadAll(io.LimitReader(res.Body, c.maxBody+1)); err != nil {
			return err
		}
		if int64(len(body)) > c.maxBody {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, c.maxBody)
		}
		got = res
		kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
		if res.StatusCode/100 != 2 {
			return c.status(res, body)
		}
		if kind == "text/html" || !strings.HasPrefix(strings.TrimLeft(string(body[:min(len(body), 64)]), " \r\n\t"), "{") {
			return fmt.Errorf("%w: status %d with a body of type %q", ErrNotPrometheus, res.StatusCode, clip(kind))
		}
		return nil
	})
	if err != nil {
		return got, nil, err
	}
	return got, body, nil
}

// send sends one request in its turn and hands the answer on, whatever its
// status. The deadline covers all of it.
func (c *client) send(ctx context.Context, req *http.Request, use func(*http.Response) error) error {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return ctx.Err()
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req = req.WithContext(ctx)
	if err := c.access.apply(req); err != nil {
		return err
	}
	c.sent.Add(1)
	res, err := c.access.client(c.http).Do(req)
	if err != nil {
		return c.cause(outer, err)
	}
	body := &watched{ReadCloser: res.Body}
	defer body.Close()
	res.Body = body
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		c.skew.Store(int64(at.Sub(c.now())))
	}
	err = use(res)
	switch {
	case err != nil && body.err != nil:
		return c.cause(outer, body.err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return c.cause(outer, err)
	}
	return err
}

// watched remembers why a body could not be read to its end.
type watched struct {
	io.ReadCloser
	err error
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

func (c *client) status(res *http.Response, body []byte) error {
	s := &status{kind: ErrQuery, code: res.StatusCode, message: res.Status}
	var said struct{ Error string }
	if json.Unmarshal(body, &said) == nil && said.Error != "" {
		s.message = clip(said.Error)
	}
	switch {
	case s.code == http.StatusUnprocessableEntity, s.code == http.StatusTooManyRequests, s.code == http.StatusRequestTimeout, s.code >= 500 && s.code != http.StatusNotImplemented:
		s.kind = ErrBusy
	}
	if v := res.Header.Get("Retry-After"); v != "" {
		if n, err := strconv.Atoi(v); err == nil && n > 0 {
			s.after = time.Duration(min(n, 1<<20)) * time.Second
		} else if at, err := http.ParseTime(v); err == nil {
			s.after = max(0, at.Sub(c.now()))
		}
	}
	return s
}

// cause tells the ways apart in which no answer came. The library's error texts
// carry the URL, with the query in it where it was sent by GET: they are not
// passed on.
func (c *client) cause(outer context.Context, err error) error {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case outer.Err() != nil:
		return outer.Err()
	case errors.Is(err, ErrRedirect):
		var at *url.Error
		if errors.As(err, &at) {
			return at.Err
		}
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s", ErrTimeout, rlc.DurationText(c.timeout))
	case errors.As(err, &dns), errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, c.base.Host, inner(err))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op):
		return fmt.Errorf("%w: the connection broke: %w", ErrTimeout, inner(err))
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, c.base.Host, inner(err))
}

func inner(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// translate turns the library's own errors into ours.
func (c *client) translate(err error) error {
	var e *v1.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Type {
	case v1.ErrBadResponse:
		if strings.HasPrefix(e.Msg, "unexpected value type") { // a string
			return fmt.Errorf("%w: %s", ErrWrongType, clip(e.Msg))
		}
		return fmt.Errorf("%w: %s", ErrNotPrometheus, clip(e.Msg))
	case v1.ErrTimeout, v1.ErrCanceled:
		return fmt.Errorf("%w: %s", ErrBusy, clip(e.Msg))
	}
	return fmt.Errorf("%w: %s", ErrQuery, clip(e.Msg))
}

// clip bounds a foreign text.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return s
}
