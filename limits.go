package rlc

import (
	"fmt"
	"time"
)

// The algorithms of a bucket. The first five count and are held by a store of
// counters; docs/algorithms.md says when to take which.
const (
	TokenBucket   = "token_bucket" // the default
	LeakyBucket   = "leaky_bucket"
	FixedWindow   = "fixed_window"
	SlidingWindow = "sliding_window"
	SlidingLog    = "sliding_log"
	Concurrency   = "concurrency" // requests in flight
	DropRatio     = "drop_ratio"  // a share dropped at random, as the loop tells
)

// Algorithms lists them.
func Algorithms() []string {
	return []string{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog, Concurrency, DropRatio}
}

// The units of a window.
const (
	PerSecond = "second"
	PerMinute = "minute"
	PerHour   = "hour"
	PerDay    = "day"
	PerWeek   = "week" // from Monday
	PerMonth  = "month"
)

// WindowLimit is a limit that a person writes as a number of requests in a
// window of time. The zero value is not valid.
type WindowLimit struct {
	Requests int64         `json:"requests"`         // 0 admits nothing
	Per      string        `json:"per,omitempty"`    // a unit; "" where Length says how long
	Length   time.Duration `json:"length,omitempty"` // whole microseconds; 0 where Per says how long
	// Calendar makes a fixed window start at an edge of the calendar: days,
	// weeks and months at Reset in Location, others at multiples of their
	// length since 1970 in UTC. False: with the first request after the window
	// before.
	Calendar bool          `json:"calendar,omitempty"`
	Reset    time.Duration `json:"reset,omitempty"`    // after midnight, less than a day
	Location string        `json:"location,omitempty"` // IANA name; "" is UTC
}

// MaxWindow bounds a window that is not a unit.
const MaxWindow = 366 * 24 * time.Hour

// Span is how long the window is; of a calendar's days, weeks and months it is
// the usual length, of a month 31 days.
func (w WindowLimit) Span() time.Duration {
	switch w.Per {
	case PerSecond:
		return time.Second
	case PerMinute:
		return time.Minute
	case PerHour:
		return time.Hour
	case PerDay:
		return 24 * time.Hour
	case PerWeek:
		return 7 * 24 * time.Hour
	case PerMonth:
		return 31 * 24 * time.Hour
	}
	return w.Length
}

// Valid reports whether w can be enforced.
func (w WindowLimit) Valid() error {
	span := w.Span()
	switch {
	case w.Requests < 0 || float64(w.Requests) > MaxRate:
		return fmt.Errorf("%w: %s requests are outside 0 to %s", ErrInvalid, Number(w.Requests), Number(MaxRate))
	case (w.Per == "") == (w.Length == 0) || w.Per != "" && span == 0:
		return fmt.Errorf("%w: a window is either a unit or a length", ErrInvalid)
	case span < time.Millisecond || span > MaxWindow || span%time.Microsecond != 0:
		return fmt.Errorf("%w: a window of %s is outside 1ms to %s", ErrInvalid, DurationText(span), DurationText(MaxWindow))
	case w.Reset < 0 || w.Reset >= 24*time.Hour || w.Reset%time.Minute != 0:
		return fmt.Errorf("%w: a reset at %s is no time of day", ErrInvalid, DurationText(w.Reset))
	}
	return nil
}

// Limit is the rate and the burst that come nearest to w: its requests at one
// instant, and no more than them in the long run.
func (w WindowLimit) Limit() Limit {
	return Limit{Rate: Rate(float64(w.Requests) / w.Span().Seconds()), Burst: Burst(w.Requests)}
}

// InFlight is a limit on the requests that are being served at one time.
type InFlight struct {
	Max     int64         `json:"max"`     // 0 admits nothing
	Timeout time.Duration `json:"timeout"` // after it a request that was not reported done is forgotten
}

// Scopes of a counter. What a bucket of a zone or region may use holds for each
// zone or region.
const (
	ScopeZone   = "zone"
	ScopeRegion = "region"
	ScopeGlobal = "global" // the default
)

// What becomes of a bucket's requests while its shared store is away.
const (
	FailOpen   = "open"   // admitted up to the bucket's full limit, counted locally
	FailClosed = "closed" // refused
	FailLocal  = "local"  // held to this enforcer's share of the limit; the default
)

// Cost is how many tokens requests of a bucket take. The zero value is 1 each.
type Cost struct {
	Procedures map[string]int64 // by procedure, at least 1; 1 where it is not listed
	Header     string           // response header that tells the cost afterwards; "" for none
	Reserve    int64            // taken until then, at least 1
}

// Tier is a class of callers, for capacity fit and for the order of shedding.
// Callers of no tier are between critical and batch.
type Tier struct {
	Critical []string // exact names, or prefixes that end in *
	Batch    []string
}

// QuotaWindow is another limit for a span of time, From inclusive, Until
// exclusive.
type QuotaWindow struct {
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	Limit
}

// QuotaHours are rates hour by hour: Rates[i] holds from From + i·1 h for an
// hour. Before and after them the quota's own rate does.
type QuotaHours struct {
	From  time.Time `json:"from"` // a full hour
	Rates []Rate    `json:"rates"`
}

// Alias says that a caller had another name.
type Alias struct {
	Caller string // today's
	Was    string
}

// Event is a span of planned traffic.
type Event struct {
	Name     string
	From     time.Time
	Until    time.Time
	Multiply float64 // of the usual rate, above 0
}

// Failover says where the traffic of a lost region goes.
type Failover struct {
	Lose string
	To   map[string]float64 // region to the share that it receives; they sum to 1
}

// Freeze is a time without changes: from each moment that Cron names, in the
// service's time zone, for For.
type Freeze struct {
	Cron  string        // five fields
	For   time.Duration //
	Allow string        // "increases", or "" for nothing
}

// Target is another limiter that the same numbers are written for.
type Target struct {
	Kind string
	Path string // of the file to write, in the config repository
}

// AutoMerge says which proposals need no person.
type AutoMerge struct {
	MaxChange float64 // the largest relative change of any quota, above 0
}
