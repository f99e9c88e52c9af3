package enforcer

import (
	"slices"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/match"
)

// builder finds the route of one request.
type builder struct {
	e     *Enforcer
	l     *loaded
	s     *active
	attrs rlc.Attributes // as they came
	told  rlc.Attributes // as they may leave: sensitive values hashed
	class loop.Class     // of the request, all along its path
	r     *route
}

func (e *Enforcer) builder(l *loaded, s *active, attrs rlc.Attributes) *builder {
	return &builder{e: e, l: l, s: s, attrs: attrs, told: e.conceal(s.service, attrs), r: &route{course: &course{service: s}}}
}

// hit is a bucket that a request belongs to, with the counter's name.
type hit struct {
	bucket *bucket
	key    rlc.Key
	id     string
}

// hits lists the request's quota bucket, which may be the one of unmatched
// requests, and its caps.
func (b *builder) hits() []hit {
	m := b.s.matcher.Match(b.attrs)
	out := []hit{{bucket: &b.s.unmatched, id: Unmatched}}
	if m.Quota.Bucket >= 0 {
		out[0] = b.hit(m.Quota)
	}
	for _, h := range m.Caps {
		out = append(out, b.hit(h))
	}
	return out
}

// hit names the counter with sensitive values hashed: so do the metrics that
// quotas are computed from.
func (b *builder) hit(h match.Hit) hit {
	out := hit{&b.s.buckets[h.Bucket], h.Key, h.ID}
	for _, name := range b.s.Sensitive {
		if h.Key[name] != "" {
			out.key = b.e.conceal(b.s.service, h.Key)
			out.id = rlc.QuotaID(out.bucket.Name, out.key)
			break
		}
	}
	return out
}

// build finds the route of a request. With look set it has no series and is
// not to be cached.
func (e *Enforcer) build(l *loaded, s *active, attrs rlc.Attributes, look bool) *route {
	b := e.builder(l, s, attrs)
	r, hits := b.r, b.hits()
	r.quota, r.key = hits[0].bucket, hits[0].key
	b.class = classAlong(hits, s.identity(b.told, "caller"))
	of := s.labels(r.quota, b.told)
	if !look {
		table := &r.quota.counts.table
		r.series = table.get(of)
		r.now, r.other = r.series.now, r.series == &table.rest
	}
	quota := b.add(nil, hits[0])
	r.strange = r.quota == &s.unmatched || len(r.noQuota) > 0 || s.identity(b.told, "caller") == ""
	lifted := b.overrides()
	if lifted || s.virtual && r.strange {
		for i := range quota {
			quota[i].enforce = false
		}
	}
	parts := quota
	for _, h := range hits[1:] {
		if h.bucket.counts.off.Load() {
			r.off = append(r.off, h.bucket.counts)
			continue
		}
		r.caps = append(r.caps, h.bucket)
		parts = b.add(parts, h)
	}
	parts = b.limitOverrides(parts)

	var enforcing []draft
	for _, p := range parts {
		r.holds = r.holds || p.slot != nil || p.after
		if p.after && r.costHeader == "" {
			r.costHeader = p.bucket.Cost.Header
		}
		if p.enforce {
			enforcing = append(enforcing, p)
		}
	}
	r.live = e.newWorld(enforcing, false, look)
	if len(enforcing) < len(parts) || (s.joint && len(parts) > 0) {
		r.asIf = e.newWorld(parts, true, look)
	}
	r.trips = e.deadline > 0 && r.live.trips()+r.asIf.trips() > 1
	r.noted = r.strange || len(r.noQuota)+len(r.off)+len(r.caps) > 0
	if !r.holds && r.overrides == nil {
		r.byLoop()
	}
	return r
}

