package enforcer

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// loaded is what is in force from one moment to the next: a snapshot, the
// overrides on top of it, the hour, the kill switches and the identity breaker.
// It is immutable but for its cache of routes, so that no request is ever
// decided by half of a change.
type loaded struct {
	*compiled
	at       int64 // second since 1970 at which it was made
	until    int64 // and from which it is out of date
	shadow   bool  // the kill switch
	services map[string]*active
	asked    atomic.Pointer[active] // the first that was asked for: a library is asked for no other
	routes   routes
}

// find is a service as it is in force, nil for one without a policy.
func (l *loaded) find(service string) *active {
	first := l.asked.Load()
	if first != nil && first.Name == service {
		return first
	}
	s := l.services[service]
	if first == nil && s != nil {
		l.asked.Store(s)
	}
	return s
}

// active is a service as it is in force.
type active struct {
	*service
	salt      uint64      // tells its routes apart from those of other services
	attrs     []string    // the service's, and those that its overrides look at
	given     []given     // where a request may say them otherwise
	overrides []*override // that stand, or whose requests come back
	virtual   bool        // the identity breaker
	joint     bool        // verdicts of shadow and enforcing buckets depend on each other
}

// given is the field of a request that may hold an attribute.
type given uint8

const (
	givenNone given = iota
	givenCaller
	givenProcedure
)

func givenBy(attribute string) given {
	switch attribute {
	case "caller":
		return givenCaller
	case "procedure":
		return givenProcedure
	}
	return givenNone
}

// current is what is in force at now, nil for nothing. It is made anew at the
// second at which an override or a quota's hour begins or ends.
func (e *Enforcer) current(now time.Time) *loaded {
	l := e.loaded.Load()
	if l == nil || now.Unix() < l.until {
		return l
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.loaded.Load(); now.Unix() < l.until {
		return l // somebody else was faster
	}
	e.renew(now)
	return e.loaded.Load()
}

// renew puts the snapshot in force again after something beside it has
// changed. The caller holds the lock.
func (e *Enforcer) renew(now time.Time) {
	if l := e.loaded.Load(); l != nil {
		e.putInForce(e.assemble(l.compiled, now))
	}
}

// putInForce puts l in force in place of what was.
func (e *Enforcer) putInForce(l *loaded) {
	if was := e.loaded.Swap(l); was != nil {
		was.routes.end()
	}
}

// assemble joins a snapshot with everything else that is in force at now. The
// caller holds the lock.
func (e *Enforcer) assemble(c *compiled, now time.Time) *loaded {
	second := now.Unix()
	overrides, next := e.overlaid(second)
	l := &loaded{compiled: c, at: second, until: next, shadow: e.switches[AllToShadow].on(), services: make(map[string]*active, len(c.services))}
	if i, _ := slices.BinarySearch(c.edges, second+1); i < len(c.edges) {
		l.until = min(l.until, c.edges[i])
	}
	if l.shadow {
		overrides = nil
	}
	for name, s := range c.services {
		a := &active{service: s, salt: rand.Uint64(), attrs: s.attrs, virtual: s.traffic.tripped}
		caps, softened := s.caps, s.shadow || a.virtual
		for _, o := range overrides {
			if !o.concerns(name) {
				continue
			}
			a.overrides = append(a.overrides, o)
			a.attrs = withAttributes(a.attrs, o.Match)
			if o.stands(second) && o.Action == LimitAction {
				caps++
			}
			softened = softened || o.Action == LiftAction
		}
		for _, name := range a.attrs {
			a.given = append(a.given, givenBy(name))
		}
		a.joint = softened && caps > 0
		l.services[name] = a
	}
	l.routes.init()
	return l
}

// withAttributes is attrs, in matching order, with those of a match.
func withAttributes(attrs []string, match map[string]Pattern) []string {
	for name := range match {
		if !slices.Contains(attrs, name) {
			attrs = append(slices.Clip(attrs), name)
		}
	}
	if len(match) > 0 {
		attrs = slices.SortedFunc(slices.Values(attrs), rlc.CompareAttributes)
	}
	return attrs
}

// limit finds what limits a bucket's key and how; a nil limit means that the
// request is admitted and counted. Source says where the limit stands.
func (l *loaded) limit(s *service, b *bucket, id string) (limit *rlc.Limit, mode rlc.Mode, source string) {
	mode = b.mode
	if l.shadow {
		mode = rlc.Shadow
	}
	if b.fixed != nil {
		source = "policy"
		if b.Name == Unmatched {
			source = "unmatched"
		}
		return b.fixed, mode, source
	}
	if q := s.quotas[id]; q != nil {
		if q.Mode == rlc.Shadow {
			mode = rlc.Shadow // it softens, never hardens
		}
		return limitAt(q, l.at), mode, "quota"
	}
	if len(b.Each) > 0 && b.NewKey.Limit != nil {
		return b.NewKey.Limit, mode, "new_key"
	}
	return nil, mode, "none"
}

// limitAt is a quota's limit at a second.
func limitAt(q *rlc.Quota, second int64) *rlc.Limit {
	if q.Windows == nil && q.Hours == nil {
		return &q.Limit
	}
	limit := q.At(time.Unix(second, 0))
	return &limit
}

// edges lists the seconds at which a quota's limit changes.
func edges(q *rlc.Quota) (out []int64) {
	for _, w := range q.Windows {
		out = append(out, ceilSecond(w.From), ceilSecond(w.Until))
	}
	if q.Hours != nil {
		for i := range len(q.Hours.Rates) + 1 {
			out = append(out, ceilSecond(q.Hours.From.Add(time.Duration(i)*time.Hour)))
		}
	}
	return out
}

// localBurst is how many seconds of a local rate may come at one instant, where
// that is more than the share of the burst: a key of one request in ten seconds
// comes in twos and threes.
const localBurst = 10

// scaled is a part's limit, of which only a share may be used: that share of
// its requests in the long run, and of its burst, or localBurst seconds of the
// local rate where that is more; one request at least, and no more than the
// whole burst.
func scaled(p *part, whole gcra.Limit, share float64) gcra.Limit {
	if share >= 1 {
		return whole
	}
	l, err := whole, error(nil)
	if w := p.bucket.Window; w != nil {
		part := *w
		part.Requests = int64(math.Ceil(float64(w.Requests) * share))
		l, err = gcra.CompileWindow(p.bucket.Algorithm, part)
	} else {
		rate, burst := float64(p.limit.Rate)*share, float64(p.limit.Burst)
		algorithm := p.bucket.Algorithm
		if algorithm == rlc.DropRatio {
			algorithm = rlc.TokenBucket // what stands in for the loop
		}
		l, err = gcra.CompileAs(algorithm, rlc.Limit{
			Rate:  rlc.Rate(rate),
			Burst: rlc.Burst(math.Ceil(max(burst*share, min(localBurst*rate, burst)))),
		})
	}
	if err != nil {
		return whole
	}
	return l
}
