package gcra

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
)

// Kind is the algorithm of a limit.
type Kind uint8

// The kinds. All of them admit at most the burst at one instant.
const (
	TokenBucket   Kind = iota // at most burst + rate·t in any t seconds
	LeakyBucket               // a queue of burst places, drained at rate
	FixedWindow               // at most the requests from one edge of a window to the next
	SlidingWindow             // two counters: the window before counts in proportion
	SlidingLog                // at most the requests in any window
)

var kindNames = [...]string{rlc.TokenBucket, rlc.LeakyBucket, rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog}

// String is the algorithm's name in a policy.
func (k Kind) String() string { return kindNames[k] }

// Counted finds the kind of an algorithm that counts; ok is false for those
// that do not (rlc.Concurrency, rlc.DropRatio) and for unknown ones. The empty
// name is the token bucket.
func Counted(algorithm string) (k Kind, ok bool) {
	if algorithm == "" {
		return TokenBucket, true
	}
	for i, name := range kindNames {
		if name == algorithm {
			return Kind(i), true
		}
	}
	return 0, false
}

// Limit is a limit ready for arithmetic, of any kind. The zero value is a token
// bucket that admits nothing. Its methods are safe for use by many goroutines.
type Limit struct {
	kind   Kind
	rate   int64     // micro-tokens a second, of the buckets
	burst  int64     // micro-tokens: the burst, or a window's requests
	length int64     // of a window, in microseconds; 0 for the buckets
	window *calendar // edges of a fixed window's calendar; nil where it rolls
}

// Compile prepares a token bucket. It fails with rlc.ErrInvalid where l.Valid
// does. A rate is rounded to a millionth of a request per second, never to zero.
func Compile(l rlc.Limit) (Limit, error) { return CompileAs(rlc.TokenBucket, l) }

// CompileAs prepares a rate and a burst for any algorithm that counts. A window
// then holds burst requests in the time that the rate takes for them, so that
// all algorithms sustain the same rate and admit the same at one instant; a
// fixed window of that kind begins with the first request after the one before.
func CompileAs(algorithm string, l rlc.Limit) (Limit, error) {
	kind, ok := Counted(algorithm)
	if !ok {
		return Limit{}, fmt.Errorf("%w: %s is no algorithm that counts", rlc.ErrInvalid, algorithm)
	}
	if err := l.Valid(); err != nil {
		return Limit{}, err
	}
	rate := int64(math.Round(float64(l.Rate) * micro))
	if l.Rate > 0 {
		rate = max(rate, 1)
	}
	c := Limit{kind: kind, rate: rate, burst: int64(l.Burst) * micro}
	if kind <= LeakyBucket {
		return c, nil
	}
	c.length = micro
	if rate > 0 {
		c.length = min(c.after(c.burst), maxLength)
	}
	c.rate = 0
	return c, nil
}

// CompileWindow prepares requests in a window for one of the three algorithms
// that have one. It fails with rlc.ErrInvalid where w.Valid does.
func CompileWindow(algorithm string, w rlc.WindowLimit) (Limit, error) {
	kind, ok := Counted(algorithm)
	if !ok || kind <= LeakyBucket {
		return Limit{}, fmt.Errorf("%w: %s has no window", rlc.ErrInvalid, algorithm)
	}
	if err := w.Valid(); err != nil {
		return Limit{}, err
	}
	if kind != FixedWindow && (w.Calendar || w.Per == rlc.PerMonth) {
		return Limit{}, fmt.Errorf("%w: the window of %s slides", rlc.ErrInvalid, algorithm)
	}
	c := Limit{kind: kind, burst: w.Requests * micro, length: w.Span().Microseconds()}
	if w.Calendar {
		location, err := time.LoadLocation(w.Location)
		if err != nil {
			return Limit{}, fmt.Errorf("%w: time zone %q", rlc.ErrInvalid, w.Location)
		}
		c.window = &calendar{unit: w.Per, length: c.length, reset: w.Reset, location: location}
	}
	return c, nil
}

