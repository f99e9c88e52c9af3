package loop

import "time"

// above is what the tier above said last, as the tier below remembers it: an
// aggregator of its controller, a region's controller of the global one.
type above struct {
	informed    bool          // something was heard since the start
	heard       time.Duration // when last
	epoch, said uint64        // its stamp
	given       map[string]*given
}

// given is the last word on a bucket.
type given struct {
	Directive
	at time.Duration
}

// take enters directives that came at now, made sane; ok is false where they
// are late. It remembers at most most buckets.
func (u *above) take(d Directives, now time.Duration, most int) (fresh []Directive, ok bool) {
	if u.informed && now-u.heard <= TTL && !after(d.Epoch, d.Seq, u.epoch, u.said) {
		return nil, false
	}
	u.epoch, u.said, u.heard, u.informed = d.Epoch, d.Seq, now, true
	for _, v := range d.List {
		v.Keep = saneKeep(v.Keep)
		v.Limit, v.Load, v.Share, v.Spare = sane(v.Limit), sane(v.Load), min(sane(v.Share), 1), sane(v.Spare)
		if u.given[v.Bucket] == nil && len(u.given) >= most {
			continue
		}
		u.given[v.Bucket] = &given{v, now}
		fresh = append(fresh, v)
	}
	return fresh, true
}

// silent reports whether those below have to decide for themselves.
func (u *above) silent(now time.Duration) bool {
	return u.informed && now-u.heard > closeAfter
}

// obey sets a cell as was last said.
func (u *above) obey(c *cell) {
	g := u.given[c.bucket]
	c.given = g
	switch {
	case g == nil || g.None:
		c.decide, c.keep = false, keepAll
	case g.Decide:
		c.decide, c.limit = true, g.Limit
	default:
		c.decide, c.keep = false, g.Keep
	}
}

// settle decides who decides a cell: those above, or the law on the last share
// while they are silent.
func (u *above) settle(c *cell, now time.Duration) {
	g := u.given[c.bucket]
	if g == nil || g.None || g.Decide {
		return
	}
	closed := u.silent(now)
	switch {
	case closed && !c.decide:
		c.decide, c.everSent = true, false
		c.law.Restart(now)
		fallthrough
	case closed:
		c.limit = g.Limit * g.Share
	case now-g.at > TTL:
		// Those above speak, but of this bucket no more.
		delete(u.given, c.bucket)
		u.obey(c)
	case c.decide:
		u.obey(c)
	}
}

// asked reports whether those above want to know what is decided here for a
// bucket.
func (u *above) asked(bucket string) bool {
	g := u.given[bucket]
	return g != nil && g.Decide
}

// telling decides when a path's sum is told to the tier above: when it moved by
// more than 1 %, else every 250 ms, and for some seconds after it fell to zero.
type telling struct {
	sent     float64
	sentAt   time.Duration
	everSent bool
	zeroAt   time.Duration // when it fell to zero; meaningful while it is zero
	wasZero  bool
}

// see takes what is offered now.
func (s *telling) see(offered float64, now time.Duration) {
	zero := offered == 0
	if zero && !s.wasZero {
		s.zeroAt = now
	}
	s.wasZero = zero
}

// due reports whether the load, doubts included, is to be told; it then counts
// as told.
func (s *telling) due(load float64, now time.Duration) bool {
	if s.wasZero && now-s.zeroAt > zeroSumsFor || s.everSent && !moved(s.sent, load) && now-s.sentAt < sumEvery {
		return false
	}
	s.sent, s.sentAt, s.everSent = load, now, true
	return true
}
