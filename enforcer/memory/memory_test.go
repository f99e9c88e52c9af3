package memory

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

func limit(t testing.TB, rate rlc.Rate, burst rlc.Burst) gcra.Limit {
	t.Helper()
	l, err := gcra.Compile(rlc.Limit{Rate: rate, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t testing.TB, s *Set, now, cost int64) gcra.Tally {
	t.Helper()
	tally, err := s.Take(t.Context(), now, cost)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

const second = 1_000_000

func TestIdleCountersAreTakenAwayAndBusyOnesKeepTheirDebt(t *testing.T) {
	var m Memory
	l := limit(t, 1, 3)
	idle := m.Set([]gcra.Charge{{Bucket: "b", Key: "idle", Limit: l}})
	busy := m.Set([]gcra.Charge{{Bucket: "b", Key: "busy", Limit: l}})
	take(t, idle, 0, 1)
	take(t, busy, 0, 3)
	m.Sweep(second) // idle is full again, busy has one of three
	if m.Live() != 1 || m.Evicted() != 1 {
		t.Fatalf("%d live, %d evicted, want 1 and 1", m.Live(), m.Evicted())
	}
	if got := take(t, busy, second, 1); !got.OK() || got.Remaining != 0 {
		t.Errorf("the busy one after the sweep: %+v", got)
	}
	// A set that still holds the evicted counter finds a new one, and another
	// set finds the same.
	take(t, idle, second, 2)
	again := m.Set([]gcra.Charge{{Bucket: "b", Key: "idle", Limit: l}})
	if got := take(t, again, second, 2); got.OK() || got.Remaining != 1 {
		t.Errorf("a second set has a counter of its own: %+v", got)
	}
}

func TestAFullBucketMakesRoomFromIdleCounters(t *testing.T) {
	var m Memory
	l := limit(t, 1, 1)
	ask := func(key string, now int64) gcra.Tally {
		return take(t, m.Set([]gcra.Charge{{Bucket: "b", Key: key, Limit: l, Max: 2}}), now, 1)
	}
	ask("a", 0)
	ask("b", 0)
	if got := ask("c", 0); got.Untracked != 1 || !got.OK() {
		t.Errorf("no room: %+v, want admitted without a counter", got)
	}
	if got := ask("c", second); got.Untracked != 0 {
		t.Errorf("a and b are idle: %+v", got)
	}
	if m.Live() != 1 || m.Evicted() != 2 {
		t.Errorf("%d live, %d evicted, want 1 and 2", m.Live(), m.Evicted())
	}
	// Another bucket has room of its own.
	if got := take(t, m.Set([]gcra.Charge{{Bucket: "other", Key: "c", Limit: l, Max: 2}}), 0, 1); got.Untracked != 0 {
		t.Errorf("another bucket: %+v", got)
	}
}

func TestAPeekMakesNoCounter(t *testing.T) {
	var m Memory
	for i := range 100 {
		take(t, m.Set([]gcra.Charge{{Bucket: "b", Key: fmt.Sprint(i), Limit: limit(t, 1, 1)}, {Bucket: "c", Key: fmt.Sprint(i), Limit: limit(t, 1, 1)}}), 0, 0)
	}
	if m.Live() != 0 {
		t.Errorf("%d counters", m.Live())
	}
}

func TestBucketsThatAreNoLongerConfiguredAreForgotten(t *testing.T) {
	var m Memory
	l := limit(t, 1, 1)
	gone := m.Set([]gcra.Charge{{Bucket: "gone", Limit: l}})
	take(t, gone, 0, 1)
	take(t, m.Set([]gcra.Charge{{Bucket: "kept", Limit: l}}), 0, 1)
	m.Keep(func(bucket string) bool { return bucket == "kept" })
	if m.Live() != 1 {
		t.Errorf("%d live, want 1", m.Live())
	}
	if got := take(t, gone, 0, 1); !got.OK() {
		t.Errorf("configured again, it starts full: %+v", got)
	}
	if got := take(t, m.Set([]gcra.Charge{{Bucket: "kept", Limit: l}}), 0, 1); got.OK() {
		t.Errorf("the kept one lost its debt: %+v", got)
	}
}

// Sweeping beside charges never gives a token twice: a counter is taken away
// only when it is full.
func TestSweepingBesideChargesMintsNothing(t *testing.T) {
	var m Memory
	l := limit(t, 1000, 10)
	var now, admitted atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			s := m.Set([]gcra.Charge{{Bucket: "b", Limit: l}, {Bucket: "cap", Limit: l}})
			for range 3000 {
				if take(t, s, now.Add(rand.Int64N(200)), 1).OK() {
					admitted.Add(1)
				}
			}
		})
	}
	group.Go(func() {
		for range 3000 {
			m.Sweep(now.Load())
		}
	})
	group.Wait()
	if most := 10 + now.Load()/1000; admitted.Load() > most {
		t.Errorf("%d admitted in %d µs, at most %d", admitted.Load(), now.Load(), most)
	}
}

func TestTakingFromAHeldSetAllocatesNothing(t *testing.T) {
	var m Memory
	l := limit(t, 1e6, 1000)
	one := m.Set([]gcra.Charge{{Bucket: "b", Limit: l}})
	two := m.Set([]gcra.Charge{{Bucket: "b", Limit: l}, {Bucket: "cap", Limit: l}})
	now := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		now++
		take(t, one, now, 1)
		take(t, two, now, 1)
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkTake(b *testing.B) {
	var m Memory
	l := limit(b, 1e9, 1000)
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("buckets=%d", n), func(b *testing.B) {
			var charges []gcra.Charge
			for i := range n {
				charges = append(charges, gcra.Charge{Bucket: fmt.Sprint("b", i), Limit: l})
			}
			s := m.Set(charges)
			ctx := b.Context()
			now := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				now++
				_, _ = s.Take(ctx, now, 1)
			}
		})
	}
}
