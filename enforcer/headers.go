package enforcer

import (
	"fmt"
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
	f := fields{text: room[:0]}
	f.text = strconv.AppendUint(f.text, d.Version.Epoch, 10)
	f.text = append(f.text, '.')
	f.text = strconv.AppendUint(f.text, d.Version.Number, 10)
	f.end(HeaderSnapshot)
	if d.Bucket != "" {
		f.text = appendText(f.text, d.Bucket, false)
		f.end(HeaderBucket)
	}
	in := d.Enforced
	t := in.Reset(d.Outcome == Drop)
	if in.Limit != nil {
		f.item(service, in.Bucket)
		quota, window := in.Policy()
		f.parameter(";q=", quota)
		f.parameter(";w=", window)
		f.end(HeaderPolicy)
		f.item(service, in.Bucket)
		f.parameter(";r=", max(in.Remaining, 0))
		f.parameter(";t=", t)
		f.end(HeaderLimit)
	}
	if d.Outcome == Drop {
		f.text = strconv.AppendInt(f.text, RetryAfter(d), 10)
		f.end(HeaderRetryAfter)
		if e.config.PagesURL != "" {
			f.text = append(f.text, e.link(service, d)...)
			f.end(HeaderLink)
		}
	}
	f.set(h)
}

// link is the Link field's value: the page that explains the bucket.
func (e *Enforcer) link(service string, d Decision) string {
	page := strings.TrimSuffix(e.config.PagesURL, "/") + "/services/" + url.PathEscape(service) + "/buckets/" + url.PathEscape(d.Bucket)
	if len(d.Key) > 0 {
		page += "?key=" + url.QueryEscape(d.Key.String())
	}
	return "<" + page + `>; rel="help"`
}

// hour is the longest that a client is told to wait, in seconds.
const hour = 3600

// RetryAfter is when a dropped client is told to come back: whole seconds from
// 1 to 3600, never before it would be admitted, unless that is later than an
// hour. Jitter of up to half the wait keeps refused clients from coming back
// as one. It differs from call to call.
func RetryAfter(d Decision) int64 {
	t := max(d.Enforced.Reset(true), min(ceil(d.RetryAfter, time.Second), hour))
	return min(t+rand.Int64N(max(t/2, 1)+1), hour)
}

// Policy is the limit's rate as whole requests in whole seconds: the shortest
// of a few windows in which it is exact, else the longest, rounded down. It is
// 0 in an hour where nothing is limited.
func (s Standing) Policy() (quota, seconds int64) {
	if s.Limit == nil {
		return 0, hour
	}
	return perWindow(s.Limit.Rate)
}

// Reset is in how many whole seconds the standing is better, from 1 to 3600:
// for a dropped request, when it would be admitted; else when one window's
// worth is there again, or the burst where that is less.
func (s Standing) Reset(dropped bool) int64 {
	t := ceil(bounded(s.Wait), time.Second)
	if !dropped && s.Limit != nil && s.Limit.Rate > 0 {
		quota, _ := s.Policy()
		want := float64(min(quota, int64(s.Limit.Burst)) - s.Remaining)
		t = int64(math.Ceil(min(want/float64(s.Limit.Rate), hour)))
	}
	return min(max(t, 1), hour)
}

// perWindow is a rate as Policy has it.
func perWindow(r rlc.Rate) (quota, seconds int64) {
	for _, w := range []int64{1, 10, 60, 100, 600, 1000, hour} {
		if n := float64(r) * float64(w); n >= 1 && math.Abs(n-math.Round(n)) < 1e-6 {
			return int64(math.Round(n)), w
		}
	}
	return int64(float64(r) * hour), hour
}

// fields gathers header fields: their values lie one after another in text.
type fields struct {
	text  []byte
	count int
	names [6]string
	ends  [6]int
}

// end ends the value of the field name.
func (f *fields) end(name string) {
	f.names[f.count], f.ends[f.count] = name, len(f.text)
	f.count++
}

// item begins a structured field (RFC 9651): the bucket's name as a string.
func (f *fields) item(service, bucket string) {
	f.text = append(f.text, '"')
	f.text = appendText(f.text, service, true)
	f.text = append(f.text, '/')
	f.text = appendText(f.text, bucket, true)
	f.text = append(f.text, '"')
}

// parameter adds an integer parameter of a structured field.
func (f *fields) parameter(name string, n int64) {
	f.text = append(f.text, name...)
	f.text = strconv.AppendInt(f.text, n, 10)
}

// set puts the fields into h.
func (f *fields) set(h http.Header) {
	text, values, from := string(f.text), make([]string, f.count), 0
	for i := range f.count {
		values[i], from = text[from:f.ends[i]], f.ends[i]
		h[f.names[i]] = values[i : i+1 : i+1]
	}
}

// appendText appends s as a header can hold it: printable ASCII, the rest
// percent-encoded. Inside a structured field's string, quotes and backslashes
// are escaped.
func appendText(b []byte, s string, quoted bool) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c >= 0x7F || c == '%':
			b = fmt.Appendf(b, "%%%02X", c)
		case quoted && (c == '"' || c == '\\'):
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return b
}