// maxLength bounds a window that comes from a rate: ten years.
const maxLength = int64(10 * 366 * 24 * time.Hour / time.Microsecond)

// Kind is the limit's algorithm.
func (l *Limit) Kind() Kind { return l.kind }

// Burst is the most whole tokens that the counter holds: the burst, or a
// window's requests.
func (l *Limit) Burst() int64 { return l.burst / micro }

// Rate is what a bucket gives back, in micro-tokens a second; 0 for windows.
func (l *Limit) Rate() int64 { return l.rate }

// Length is how long a window is, in microseconds; 0 for the buckets. Of a
// calendar's days, weeks and months it is the longest.
func (l *Limit) Length() int64 { return l.length }

// Grain is, for a sliding log, what its times are rounded up to, in
// microseconds: a log then has at most logEntries + 1 entries. 0 for others.
func (l *Limit) Grain() int64 {
	if l.kind != SlidingLog {
		return 0
	}
	if l.burst <= logEntries*micro {
		return 1
	}
	return (l.length + logEntries - 1) / logEntries
}

// Rolls reports whether a fixed window begins with the first request after the
// one before, and not at an edge of the calendar.
func (l *Limit) Rolls() bool { return l.kind == FixedWindow && l.window == nil }

// End is when the window that contains now is over, in microseconds, for a
// sliding window and a fixed one of the calendar: the next edge. For windows
// that roll it is the end of one that would begin now.
func (l *Limit) End(now int64) int64 {
	switch {
	case l.length == 0:
		return now
	case l.kind == FixedWindow && l.window != nil:
		return l.window.end(now)
	case l.kind == SlidingWindow:
		return gridEnd(now, l.length)
	}
	return now + l.length
}

// String is for logs.
func (l *Limit) String() string {
	if l.length == 0 {
		return fmt.Sprintf("%s %g/s burst %d", l.kind, float64(l.rate)/micro, l.burst/micro)
	}
	return fmt.Sprintf("%s %d in %s", l.kind, l.burst/micro, rlc.DurationText(time.Duration(l.length)*time.Microsecond))
}

// gridEnd is the first multiple of length after now.
func gridEnd(now, length int64) int64 {
	r := now % length
	if r < 0 {
		r += length
	}
	return now - r + length
}

// calendar finds the edges of fixed windows that follow the calendar.
type calendar struct {
	unit     string        // rlc.PerDay, PerWeek or PerMonth; others lie on a grid of length from 1970 on
	length   int64         // of a window on a grid
	reset    time.Duration // after midnight
	location *time.Location
	last     atomic.Pointer[span] // the window that was asked for last
}

// span is one window, in microseconds.
type span struct{ start, end int64 }

// end is when the window that contains now is over.
func (c *calendar) end(now int64) int64 {
	switch c.unit {
	case rlc.PerDay, rlc.PerWeek, rlc.PerMonth:
	default:
		return gridEnd(now, c.length)
	}
	if s := c.last.Load(); s != nil && s.start <= now && now < s.end {
		return s.end
	}
	t := time.UnixMicro(now).In(c.location)
	// A day on which the clocks change may be moved by its odd hour: look from
	// two windows back for the first edge after now.
	start := int64(math.MinInt64)
	for n := -2; ; n++ {
		edge := c.edge(t, n).UnixMicro()
		if edge > now {
			c.last.Store(&span{start, edge})
			return edge
		}
		start = edge
	}
}

// edge is where the window n units after t's own starts.
func (c *calendar) edge(t time.Time, n int) time.Time {
	year, month, day := t.Date()
	switch c.unit {
	case rlc.PerDay:
		day += n
	case rlc.PerWeek: // begins on Monday
		day += 7*n - (int(t.Weekday())+6)%7
	case rlc.PerMonth:
		month, day = month+time.Month(n), 1
	}
	return time.Date(year, month, day, int(c.reset/time.Hour), int(c.reset%time.Hour/time.Minute), 0, 0, c.location)
}
