package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/countertest"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// leasing is a Counter that leases every token bucket from its first request
// on, and returns what it holds before anybody looks.
type leasing struct{ *timed }

type leasingSet struct {
	timedSet
	counter leasing
}

func (c leasing) Set(charges []gcra.Charge) enforcer.Set {
	return leasingSet{c.timed.Set(charges).(timedSet), c}
}

func (s leasingSet) Take(ctx context.Context, now, cost int64) (gcra.Tally, error) {
	for i := range s.parts {
		k := s.counter.key(&s.parts[i], opTake)
		if k == nil {
			continue
		}
		if cost <= 0 {
			s.counter.giveBack(k)
			continue
		}
		k.mu.Lock()
		k.hot, k.from = true, now
		k.mu.Unlock()
	}
	return s.timedSet.Take(ctx, now, cost)
}

func TestLeasedRedisCountsAsEveryCounterDoes(t *testing.T) {
	server := redistest.Start(t)
	countertest.Run(t, countertest.Options{Leases: true, New: func(t *testing.T) enforcer.Counter {
		return leasing{virtual(t, server, Config{})}
	}})
}

// A refusal out of a lease that is used up tells what Redis itself would tell:
// never less, and at most as much more as the node leaves Redis alone.
func TestALeasedRefusalTellsAsLongAWaitAsRedis(t *testing.T) {
	server := redistest.Start(t)
	c := leasing{virtual(t, server, Config{})}
	n, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		rate := rapid.OneOf(rapid.Just(0.0278), rapid.Float64Range(0.001, 5), rapid.Float64Range(1, 2000)).Draw(t, "rate")
		burst := rapid.Int64Range(1, 20).Draw(t, "burst")
		l, err := gcra.Compile(rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(burst)})
		if err != nil {
			t.Fatal(err)
		}
		s := c.Set([]gcra.Charge{{Bucket: "b", Key: fmt.Sprint(n), Limit: l}}).(leasingSet)
		now := int64(1_800_000_000_000_000)
		for range 40 {
			now += rapid.Int64Range(0, 20_000).Draw(t, "gap")
			cost := rapid.Int64Range(1, min(3, burst)).Draw(t, "cost")
			got, err := s.Take(context.Background(), now, cost)
			if err != nil {
				t.Fatal(err)
			}
			if got.OK() {
				continue
			}
			refused++
			short := max(cost-s.parts[0].hot.Load().held(), 1)
			// Past the leases: what Redis says of as much as is not held.
			want, err := s.timedSet.Take(context.Background(), now, -short)
			if err != nil {
				t.Fatal(err)
			}
			// The two round by a millionth of a token each.
			most := max(want.Wait, time.Second) + 2*(time.Microsecond+time.Duration(1e3/rate))
			if got.Wait < want.Wait || got.Wait > most {
				t.Fatalf("refused for %s, Redis says %s", got.Wait, want.Wait)
			}
		}
	})
	if refused < n {
		t.Errorf("%d refusals in %d runs", refused, n)
	}
}
