package enforcer

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// Outcome is what becomes of a request.
type Outcome string

// The outcomes.
const (
	Admit       Outcome = "admit"
	Drop        Outcome = "drop"
	VirtualDrop Outcome = "virtual_drop" // admitted, but would be dropped if every bucket enforced
)

const outcomes = 3

var outcomeNames = [outcomes]Outcome{Admit, Drop, VirtualDrop}

func (o Outcome) index() int {
	switch o {
	case Drop:
		return 1
	case VirtualDrop:
		return 2
	}
	return 0
}

// Request is what is known of one request.
type Request struct {
	Service string
	// Caller and Procedure are those attributes of the request, for whoever has
	// them at hand: they cost less than a map. "" for what Attributes say.
	Caller, Procedure string
	Attributes        rlc.Attributes // not changed, not kept
	Cost              int64          // tokens; 0 and less mean 1, more than rlc.MaxRate means that
	Peek              bool           // look only: answered as a request of that Cost would be, and nothing is charged or counted
}

// Decision is the answer to one request. What it points to is shared and not
// to be changed.
type Decision struct {
	Outcome Outcome
	// Bucket refused, really or virtually (of several, the one with the
	// longest wait); for an admitted request it is its quota bucket, Unmatched
	// where it has none, and "" where the service has no policy. It is
	// Overridden where an override dropped the request; Key then holds its id.
	Bucket string
	Key    rlc.Key // sensitive values are hashed
	// Caller is who an override refused that is for callers by name, hashed
	// where it is sensitive; "" for every other decision.
	Caller string
	// Limit of that bucket's key; nil where nothing limits it.
	Limit     *rlc.Limit
	Remaining int64 // whole tokens left under Limit
	// RetryAfter is how long until the request would be admitted if nothing
	// else came; 0 for an admitted one, gcra.Forever where waiting is no use.
	RetryAfter time.Duration
	// Wait is how long an admitted request has to wait before it goes on, so
	// that a leaky bucket's traffic is paced; 0 for at once.
	Wait    time.Duration
	Version rlc.Version // of the snapshot that decided; zero for none
	// Failure is why the shared store did not answer, one of Reasons, where a
	// bucket that fails closed refused for that; else "".
	Failure string
	// CostHeader names the response's header that tells what the request cost;
	// "" where its cost is known already. Give the number to Done.
	CostHeader string
	// Enforced is what an answer's headers may tell: the standing with the
	// enforcing bucket that refused, or that the request was charged to. Its
	// Limit is nil where no enforcing bucket took part.
	Enforced Standing

	held *held
}

// Standing is how a request stands with one enforcing bucket.
type Standing struct {
	Bucket    string
	Key       rlc.Key
	Limit     *rlc.Limit
	Remaining int64
	Wait      time.Duration // 0 where it was admitted
}

// Done says that the admitted request is over, and what it cost in tokens;
// less than 0 for unknown, which keeps what was reserved. It frees the
// request's place under in-flight caps, and settles buckets whose cost is
// known only afterwards. The second call does nothing, nor does a call for a
// request that holds nothing. Where Done is never called, an in-flight cap's
// timeout frees the place, and the reserved cost stays charged.
func (d Decision) Done(cost int64) {
	if d.held != nil {
		d.held.release(cost)
	}
}

// instant is the time of a decision, on the clocks that its parts go by.
type instant struct {
	micros int64  // since 1970: the counters' clock; 0 where no counter is asked
	second int64  // since 1970
	draw   uint64 // random bits, the same for both worlds; 0 where none goes by a ratio
}

// Decide answers a request from the snapshot in force, charges it and counts
// it. Without a snapshot, or for a service without a policy, it admits. A
// shared store is waited for as long as its own deadline allows, once for the
// whole decision.
func (e *Enforcer) Decide(r Request) (d Decision) {
	e.answer(context.Background(), &r, &d)
	return d
}

// DecideContext is Decide for an answer that has to be there when ctx ends: a
// shared store that has not answered by then did not answer, and on_failure
// decides.
func (e *Enforcer) DecideContext(ctx context.Context, r Request) (d Decision) {
	e.answer(ctx, &r, &d)
	return d
}

// answer is Decide, into d, which is empty.
func (e *Enforcer) answer(ctx context.Context, r *Request, d *Decision) {
	d.Outcome = Admit
	at := e.glance()
	l := e.loaded.Load()
	if l != nil && at.second >= l.until {
		l = e.current(e.now())
	}
	if l == nil {
		if !r.Peek {
			e.noSnapshot.Add(1)
		}
		return
	}
	d.Version = l.snapshot.Version
	s := l.find(r.Service)
	if s == nil {
		if !r.Peek {
			e.noService.Add(1)
		}
		return
	}

	var t *route
	defer func() {
		if cause := recover(); cause != nil {
			*d = e.panicked(l, s, t, r.Peek, cause)
		}
	}()
	t = e.route(l, s, r)
	if at.micros == 0 && t.alone == 0 {
		at = e.exact()
	}
	if t.alone == 0 && t.trips {
		a := &allowance{Context: ctx, within: e.deadline}
		defer a.end()
		ctx = a
	}
	e.decide(ctx, t, r, at, d)
}

