// Package rls answers Envoy's rate limit protocol,
// envoy.service.ratelimit.v3.RateLimitService, from an enforcer.
package rls

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/mtls"
)

// Config is what a server is built from.
type Config struct {
	Enforcer *enforcer.Enforcer // required
	// Headers adds the RateLimit fields to the answers, for Envoy to put into
	// the client's response.
	Headers bool
	// Deadline is how long shared counters are waited for in all, default
	// 15 ms: Envoy gives up after 20. What they have not said by then is decided
	// by the buckets' on_failure. Below 0 there is none: right where every
	// counter is in process and nothing can be waited for.
	Deadline time.Duration
	// Observe hears each decision with the name of the peer that asked, "" for
	// one that showed no certificate; nil for nobody. The request's attributes
	// are not to be kept.
	Observe func(peer string, r enforcer.Request, d enforcer.Decision)

	TLS   *tls.Config // nil: in clear
	Token string      // asked of every call but health checks as "authorization: Bearer …"; "" for none
	// Drain is how long calls under way may take to finish at the end; default
	// 10 s.
	Drain time.Duration
	Log   *slog.Logger // nil: discarded
}

// What one request may carry, as /v1/check has it.
const (
	maxMessage     = 64 << 10
	maxDescriptors = 64
	maxEntries     = 64
	maxName        = 128 // bytes of an attribute's name
	maxDomain      = 1024
)

// Server answers the protocol. It is safe for use by many goroutines.
type Server struct {
	pb.UnimplementedRateLimitServiceServer
	config   Config
	enforcer *enforcer.Enforcer
	maps     sync.Pool     // of rlc.Attributes
	late     atomic.Uint64 // requests whose counters were waited for until the end
	metadata metadata
	clock    *clock // nil without a deadline
}

// New makes a server; the error wraps rlc.ErrInvalid.
func New(c Config) (*Server, error) {
	if c.Enforcer == nil {
		return nil, fmt.Errorf("%w: a rate limit service needs an enforcer", rlc.ErrInvalid)
	}
	if c.Deadline == 0 {
		c.Deadline = 15 * time.Millisecond
	}
	if c.Drain == 0 {
		c.Drain = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: c, enforcer: c.Enforcer}
	s.maps.New = func() any { return rlc.Attributes{} }
	if c.Deadline > 0 {
		s.clock = newClock(c.Deadline)
	}
	return s, nil
}

// ShouldRateLimit answers one request: the domain is the service, each
// descriptor a request of its own, charged by itself, its entries the
// attributes. Statuses have the descriptors' order. Requests that say nothing
// are INVALID_ARGUMENT. Where the store of a bucket that fails closed does not
// answer, and no other descriptor is over its limit, it is UNAVAILABLE.
func (s *Server) ShouldRateLimit(ctx context.Context, in *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if text := invalid(in); text != "" {
		return nil, status.Error(codes.InvalidArgument, text)
	}
	var who string
	if s.config.Observe != nil {
		who = peerName(ctx)
	}
	decisions := make([]enforcer.Decision, len(in.Descriptors))
	if s.clock == nil {
		for i := range decisions {
			decisions[i] = s.decide(ctx, in, i, who)
		}
		return s.answer(in.Domain, decisions)
	}
	end := &ending{Context: ctx, end: s.clock.end()}
	s.together(end, in, who, decisions)
	if end.Err() != nil {
		s.late.Add(1)
	}
	return s.answer(in.Domain, decisions)
}

// together decides the descriptors at the same time, the first in the caller's
// goroutine: nearly every request has no other.
func (s *Server) together(ctx context.Context, in *pb.RateLimitRequest, who string, decisions []enforcer.Decision) {
	var others sync.WaitGroup
	for i := range decisions[1:] {
		others.Go(func() { decisions[i+1] = s.decide(ctx, in, i+1, who) })
	}
	decisions[0] = s.decide(ctx, in, 0, who)
	others.Wait()
}

