package enforcer

import (
	"context"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

// Run does the housekeeping until ctx ends: it looks at the kill file, watches
// over identities, takes idle counters away, and gives busy callers a series of
// their own. At its end it lets go of the state folder. It returns nil, or why
// that failed.
func (e *Enforcer) Run(ctx context.Context) error {
	var clock sync.WaitGroup
	clock.Go(func() { e.clock.keep(ctx, e.config.Now) })
	defer clock.Wait()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return e.Close()
		case <-second.C:
			e.tick()
		}
	}
}

// tick is one second's housekeeping.
func (e *Enforcer) tick() {
	e.ticks++
	now := e.now()
	e.lookAtKillFile()
	e.current(now) // overrides end with nobody asking, too
	if e.ticks%int(breakerStep/time.Second) == 0 {
		e.mu.Lock()
		e.judge(now)
		e.mu.Unlock()
		e.memory.Sweep(now.UnixMicro())
		e.flight.sweep(now.UnixMicro())
	}
	if e.ticks%60 == 0 {
		e.rank()
		e.sweepMeters(now.Unix())
	}
	if e.ticks%(usualSave*int(breakerStep/time.Second)) == 0 {
		e.keepUsual()
	}
}

// sweepMeters takes away the meters that no cached route holds.
func (e *Enforcer) sweepMeters(second int64) {
	e.meters.sweep(second, func(mark func(*meter)) {
		l := e.loaded.Load()
		if l == nil {
			return
		}
		l.routes.each(func(r *route) {
			for _, w := range []*world{&r.live, &r.asIf} {
				for i := range w.parts {
					if m := w.parts[i].meter; m != nil {
						mark(m)
					}
				}
			}
		})
	})
}

// rank gives the busiest label sets a series of their own.
func (e *Enforcer) rank() {
	l := e.loaded.Load()
	if l == nil {
		return
	}
	busy := e.busy(l)
	changed := false
	for _, s := range l.services {
		for i := range s.buckets {
			c := s.buckets[i].counts
			changed = c.table.rank(busy[c]) || changed
		}
		changed = s.unmatched.counts.table.rank(busy[s.unmatched.counts]) || changed
	}
	if changed {
		l.routes.clear() // they hold the series that lost their place
	}
}

// busy lists, by bucket, the label sets that were counted under Other since
// the last call, with how often.
func (e *Enforcer) busy(l *loaded) map[*counts]map[labels]uint64 {
	out := map[*counts]map[labels]uint64{}
	l.routes.each(func(r *route) {
		n := uint64(r.seen.Swap(0))
		if n == 0 {
			return
		}
		b := r.quota.counts
		if out[b] == nil {
			out[b] = map[labels]uint64{}
		}
		attrs := make(rlc.Attributes, len(r.service.attrs))
		for j, name := range r.service.attrs {
			attrs[name] = r.values[j]
		}
		s := r.service.service
		out[b][s.labels(r.quota, e.conceal(s, attrs))] += n
	})
	return out
}
