package enforcer

import (
	"context"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
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
	Service    string
	Attributes rlc.Attributes // not changed, not kept
	Cost       int64          // tokens; 0 and less mean 1
	Peek       bool           // look only: nothing is charged or counted, and Cost plays no part
}

// Decision is the answer to one request. What it points to is shared and not
// to be changed.
type Decision struct {
	Outcome Outcome
	// Bucket refused, really or virtually (of several, the one with the
	// longest wait); for an admitted request it is its quota bucket, Unmatched
	// where it has none, and "" where the service has no policy.
	Bucket string
	Key    rlc.Key
	// Limit of that bucket's key; nil where nothing limits it.
	Limit     *rlc.Limit
	Remaining int64 // whole tokens left under Limit
	// RetryAfter is how long until the request would be admitted if nothing
	// else came; 0 for an admitted one, gcra.Forever where waiting is no use.
	RetryAfter time.Duration
	Version    rlc.Version // of the snapshot that decided; zero for none
	// Enforced is what an answer's headers may tell: the standing with the
	// enforcing bucket that refused, or that the request was charged to. Its
	// Limit is nil where no enforcing bucket took part.
	Enforced Standing
}

// Standing is how a request stands with one enforcing bucket.
type Standing struct {
	Bucket    string
	Key       rlc.Key
	Limit     *rlc.Limit
	Remaining int64
	Wait      time.Duration // 0 where it was admitted
}

// Decide answers a request from the snapshot in force, charges it and counts
// it. Without a snapshot, or for a service without a policy, it admits.
func (e *Enforcer) Decide(r Request) (d Decision) {
	l := e.loaded.Load()
	if l == nil {
		if !r.Peek {
			e.noSnapshot.Add(1)
		}
		return Decision{Outcome: Admit}
	}
	d = Decision{Outcome: Admit, Version: l.snapshot.Version}
	s := l.services[r.Service]
	if s == nil {
		if !r.Peek {
			e.noService.Add(1)
		}
		return d
	}

	var t *route
	defer func() {
		if cause := recover(); cause != nil {
			d = e.panicked(l, s, t, r, cause)
		}
	}()
	t = e.route(l, s, r)
	cost := r.Cost
	switch {
	case r.Peek:
		cost = 0
	case cost <= 0:
		cost = 1
	}
	now := e.now()
	micros := now.Sub(e.start).Microseconds()
	live := e.take(&t.live, micros, cost, r.Peek)
	asIf := live
	if t.asIf.set != nil {
		asIf = e.take(&t.asIf, micros, cost, r.Peek)
	}
	t.answer(&d, live, asIf)
	if !r.Peek {
		e.count(t, d.Outcome, live, asIf, now.Unix())
	}
	return d
}

// route finds where a request goes, in the cache or by matching.
func (e *Enforcer) route(l *loaded, s *service, r Request) *route {
	var few [8]string
	values := few[:0]
	long := false
	for _, name := range s.attrs {
		v := r.Attributes[name]
		if len(v) > maxValue {
			v, long = clip(v, maxValue), true
		}
		values = append(values, v)
	}
	h := l.routes.hash(s, values)
	if t := l.routes.get(h, s, values); t != nil {
		return t
	}
	return e.newRoute(l, s, r, append([]string(nil), values...), h, long)
}

func (e *Enforcer) newRoute(l *loaded, s *service, r Request, values []string, h uint64, long bool) *route {
	attrs := r.Attributes
	if long {
		attrs = make(rlc.Attributes, len(values))
		for i, name := range s.attrs {
			attrs[name] = values[i]
		}
	}
	t := s.build(e.counter, attrs, values, r.Peek)
	if !r.Peek {
		l.routes.put(h, t)
	}
	return t
}

// take charges one world. Where the shared store does not answer, the
// enforcer's own counters stand in for it with the same limits.
func (e *Enforcer) take(w *world, now, cost int64, peek bool) gcra.Tally {
	if w.set == nil {
		return gcra.Tally{}
	}
	// The deadline of the hot path belongs to the store: a context would cost
	// more than the decision.
	tally, err := w.set.Take(context.Background(), now, cost)
	if err != nil {
		charges := make([]gcra.Charge, len(w.parts))
		for i := range w.parts {
			charges[i] = w.parts[i].charge
			if !peek {
				w.parts[i].bucket.counts.fallbacks[byStore].Add(1)
			}
		}
		tally, _ = e.memory.Set(charges).Take(context.Background(), now, cost)
	}
	return tally
}

// answer puts what the two worlds say into d.
func (t *route) answer(d *Decision, live, asIf gcra.Tally) {
	d.Bucket, d.Key = t.quota.Name, t.key
	if len(t.live.parts) > 0 {
		p := &t.live.parts[live.Worst]
		d.Enforced = Standing{p.bucket.Name, p.key, p.limit, live.Remaining, live.Wait}
	}
	switch {
	case !live.OK():
		d.Outcome = Drop
		d.refused(&t.live.parts[live.Worst], live)
	case !asIf.OK():
		d.Outcome = VirtualDrop
		d.refused(&t.asIf.parts[asIf.Worst], asIf)
	case len(t.live.parts) > 0 && t.live.parts[0].bucket == t.quota:
		d.Limit, d.Remaining = t.live.parts[0].limit, live.Remaining
	case len(t.asIf.parts) > 0 && t.asIf.parts[0].bucket == t.quota:
		d.Limit, d.Remaining = t.asIf.parts[0].limit, asIf.Remaining
	}
}

func (d *Decision) refused(p *part, tally gcra.Tally) {
	d.Bucket, d.Key, d.Limit = p.bucket.Name, p.key, p.limit
	d.Remaining, d.RetryAfter = tally.Remaining, tally.Wait
}

// count counts a decided request: once under its quota bucket, and each cap's
// own verdict under that cap.
func (e *Enforcer) count(t *route, o Outcome, live, asIf gcra.Tally, second int64) {
	t.series.count(o, second)
	if t.series == &t.quota.counts.table.rest {
		t.seen.Add(1)
	}
	for _, c := range t.noQuota {
		c.noQuota.Add(1)
	}
	for _, c := range t.off {
		c.fallbacks[byPanic].Add(1)
	}
	for _, b := range t.caps {
		b.counts.outcomes[t.verdict(b, live, asIf).index()].Add(1)
	}
	if live.Untracked != 0 {
		t.live.untracked(live.Untracked)
	}
	if t.asIf.set != nil && asIf.Untracked != 0 {
		t.asIf.untracked(asIf.Untracked)
	}
}

// verdict is one cap's own: a refusal in the live world where it enforces, in
// the other where it does not.
func (t *route) verdict(b *bucket, live, asIf gcra.Tally) Outcome {
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

// untracked counts the buckets that had no room for another counter.
func (w *world) untracked(bits uint64) {
	for i := range w.parts {
		if bits&(1<<i) != 0 {
			w.parts[i].bucket.counts.fallbacks[byFull].Add(1)
		}
	}
}