// add appends what limits a bucket's key, if anything does.
func (b *builder) add(parts []draft, h hit) []draft {
	k := h.bucket
	if k.counts.off.Load() {
		b.r.off = append(b.r.off, k.counts)
		return parts
	}
	limit, mode, source := b.l.limit(b.s.service, k, h.id)
	if (source == "none" || source == "new_key") && k != &b.s.unmatched {
		b.r.noQuota = append(b.r.noQuota, k.counts)
	}
	if limit == nil {
		return parts
	}
	p := draft{
		class:  b.class,
		part:   part{bucket: k, key: h.key, limit: limit, enforce: mode == rlc.Enforce, cost: 1, who: b.who(h)},
		source: source,
		charge: gcra.Charge{Bucket: k.space, Key: h.id, Max: b.s.Counters.Max, Share: b.s.Counters.OnFull == "share"},
	}
	switch {
	case k.Cost.Header != "":
		p.cost, p.after = max(k.Cost.Reserve, 1), true
	case k.Cost.Procedures != nil:
		p.cost = max(k.Cost.Procedures[b.attrs["procedure"]], 1)
	}
	if k.InFlight != nil {
		p.slot = &slot{k.space + "\x00" + h.id, k.InFlight.Max, k.InFlight.Timeout.Microseconds()}
		return append(parts, p)
	}
	if k.Algorithm == rlc.DropRatio {
		p.ratio = b.e.ratioName(b.s.Name, k.Name, h.id)
	}
	compiled, err := k.compile(*limit)
	if err != nil {
		// The validator refuses such a limit; admitting is the safe side.
		return parts
	}
	p.charge.Limit = compiled
	p.shared = b.e.shares(compiled.Kind())
	return append(parts, p)
}

// who is under which name a refusal by the bucket is listed: its counter's, or
// the caller's where it has one counter for all.
func (b *builder) who(h hit) string {
	if len(h.key) > 0 {
		return h.id
	}
	return b.s.identity(b.told, "caller")
}

// overrides finds the overrides that the request is for, but for limits that
// stand, and reports whether one of them lifts its quotas.
func (b *builder) overrides() (lifted bool) {
	named := b.named()
	for _, o := range b.s.overrides {
		stands := o.stands(b.l.at)
		if stands && o.Action == LimitAction || !o.matches(named) {
			continue
		}
		b.r.overrides, b.r.caller = append(b.r.overrides, o), named["caller"]
		lifted = lifted || stands && o.Action == LiftAction
	}
	return lifted
}

// limitOverrides adds the limits that overrides set. Beyond gcra.MaxCharges
// limits, a request is held to no more.
func (b *builder) limitOverrides(parts []draft) []draft {
	named := b.named()
	for _, o := range b.s.overrides {
		if o.Action != LimitAction || !o.stands(b.l.at) || !o.matches(named) || len(parts) == gcra.MaxCharges {
			continue
		}
		p := o.draft(b.s.Name, b.who(hit{}), named["caller"])
		p.class = b.class
		p.shared = b.e.shares(gcra.TokenBucket)
		if !p.shared && b.e.config.Loop != nil {
			p.ratio = p.charge.Bucket // the loop is what the fleet shares
		}
		b.r.caps = append(b.r.caps, p.bucket)
		parts = append(parts, p)
	}
	return parts
}

// named is what overrides are matched with: sensitive values hashed, those that
// mean "no identity" left out.
func (b *builder) named() rlc.Attributes {
	if len(b.s.overrides) == 0 {
		return nil
	}
	out := make(rlc.Attributes, len(b.told))
	for name := range b.told {
		if v := b.s.identity(b.told, name); v != "" {
			out[name] = v
		}
	}
	return out
}

// shares reports whether counters of a kind live in the shared store. A paced
// queue is one process's own.
func (e *Enforcer) shares(k gcra.Kind) bool {
	if e.counter == nil || k == gcra.LeakyBucket {
		return false
	}
	s, ok := e.counter.(Selective)
	return !ok || s.Serves(k)
}

// identity is an attribute's value, "" where it means "no identity".
func (s *service) identity(attrs rlc.Attributes, name string) string {
	v := attrs[name]
	if v != "" && slices.Contains(s.Unknown[name], v) {
		return ""
	}
	return v
}
