package enforcer

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/jsontext"
	"github.com/openrlc/rlc/internal/mtls"
)

// What one HTTP request may carry.
const (
	maxBody       = 64 << 10
	maxAttributes = 64
	maxName       = 128 // bytes of an attribute's name
	maxService    = 1024
	attrHeader    = "X-Rlc-Attr-"
)

// HTTPConfig is what the HTTP API takes beside the enforcer. The zero value
// works.
type HTTPConfig struct {
	// Observe hears each decision with the verified name of the peer that
	// asked, "" for one that showed no certificate; nil for nobody. The
	// request's attributes are not to be kept.
	Observe func(peer string, r Request, d Decision)
}

// Handler is the enforcer's HTTP API: /v1/check, /v1/config, /v1/explain,
// /v1/top, /metrics, /healthz and /readyz.
func (e *Enforcer) Handler() http.Handler { return e.HTTP(HTTPConfig{}) }

// HTTP is Handler with a configuration.
func (e *Enforcer) HTTP(c HTTPConfig) http.Handler {
	a := api{e, c}
	mux := http.NewServeMux()
	guard := func(h http.HandlerFunc) http.Handler {
		return http.NewCrossOriginProtection().Handler(e.authorised(whole(h)))
	}
	mux.Handle("POST /v1/check", guard(a.check))
	mux.Handle("GET /v1/check", guard(a.checkSubrequest))
	mux.Handle("GET /v1/config", guard(e.showConfig))
	mux.Handle("GET /v1/explain", guard(e.showExplain))
	mux.Handle("GET /v1/top", guard(e.showTop))
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, map[string]string{"status": "ok"}) })
	mux.HandleFunc("GET /readyz", e.showReady)
	return mux
}

// api answers with decisions.
type api struct {
	*Enforcer
	config HTTPConfig
}

// authorised asks for the token, where there is one.
func (e *Enforcer) authorised(next http.HandlerFunc) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + e.config.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.config.Token != "" {
			got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
			if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				problem(w, http.StatusUnauthorized, "this enforcer asks for a token: send Authorization: Bearer …")
				return
			}
		}
		next(w, r)
	})
}

// whole refuses a query that cannot be read to its end: the parser leaves out a pair
// with a bad % or a semicolon, and a request without its caller is another request.
func whole(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
				problem(w, http.StatusBadRequest, "the query cannot be read: a % stands before two hexadecimal digits, and a semicolon is written %3B")
				return
			}
		}
		next(w, r)
	}
}

// checkBody is what POST /v1/check takes.
type checkBody struct {
	Service    string         `json:"service"`
	Attributes rlc.Attributes `json:"attributes"`
	Cost       *int64         `json:"cost"` // default 1; 0 looks and takes nothing
}

// check answers POST /v1/check: 200, or for a drop 429, or 503 where load is
// shed.
func (a api) check(w http.ResponseWriter, r *http.Request) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		problem(w, http.StatusUnsupportedMediaType, "the body must not be compressed")
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status, text := http.StatusBadRequest, "the body could not be read"
		if big := (*http.MaxBytesError)(nil); errors.As(err, &big) {
			status, text = http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody)
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			status, text = http.StatusRequestTimeout, "the body did not arrive in time"
		}
		problem(w, status, text)
		return
	}
	var body checkBody
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		problem(w, http.StatusBadRequest, jsontext.Of(err)+`; want {"service": "…", "attributes": {"caller": "…"}, "cost": 1}`)
		return
	}
	if _, err := dec.Token(); err != io.EOF {
		problem(w, http.StatusBadRequest, "the body holds more than one JSON value")
		return
	}
	if text := ambiguous(data, len(body.Attributes)); text != "" {
		problem(w, http.StatusBadRequest, text)
		return
	}
	req := Request{Service: body.Service, Attributes: body.Attributes, Cost: 1}
	if body.Cost != nil {
		req.Cost, req.Peek = *body.Cost, *body.Cost == 0
	}
	if text := invalid(req); text != "" {
		problem(w, http.StatusBadRequest, text)
		return
	}
	a.answer(w, r, req, func(d Decision) int { return a.Status(req.Service, d) })
}

// checkSubrequest answers GET /v1/check, the form of nginx' auth_request: 200,
// or 403 for a drop, since nginx turns any other status into 500.
func (a api) checkSubrequest(w http.ResponseWriter, r *http.Request) {
	req, text := queryRequest(r)
	if text != "" {
		problem(w, http.StatusBadRequest, text)
		return
	}
	a.answer(w, r, req, func(Decision) int { return http.StatusForbidden })
}

