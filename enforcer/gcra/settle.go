package gcra

import "slices"

// overMost bounds what a bucket may owe above its burst, in seconds of its
// rate: one answer that cost a fortune blocks a caller for a minute, not a day.
const overMost = 60

// Settle charges a counter that was charged at at with by tokens more, or gives
// back where by is negative: at most what was charged then, and once. It asks
// nobody. A charge may leave a bucket with less than nothing, up to a minute's
// refill or its burst, whichever is more: later requests wait for it, so that
// the rate holds in the long run.
//
// What is charged late counts where the request did: in its own window, which
// may be over and then forgets it, or at its own entry of a log. In a bucket it
// counts from then on, or, where the bucket was charged since, from there on.
//
// What is given back never mints: time has paid off a part of the charge since,
// and only the rest is returned; a window that is over gets nothing, and the
// next one is not given what belongs to it. Where at is later than the charge
// (the caller's time of settling, say), as much is given back as the counter
// owes.
func (l *Limit) Settle(s *State, at, by int64) {
	by = min(max(by, -l.burst/micro), maxCost) * micro
	switch {
	case by > 0:
		l.charge(s, at, by)
	case by < 0 && l.length == 0:
		l.refund(s, at, -by)
	case by < 0 && l.kind == SlidingLog:
		l.refundLog(s, at, -by)
	case by < 0:
		l.refundWindow(s, at, -by)
	}
}

// maxCost bounds one charge, in tokens, so that sums fit.
const maxCost = 1e11

// charge adds by micro-tokens without asking. A request that took long lies far
// back, which is no sign that the clock was set back.
func (l *Limit) charge(s *State, at, by int64) {
	now := max(at, s.At)
	switch l.kind {
	case FixedWindow:
		l.fixedAt(s, now)
		switch {
		case s.End == 0 && at == now:
			s.End = at + l.length
			s.Debt = by
		case l.Rolls() && s.End != 0 && at >= s.End-l.length, !l.Rolls() && l.End(at) == s.End:
			s.Debt = min(s.Debt+by, maxCost*micro)
		}
	case SlidingWindow:
		l.slidingAt(s, now)
		switch l.End(at) {
		case s.End:
			s.Debt = min(s.Debt+by, maxCost*micro)
		case s.End - l.length:
			s.Prev = min(s.Prev+by, maxCost*micro)
		}
	case SlidingLog:
		l.chargeLog(s, at, by)
	default:
		if s.End|s.Prev != 0 {
			l.bucketOf(s, now)
		}
		s.Debt, s.At = l.refilled(s.Debt, s.At, now)
		most := max(l.earned(overMost*micro, maxCost*micro), l.burst)
		over := min(max(s.Debt+by-l.burst, 0)+s.Prev, most)
		s.Debt, s.Prev = min(s.Debt+by, l.burst), over
	}
}

// chargeLog adds to what was entered at at: to the newest entry not after it.
func (l *Limit) chargeLog(s *State, at, by int64) {
	l.logAt(s, max(at, s.At))
	if grain := l.Grain(); grain > 1 {
		at = gridEnd(at-1, grain)
	}
	by = min(by, maxCost*micro-s.Debt)
	if s.Debt == 0 {
		s.At, s.Prev, s.Debt = max(at, s.At), by, by
		s.End = s.At + l.length
		return
	}
	entry := &s.Prev
	if at < s.At {
		i := len(s.Log) - 1
		for i >= 0 && s.Log[i].At > at {
			i--
		}
		switch {
		case i >= 0:
			entry = &s.Log[i].Cost
		case at <= s.At-l.length:
			return // it has slid out
		case len(s.Log) > 0:
			entry = &s.Log[0].Cost
		}
	}
	*entry += by
	s.Debt += by
}

// refund gives a bucket back what time has not paid off since at.
func (l *Limit) refund(s *State, at, by int64) {
	if s.End != 0 {
		return // charged under a window
	}
	if d := s.At - at; d > 0 {
		by -= l.earned(d, by)
	}
	over := min(s.Prev, by)
	s.Prev -= over
	s.Debt = max(s.Debt-(by-over), 0)
}

// refundWindow gives back to the window that was charged at at, if it still
// counts.
func (l *Limit) refundWindow(s *State, at, by int64) {
	at = min(at, s.At)
	switch {
	case s.End == 0:
	case l.Rolls() && at >= s.End-l.length, !l.Rolls() && l.End(at) == s.End:
		s.Debt = max(s.Debt-by, 0)
	case l.kind == SlidingWindow && l.End(at) == s.End-l.length:
		s.Prev = max(s.Prev-by, 0)
	}
}

// refundLog takes back what was entered at at: the newest entry not after it.
func (l *Limit) refundLog(s *State, at, by int64) {
	if s.End == 0 {
		return
	}
	if grain := l.Grain(); grain > 1 {
		at = gridEnd(at-1, grain)
	}
	entry := &s.Prev
	if at < s.At {
		i := len(s.Log) - 1
		for i >= 0 && s.Log[i].At > at {
			i--
		}
		if i < 0 {
			return // it has slid out
		}
		entry = &s.Log[i].Cost
	}
	by = min(by, *entry)
	*entry -= by
	s.Debt -= by
	s.Log = slices.DeleteFunc(s.Log, func(e Entry) bool { return e.Cost == 0 })
}
