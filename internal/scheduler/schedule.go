package scheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/openrlc/rlc"
)

const (
	maxSpec   = 100 // bytes
	minPeriod = time.Minute
)

// Schedule is when a job is due: at whole minutes, UTC. The zero value is
// never due.
type Schedule struct {
	spec  string
	every time.Duration // "@every"; 0 otherwise
	cron  cron.Schedule
}

// ParseSchedule reads a cron spec of five fields (minute, hour, day of month,
// month, day of week), a descriptor such as "@daily", or "@every" and a
// duration of whole minutes. Times are UTC: a spec has no time zone. "@every
// 90m" is due at multiples of 90 minutes since the year 1, whenever it was
// started, so that every replica names the same slots.
//
// A spec that is never due, that is longer than 100 bytes or that cannot be
// read is refused with rlc.ErrInvalid.
func ParseSchedule(spec string) (s Schedule, err error) {
	defer func() {
		if recover() != nil { // the library panics on some malformed specs
			s, err = Schedule{}, refuse(spec, "it cannot be read")
		}
	}()
	if len(spec) > maxSpec {
		return Schedule{}, fmt.Errorf("%w: schedule of %d bytes: at most %d", rlc.ErrInvalid, len(spec), maxSpec)
	}
	for i := range len(spec) {
		if c := spec[i]; c < ' ' || c > '~' {
			return Schedule{}, refuse(spec, "want printable ASCII")
		}
	}
	if strings.Contains(spec, "TZ=") {
		return Schedule{}, refuse(spec, "times are UTC, a time zone is not supported")
	}
	s = Schedule{spec: strings.TrimSpace(spec)}
	if period, ok := strings.CutPrefix(s.spec, "@every"); ok {
		s.every, err = rlc.ParseDuration(strings.TrimSpace(period))
		if err != nil || s.every < minPeriod || s.every%time.Minute != 0 {
			return Schedule{}, refuse(spec, "want @every and whole minutes, at least 1m")
		}
		return s, nil
	}
	if s.cron, err = cron.ParseStandard(s.spec); err != nil {
		return Schedule{}, refuse(spec, err.Error())
	}
	// The library looks five years ahead; from 2000 on it finds every date that
	// comes at all, 29 February included.
	if s.Next(time.Date(1999, 12, 31, 23, 59, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, refuse(spec, "such a date never comes")
	}
	return s, nil
}

func refuse(spec, why string) error {
	return fmt.Errorf("%w: schedule %q: %s", rlc.ErrInvalid, spec, why)
}

// String is the spec.
func (s Schedule) String() string { return s.spec }

// Next is the first slot after t, in UTC; zero where there is none within five
// years.
func (s Schedule) Next(t time.Time) time.Time {
	t = t.UTC()
	switch {
	case s.every > 0:
		return t.Truncate(s.every).Add(s.every)
	case s.cron == nil:
		return time.Time{}
	}
	return s.cron.Next(t)
}

// last is the newest slot in (after, until]; zero where there is none. It looks
// back from until in growing strides, so that a schedule of every minute that
// slept for a year costs no more than a yearly one.
func (s Schedule) last(after, until time.Time) time.Time {
	for stride := time.Hour; ; stride *= 2 {
		from := until.Add(-stride)
		if !from.After(after) {
			from = after
		}
		var newest time.Time
		for t := s.Next(from); !t.IsZero() && !t.After(until); t = s.Next(t) {
			newest = t
		}
		if !newest.IsZero() || from.Equal(after) {
			return newest
		}
	}
}
