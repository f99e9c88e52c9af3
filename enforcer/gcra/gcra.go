// Package gcra is the arithmetic of every limit that counts: state, limit and
// time in, state and verdict out. It has no clock, no lock and no memory of its
// own. The token bucket, in GCRA's form, is the one that most limits are; the
// others are a paced queue (leaky bucket), a fixed window, a sliding window of
// two counters and a sliding log.
//
// What a counter remembers is a debt: what its admitted requests have taken and
// time has not yet given back. A counter without debt is as good as new, so the
// zero State is a new one and an idle one need not be kept at all. A change of
// limit, or of algorithm, keeps the debt: a raised limit is usable at once, a
// lowered one clamps it.
//
// All numbers are integers: micro-tokens, and Unix microseconds (a clock with
// another zero will do where no limit follows the calendar). Rounding costs at
// most one micro-token a charge and always rounds against the requests, so
// tokens are never minted; at 367,000 requests/s the drift is below 1 in
// 100,000.
package gcra

import (
	"math"
	"math/bits"
	"time"
)

// micro is the number of micro-tokens in a token and of microseconds in a
// second.
const micro = 1_000_000

// slack is how far, in microseconds, a stored time may always be ahead of now.
// Callers that read their clocks at the same moment but charge one after
// another arrive out of order by less than this.
const slack = 1_000_000

// Forever is the wait of a request that no amount of waiting would admit: a
// cost above the burst, or a rate of zero.
const Forever = time.Duration(math.MaxInt64)

// State is what is remembered of one counter. The zero value is a new one.
// What the fields beside Debt and At mean depends on the limit; a state may be
// given to a limit of another kind, which takes its debt over.
type State struct {
	Debt int64 // micro-tokens taken and not yet given back
	At   int64 // when that was so, in microseconds
	// End is when the window in force is over, in microseconds; 0 for the
	// buckets, which have none.
	End int64
	// Prev is, in micro-tokens: of a bucket the debt above its burst (Settle);
	// of a sliding window what the window before took; of a log what was taken
	// at At.
	Prev int64
	Log  []Entry // of a sliding log: what was taken before At, oldest first
}

// Entry is what a sliding log remembers of one moment.
type Entry struct {
	At   int64 // microseconds
	Cost int64 // micro-tokens
}

// Verdict is the answer to one request.
type Verdict struct {
	OK bool
	// Remaining is the number of whole tokens left, after the charge where
	// there was one. It is at least 0.
	Remaining int64
	// Wait is, for a refused request, how long until it would be admitted if
	// nothing else came, never too short; Forever where never. For one that a
	// leaky bucket admitted it is how long to hold it before it goes on. Else 0.
	Wait time.Duration
}

// Take asks the counter s under the limit l for cost tokens at now, and returns
// the counter as it is afterwards. A refused request changes nothing that later
// requests see. A cost below 0 is a peek: OK says whether a request of
// that cost above 0 would be admitted, and nothing is charged; 0 is a peek at 1.
//
// Time never runs back: a now before s.At counts as s.At. Only where s.At is
// ahead by more than two refills or windows (and more than a second) was the
// clock set back, and the counter goes on from now with its debt: no freeze,
// and at most one capacity is given twice. A jump forward pays the debt and no
// more.
//
// The state returned shares memory with s; only one of the two may be used
// further.
func (l *Limit) Take(s State, now, cost int64) (State, Verdict) {
	v := l.TakeFrom(&s, now, cost)
	return s, v
}

// TakeFrom is Take in place, for a store that has no reason to look back.
func (l *Limit) TakeFrom(s *State, now, cost int64) Verdict {
	if l.length > 0 || s.End|s.Prev != 0 {
		return l.takeSlow(s, now, cost)
	}
	return l.takeTokens(s, now, cost)
}

// takeSlow is TakeFrom for all but a bucket that owes nothing above its burst.
func (l *Limit) takeSlow(s *State, now, cost int64) Verdict {
	switch l.kind {
	case FixedWindow:
		return l.takeFixed(s, now, cost)
	case SlidingWindow:
		return l.takeSliding(s, now, cost)
	case SlidingLog:
		return l.takeLog(s, now, cost)
	}
	l.bucketOf(s, now)
	return l.takeTokens(s, now, cost)
}

