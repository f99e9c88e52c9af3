// Package countertest is the suite that every enforcer.Counter passes.
package countertest

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/gcra/gcratest"
)

// Options says what a store can be asked.
type Options struct {
	// New makes an empty store.
	New func(t *testing.T) enforcer.Counter
	// OwnClock is set for a store that goes by its own clock, and not by the now
	// that it is given: the vectors, which set the time, are left out.
	OwnClock bool
	// Leases is set for a store that holds tokens in advance, and returns them
	// before a peek. The vectors are left out, since what is held earns nothing
	// back, and where tokens are few it may refuse before the last is spent.
	Leases bool
}

// Run runs the suite.
func Run(t *testing.T, o Options) {
	if !o.OwnClock && !o.Leases {
		t.Run("vectors", func(t *testing.T) { vectors(t, o) })
	}
	all := kinds()
	for _, k := range all {
		t.Run(k.name, func(t *testing.T) {
			t.Run("all or none is charged", func(t *testing.T) { allOrNone(t, o, k) })
			t.Run("a peek leaves no trace", func(t *testing.T) { peek(t, o, k) })
			t.Run("sets share counters by name", func(t *testing.T) { shared(t, o, k) })
			t.Run("a limit change keeps what was taken", func(t *testing.T) { changed(t, o, k) })
			t.Run("a charge can be settled", func(t *testing.T) { settled(t, o, k) })
			t.Run("concurrent charges are exact and end", func(t *testing.T) { concurrent(t, o, k, k, k) })
		})
	}
	t.Run("sets of several algorithms", func(t *testing.T) {
		t.Run("all or none is charged", func(t *testing.T) { mixed(t, o) })
		t.Run("concurrent charges are exact and end", func(t *testing.T) { concurrent(t, o, all[0], all[len(all)/2], all[len(all)-1]) })
	})
	t.Run("names are data", func(t *testing.T) { names(t, o, all[0]) })
}

// kind makes limits of one algorithm that give nothing back during a test.
type kind struct {
	name string
	spec func(burst int64) gcratest.Spec
}

// kinds are the algorithms that count, the token bucket first.
func kinds() []kind {
	var all []kind
	for _, name := range []string{rlc.TokenBucket, rlc.LeakyBucket, rlc.FixedWindow, rlc.SlidingWindow, rlc.SlidingLog} {
		all = append(all, kind{name, func(burst int64) gcratest.Spec {
			if name == rlc.TokenBucket || name == rlc.LeakyBucket {
				return gcratest.Spec{Algorithm: name, Limit: &rlc.Limit{Rate: 1e-5, Burst: rlc.Burst(burst)}}
			}
			return gcratest.Spec{Algorithm: name, Window: &rlc.WindowLimit{Requests: burst, Length: rlc.MaxWindow}}
		}})
	}
	return all
}

