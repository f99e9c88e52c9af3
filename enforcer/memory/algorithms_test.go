package memory

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

func window(t *testing.T, algorithm string, w rlc.WindowLimit) gcra.Limit {
	t.Helper()
	l, err := gcra.CompileWindow(algorithm, w)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func perDay(t *testing.T, requests int64) gcra.Limit {
	return window(t, rlc.FixedWindow, rlc.WindowLimit{Requests: requests, Per: rlc.PerDay, Calendar: true})
}

// morning is a moment of a day of the calendar.
var morning = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC).UnixMicro()

// Scenario 1: two a day in shadow beside five a day that enforce. The shadow
// one has counters of its own, where all enforce.
func TestADailyQuotaInShadowChangesNothingForTheOneThatEnforces(t *testing.T) {
	for name, order := range map[string][2]int{"shadow first": {0, 1}, "shadow last": {1, 0}} {
		var m Memory
		live := m.Set([]gcra.Charge{{Bucket: "wide", Limit: perDay(t, 5)}})
		both := []gcra.Charge{{Bucket: "as-if tight", Limit: perDay(t, 2)}, {Bucket: "as-if wide", Limit: perDay(t, 5)}}
		asIf := m.Set([]gcra.Charge{both[order[0]], both[order[1]]})
		admitted, virtual := 0, 0
		for i := range int64(50) {
			ok := take(t, live, morning+i, 1).OK()
			if ok {
				admitted++
			}
			if !take(t, asIf, morning+i, 1).OK() && ok {
				virtual++
			}
		}
		if admitted != 5 || virtual != 3 {
			t.Errorf("%s: %d admitted and %d virtual drops, want 5 and 3", name, admitted, virtual)
		}
	}
}

// Scenario 3: a refused request is charged to no bucket.
func TestADailyGroupIsNotChargedForWhatItsMemberRefuses(t *testing.T) {
	var m Memory
	group := gcra.Charge{Bucket: "group", Limit: perDay(t, 10)}
	both := m.Set([]gcra.Charge{{Bucket: "special", Limit: perDay(t, 3)}, group})
	for range 8 {
		take(t, both, morning, 1)
	}
	if got := take(t, m.Set([]gcra.Charge{group}), morning, 0); got.Remaining != 7 {
		t.Errorf("%d left in the group, want 7", got.Remaining)
	}
}

func TestWindowsThatAreOverAreTakenAway(t *testing.T) {
	ten := rlc.WindowLimit{Requests: 5, Length: 10 * time.Second}
	for _, tc := range []struct {
		algorithm  string
		held, gone int64 // seconds after a charge at 12 s
	}{
		{rlc.FixedWindow, 9, 10},    // from the first request on
		{rlc.SlidingWindow, 17, 18}, // its window ends at 20 s and has slid out at 30 s
		{rlc.SlidingLog, 9, 10},
	} {
		var m Memory
		s := m.Set([]gcra.Charge{{Bucket: "b", Limit: window(t, tc.algorithm, ten)}})
		take(t, s, 12*second, 1)
		if m.Sweep((12 + tc.held) * second); m.Live() != 1 {
			t.Errorf("%s: taken away %d s after its charge", tc.algorithm, tc.held)
		}
		if m.Sweep((12 + tc.gone) * second); m.Live() != 0 {
			t.Errorf("%s: still there %d s after its charge", tc.algorithm, tc.gone)
		}
		if got := take(t, s, 100*second, 1); !got.OK() || got.Remaining != 4 {
			t.Errorf("%s: as a new one: %+v", tc.algorithm, got)
		}
	}
}

func TestSettlingReachesTheCounterThatWasCharged(t *testing.T) {
	var m Memory
	l := limit(t, 1, 10)
	one := m.Set([]gcra.Charge{{Bucket: "b", Limit: l}})
	settle := func(s *Set, now, by int64) {
		t.Helper()
		if err := s.Settle(t.Context(), now, by); err != nil {
			t.Fatal(err)
		}
	}
	take(t, one, 0, 1)
	m.Sweep(5 * second) // idle, and taken away
	settle(one, 0, -1)
	if m.Live() != 0 {
		t.Error("giving back made a counter")
	}
	settle(one, 5*second, 4) // it cost more than was thought
	if got := take(t, one, 5*second, 0); got.Remaining != 6 {
		t.Errorf("4 more after it was taken away: %+v", got)
	}

	// Beyond its bound a bucket shares one counter.
	shared := m.Set([]gcra.Charge{{Bucket: "b", Key: "late", Limit: l, Max: 1, Share: true}})
	take(t, shared, 5*second, 10)
	settle(shared, 5*second, -10)
	if got := take(t, shared, 5*second, 0); got.Remaining != 10 {
		t.Errorf("the shared counter after all is given back: %+v", got)
	}
	take(t, shared, 5*second, 10)
	if got := take(t, shared, 5*second, 0); got.OK() {
		t.Errorf("a peek does not see the shared counter: %+v", got)
	}

	// One that was admitted without a counter has nothing to settle.
	none := m.Set([]gcra.Charge{{Bucket: "b", Key: "none", Limit: l, Max: 1}})
	if got := take(t, none, 5*second, 1); got.Untracked != 1 {
		t.Fatalf("%+v", got)
	}
	settle(none, 5*second, -1)
	settle(none, 5*second, 3)
}

