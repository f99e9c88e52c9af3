// Package grpclimit limits a gRPC server by an enforcer in the same process.
package grpclimit

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/mtls"
)

// Config is what a limiter is built from.
type Config struct {
	Enforcer *enforcer.Enforcer // required
	Service  string             // whose policy limits the calls; required

	// CallerKey is the metadata key in which the listed peers say who called;
	// "" for none. Without it, and of other peers, the caller is the verified
	// name in the client's certificate: its first URI, DNS name, or common
	// name.
	CallerKey string
	// PeerAddresses and PeerNames list the peers whose CallerKey is believed:
	// by address, and by verified name.
	PeerAddresses []netip.Prefix
	PeerNames     []string

	// Attributes may add to what is known of a call or change it; nil adds
	// nothing. Caller and procedure are there already: the procedure is the
	// method's name, the last part of "/package.Service/Method". The map must
	// not be kept.
	Attributes func(ctx context.Context, fullMethod string, attrs rlc.Attributes)
	// Observe hears each decision; nil for nobody. The peer is the verified
	// name, and the request's attributes must not be kept.
	Observe func(peer string, r enforcer.Request, d enforcer.Decision)
}

// Limiter holds the interceptors. It is safe for use by many goroutines.
type Limiter struct {
	config  Config
	callers mtls.Callers
	maps    sync.Pool // of rlc.Attributes
}

// New makes a limiter; the error wraps rlc.ErrInvalid.
func New(c Config) (*Limiter, error) {
	switch {
	case c.Enforcer == nil:
		return nil, fmt.Errorf("%w: limiting gRPC needs an enforcer", rlc.ErrInvalid)
	case c.Service == "":
		return nil, fmt.Errorf("%w: limiting gRPC needs the service's name", rlc.ErrInvalid)
	case c.CallerKey != "" && len(c.PeerAddresses)+len(c.PeerNames) == 0:
		return nil, fmt.Errorf("%w: nobody's metadata %s is believed: list the peers that may set it", rlc.ErrInvalid, c.CallerKey)
	}
	l := &Limiter{config: c, callers: mtls.Callers{Addresses: c.PeerAddresses, Names: c.PeerNames}}
	l.maps.New = func() any { return rlc.Attributes{} }
	return l, nil
}

// Unary limits unary calls. What is dropped is answered RESOURCE_EXHAUSTED,
// never UNAVAILABLE, which clients try again at once, with RetryInfo,
// QuotaFailure, and the pushback that gRPC's own retries heed.
//
// A call that a leaky bucket paces waits here; one that is cancelled meanwhile
// is not passed on. A place under an in-flight cap is free again when the
// handler returns or panics; a cost that is known only afterwards is read from
// the header or trailer that the handler sets.
func (l *Limiter) Unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	d := l.decide(ctx, info.FullMethod)
	if d.Outcome == enforcer.Drop {
		after := enforcer.RetryAfter(d)
		_ = grpc.SetTrailer(ctx, pushback(after))
		return nil, refusal(&d, after)
	}
	ctx, spent := costs(ctx, d.CostHeader)
	served := false
	defer func() { d.Done(spent.cost(served)) }()
	if err := wait(ctx, d.Wait); err != nil {
		return nil, err
	}
	out, err := next(ctx, in)
	served = true
	return out, err
}

// Stream limits streams, each as one request when it begins: messages are not
// counted. It is otherwise as Unary, and a stream holds its place under an
// in-flight cap until it ends.
func (l *Limiter) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	d := l.decide(ss.Context(), info.FullMethod)
	if d.Outcome == enforcer.Drop {
		after := enforcer.RetryAfter(d)
		ss.SetTrailer(pushback(after))
		return refusal(&d, after)
	}
	ctx, spent := costs(ss.Context(), d.CostHeader)
	if spent != nil {
		ss = &heardStream{ss, ctx, spent}
	}
	served := false
	defer func() { d.Done(spent.cost(served)) }()
	if err := wait(ctx, d.Wait); err != nil {
		return err
	}
	err := next(srv, ss)
	served = true
	return err
}

// decide decides a call.
func (l *Limiter) decide(ctx context.Context, fullMethod string) enforcer.Decision {
	attrs := l.maps.Get().(rlc.Attributes)
	defer l.maps.Put(attrs)
	clear(attrs)
	who, caller := l.caller(ctx)
	if caller != "" {
		attrs["caller"] = caller
	}
	attrs["procedure"] = fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]
	if l.config.Attributes != nil {
		l.config.Attributes(ctx, fullMethod, attrs)
	}
	in := enforcer.Request{Service: l.config.Service, Attributes: attrs}
	source := enforcer.FromPeer(caller, who)
	if attrs["caller"] != caller {
		source = enforcer.FromAttributes(in)
	}
	l.config.Enforcer.Identified(source)
	d := l.config.Enforcer.Decide(in)
	if l.config.Observe != nil {
		l.config.Observe(who, in, d)
	}
	return d
}

// caller is the peer's verified name, and who it calls for.
func (l *Limiter) caller(ctx context.Context) (verified, caller string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", ""
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		verified = mtls.Name(&info.State)
	}
	if l.config.CallerKey == "" {
		return verified, verified
	}
	claimed := metadata.ValueFromIncomingContext(ctx, l.config.CallerKey)
	if len(claimed) != 1 {
		return verified, verified // none, or a proxy passed one on beside its own
	}
	var from netip.Addr
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		from = tcp.AddrPort().Addr()
	}
	return verified, l.callers.Of(verified, from, claimed[0])
}

// wait waits, unless ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// refusal is the error of a dropped call; it says to come back after so many
// seconds.
func refusal(d *enforcer.Decision, after int64) error {
	what, subject, said := "bucket "+d.Bucket, d.Key.String(), "over the limit of "+d.Bucket
	switch {
	case d.Bucket == enforcer.Overridden:
		what = "override " + d.Key["id"]
		said = "refused by " + what
		if d.Caller != "" {
			subject = "caller=" + d.Caller
		}
	case subject == "":
		subject = d.Bucket
	}
	s := status.New(codes.ResourceExhausted, strings.ToValidUTF8(said, "\uFFFD"))
	detailed, err := s.WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(after) * time.Second)},
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: strings.ToValidUTF8(subject, "\uFFFD"), Description: strings.ToValidUTF8(what, "\uFFFD"),
		}}},
	)
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// pushback tells gRPC's own retries, where a client has configured them, when
// to come back (gRFC A6).
func pushback(after int64) metadata.MD {
	return metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(after*1000, 10))
}