// limit is ready for a charge.
func (k kind) limit(t *testing.T, burst int64) gcra.Limit {
	t.Helper()
	l, err := k.spec(burst).Compile()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// now is a moment that all stores agree on.
func now() int64 { return time.Now().UnixMicro() }

func take(t *testing.T, s enforcer.Set, at, cost int64) gcra.Tally {
	t.Helper()
	tally, err := s.Take(t.Context(), at, cost)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

func vectors(t *testing.T, o Options) {
	all, _, err := gcratest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		t.Run(v.Name, func(t *testing.T) {
			limits, err := v.Limits()
			if err != nil {
				t.Fatal(err)
			}
			c := o.New(t)
			for i, step := range v.Steps {
				s := c.Set([]gcra.Charge{{Bucket: "b", Key: "k", Limit: limits[i]}})
				if step.Settle != 0 {
					take(t, s, step.At, 0) // so late it is
					settle(t, s, step.Charged, step.Settle)
					continue
				}
				got, want := take(t, s, step.At, step.Cost), step.Verdict()
				wait := got.Wait
				if want.OK {
					wait = got.Pace
				}
				if got.OK() != want.OK || got.Remaining != want.Remaining || wait != want.Wait {
					t.Fatalf("step %d: got %+v, want %+v", i, got, want)
				}
			}
		})
	}
}

// settle corrects a charge, or skips the test where the store cannot.
func settle(t *testing.T, s enforcer.Set, at, by int64) {
	t.Helper()
	settler, ok := s.(enforcer.Settler)
	if !ok {
		t.Skip("the store does not settle")
	}
	if err := settler.Settle(t.Context(), at, by); err != nil {
		t.Fatal(err)
	}
}

func allOrNone(t *testing.T, o Options, k kind) {
	c := o.New(t)
	wide := gcra.Charge{Bucket: "wide", Limit: k.limit(t, 5)}
	tight := gcra.Charge{Bucket: "tight", Limit: k.limit(t, 2)}
	none := gcra.Charge{Bucket: "none", Limit: k.limit(t, 1)}
	for i, want := range []uint64{0, 0, 0b10, 0b10} {
		if got := take(t, c.Set([]gcra.Charge{wide, tight}), now(), 1); got.Refused != want {
			t.Fatalf("request %d refused by %b, want %b", i, got.Refused, want)
		}
	}
	// Two were admitted, so the wide one has three left; in any order.
	if got := take(t, c.Set([]gcra.Charge{tight, wide}), now(), 4); got.Refused != 0b11 {
		t.Errorf("cost 4 refused by %b, want both", got.Refused)
	}
	if got := take(t, c.Set([]gcra.Charge{none, wide}), now(), 3); got.Refused != 0b01 {
		t.Errorf("cost 3 refused by %b, want the one with a burst of 1", got.Refused)
	}
	if got := take(t, c.Set([]gcra.Charge{wide}), now(), 3); !got.OK() || got.Remaining != 0 {
		t.Errorf("the last three: %+v", got)
	}
}

// mixed charges a bucket of each algorithm with one request, of which the last
// refuses.
func mixed(t *testing.T, o Options) {
	c := o.New(t)
	all := kinds()
	for last := range all {
		var charges []gcra.Charge
		for i, k := range all {
			burst := int64(10)
			if i == last {
				burst = 1
			}
			charges = append(charges, gcra.Charge{Bucket: fmt.Sprint(last, k.name), Limit: k.limit(t, burst)})
		}
		s := c.Set(charges)
		for range 3 {
			take(t, s, now(), 1)
		}
		if got := take(t, s, now(), 1); got.Refused != 1<<last {
			t.Fatalf("refused by %b, want %s alone", got.Refused, all[last].name)
		}
		for i := range charges {
			want := int64(9) // one was admitted by all
			if i == last {
				want = 0
			}
			if got := take(t, c.Set(charges[i:i+1]), now(), 0); got.Remaining != want {
				t.Errorf("%s has %d left, want %d", all[i].name, got.Remaining, want)
			}
		}
	}
}

func peek(t *testing.T, o Options, k kind) {
	c := o.New(t)
	s := c.Set([]gcra.Charge{{Bucket: "b", Limit: k.limit(t, 1)}})
	for range 3 {
		if got := take(t, s, now(), 0); !got.OK() || got.Remaining != 1 {
			t.Fatalf("peek: %+v", got)
		}
	}
	take(t, s, now(), 1)
	if got := take(t, s, now(), 0); got.OK() || got.Wait <= 0 {
		t.Errorf("peek at an empty counter: %+v", got)
	}

	// Of five tokens, a dear request takes three: as many again are not there.
	s = c.Set([]gcra.Charge{{Bucket: "dear", Limit: k.limit(t, 5)}})
	if got := take(t, s, now(), -5); !got.OK() || got.Remaining != 5 {
		t.Errorf("peek at all there is: %+v", got)
	}
	if got := take(t, s, now(), -6); got.OK() || got.Remaining != 5 || got.Wait != gcra.Forever {
		t.Errorf("peek at more than there ever is: %+v", got)
	}
	take(t, s, now(), 3)
	for cost, want := range map[int64]bool{-3: false, -2: true, -1: true, 0: true} {
		if got := take(t, s, now(), cost); got.OK() != want || got.Remaining != 2 {
			t.Errorf("peek at %d with two left: %+v", -cost, got)
		}
	}
	if !take(t, s, now(), 2).OK() {
		t.Error("a peek took what was left")
	}
}

func shared(t *testing.T, o Options, k kind) {
	c := o.New(t)
	set := func(key string) enforcer.Set {
		return c.Set([]gcra.Charge{{Bucket: "b", Key: key, Limit: k.limit(t, 2)}})
	}
	a, again, other := set("a"), set("a"), set("b")
	take(t, a, now(), 1)
	take(t, again, now(), 1)
	if take(t, a, now(), 1).OK() {
		t.Error("two sets with the same key have a counter each")
	}
	if !take(t, other, now(), 1).OK() {
		t.Error("another key shares the counter")
	}
}

func changed(t *testing.T, o Options, k kind) {
	c := o.New(t)
	with := func(burst int64) enforcer.Set {
		return c.Set([]gcra.Charge{{Bucket: "b", Limit: k.limit(t, burst)}})
	}
	take(t, with(2), now(), 2)
	if got := take(t, with(2), now(), 1); got.OK() {
		t.Fatalf("the third of two: %+v", got)
	}
	if got := take(t, with(5), now(), 1); !got.OK() || got.Remaining != 2 {
		t.Errorf("raised to five on an exhausted counter: %+v, want 2 left", got)
	}
	if got := take(t, with(2), now(), 1); got.OK() || got.Remaining != 0 {
		t.Errorf("lowered to two with three taken: %+v", got)
	}
}

func settled(t *testing.T, o Options, k kind) {
	c := o.New(t)
	s := c.Set([]gcra.Charge{{Bucket: "b", Limit: k.limit(t, 10)}})
	left := func() int64 { return take(t, s, now(), 0).Remaining }
	take(t, s, now(), 5)
	settle(t, s, now(), -3)
	if got := left(); got != 8 {
		t.Errorf("5 taken and 3 given back: %d of 10 left, want 8", got)
	}
	settle(t, s, now(), 4)
	if got := left(); got != 4 {
		t.Errorf("4 more: %d left, want 4", got)
	}
	settle(t, s, now(), -9)
	if got := left(); got != 10 {
		t.Errorf("more given back than taken: %d left, want 10", got)
	}
	settle(t, s, now(), 25)
	if got := take(t, s, now(), 0); got.OK() || got.Remaining != 0 {
		t.Errorf("charged above its burst: %+v", got)
	}
	fresh := c.Set([]gcra.Charge{{Bucket: "new", Limit: k.limit(t, 10)}})
	settle(t, fresh, now(), -5)
	if got := take(t, fresh, now(), 0); got.Remaining != 10 {
		t.Errorf("given back to a new counter: %d left, want 10", got.Remaining)
	}
	settle(t, fresh, now(), math.MinInt64)
	settle(t, fresh, now(), math.MaxInt64)
	if got := take(t, fresh, now(), 0); got.OK() || got.Remaining != 0 {
		t.Errorf("charged without bound: %+v", got)
	}
}

func names(t *testing.T, o Options, k kind) {
	c := o.New(t)
	for i, ch := range []gcra.Charge{
		{Bucket: "a", Key: "b_c"}, {Bucket: "a_b", Key: "c"}, {Bucket: "a", Key: "b:c"}, {Bucket: "a:b", Key: "c"},
		{Bucket: "a", Key: "{x}"}, {Bucket: "{a}", Key: "x"}, {Bucket: "a", Key: ""}, {Bucket: "", Key: "a"},
		{Bucket: "a", Key: "b\x00c"}, {Bucket: "a\x00b", Key: "c"}, {Bucket: "a", Key: "b\r\nc"}, {Bucket: "a", Key: "b c"},
	} {
		ch.Limit = k.limit(t, 1)
		if !take(t, c.Set([]gcra.Charge{ch}), now(), 1).OK() {
			t.Errorf("name %d shares a counter with one before", i)
		}
	}
}

// concurrent charges overlapping sets, in opposite orders, from many
// goroutines: it ends, and exactly the scarcest bucket's tokens are admitted.
func concurrent(t *testing.T, o Options, k ...kind) {
	c := o.New(t)
	charges := func(order ...int) (out []gcra.Charge) {
		for _, i := range order {
			out = append(out, gcra.Charge{Bucket: fmt.Sprint("b", i), Limit: k[i].limit(t, int64(1000+i))})
		}
		return out
	}
	sets := []enforcer.Set{c.Set(charges(0, 1, 2)), c.Set(charges(2, 1, 0)), c.Set(charges(1, 0, 2)), c.Set(charges(0, 2))}
	var admitted atomic.Int64
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for range 300 {
				tally, err := sets[g%len(sets)].Take(t.Context(), now(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				if tally.OK() {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	// Every set holds b0, which has 1,000 tokens for 2,400 requests.
	left := take(t, c.Set(charges(0)), now(), 0).Remaining
	if n := admitted.Load(); n+left != 1000 || left > 0 && !o.Leases {
		t.Errorf("%d admitted and %d left, want 1000 admitted", n, left)
	}
}
