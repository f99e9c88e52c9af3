package enforcer

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
)

// The identity breaker. A share of strange requests that leaves its usual value
// by more than 5 points and more than 3 times, for a minute, says that callers
// lost their names on the way, not that strangers came: their verdicts become
// virtual, only caps enforce, and an alarm goes out.
const (
	breakerStep   = 10 * time.Second // how often shares are judged
	breakerSteps  = 6                // steps in a row before it acts, and before it ends
	breakerPoints = 0.05
	breakerTimes  = 3
	breakerLeast  = 20 // requests in a step; fewer say nothing

	// How fast the usual value follows: within the first steps as fast as a
	// mean does, then over an hour; over a day while the share is abnormal, so
	// that a change for good ends the alarm by itself.
	usualHour = int(time.Hour / breakerStep)
	usualDay  = 24 * usualHour
	usualSave = usualHour / 6
)

// traffic counts a service's strange requests: those that no quota bucket
// matches, that have no caller, or that have no quota. It outlives snapshots.
type traffic struct {
	service string
	strange atomic.Uint64

	// The rest belongs to whoever holds the enforcer's lock.
	requests, seen uint64  // totals at the last step
	usual          float64 // share of strange requests
	steps          int     // that usual was learned from, up to usualHour
	odd            int     // steps in a row that spoke against the state
	tripped        bool
}

// step judges the requests since the last step, and reports whether the breaker
// acts from now on or no longer does.
func (t *traffic) step(requests, strange uint64) bool {
	n := requests - min(t.requests, requests)
	odd := strange - min(t.seen, strange)
	t.requests, t.seen = requests, strange
	if n < breakerLeast {
		return false
	}
	share := min(float64(odd)/float64(n), 1)
	learned := t.steps >= breakerSteps
	abnormal := learned && share > t.usual+breakerPoints && share > breakerTimes*t.usual
	weight := 1 / float64(min(t.steps, usualHour)+1)
	if abnormal {
		weight = 1 / float64(usualDay)
	} else {
		t.steps = min(t.steps+1, usualHour)
	}
	t.usual += weight * (share - t.usual)
	if abnormal == t.tripped {
		t.odd = 0
		return false
	}
	if t.odd++; t.odd < breakerSteps {
		return false
	}
	t.odd, t.tripped = 0, abnormal
	return true
}

// judge takes a step for every service. The caller holds the lock.
func (e *Enforcer) judge(now time.Time) {
	l := e.loaded.Load()
	if l == nil {
		return
	}
	changed := false
	for _, s := range l.services {
		t := s.traffic
		if !t.step(s.requests(), t.strange.Load()) {
			continue
		}
		changed = true
		if t.tripped {
			e.log.Error("identity breaker: requests without a name, bucket or quota are admitted; only caps enforce",
				"service", s.Name, "usual_share", t.usual)
		} else {
			e.log.Warn("identity breaker: the share is usual again", "service", s.Name, "usual_share", t.usual)
		}
	}
	if changed {
		e.renew(now)
	}
}

// requests is how many the service's quota buckets have counted.
func (s *service) requests() (n uint64) {
	for i := range s.buckets {
		if s.buckets[i].Role != rlc.CapRole {
			n += s.buckets[i].counts.table.total()
		}
	}
	return n + s.unmatched.counts.table.total()
}

// usual is what the file of usual shares holds, so that a restart in the middle
// of a change does not take the change for usual.
type usual struct {
	Shares map[string]usualShare `json:"shares"`
}

type usualShare struct {
	Share float64 `json:"share"`
	Steps int     `json:"steps"`
}

// keepUsual writes the usual shares into the state folder.
func (e *Enforcer) keepUsual() {
	if e.config.StateDir == "" {
		return
	}
	u := usual{Shares: map[string]usualShare{}}
	e.mu.Lock()
	for name, t := range e.traffic {
		if t.steps >= breakerSteps {
			u.Shares[name] = usualShare{t.usual, t.steps}
		}
	}
	e.mu.Unlock()
	if err := saveState(e.config.StateDir, usualName, usualMagic, u); err != nil {
		e.log.Warn("usual shares not kept", "state", e.config.StateDir, "error", err)
	}
}

// restoreUsual reads them back. What cannot be read is learned anew.
func (e *Enforcer) restoreUsual() {
	var u usual
	if e.config.StateDir == "" || loadState(e.config.StateDir, usualName, usualMagic, &u) != nil {
		return
	}
	for name, s := range u.Shares {
		if s.Share >= 0 && s.Share <= 1 && !math.IsNaN(s.Share) {
			e.traffic[name] = &traffic{service: name, usual: s.Share, steps: min(max(s.Steps, 0), usualHour)}
		}
	}
}
