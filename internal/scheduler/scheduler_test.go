package scheduler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openrlc/rlc"
)

// In a bubble the clock starts at midnight, 1 January 2000 UTC.

// diary notes what happens, each line with the time of the clock.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, time.Now().UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (d *diary) job(name, schedule string, takes time.Duration) Job {
	return Job{Name: name, Schedule: schedule, Run: func(ctx context.Context, s Slot) error {
		d.note("%s", s.Key())
		select {
		case <-ctx.Done():
			d.note("%s stopped", s.Job)
		case <-time.After(takes):
		}
		return nil
	}}
}

func (d *diary) is(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !reflect.DeepEqual(d.lines, want) {
		t.Errorf("diary\n got %q\nwant %q", d.lines, want)
	}
}

// pass lets the bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }

// carry runs a scheduler for a span of the bubble's time.
func carry(t *testing.T, c Config, span time.Duration) {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run: %v, want nil after a stop", err)
	}
}

func TestJobsFireOnceAtTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		pass(30 * time.Second) // start within a minute
		carry(t, Config{Jobs: []Job{d.job("half", "*/30 * * * *", time.Second), d.job("hour", "@hourly", time.Second), d.job("asked", "", time.Second)}}, 61*time.Minute)
		if len(d.lines) == 3 && d.lines[1] > d.lines[2] {
			d.lines[1], d.lines[2] = d.lines[2], d.lines[1] // of one minute, in any order
		}
		d.is(t, "00:30:00 half@2000-01-01T00:30:00Z", "01:00:00 half@2000-01-01T01:00:00Z", "01:00:00 hour@2000-01-01T01:00:00Z")
	})
}

func TestOfMissedSlotsTheLastRunsOnceAtTheNextMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var leads atomic.Bool
		time.AfterFunc(3*time.Hour+17*time.Minute+20*time.Second, func() { leads.Store(true) })
		c := Config{Jobs: []Job{d.job("hour", "0 * * * *", 0)}, Lead: func(context.Context) (uint64, bool) { return 1, leads.Load() }}
		carry(t, c, 5*time.Hour+time.Second)
		d.is(t, "03:18:00 hour@2000-01-01T03:00:00Z", "04:00:00 hour@2000-01-01T04:00:00Z", "05:00:00 hour@2000-01-01T05:00:00Z")
	})
}

func TestASlotMissedBeforeTheStartRunsWhereTheLastOneIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass(10*time.Hour + 17*time.Minute + 20*time.Second)
		for _, c := range []struct {
			name string
			last func(context.Context) (time.Time, error)
			want []string
		}{
			{"known", func(context.Context) (time.Time, error) { return at("2000-01-01T07:00:00Z"), nil }, []string{"hour@2000-01-01T10:00:00Z"}},
			{"just run", func(context.Context) (time.Time, error) { return at("2000-01-01T10:00:00Z"), nil }, nil},
			{"none", func(context.Context) (time.Time, error) { return time.Time{}, nil }, nil},
			{"unreadable", func(context.Context) (time.Time, error) { return time.Time{}, errors.New("records are down") }, nil},
			{"not asked", nil, nil},
		} {
			var ran []string
			j := Job{Name: "hour", Schedule: "0 * * * *", Last: c.last, Run: func(_ context.Context, s Slot) error { ran = append(ran, s.Key()); return nil }}
			carry(t, Config{Jobs: []Job{j}}, 3*time.Minute)
			if !reflect.DeepEqual(ran, c.want) {
				t.Errorf("%s: ran %q, want %q", c.name, ran, c.want)
			}
		}
	})
}

func TestARunLongerThanItsPeriodSkipsTheNextSlotAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		c := Config{
			Jobs:    []Job{d.job("long", "@every 1m", 150*time.Second), d.job("short", "@every 3m", 0)},
			Skipped: func(_ context.Context, s Slot) { d.note("skipped %s", s.Key()) },
		}
		carry(t, c, 4*time.Minute+30*time.Second)
		d.is(t,
			"00:01:00 long@2000-01-01T00:01:00Z",
			"00:02:00 skipped long@2000-01-01T00:02:00Z",
			"00:03:00 skipped long@2000-01-01T00:03:00Z",
			"00:03:00 short@2000-01-01T00:03:00Z", // another job is not held up
			"00:04:00 long@2000-01-01T00:04:00Z",
			"00:04:30 long stopped",
		)
	})
}

func TestAJobThatPanicsOrFailsRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		j := Job{Name: "j", Schedule: "* * * * *", Run: func(context.Context, Slot) error {
			ran++
			if ran == 1 {
				panic("a bug")
			}
			return errors.New("no luck")
		}}
		carry(t, Config{Jobs: []Job{j}}, 3*time.Minute+time.Second)
		if ran != 3 {
			t.Errorf("ran %d times in three minutes, want 3", ran)
		}
	})
}

func TestAClockThatGoesBackFiresNoSlotTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		var back atomic.Int64
		j := Job{Name: "j", Schedule: "*/10 * * * *", Run: func(_ context.Context, s Slot) error {
			ran = append(ran, s.Time.Format("15:04"))
			if s.Time.Minute() == 20 {
				back.Store(int64(15 * time.Minute)) // 00:20 becomes 00:05
			}
			return nil
		}}
		carry(t, Config{Jobs: []Job{j}, Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }}, 46*time.Minute)
		if want := []string{"00:10", "00:20", "00:30"}; !reflect.DeepEqual(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
	})
}

func TestTriggerRunsAJobNowUnlessItStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		s, err := New(Config{
			Jobs: []Job{d.job("asked", "", 59*time.Second)},
			Lead: func(context.Context) (uint64, bool) { return 0, false },
		})
		if err != nil {
			t.Fatal(err)
		}
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		if _, err := s.Trigger(short, "asked"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before Run: %v, want it to wait", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		pass(90 * time.Second)
		slot, err := s.Trigger(ctx, "asked")
		if err != nil || slot.Key() != "asked@2000-01-01T00:01:31Z" {
			t.Errorf("slot %s, %v", slot.Key(), err)
		}
		if _, err := s.Trigger(ctx, "asked"); !errors.Is(err, rlc.ErrConflict) {
			t.Errorf("while it runs: %v, want a conflict", err)
		}
		if _, err := s.Trigger(ctx, "other"); !errors.Is(err, rlc.ErrNotFound) {
			t.Errorf("an unknown job: %v, want not found", err)
		}
		pass(time.Minute)
		if _, err := s.Trigger(ctx, "asked"); err != nil {
			t.Errorf("after its end: %v", err)
		}
		pass(time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		d.is(t, "00:01:31 asked@2000-01-01T00:01:31Z", "00:02:31 asked@2000-01-01T00:02:31Z", "00:02:32 asked stopped")
	})
}

func TestRunWaitsForTheJobsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := false
		j := Job{Name: "j", Schedule: "* * * * *", Run: func(ctx context.Context, _ Slot) error {
			<-ctx.Done()
			pass(5 * time.Second) // it puts its things away
			over = true
			return ctx.Err()
		}}
		carry(t, Config{Jobs: []Job{j}}, 90*time.Second)
		if !over {
			t.Error("Run returned before the job")
		}
	})
}

func TestJitterSpreadsTheJobsOfOneMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		starts := map[time.Duration]bool{}
		var jobs []Job
		for n := range 500 {
			jobs = append(jobs, Job{Name: fmt.Sprint(n), Schedule: "1 0 * * *", Jitter: 30 * time.Second, Run: func(_ context.Context, s Slot) error {
				mu.Lock()
				defer mu.Unlock()
				starts[time.Since(s.Time).Truncate(time.Second)] = true
				return nil
			}})
		}
		carry(t, Config{Jobs: jobs}, 3*time.Minute)
		if len(starts) < 25 { // of 30 seconds: 500 leave five of them empty once in 10^20
			t.Errorf("500 jobs started in %d seconds of 30", len(starts))
		}
		for late := range starts {
			if late < 0 || late >= 30*time.Second {
				t.Errorf("a start %s after the slot, want less than the jitter", late)
			}
		}
	})
}

func TestJobsThatCannotRunAreRefused(t *testing.T) {
	run := func(context.Context, Slot) error { return nil }
	for name, jobs := range map[string][]Job{
		"no name":       {{Run: run}},
		"nothing to do": {{Name: "a"}},
		"a twin":        {{Name: "a", Run: run}, {Name: "a", Run: run}},
		"bad schedule":  {{Name: "a", Run: run, Schedule: "0 0 30 2 *"}},
	} {
		if _, err := New(Config{Jobs: jobs}); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}