// takeTokens is TakeFrom for the buckets.
func (l *Limit) takeTokens(s *State, now, cost int64) Verdict {
	debt, at := l.refilled(s.Debt, s.At, now)
	if at < s.At {
		s.Debt, s.At = debt, at // the clock was set back: to be remembered even by a refusal
	}
	cost, peek := looked(cost)
	free := l.burst - debt
	if cost > l.burst/micro {
		return Verdict{Remaining: free / micro, Wait: Forever}
	}
	if short := cost*micro - free + s.Prev; short > 0 {
		return Verdict{Remaining: free / micro, Wait: duration(l.after(short), max(at-now, 0))}
	}
	v := Verdict{OK: true, Remaining: free / micro}
	if l.kind == LeakyBucket {
		v.Wait = duration(l.after(debt), max(at-now, 0))
	}
	if !peek {
		s.Debt, s.At = debt+cost*micro, at
		v.Remaining = (free - cost*micro) / micro
	}
	return v
}

// looked is the cost that is asked for, and whether it is only looked at.
func looked(cost int64) (asked int64, peek bool) {
	if cost > 0 {
		return cost, false
	}
	return max(-cost, 1), true
}

// refilled is a bucket at now under l, without a charge.
func (l *Limit) refilled(debt, at, now int64) (int64, int64) {
	debt = min(max(debt, 0), l.burst)
	d := now - at
	switch {
	case debt == 0:
		// Full: nothing to give back, whatever the clock says.
		if d > 0 || d < 0 && l.farAhead(-d) {
			at = now
		}
	case d > 0:
		// A span too short to give a whole micro-token is not used up, so
		// that frequent charges of a slow bucket lose nothing.
		if paid := l.earned(d, debt); paid > 0 {
			return debt - paid, now
		}
	case d < 0 && l.farAhead(-d):
		at = now
	}
	return debt, at
}

// bucketOf makes a bucket of a window's state, and pays what a bucket owes
// above its burst first.
func (l *Limit) bucketOf(s *State, now int64) {
	if s.End != 0 {
		*s = State{Debt: s.Debt, At: s.At}
		return
	}
	if d := now - s.At; d > 0 {
		s.Debt = min(max(s.Debt, 0), l.burst)
		if paid := l.earned(d, s.Debt+s.Prev); paid > 0 {
			total := s.Debt + s.Prev - paid
			s.Debt = min(total, l.burst)
			s.Prev = total - s.Debt
			s.At = now
		}
	}
}

// after is how long it takes to earn n micro-tokens, in microseconds, rounded
// up; math.MaxInt64 where it never happens.
func (l *Limit) after(n int64) int64 {
	if n <= 0 {
		return 0
	}
	if l.rate <= 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(n), micro)
	if hi >= uint64(l.rate) {
		return math.MaxInt64
	}
	q, rem := bits.Div64(hi, lo, uint64(l.rate))
	if rem > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// earned is how many micro-tokens d microseconds give, rounded down, at most
// most.
func (l *Limit) earned(d, most int64) int64 {
	hi, lo := bits.Mul64(uint64(l.rate), uint64(d))
	switch {
	case hi == 0: // the usual case, and a division by a constant
		return int64(min(lo/micro, uint64(most)))
	case hi >= micro:
		return most
	}
	q, _ := bits.Div64(hi, lo, micro)
	return int64(min(q, uint64(most)))
}

// farAhead reports whether a stored time that is d microseconds ahead can only
// come from a clock that was set back.
func (l *Limit) farAhead(d int64) bool {
	r := l.length
	if r == 0 {
		r = l.after(l.burst)
	}
	if r > math.MaxInt64/2 {
		// A bucket that never refills has no scale to judge by; a day has.
		r = int64(12 * time.Hour / time.Microsecond)
	}
	return d > max(2*r, slack)
}

// Idle reports whether the counter s is as good as new at now: the same as no
// counter.
func (l *Limit) Idle(s State, now int64) bool {
	switch l.kind {
	case FixedWindow:
		l.fixedAt(&s, now)
		return s.Debt == 0
	case SlidingWindow:
		l.slidingAt(&s, now)
		return s.Debt+s.Prev == 0
	case SlidingLog:
		l.logAt(&s, now)
		return s.Debt == 0
	}
	l.bucketOf(&s, now)
	debt, _ := l.refilled(s.Debt, s.At, now)
	return debt+s.Prev == 0
}

// duration is us + ahead microseconds, or Forever where they do not fit.
func duration(us, ahead int64) time.Duration {
	if us > int64(Forever/time.Microsecond)-ahead {
		return Forever
	}
	return time.Duration(us+ahead) * time.Microsecond
}