// queryRequest reads a request from X-RLC-Attr-<name> headers and from the
// query, where service and cost are the request's own and every other name is
// an attribute. A header wins over the query: the proxy sets it, the query may
// be the client's. The text says what is wrong with it; "" for nothing.
func queryRequest(r *http.Request) (Request, string) {
	req := Request{Attributes: rlc.Attributes{}, Cost: 1}
	for name, values := range r.URL.Query() {
		if len(values) > 1 {
			return req, fmt.Sprintf("%q is given %d times", name, len(values))
		}
		switch name {
		case "service":
			req.Service = values[0]
		case "cost":
			n, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil {
				return req, "cost must be a whole number"
			}
			req.Cost, req.Peek = n, n == 0
		default:
			req.Attributes[name] = values[0]
		}
	}
	for name, values := range r.Header {
		if attr, ok := strings.CutPrefix(name, attrHeader); ok {
			if len(values) > 1 {
				return req, fmt.Sprintf("header %s is given %d times", name, len(values))
			}
			req.Attributes[strings.ToLower(attr)] = values[0]
		}
	}
	return req, invalid(req)
}

// invalid says what is wrong with a request from outside; "" for nothing.
func invalid(r Request) string {
	switch {
	case r.Service == "":
		return "service is missing"
	case len(r.Service) > maxService:
		return fmt.Sprintf("service is longer than %d bytes", maxService)
	case r.Cost < 0:
		return fmt.Sprintf("cost %d is negative; want 1 or more, or 0 to look without taking", r.Cost)
	case float64(r.Cost) > rlc.MaxRate:
		return fmt.Sprintf("cost %s is above %s", rlc.Number(r.Cost), rlc.Number(rlc.MaxRate))
	case len(r.Attributes) > maxAttributes:
		return fmt.Sprintf("%d attributes; at most %d", len(r.Attributes), maxAttributes)
	}
	for name := range r.Attributes {
		if name == "" || len(name) > maxName {
			return fmt.Sprintf("an attribute's name has %d bytes; want 1 to %d", len(name), maxName)
		}
	}
	return ""
}

// checkAnswer is what /v1/check says.
type checkAnswer struct {
	Outcome      Outcome    `json:"outcome"`
	Bucket       string     `json:"bucket"`
	Key          rlc.Key    `json:"key"`
	Limit        *rlc.Limit `json:"limit"`     // null: not limited
	Remaining    *int64     `json:"remaining"` // null: not limited
	RetryAfterMS int64      `json:"retry_after_ms"`
	WaitMS       int64      `json:"wait_ms,omitempty"` // admitted, but to be held so long: a leaky bucket paces it
	Failure      string     `json:"failure,omitempty"` // why the store of a bucket that fails closed did not answer
	Snapshot     string     `json:"snapshot"`
}

// answer decides req, which r carried, and answers; a drop has the status
// given.
func (a api) answer(w http.ResponseWriter, r *http.Request, req Request, dropped func(Decision) int) {
	if !req.Peek {
		a.Identified(FromAttributes(req))
	}
	d := a.Decide(req)
	if a.config.Observe != nil {
		a.config.Observe(mtls.Name(r.TLS), req, d)
	}
	out := checkAnswer{Outcome: d.Outcome, Bucket: d.Bucket, Key: d.Key, Limit: d.Limit, Failure: d.Failure, Snapshot: d.Version.String()}
	if out.Key == nil {
		out.Key = rlc.Key{}
	}
	if d.Limit != nil {
		out.Remaining = &d.Remaining
	}
	if d.Outcome != Admit {
		out.RetryAfterMS = ceil(bounded(d.RetryAfter), time.Millisecond)
	}
	out.WaitMS = ceil(d.Wait, time.Millisecond)
	a.Headers(w.Header(), req.Service, d)
	status := http.StatusOK
	if d.Outcome == Drop {
		status = dropped(d)
	}
	writeJSON(w, status, out)
}

// configAnswer is what /v1/config says.
type configAnswer struct {
	Epoch      uint64  `json:"epoch"`
	Version    uint64  `json:"version"`
	Snapshot   string  `json:"snapshot"`
	Commit     string  `json:"commit"`            // "" for a folder's
	Content    string  `json:"content,omitempty"` // of a folder: the hash of its files
	AgeSeconds float64 `json:"age_seconds"`
	Name       string  `json:"name"`
	Zone       string  `json:"zone,omitempty"`
	Region     string  `json:"region,omitempty"`
	Refused    string  `json:"refused,omitempty"` // why the newest snapshot was refused
	Buckets    []Live  `json:"buckets"`

	KillSwitches     []Switch   `json:"kill_switches,omitempty"` // those that are on
	Overrides        []Override `json:"overrides,omitempty"`     // loaded last; some may be over
	OverridesVersion string     `json:"overrides_version,omitempty"`

	Loop *loopAnswer `json:"loop,omitempty"`
}

