package enforcer

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/openrlc/rlc"
)

// Explanation is why a request would be decided as it would.
type Explanation struct {
	Service    string         `json:"service"`
	Attributes rlc.Attributes `json:"attributes"`
	Outcome    Outcome        `json:"outcome"`
	Snapshot   string         `json:"snapshot"`
	Buckets    []Explained    `json:"buckets"` // the quota bucket, then the caps
	Text       string         `json:"text"`    // one sentence for people
}

// Explained is one bucket's part in a decision.
type Explained struct {
	Live
	Off          bool   `json:"off,omitempty"` // turned off by a panic
	Admits       bool   `json:"admits"`
	Remaining    *int64 `json:"remaining"` // null: not limited
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// Explain says what Decide would say of a request of cost 1, and why. It never
// charges or counts. Sensitive values come back hashed.
func (e *Enforcer) Explain(service string, attrs rlc.Attributes) (x Explanation) {
	x = Explanation{Service: service, Attributes: maps.Clone(attrs), Outcome: Admit, Buckets: []Explained{}, Snapshot: e.Version().String()}
	l := e.current(e.now())
	if l == nil {
		x.Text = "no snapshot is in force: every request is admitted"
		return x
	}
	s := l.services[service]
	if s == nil {
		x.Text = "the service has no policy: its requests are admitted"
		return x
	}
	x.Attributes = e.conceal(s.service, x.Attributes)
	defer func() {
		if recover() != nil {
			x.Text = "the decision panicked: the request is admitted"
		}
	}()
	attrs = maps.Clone(attrs)
	for name, v := range attrs {
		attrs[name] = clip(v, maxValue)
	}
	d := e.Decide(Request{Service: service, Attributes: attrs, Peek: true})
	x.Outcome, x.Snapshot = d.Outcome, d.Version.String()
	b := e.builder(l, s, attrs)
	for _, h := range b.hits() {
		x.Buckets = append(x.Buckets, b.explain(h))
	}
	for _, p := range b.limitOverrides(nil) {
		x.Buckets = append(x.Buckets, b.explainPart(p))
	}
	x.Text = explainText(x, d)
	return x
}

// explain is one bucket's part in a decision.
func (b *builder) explain(h hit) Explained {
	limit, mode, source := b.l.limit(b.s.service, h.bucket, h.id)
	parts := b.add(nil, h)
	if len(parts) > 0 {
		return b.explainPart(parts[0])
	}
	live := Live{b.s.Name, h.bucket.Name, h.key, h.bucket.Role, mode, h.bucket.Algorithm, source, limit}
	return Explained{Live: live, Admits: true, Off: h.bucket.counts.off.Load()}
}

func (b *builder) explainPart(p draft) Explained {
	mode := rlc.Enforce
	if !p.enforce {
		mode = rlc.Shadow
	}
	w := b.e.newWorld([]draft{p}, !p.enforce, true)
	var v verdict
	b.e.take(context.Background(), &w, instantOf(b.e.now()), 1, true, nil, &v)
	k := p.bucket
	return Explained{
		Live:   Live{b.s.Name, k.Name, p.key, k.Role, mode, k.Algorithm, p.source, p.limit},
		Admits: v.OK(), Remaining: &v.Remaining,
		RetryAfterMS: ceil(bounded(v.Wait), time.Millisecond),
	}
}

func explainText(x Explanation, d Decision) string {
	switch {
	case d.Bucket == Overridden && d.Limit == nil:
		return fmt.Sprintf("dropped: override %s", d.Key["id"])
	case d.Failure != "":
		return fmt.Sprintf("dropped: %s fails closed, and the shared store does not answer (%s)", d.Bucket, d.Failure)
	case x.Outcome == Drop:
		return fmt.Sprintf("dropped: %s enforces %s/s with burst %s and is used up", d.Bucket, rlc.Number(d.Limit.Rate), rlc.Number(d.Limit.Burst))
	case x.Outcome == VirtualDrop:
		return fmt.Sprintf("admitted; %s allows %s/s with burst %s and is used up: dropped if everything enforced", d.Bucket, rlc.Number(d.Limit.Rate), rlc.Number(d.Limit.Burst))
	case d.Bucket == Unmatched && d.Limit == nil:
		return "admitted: no quota bucket matches"
	case d.Limit == nil:
		return fmt.Sprintf("admitted: %s has no quota for it yet", d.Bucket)
	}
	return fmt.Sprintf("admitted: %s allows %s/s with burst %s, %s left", d.Bucket, rlc.Number(d.Limit.Rate), rlc.Number(d.Limit.Burst), rlc.Number(d.Remaining))
}
