package enforcer

import (
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
// charges or counts.
func (e *Enforcer) Explain(service string, attrs rlc.Attributes) (x Explanation) {
	x = Explanation{Service: service, Attributes: maps.Clone(attrs), Outcome: Admit, Buckets: []Explained{}, Snapshot: e.Version().String()}
	l := e.loaded.Load()
	if l == nil {
		x.Text = "no snapshot is in force: every request is admitted"
		return x
	}
	s := l.services[service]
	if s == nil {
		x.Text = "the service has no policy: its requests are admitted"
		return x
	}
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
	for i, hit := range s.matched(attrs) {
		b, id := &s.unmatched, Unmatched
		if hit.Bucket >= 0 {
			b, id = &s.buckets[hit.Bucket], hit.ID
		} else if i > 0 {
			continue
		}
		x.Buckets = append(x.Buckets, e.explain(s, b, hit.Key, id))
	}
	x.Text = explainText(x, d)
	return x
}

func (e *Enforcer) explain(s *service, b *bucket, key rlc.Key, id string) Explained {
	limit, mode, source := s.limit(b, id)
	out := Explained{Live: Live{s.Name, b.Name, key, b.Role, mode, b.Algorithm, source, limit}, Admits: true, Off: b.counts.off.Load()}
	r := &route{}
	parts := s.add(r, nil, b, key, id)
	if len(parts) == 0 {
		return out
	}
	prefix := ""
	if mode == rlc.Shadow {
		prefix = asIfPrefix
	}
	w := newWorld(e.counter, parts, prefix)
	tally := e.take(&w, e.now().Sub(e.start).Microseconds(), 0, true)
	out.Admits, out.Remaining = tally.OK(), &tally.Remaining
	out.RetryAfterMS = ceil(bounded(tally.Wait), time.Millisecond)
	return out
}

func explainText(x Explanation, d Decision) string {
	switch {
	case x.Outcome == Drop:
		return fmt.Sprintf("dropped: %s enforces %g/s with burst %d and is used up", d.Bucket, d.Limit.Rate, d.Limit.Burst)
	case x.Outcome == VirtualDrop:
		return fmt.Sprintf("admitted; %s allows %g/s with burst %d and is used up: dropped if everything enforced", d.Bucket, d.Limit.Rate, d.Limit.Burst)
	case d.Bucket == Unmatched && d.Limit == nil:
		return "admitted: no quota bucket matches"
	case d.Limit == nil:
		return fmt.Sprintf("admitted: %s has no quota for it yet", d.Bucket)
	}
	return fmt.Sprintf("admitted: %s allows %g/s with burst %d, %d left", d.Bucket, d.Limit.Rate, d.Limit.Burst, d.Remaining)
}