// decide decides one descriptor. A panic in whoever hears of it, or before it is
// decided, takes nothing else along: it may be in a goroutine of its own.
func (s *Server) decide(ctx context.Context, in *pb.RateLimitRequest, i int, who string) (d enforcer.Decision) {
	defer func() {
		if cause := recover(); cause != nil {
			s.config.Log.Error("a decision or whoever hears of it panicked", "service", in.Domain, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
	}()
	d.Outcome = enforcer.Admit
	descriptor := in.Descriptors[i]
	attrs := s.maps.Get().(rlc.Attributes)
	defer s.maps.Put(attrs)
	clear(attrs)
	names := s.enforcer.Descriptors(in.Domain)
	for _, entry := range descriptor.Entries {
		name := entry.Key
		if attr, ok := names[name]; ok {
			name = attr
		}
		value := entry.Value
		if had, ok := attrs[name]; ok {
			value = had + "/" + value // as a profile joins several labels
		}
		attrs[name] = value
	}
	r := enforcer.Request{Service: in.Domain, Attributes: attrs}
	r.Cost, r.Peek = cost(in, descriptor)
	if !r.Peek {
		s.enforcer.Identified(enforcer.FromAttributes(r))
	}
	d = s.enforcer.DecideContext(ctx, r)
	if s.config.Observe != nil {
		s.config.Observe(who, r, d)
	}
	return d
}

// cost is a descriptor's: its own hits_addend, where an explicit 0 looks and
// takes nothing, else the request's, else 1. Negative hits would mint tokens:
// they look and give nothing.
func cost(in *pb.RateLimitRequest, d *common.RateLimitDescriptor) (n int64, peek bool) {
	switch {
	case d.IsNegativeHits:
		return 0, true
	case d.HitsAddend != nil:
		n = int64(d.HitsAddend.Value) // invalid bounds it
		return n, n == 0
	}
	return max(int64(in.HitsAddend), 1), false
}

// invalid says what is wrong with a request; "" for nothing.
func invalid(in *pb.RateLimitRequest) string {
	switch {
	case in.Domain == "":
		return "domain is missing"
	case len(in.Domain) > maxDomain:
		return fmt.Sprintf("domain is longer than %d bytes", maxDomain)
	case len(in.Descriptors) == 0:
		return "descriptors are missing"
	case len(in.Descriptors) > maxDescriptors:
		return fmt.Sprintf("%d descriptors; at most %d", len(in.Descriptors), maxDescriptors)
	}
	for _, d := range in.Descriptors {
		if n := len(d.Entries); n > maxEntries {
			return fmt.Sprintf("a descriptor has %d entries; at most %d", n, maxEntries)
		}
		if n := d.HitsAddend.GetValue(); n > rlc.MaxRate {
			return fmt.Sprintf("hits_addend %s is above %s", rlc.Number(float64(n)), rlc.Number(rlc.MaxRate))
		}
		for _, e := range d.Entries {
			if e.Key == "" || len(e.Key) > maxName {
				return fmt.Sprintf("an entry's key has %d bytes; want 1 to %d", len(e.Key), maxName)
			}
		}
	}
	return ""
}

// answer puts decisions into the protocol's words.
func (s *Server) answer(domain string, decisions []enforcer.Decision) (*pb.RateLimitResponse, error) {
	out := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, len(decisions))}
	told, failed := 0, "" // the decision that dynamic metadata and headers tell of
	for i := range decisions {
		d := &decisions[i]
		out.Statuses[i] = s.status(domain, d)
		switch {
		case d.Outcome == enforcer.Drop && d.Failure != "":
			failed = d.Bucket
		case d.Outcome == enforcer.Drop:
			out.OverallCode = pb.RateLimitResponse_OVER_LIMIT
		}
		if weight(d) > weight(&decisions[told]) {
			told = i
		}
	}
	if failed != "" && out.OverallCode == pb.RateLimitResponse_OK {
		return nil, status.Errorf(codes.Unavailable, "bucket %q fails closed and its counters do not answer", failed)
	}
	s.metadata.add(out, &decisions[told])
	if s.config.Headers {
		out.ResponseHeadersToAdd = s.headers(domain, decisions[told])
	}
	return out, nil
}

