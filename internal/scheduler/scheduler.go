// Package scheduler fires jobs on the leading replica, once per slot.
//
// It looks at every whole minute. A job that is still running when its next
// slot comes is not started again: the slot is skipped and said so. Slots that
// passed while the process slept, or while another replica led, are missed; of
// a job's missed slots the last one runs, once, at the next minute. A replica
// that takes over cannot know what the one before it did, so a slot may be
// fired on both: the slot's key is the job's idempotency key.
package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

// Slot is one time at which a job is due.
type Slot struct {
	Job  string
	Time time.Time // UTC; for a job that was triggered, when that was, to the second
}

// Key names the slot on every replica: "job@2026-11-29T02:30:00Z".
func (s Slot) Key() string { return s.Job + "@" + s.Time.UTC().Format(time.RFC3339) }

// Job is what is fired.
type Job struct {
	Name string // required, unique
	// Schedule is a spec for ParseSchedule; "" fires on Trigger only.
	Schedule string
	// Run does the work. Its error is logged. A panic ends the run, not the
	// program.
	Run func(ctx context.Context, s Slot) error
	// Jitter spreads starts over [0, Jitter) after the slot, so that many jobs
	// of one minute do not start as one. 0: none.
	Jitter time.Duration
	// Last is the newest slot known to have run, zero where none is known. It
	// is asked when Run starts; slots after it are missed ones. Nil: slots
	// before the start are none of ours.
	Last func(ctx context.Context) (time.Time, error)
}

// Config says what a scheduler fires. Its zero fields are defaults.
type Config struct {
	Jobs []Job
	// Lead returns whether this replica leads, with its epoch. Nil: always.
	Lead func(ctx context.Context) (epoch uint64, leads bool)
	// Skipped is told of slots that do not run because the job still runs. Nil:
	// they are only logged.
	Skipped func(ctx context.Context, s Slot)
	Log     *slog.Logger     // nil: nothing is logged
	Now     func() time.Time // nil: time.Now
}

// Scheduler fires jobs. Run carries it.
type Scheduler struct {
	config   Config
	jobs     []*job
	triggers chan trigger
	running  sync.WaitGroup
}

// trigger asks Run to start a job now.
type trigger struct {
	job    *job
	slot   Slot
	answer chan bool // whether it started; has room for one
}

type job struct {
	Job
	schedule Schedule
	seen     time.Time // slots up to here are settled; Run's loop alone uses it

	mu   sync.Mutex
	busy bool
}

// New checks c. A schedule that ParseSchedule refuses, or a job without a name
// of its own or without Run, is rlc.ErrInvalid.
func New(c Config) (*Scheduler, error) {
	if c.Lead == nil {
		c.Lead = func(context.Context) (uint64, bool) { return 0, true }
	}
	if c.Skipped == nil {
		c.Skipped = func(context.Context, Slot) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Scheduler{config: c, triggers: make(chan trigger)}
	for _, j := range c.Jobs {
		if j.Name == "" || j.Run == nil || s.job(j.Name) != nil {
			return nil, fmt.Errorf("%w: job %q needs a name of its own and something to run", rlc.ErrInvalid, j.Name)
		}
		next := &job{Job: j}
		if j.Schedule != "" {
			var err error
			if next.schedule, err = ParseSchedule(j.Schedule); err != nil {
				return nil, fmt.Errorf("job %q: %w", j.Name, err)
			}
		}
		s.jobs = append(s.jobs, next)
	}
	return s, nil
}

func (s *Scheduler) job(name string) *job {
	for _, j := range s.jobs {
		if j.Name == name {
			return j
		}
	}
	return nil
}

// Run fires jobs until ctx ends, then waits for those under way, whose context
// ends with it, and returns nil. It may be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.running.Wait()
	start := s.config.Now()
	for _, j := range s.jobs {
		j.seen = start
		if j.Last == nil {
			continue
		}
		switch last, err := j.Last(ctx); {
		case err != nil:
			s.config.Log.Warn("last slot unknown", "job", j.Name, "err", err)
		case !last.IsZero():
			j.seen = last
		}
	}
	for {
		now := s.config.Now()
		wake := time.NewTimer(now.Truncate(time.Minute).Add(time.Minute).Sub(now))
		select {
		case <-ctx.Done():
			wake.Stop()
			return nil
		case t := <-s.triggers:
			wake.Stop()
			t.answer <- s.start(ctx, t.job, t.slot, 0)
		case <-wake.C:
			s.minute(ctx, s.config.Now())
		}
	}
}

// minute fires what is due at now. While another replica leads, slots stay
// unsettled: should this one take over, the last of them is a missed slot.
func (s *Scheduler) minute(ctx context.Context, now time.Time) {
	if _, leads := s.config.Lead(ctx); !leads {
		return
	}
	for _, j := range s.jobs {
		due := j.schedule.last(j.seen, now)
		if due.IsZero() {
			continue
		}
		j.seen = due
		slot := Slot{Job: j.Name, Time: due}
		if late := now.Sub(due); late >= time.Minute {
			s.config.Log.Info("missed slot", "slot", slot.Key(), "late", late)
		}
		if !s.start(ctx, j, slot, j.Jitter) {
			s.config.Log.Warn("slot skipped: the job still runs", "slot", slot.Key())
			s.config.Skipped(ctx, slot)
		}
	}
}

// Trigger starts a job now, on demand, whoever leads, and returns its slot
// without waiting for its end. It is rlc.ErrNotFound where there is no such
// job and rlc.ErrConflict where the job still runs; where Run does not run, it
// waits until ctx ends.
func (s *Scheduler) Trigger(ctx context.Context, name string) (Slot, error) {
	j := s.job(name)
	if j == nil {
		return Slot{}, fmt.Errorf("%w: job %q", rlc.ErrNotFound, name)
	}
	t := trigger{j, Slot{Job: name, Time: s.config.Now().UTC().Truncate(time.Second)}, make(chan bool, 1)}
	select {
	case <-ctx.Done():
		return Slot{}, fmt.Errorf("trigger job %q: %w", name, ctx.Err())
	case s.triggers <- t:
	}
	if !<-t.answer {
		return Slot{}, fmt.Errorf("%w: job %q still runs", rlc.ErrConflict, name)
	}
	return t.slot, nil
}

// start runs j beside its caller unless it runs already.
func (s *Scheduler) start(ctx context.Context, j *job, slot Slot, jitter time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.busy {
		return false
	}
	j.busy = true
	s.running.Go(func() {
		defer func() {
			j.mu.Lock()
			j.busy = false
			j.mu.Unlock()
		}()
		if !spread(ctx, jitter) {
			return
		}
		if err := run(ctx, j, slot); err != nil {
			s.config.Log.Error("job", "slot", slot.Key(), "err", err)
		}
	})
	return true
}

// spread waits for up to jitter; false means that ctx ended first.
func spread(ctx context.Context, jitter time.Duration) bool {
	if jitter <= 0 {
		return ctx.Err() == nil
	}
	wait := time.NewTimer(rand.N(jitter))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wait.C:
		return true
	}
}

// run turns a panic into an error.
func run(ctx context.Context, j *job, slot Slot) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return j.Run(ctx, slot)
}