// showConfig answers /v1/config: the limits in force, of one service with
// ?service=.
func (e *Enforcer) showConfig(w http.ResponseWriter, r *http.Request) {
	a := configAnswer{Name: e.config.Name, Zone: e.config.Zone, Region: e.config.Region, Buckets: []Live{}, Loop: e.loopAnswer()}
	if l := e.loaded.Load(); l != nil {
		v := l.snapshot.Version
		a.Epoch, a.Version, a.Commit = v.Epoch, v.Number, l.snapshot.Commit
		if strings.HasPrefix(a.Commit, ContentHash) {
			a.Commit, a.Content = "", a.Commit
		}
		a.Snapshot = v.String()
		service := r.URL.Query().Get("service")
		if service != "" && l.services[service] == nil {
			problem(w, http.StatusNotFound, fmt.Sprintf("no policy for service %.100q in snapshot %s", service, v))
			return
		}
		a.Buckets = append(a.Buckets, l.describe(service)...)
	}
	e.mu.Lock()
	if !e.confirmed.IsZero() {
		a.AgeSeconds = age(e.now(), e.confirmed).Seconds()
	}
	a.Refused = e.refused
	for _, k := range Switches() {
		if e.switches[k].on() {
			a.KillSwitches = append(a.KillSwitches, k)
		}
	}
	if o := e.overlay; o.version != (rlc.Version{}) {
		a.Overrides, a.OverridesVersion = o.list.List, o.version.String()
	}
	e.mu.Unlock()
	writeJSON(w, http.StatusOK, a)
}

func (e *Enforcer) showReady(w http.ResponseWriter, _ *http.Request) {
	reasons, notes := e.Ready()
	status := http.StatusOK
	if len(reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, map[string]any{"ready": len(reasons) == 0, "reasons": append([]string{}, reasons...), "notes": append([]string{}, notes...), "snapshot": e.Version().String()})
}

// showExplain answers /v1/explain, which takes what GET /v1/check takes.
func (e *Enforcer) showExplain(w http.ResponseWriter, r *http.Request) {
	req, text := queryRequest(r)
	if text != "" {
		problem(w, http.StatusBadRequest, text)
		return
	}
	x := e.Explain(req.Service, req.Attributes)
	if x.Attributes == nil {
		x.Attributes = rlc.Attributes{}
	}
	writeJSON(w, http.StatusOK, x)
}

// topAnswer is what /v1/top says.
type topAnswer struct {
	Service string      `json:"service"`
	Buckets []topBucket `json:"buckets"`
}

type topBucket struct {
	Bucket string     `json:"bucket"`
	Top    []TopEntry `json:"top"` // the most refused first
}

// topDefault is how many keys of a bucket /v1/top lists without ?n=.
const topDefault = 20

// showTop answers /v1/top: of one bucket or of all of a service's, the keys
// that were refused most, really or virtually.
func (e *Enforcer) showTop(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	service, only, n := q.Get("service"), q.Get("bucket"), topDefault
	if text := q.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > maxTop {
			problem(w, http.StatusBadRequest, fmt.Sprintf("n must be a whole number from 1 to %d", maxTop))
			return
		}
	}
	if service == "" {
		problem(w, http.StatusBadRequest, "service is missing")
		return
	}
	out := topAnswer{Service: service, Buckets: []topBucket{}}
	names := map[string]bool{Unmatched: true}
	for _, live := range e.Describe(service) {
		names[live.Bucket] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if top := e.Top(service, name, n); top != nil && (only == "" || only == name) {
			out.Buckets = append(out.Buckets, topBucket{name, top})
		}
	}
	if len(out.Buckets) == 0 {
		problem(w, http.StatusNotFound, fmt.Sprintf("no bucket %.100q of service %.100q in snapshot %s", only, service, e.Version()))
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// maxTop is the most keys of a bucket that /v1/top lists.
const maxTop = 1000

func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone: nobody to tell
}

// problem answers with an RFC 9457 problem.
func problem(w http.ResponseWriter, status int, detail string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail})
}

// bounded is a wait as clients are told it: one that has no end is an hour.
func bounded(d time.Duration) time.Duration {
	return min(d, time.Hour)
}

// ceil is d in whole units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := d / unit
	if d%unit > 0 {
		n++
	}
	return int64(n)
}
