package enforcer

import (
	"context"
	"sync/atomic"
	"time"
)

// clockTick is how often the clock is set while Run runs: what is in force from
// one second to the next is known to the loop's decisions so much later.
const clockTick = 50 * time.Millisecond

// clock spares decisions the reading of the time of day, which costs more than
// the rest of them. While nobody keeps it, it is read each time.
type clock struct {
	set atomic.Pointer[setting] // nil: nobody keeps it
}

// setting is a time, with a reading of the monotonic clock.
type setting struct {
	time time.Time
	instant
}

// keep sets the clock again and again until ctx ends. A clock that is given is
// read each time instead.
func (c *clock) keep(ctx context.Context, given func() time.Time) {
	if given != nil {
		return
	}
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	defer c.set.Store(nil)
	for {
		now := time.Now()
		c.set.Store(&setting{now, instantOf(now)})
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// glance is the time to a second; its microseconds are 0 where they were not
// read.
func (e *Enforcer) glance() instant {
	if s := e.clock.set.Load(); s != nil {
		return instant{second: s.second}
	}
	return instantOf(e.now())
}

// exact is the time to a microsecond.
func (e *Enforcer) exact() instant {
	s := e.clock.set.Load()
	if s == nil {
		return instantOf(e.now())
	}
	micros := s.micros + time.Since(s.time).Microseconds()
	return instant{micros: micros, second: micros / 1e6}
}

// instantOf is a time as decisions need it.
func instantOf(now time.Time) instant {
	micros := now.UnixMicro()
	return instant{micros: micros, second: micros / 1e6}
}