// decide charges and counts a request whose route is known.
func (e *Enforcer) decide(ctx context.Context, t *route, r *Request, at instant, d *Decision) {
	cost := min(max(r.Cost, 1), rlc.MaxRate)
	// Where overrides match, the loop does not decide alone.
	if t.alone != 0 && !r.Peek && e.byRatio(t, cost, at, d) {
		return
	}
	if t.overrides != nil && t.overridden(d, at, r.Peek) {
		return
	}
	var h *held
	if t.holds && !r.Peek {
		h = &held{within: e.deadline}
	}
	if t.live.ratio || t.asIf.ratio {
		at.draw = rand.Uint64()
	}
	var both [2]verdict
	live, asIf := &both[0], &both[0] // the same where there is one world
	e.take(ctx, &t.live, at, cost, r.Peek, h, live)
	if t.asIf.parts != nil {
		asIf = &both[1]
		e.take(ctx, &t.asIf, at, cost, r.Peek, h, asIf)
	}
	t.answer(d, live, asIf)
	if t.overrides != nil {
		t.comeBack(d, at, r.Peek)
	}
	switch {
	case h == nil:
	case d.Outcome == Drop:
		h.release(-1) // it may have a place in the world in which all enforce
	default:
		d.held, d.CostHeader = h, t.costHeader
	}
	if !r.Peek {
		e.count(t, d.Outcome, live, asIf, at, cost)
	}
}

// route finds where a request goes, in the cache or by matching.
func (e *Enforcer) route(l *loaded, s *active, r *Request) *route {
	var few [8]string
	values := few[:0]
	for i, name := range s.attrs {
		v := ""
		switch s.given[i] {
		case givenCaller:
			v = r.Caller
		case givenProcedure:
			v = r.Procedure
		}
		if v == "" {
			v = r.Attributes[name]
		}
		if len(v) > maxValue {
			v = clip(v, maxValue)
		}
		values = append(values, v)
	}
	id := l.routes.identify(s, values)
	if t := l.routes.get(id); t != nil {
		return t
	}
	return e.newRoute(l, s, r, values, id)
}

// newRoute finds a route by matching and caches it, but for one that only
// looks.
func (e *Enforcer) newRoute(l *loaded, s *active, r *Request, values []string, id identity) *route {
	attrs := make(rlc.Attributes, len(values))
	for i, name := range s.attrs {
		values[i] = strings.Clone(values[i]) // of a buffer that is not ours to hold
		if values[i] != "" {
			attrs[name] = values[i]
		}
	}
	t := e.build(l, s, attrs, r.Peek)
	t.id, t.values = id, slices.Clone(values)
	if !r.Peek {
		l.routes.put(t)
	}
	return t
}

// answer puts what the two worlds say into d.
func (t *route) answer(d *Decision, live, asIf *verdict) {
	d.Bucket, d.Key = t.quota.Name, t.key
	if len(t.live.parts) > 0 {
		p := &t.live.parts[live.Worst]
		d.Enforced = Standing{p.bucket.Name, p.key, p.limit, live.Remaining, live.Wait}
	}
	switch {
	case !live.OK():
		d.Outcome = Drop
		d.refused(&t.live.parts[live.Worst], live)
		if live.closed {
			d.Failure = live.reason.String()
		}
	case !asIf.OK():
		d.Outcome = VirtualDrop
		d.refused(&t.asIf.parts[asIf.Worst], asIf)
	case len(t.live.parts) > 0 && t.live.parts[0].bucket == t.quota:
		d.Limit, d.Remaining = t.live.parts[0].limit, live.Remaining
	case len(t.asIf.parts) > 0 && t.asIf.parts[0].bucket == t.quota:
		d.Limit, d.Remaining = t.asIf.parts[0].limit, asIf.Remaining
	}
	if d.Outcome != Drop {
		d.Wait = live.Pace
	}
}

func (d *Decision) refused(p *part, v *verdict) {
	d.Bucket, d.Key, d.Limit, d.Caller = p.bucket.Name, p.key, p.limit, p.bucket.refuses
	d.Remaining, d.RetryAfter = v.Remaining, v.Wait
}

// count counts a decided request: once under its quota bucket, and each cap's
// own verdict under that cap.
func (e *Enforcer) count(t *route, o Outcome, live, asIf *verdict, at instant, cost int64) {
	t.count(o, at.second)
	for _, b := range t.caps {
		b.counts.outcomes[t.verdict(b, live, asIf).index()].Add(1)
	}
	t.live.count(live, at, cost, Drop)
	if t.asIf.parts != nil {
		t.asIf.count(asIf, at, cost, VirtualDrop)
	}
}

// count is count without what each bucket said.
func (t *route) count(o Outcome, second int64) {
	if n := t.add(o, second); t.other {
		t.see(n)
	}
	if !t.noted {
		return
	}
	if t.strange {
		t.service.traffic.strange.Add(1)
	}
	for _, c := range t.noQuota {
		c.noQuota.Add(1)
	}
	for _, c := range t.off {
		c.fallbacks[byPanic].Add(1)
	}
}

// verdict is one cap's own: a refusal in the live world where it enforces, in
// the other where it does not.
func (t *route) verdict(b *bucket, live, asIf *verdict) Outcome {
	for i := range t.live.parts {
		if t.live.parts[i].bucket == b {
			if live.Refused&(1<<i) != 0 {
				return Drop
			}
			return Admit
		}
	}
	for i := range t.asIf.parts {
		if t.asIf.parts[i].bucket == b && asIf.Refused&(1<<i) != 0 {
			return VirtualDrop
		}
	}
	return Admit
}
