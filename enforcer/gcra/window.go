package gcra

import "math/bits"

// takeFixed is Take for a fixed window.
func (l *Limit) takeFixed(s *State, now, cost int64) Verdict {
	l.fixedAt(s, now)
	cost, peek := looked(cost)
	free := max(l.burst-s.Debt, 0)
	if cost > l.burst/micro {
		return Verdict{Remaining: free / micro, Wait: Forever}
	}
	if cost*micro > free {
		return Verdict{Remaining: free / micro, Wait: duration(s.End-s.At, s.At-now)}
	}
	if peek {
		return Verdict{OK: true, Remaining: free / micro}
	}
	s.Debt += cost * micro
	if s.End == 0 {
		s.End = s.At + l.length
	}
	return Verdict{OK: true, Remaining: (free - cost*micro) / micro}
}

// fixedAt is the fixed window s at now. End stays 0 for a window that rolls and
// has not begun.
func (l *Limit) fixedAt(s *State, now int64) {
	l.windowAt(s, now)
	switch {
	case s.End <= s.At:
		s.Debt, s.End = 0, 0
		if l.window != nil {
			s.End = l.window.end(s.At)
		}
	case l.window != nil:
		s.End = l.window.end(s.At)
	default:
		s.End = min(s.End, s.At+l.length)
	}
	s.Prev, s.Log = 0, nil
}

// windowAt moves a window's clock to now, and takes over the debt of a bucket.
func (l *Limit) windowAt(s *State, now int64) {
	s.Debt = max(s.Debt, 0)
	if s.End == 0 && s.Debt > 0 {
		s.End, s.Prev = l.End(s.At), 0
	}
	if now < s.At && !l.farAhead(s.At-now) {
		now = s.At
	} else if now < s.At && s.Debt > 0 {
		s.End = l.End(now) // the clock was set back: the debt belongs to the window of now
	}
	s.At = now
}

// takeSliding is Take for a sliding window of two counters: the window before
// counts in proportion to how much of it is still within one length of now, as
// if its requests had come evenly spread.
func (l *Limit) takeSliding(s *State, now, cost int64) Verdict {
	l.slidingAt(s, now)
	cost, peek := looked(cost)
	free := max(l.burst-s.Debt-proportion(s.Prev, s.End-s.At, l.length), 0)
	switch {
	case cost > l.burst/micro:
		return Verdict{Remaining: free / micro, Wait: Forever}
	case cost*micro > free:
		return Verdict{Remaining: free / micro, Wait: duration(l.slides(s, cost*micro), s.At-now)}
	case peek:
		return Verdict{OK: true, Remaining: free / micro}
	}
	s.Debt += cost * micro
	return Verdict{OK: true, Remaining: (free - cost*micro) / micro}
}

// slidingAt is the sliding window s at now.
func (l *Limit) slidingAt(s *State, now int64) {
	l.windowAt(s, now)
	s.Log = nil
	end := gridEnd(s.At, l.length)
	switch {
	case s.End > s.At: // the same window, or one of another length
	case s.End > s.At-l.length:
		s.Prev, s.Debt = s.Debt, 0
	default:
		s.Prev, s.Debt = 0, 0
	}
	s.End = end
}

// slides is how long, from s.At, until cost micro-tokens are free: within this
// window as the one before slides out, or within the next as this one does.
func (l *Limit) slides(s *State, cost int64) int64 {
	rest, before, end := l.burst-cost-s.Debt, s.Prev, s.End
	if rest < 0 {
		// After the edge this window is the one before.
		rest, before, end = l.burst-cost, s.Debt, s.End+l.length
	}
	// before·(end − t)/length ≤ rest, rounded up on the left.
	hi, lo := bits.Mul64(uint64(rest), uint64(l.length))
	if hi >= uint64(before) {
		return max(end-l.length-s.At, 0) // never waits for that: all of it fits
	}
	left, _ := bits.Div64(hi, lo, uint64(before))
	return max(end-int64(min(left, uint64(l.length)))-s.At, 0)
}

// proportion is n·part/whole, rounded up, for 0 ≤ part ≤ whole.
func proportion(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	q, rem := bits.Div64(hi, lo, uint64(whole))
	if rem > 0 {
		q++
	}
	return int64(q)
}
