package enforcer

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/openrlc/rlc/enforcer/gcra"
)

// panicked answers a request whose decision panicked: it turns the guilty
// bucket off until the next snapshot, and admits.
func (e *Enforcer) panicked(l *loaded, s *active, t *route, peek bool, cause any) Decision {
	d := Decision{Outcome: Admit, Bucket: Unmatched, Version: l.snapshot.Version}
	off := []*counts{s.unmatched.counts}
	if t != nil {
		d.Bucket, d.Key = t.quota.Name, t.key
		off = e.guilty(t)
		for _, c := range off {
			if c.off.CompareAndSwap(false, true) {
				e.log.Error("bucket turned off: its decision panicked", "service", c.service, "bucket", c.bucket,
					"cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			}
		}
		l.routes.clear()
	} else if s.panicked.CompareAndSwap(false, true) {
		e.log.Error("requests admitted: matching them panicked", "service", s.Name, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}
	if peek {
		return d
	}
	for _, c := range off {
		c.fallbacks[byPanic].Add(1)
	}
	second := e.now().Unix()
	if t != nil && t.series != nil {
		t.series.count(Admit, second)
	} else {
		s.unmatched.counts.table.rest.count(Admit, second)
	}
	return d
}

// guilty finds the buckets whose counters panic when looked at alone; where
// none does, all of the route's are.
func (e *Enforcer) guilty(t *route) []*counts {
	var out, all []*counts
	try := func(c gcra.Charge, shared bool, of *counts) {
		defer func() {
			if recover() != nil {
				out = append(out, of)
			}
		}()
		_, _ = e.store(shared).Set([]gcra.Charge{c}).Take(context.Background(), e.now().UnixMicro(), 0)
	}
	for _, w := range []*world{&t.live, &t.asIf} {
		for i := range w.stages {
			st := &w.stages[i]
			for j, c := range st.charges {
				of := w.parts[st.parts[j]].bucket.counts
				all = append(all, of)
				try(c, st.shared, of)
			}
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}
