// Package httplimit limits a net/http server by an enforcer in the same
// process.
package httplimit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/mtls"
)

// Config is what a limiter is built from.
type Config struct {
	Enforcer *enforcer.Enforcer // required
	Service  string             // whose policy limits the requests; required

	// CallerHeader is the header in which the listed peers say who called; ""
	// for none. Without it, and of other peers, the caller is the verified
	// name in the client's certificate: its first URI, DNS name, or common
	// name.
	CallerHeader string
	// PeerAddresses and PeerNames list the peers whose CallerHeader is
	// believed: by address, and by verified name.
	PeerAddresses []netip.Prefix
	PeerNames     []string

	// Attributes may add to what is known of a request or change it; nil adds
	// nothing. Caller and procedure are there already: the procedure is the
	// pattern that the request matched where Wrap was given a *http.ServeMux
	// or stands inside one, else its path. The map must not be kept.
	Attributes func(r *http.Request, attrs rlc.Attributes)
	// Observe hears each decision; nil for nobody. The peer is the verified
	// name, and the request's attributes must not be kept.
	Observe func(peer string, r enforcer.Request, d enforcer.Decision)
}

// Limiter is a middleware. It is safe for use by many goroutines.
type Limiter struct {
	config  Config
	callers mtls.Callers
	maps    sync.Pool // of rlc.Attributes
}

// New makes a limiter; the error wraps rlc.ErrInvalid.
func New(c Config) (*Limiter, error) {
	switch {
	case c.Enforcer == nil:
		return nil, fmt.Errorf("%w: limiting HTTP needs an enforcer", rlc.ErrInvalid)
	case c.Service == "":
		return nil, fmt.Errorf("%w: limiting HTTP needs the service's name", rlc.ErrInvalid)
	case c.CallerHeader != "" && len(c.PeerAddresses)+len(c.PeerNames) == 0:
		return nil, fmt.Errorf("%w: nobody's header %s is believed: list the peers that may set it", rlc.ErrInvalid, c.CallerHeader)
	}
	l := &Limiter{config: c, callers: mtls.Callers{Addresses: c.PeerAddresses, Names: c.PeerNames}}
	l.maps.New = func() any { return rlc.Attributes{} }
	return l, nil
}

// Wrap passes on to next what is admitted, and answers the rest with 429, or
// with 503 where the service sheds load whoever sends it, and a small problem of constant text.
// Every answer of a limited bucket carries the RateLimit fields.
//
// A request that a leaky bucket paces waits here; one whose client leaves
// meanwhile is not passed on. A place under an in-flight cap is free again when
// next returns or panics; a cost that is known only afterwards is read from
// the answer's header.
func (l *Limiter) Wrap(next http.Handler) http.Handler {
	mux, _ := next.(*http.ServeMux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := l.decide(mux, r)
		l.config.Enforcer.Headers(w.Header(), l.config.Service, d)
		if d.Outcome == enforcer.Drop {
			refuse(w, l.config.Enforcer.Status(l.config.Service, d))
			return
		}
		served := false
		defer func() {
			cost := int64(-1) // not known: what was reserved stays charged
			if served && d.CostHeader != "" {
				cost = costOf(w.Header().Get(d.CostHeader))
			}
			d.Done(cost)
		}()
		if d.Wait > 0 && !wait(r.Context(), d.Wait) {
			return
		}
		next.ServeHTTP(w, r)
		served = true
	})
}

// decide decides r; mux is the one behind the limiter, nil for none.
func (l *Limiter) decide(mux *http.ServeMux, r *http.Request) enforcer.Decision {
	attrs := l.maps.Get().(rlc.Attributes)
	defer l.maps.Put(attrs)
	clear(attrs)
	peer := mtls.Name(r.TLS)
	caller := l.caller(peer, r)
	if caller != "" {
		attrs["caller"] = caller
	}
	attrs["procedure"] = procedure(mux, r)
	if l.config.Attributes != nil {
		l.config.Attributes(r, attrs)
	}
	in := enforcer.Request{Service: l.config.Service, Attributes: attrs}
	source := enforcer.FromPeer(caller, peer)
	if attrs["caller"] != caller {
		source = enforcer.FromAttributes(in)
	}
	l.config.Enforcer.Identified(source)
	d := l.config.Enforcer.Decide(in)
	if l.config.Observe != nil {
		l.config.Observe(peer, in, d)
	}
	return d
}

func (l *Limiter) caller(peer string, r *http.Request) string {
	if l.config.CallerHeader == "" {
		return peer
	}
	claimed := r.Header.Values(l.config.CallerHeader)
	if len(claimed) != 1 {
		return peer // none, or a proxy passed one on beside its own
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return l.callers.Of(peer, from.Addr(), claimed[0])
}

// procedure is the pattern that serves r, else its path. A path is not bounded
// in number: name the procedures by patterns where they are counted one by
// one.
func procedure(mux *http.ServeMux, r *http.Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	if mux != nil {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern
		}
	}
	return r.URL.Path
}

// wait waits, and reports false where ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// costOf reads what a request cost from the answer's header; less than 0 where
// it does not say.
func costOf(header string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(header), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return min(n, rlc.MaxRate)
}

// The refusals' bodies never change: a refusal must cost less than an answer.
const (
	tooMany     = `{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"over the limit; see Retry-After"}` + "\n"
	unavailable = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the service sheds load; see Retry-After"}` + "\n"
)

func refuse(w http.ResponseWriter, status int) {
	body := tooMany
	if status == http.StatusServiceUnavailable {
		body = unavailable
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client is gone: nobody to tell
}
