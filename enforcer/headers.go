package enforcer

import (
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// The header fields that tell a client how it stands, in http.Header's
// spelling.
const (
	HeaderBucket     = "X-Rlc-Bucket"
	HeaderSnapshot   = "X-Rlc-Snapshot"
	HeaderPolicy     = "Ratelimit-Policy"
	HeaderLimit      = "Ratelimit"
	HeaderRetryAfter = "Retry-After"
	HeaderLink       = "Link"
)

// Headers tells a client of a service how it stands after d, as the IETF draft
// "RateLimit header fields for HTTP" has it. Limits come from an enforcing
// bucket only: a client must not slow down for a limit that drops nothing. A
// drop always says when to come back.
func (e *Enforcer) Headers(h http.Header, service string, d Decision) {
	// One text and one slice hold all values: two allocations.
	var room [256]byte
	var f fields
	b := strconv.AppendUint(room[:0], d.Version.Epoch, 10)
	b = append(b, '.')
	b = f.end(HeaderSnapshot, strconv.AppendUint(b, d.Version.Number, 10))
	bucket := d.Bucket
	if d.Outcome != Drop { // d.Bucket may be in shadow
		bucket = d.Enforced.Bucket
	}
	if bucket != "" {
		b = f.end(HeaderBucket, appendText(b, bucket, false))
	}
	if t, ok := e.Tell(service, &d); ok {
		b = appendParameter(appendItem(b, service, t.Bucket), ";q=", t.Quota)
		b = f.end(HeaderPolicy, appendParameter(b, ";w=", t.Window))
		b = appendParameter(appendItem(b, service, t.Bucket), ";r=", t.Remaining)
		b = f.end(HeaderLimit, appendParameter(b, ";t=", t.Reset))
	}
	if d.Outcome == Drop {
		b = f.end(HeaderRetryAfter, strconv.AppendInt(b, RetryAfter(d), 10))
		if e.config.PagesURL != "" {
			b = f.end(HeaderLink, append(b, e.link(service, d)...))
		}
	}
	f.set(h, string(b))
}

// link is the Link field's value: the page that explains the bucket. What
// stands in a bucket's place has none: an override on a caller is explained to
// the caller, every other where overrides stand, and what no bucket matches
// where the policy says so.
func (e *Enforcer) link(service string, d Decision) string {
	page := "/services/" + url.PathEscape(service)
	switch {
	case d.Caller != "":
		page = "/why?" + url.Values{"service": {service}, "caller": {d.Caller}}.Encode()
	case d.Bucket == Overridden:
		page = "/emergency"
	case d.Bucket == Unmatched:
		page += "/policy"
	default:
		page += "/buckets/" + url.PathEscape(d.Bucket)
		if len(d.Key) > 0 {
			page += "?key=" + url.QueryEscape(d.Key.String())
		}
	}
	return "<" + strings.TrimSuffix(e.config.PagesURL, "/") + page + `>; rel="help"`
}

// hour is the longest that a client is told to wait, in seconds.
const hour = 3600

// RetryAfter is when a dropped client is told to come back: whole seconds from
// 1 to 3600, never before it would be admitted, unless that is later than an
// hour. Jitter of up to half the wait keeps refused clients from coming back
// as one. It differs from call to call.
func RetryAfter(d Decision) int64 {
	t := min(max(ceil(d.RetryAfter, time.Second), 1), hour)
	return min(t+rand.Int64N(max(t/2, 1)+1), hour)
}

// Told is what a client may be told of its standing, and can pace itself by.
type Told struct {
	Bucket    string
	Quota     int64    // whole requests in Window; rounded down where it must be
	Window    int64    // seconds
	Rate      rlc.Rate // what Quota in Window stands for
	Remaining int64    // whole tokens left; above Quota where the burst is
	// Reset is in how many whole seconds the standing is better, from 1 to
	// 3600: for a dropped request, when it would be admitted; else when a
	// window's worth is there again, or the burst where that is less.
	Reset int64
}

// Tell is what the client of a service may be told after d. It is false where
// no enforcing bucket took part, or one that knows no rate: a cap on requests
// in flight.
func (e *Enforcer) Tell(service string, d *Decision) (t Told, ok bool) {
	in := &d.Enforced
	if in.Limit == nil {
		return t, false
	}
	windowed := false
	switch e.algorithm(service, in.Bucket) {
	case rlc.Concurrency:
		return t, false
	case rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog:
		windowed = in.Limit.Rate > 0
	}
	t = Told{Bucket: in.Bucket, Rate: in.Limit.Rate, Remaining: max(in.Remaining, 0)}
	t.Quota, t.Window = perWindow(t.Rate)
	reset := float64(ceil(bounded(d.RetryAfter), time.Second))
	if windowed {
		// The window itself; it is whole again after its length at the latest.
		length := math.Ceil(float64(in.Limit.Burst) / float64(t.Rate))
		t.Quota, t.Window = int64(in.Limit.Burst), int64(length)
		if d.Outcome != Drop {
			reset = length
		}
	} else if d.Outcome != Drop && t.Rate > 0 {
		reset = math.Ceil(float64(min(t.Quota, int64(in.Limit.Burst))-in.Remaining) / float64(t.Rate))
	}
	t.Reset = int64(min(max(reset, 1), hour))
	return t, true
}

// algorithm is a bucket's; "" for one that the policy does not name.
func (e *Enforcer) algorithm(service, bucket string) string {
	if l := e.loaded.Load(); l != nil {
		if s := l.services[service]; s != nil {
			if b := s.Bucket(bucket); b != nil {
				return b.Algorithm
			}
		}
	}
	return ""
}

// perWindow is a rate as whole requests in whole seconds: the shortest of a few
// windows in which it is exact, else an hour's, rounded down, or where that is
// nothing, 11 days'.
func perWindow(r rlc.Rate) (quota, seconds int64) {
	for _, w := range []int64{1, 10, 60, 100, 600, 1000, hour, 10_000, 86_400, 100_000, 1_000_000} {
		if n := float64(r) * float64(w); n >= 1 && math.Abs(n-math.Round(n)) < 1e-6 {
			return int64(math.Round(n)), w
		}
	}
	if r*hour >= 1 {
		return int64(r * hour), hour
	}
	return int64(r * 1_000_000), 1_000_000
}

// fields gathers header fields whose values lie one after another in one text.
type fields struct {
	count int
	names [6]string
	ends  [6]int
}

// end says that the value of the field name ends where the text does, which it
// returns.
func (f *fields) end(name string, text []byte) []byte {
	f.names[f.count], f.ends[f.count] = name, len(text)
	f.count++
	return text
}

// set puts the fields into h.
func (f *fields) set(h http.Header, text string) {
	values, from := make([]string, f.count), 0
	for i := range f.count {
		values[i], from = text[from:f.ends[i]], f.ends[i]
		h[f.names[i]] = values[i : i+1 : i+1]
	}
}

// appendItem begins a structured field (RFC 9651): the bucket's name as a
// string.
func appendItem(b []byte, service, bucket string) []byte {
	b = appendText(append(b, '"'), service, true)
	b = appendText(append(b, '/'), bucket, true)
	return append(b, '"')
}

// appendParameter adds an integer parameter of a structured field.
func appendParameter(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

// appendText appends s as a header can hold it: printable ASCII, the rest
// percent-encoded. Inside a structured field's string, quotes and backslashes
// are escaped.
func appendText(b []byte, s string, quoted bool) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c >= 0x7F || c == '%':
			const hex = "0123456789ABCDEF"
			b = append(b, '%', hex[c>>4], hex[c&15])
		case quoted && (c == '"' || c == '\\'):
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return b
}

// Status is the HTTP status of a drop: 429 Too Many Requests, or 503 Service
// Unavailable where load is shed whoever sends it: a cap on requests in flight
// is full, a person's override that is for no caller by name dropped the
// request, or its bucket fails closed and the counters do not answer.
func (e *Enforcer) Status(service string, d Decision) int {
	if d.Failure != "" || d.Bucket == Overridden && d.Caller == "" || e.algorithm(service, d.Bucket) == rlc.Concurrency {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}