func TestHoldingIsToldForAdmittedRequestsOnly(t *testing.T) {
	var m Memory
	slow, err := gcra.CompileAs(rlc.LeakyBucket, rlc.Limit{Rate: 1, Burst: 3})
	if err != nil {
		t.Fatal(err)
	}
	s := m.Set([]gcra.Charge{{Bucket: "tokens", Limit: limit(t, 1000, 100)}, {Bucket: "queue", Limit: slow}})
	for i := range 3 {
		if got, want := take(t, s, 0, 1), time.Duration(i)*time.Second; !got.OK() || got.Pace != want || got.Wait != 0 {
			t.Errorf("request %d: %+v, want to hold it %s", i, got, want)
		}
	}
	if got := take(t, s, 0, 1); got.Refused != 0b10 || got.Pace != 0 || got.Wait != time.Second {
		t.Errorf("a full queue: %+v", got)
	}
}

func TestEveryAlgorithmTakesWithoutAllocating(t *testing.T) {
	var m Memory
	leaky, err := gcra.CompileAs(rlc.LeakyBucket, rlc.Limit{Rate: 1e6, Burst: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	w := rlc.WindowLimit{Requests: 1e6, Per: rlc.PerDay}
	daily := w
	daily.Calendar, daily.Location = true, "Europe/Paris"
	for name, l := range map[string]gcra.Limit{
		"leaky": leaky, "rolling": window(t, rlc.FixedWindow, w), "calendar": window(t, rlc.FixedWindow, daily), "sliding": window(t, rlc.SlidingWindow, w),
		"log": window(t, rlc.SlidingLog, w), // all within one grain
	} {
		s := m.Set([]gcra.Charge{{Bucket: name, Limit: l}})
		now := morning
		if n := testing.AllocsPerRun(1000, func() { now++; take(t, s, now, 1) }); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
}

func BenchmarkAlgorithms(b *testing.B) {
	hundred := rlc.WindowLimit{Requests: 100, Per: rlc.PerSecond}
	calendar := rlc.WindowLimit{Requests: 1e9, Per: rlc.PerDay, Calendar: true, Location: "Europe/Paris"}
	for _, bc := range []struct {
		name, algorithm string
		window          rlc.WindowLimit
	}{
		{"token_bucket", rlc.TokenBucket, rlc.WindowLimit{}},
		{"leaky_bucket", rlc.LeakyBucket, rlc.WindowLimit{}},
		{"fixed_window", rlc.FixedWindow, hundred},
		{"fixed_window_day", rlc.FixedWindow, calendar},
		{"sliding_window", rlc.SlidingWindow, hundred},
		{"sliding_log", rlc.SlidingLog, hundred},
	} {
		b.Run(bc.name, func(b *testing.B) {
			l, err := gcra.CompileAs(bc.algorithm, rlc.Limit{Rate: 100, Burst: 100})
			if bc.window.Requests > 0 {
				l, err = gcra.CompileWindow(bc.algorithm, bc.window)
			}
			if err != nil {
				b.Fatal(err)
			}
			var m Memory
			s := m.Set([]gcra.Charge{{Bucket: "b", Limit: l}})
			ctx, now := b.Context(), morning
			b.ReportAllocs()
			for b.Loop() {
				now += 9000 // a little over 100/s: some are refused
				_, _ = s.Take(ctx, now, 1)
			}
		})
	}
}

// BenchmarkTakeWithClock is BenchmarkTake with the clock read for each request.
func BenchmarkTakeWithClock(b *testing.B) {
	var m Memory
	s := m.Set([]gcra.Charge{{Bucket: "b", Limit: limit(b, 1e9, 1000)}})
	ctx := b.Context()
	for b.Loop() {
		_, _ = s.Take(ctx, time.Now().UnixMicro(), 1)
	}
}