// weight orders decisions by how much a person wants to hear of them.
func weight(d *enforcer.Decision) int {
	switch {
	case d.Outcome == enforcer.Drop && d.Failure == "":
		return 4
	case d.Outcome == enforcer.Drop:
		return 3
	case d.Outcome == enforcer.VirtualDrop:
		return 2
	case d.Enforced.Limit != nil:
		return 1
	}
	return 0
}

// status tells of an enforcing bucket only: Envoy makes headers of it, and a
// client must not slow down for a limit that drops nothing.
func (s *Server) status(domain string, d *enforcer.Decision) *pb.RateLimitResponse_DescriptorStatus {
	out := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK, LimitRemaining: math.MaxUint32}
	if d.Outcome == enforcer.Drop {
		out.Code, out.LimitRemaining = pb.RateLimitResponse_OVER_LIMIT, 0
	}
	t, ok := s.enforcer.Tell(domain, d)
	if !ok {
		return out
	}
	out.LimitRemaining = uint32(min(t.Remaining, math.MaxUint32))
	out.CurrentLimit = currentLimit(&t)
	out.DurationUntilReset = seconds(t.Reset)
	return out
}

// currentLimit is the rate in the smallest unit up to a day in which it is a
// whole number; where there is none, rounded in the longest in which it fits. One
// of less than a request a day has the week, the month of 30 days or the year. The
// name is the bucket's.
func currentLimit(t *enforcer.Told) *pb.RateLimitResponse_RateLimit {
	out := &pb.RateLimitResponse_RateLimit{Name: text(t.Bucket)}
	perSecond := float64(t.Rate)
	const day = 86400
	for _, u := range []struct {
		unit    pb.RateLimitResponse_RateLimit_Unit
		seconds float64
	}{
		{pb.RateLimitResponse_RateLimit_SECOND, 1}, {pb.RateLimitResponse_RateLimit_MINUTE, 60},
		{pb.RateLimitResponse_RateLimit_HOUR, 3600}, {pb.RateLimitResponse_RateLimit_DAY, day},
		{pb.RateLimitResponse_RateLimit_WEEK, 7 * day}, {pb.RateLimitResponse_RateLimit_MONTH, 30 * day}, {pb.RateLimitResponse_RateLimit_YEAR, 365 * day},
	} {
		n := math.Round(perSecond * u.seconds)
		if out.Unit != pb.RateLimitResponse_RateLimit_UNKNOWN && n > math.MaxUint32 {
			break
		}
		out.Unit, out.RequestsPerUnit = u.unit, uint32(min(n, math.MaxUint32))
		if n >= 1 && (u.seconds >= day || math.Abs(n-perSecond*u.seconds) < 1e-6*n) || perSecond == 0 && u.seconds == day {
			break
		}
	}
	return out
}

// headers are the RateLimit fields of a decision.
func (s *Server) headers(domain string, d enforcer.Decision) []*core.HeaderValue {
	h := map[string][]string{}
	s.enforcer.Headers(h, domain, d)
	out := make([]*core.HeaderValue, 0, len(h))
	for _, name := range headerNames {
		if v := h[name]; len(v) > 0 {
			out = append(out, &core.HeaderValue{Key: name, Value: v[0]})
		}
	}
	return out
}

// headerNames fixes the fields' order.
var headerNames = [...]string{enforcer.HeaderPolicy, enforcer.HeaderLimit, enforcer.HeaderRetryAfter, enforcer.HeaderBucket, enforcer.HeaderSnapshot, enforcer.HeaderLink}

// peerName is the verified name of who asks.
func peerName(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return ""
	}
	return mtls.Name(&info.State)
}

var descLate = prometheus.NewDesc("rlc_enforcer_rls_late_total", "Requests whose shared counters were waited for until the deadline: on_failure decided.", nil, nil)

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) { ch <- descLate }

// Collect implements prometheus.Collector.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descLate, prometheus.CounterValue, float64(s.late.Load()))
}
