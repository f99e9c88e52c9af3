// Package countertest is the suite that every enforcer.Counter passes.
package countertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/gcra/gcratest"
)

// Options says what a store can be asked.
type Options struct {
	// New makes an empty store.
	New func(t *testing.T) enforcer.Counter
	// OwnClock is set for a store that goes by its own clock: the vectors,
	// which set the time, are left out.
	OwnClock bool
}

// Run runs the suite.
func Run(t *testing.T, o Options) {
	if !o.OwnClock {
		t.Run("vectors", func(t *testing.T) { vectors(t, o) })
	}
	t.Run("all or none is charged", func(t *testing.T) { allOrNone(t, o) })
	t.Run("a peek leaves no trace", func(t *testing.T) { peek(t, o) })
	t.Run("sets share counters by name", func(t *testing.T) { shared(t, o) })
	t.Run("names are data", func(t *testing.T) { names(t, o) })
	t.Run("concurrent charges are exact and end", func(t *testing.T) { concurrent(t, o) })
}

// slow never gives a token back during a test.
func slow(t *testing.T, burst rlc.Burst) gcra.Limit {
	return compile(t, rlc.Limit{Rate: 1e-5, Burst: burst})
}

func compile(t *testing.T, l rlc.Limit) gcra.Limit {
	t.Helper()
	c, err := gcra.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func take(t *testing.T, s enforcer.Set, now, cost int64) gcra.Tally {
	t.Helper()
	tally, err := s.Take(t.Context(), now, cost)
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
			c := o.New(t)
			limit := v.Limit
			for i, step := range v.Steps {
				if step.Limit != nil {
					limit = *step.Limit
				}
				s := c.Set([]gcra.Charge{{Bucket: "b", Key: "k", Limit: compile(t, limit)}})
				got := take(t, s, step.At, step.Cost)
				if want := step.Verdict(); got.OK() != want.OK || got.Remaining != want.Remaining || got.Wait != want.Wait {
					t.Fatalf("step %d: got %+v, want %+v", i, got, want)
				}
			}
		})
	}
}

func allOrNone(t *testing.T, o Options) {
	c := o.New(t)
	wide := gcra.Charge{Bucket: "wide", Limit: slow(t, 5)}
	tight := gcra.Charge{Bucket: "tight", Limit: slow(t, 2)}
	none := gcra.Charge{Bucket: "none", Limit: slow(t, 1)}
	for i, want := range []uint64{0, 0, 0b10, 0b10} {
		if got := take(t, c.Set([]gcra.Charge{wide, tight}), 0, 1); got.Refused != want {
			t.Fatalf("request %d refused by %b, want %b", i, got.Refused, want)
		}
	}
	// Two were admitted, so the wide one has three left; in any order.
	if got := take(t, c.Set([]gcra.Charge{tight, wide}), 0, 4); got.Refused != 0b11 {
		t.Errorf("cost 4 refused by %b, want both", got.Refused)
	}
	if got := take(t, c.Set([]gcra.Charge{none, wide}), 0, 3); got.Refused != 0b01 {
		t.Errorf("cost 3 refused by %b, want the one with a burst of 1", got.Refused)
	}
	if got := take(t, c.Set([]gcra.Charge{wide}), 0, 3); !got.OK() || got.Remaining != 0 {
		t.Errorf("the last three: %+v", got)
	}
}

func peek(t *testing.T, o Options) {
	c := o.New(t)
	s := c.Set([]gcra.Charge{{Bucket: "b", Limit: slow(t, 1)}})
	for range 3 {
		if got := take(t, s, 0, 0); !got.OK() || got.Remaining != 1 {
			t.Fatalf("peek: %+v", got)
		}
	}
	take(t, s, 0, 1)
	if got := take(t, s, 0, 0); got.OK() {
		t.Errorf("peek at an empty bucket: %+v", got)
	}
}

func shared(t *testing.T, o Options) {
	c := o.New(t)
	set := func(key string) enforcer.Set {
		return c.Set([]gcra.Charge{{Bucket: "b", Key: key, Limit: slow(t, 2)}})
	}
	a, again, other := set("a"), set("a"), set("b")
	take(t, a, 0, 1)
	take(t, again, 0, 1)
	if take(t, a, 0, 1).OK() {
		t.Error("two sets with the same key have a counter each")
	}
	if !take(t, other, 0, 1).OK() {
		t.Error("another key shares the counter")
	}
}

func names(t *testing.T, o Options) {
	c := o.New(t)
	for i, ch := range []gcra.Charge{
		{Bucket: "a", Key: "b_c"}, {Bucket: "a_b", Key: "c"}, {Bucket: "a", Key: "b:c"}, {Bucket: "a:b", Key: "c"},
		{Bucket: "a", Key: "{x}"}, {Bucket: "{a}", Key: "x"}, {Bucket: "a", Key: ""}, {Bucket: "", Key: "a"},
		{Bucket: "a", Key: "b\x00c"}, {Bucket: "a\x00b", Key: "c"}, {Bucket: "a", Key: "b\r\nc"}, {Bucket: "a", Key: "b c"},
	} {
		ch.Limit = slow(t, 1)
		if !take(t, c.Set([]gcra.Charge{ch}), 0, 1).OK() {
			t.Errorf("name %d shares a counter with one before", i)
		}
	}
}

// concurrent charges overlapping sets, in opposite orders, from many
// goroutines: it ends, and exactly the scarcest bucket's tokens are admitted.
func concurrent(t *testing.T, o Options) {
	c := o.New(t)
	charges := func(order ...int) (out []gcra.Charge) {
		for _, i := range order {
			out = append(out, gcra.Charge{Bucket: fmt.Sprint("b", i), Limit: slow(t, rlc.Burst(1000+i))})
		}
		return out
	}
	sets := []enforcer.Set{c.Set(charges(0, 1, 2)), c.Set(charges(2, 1, 0)), c.Set(charges(1, 0, 2)), c.Set(charges(0, 2))}
	var admitted atomic.Int64
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for range 300 {
				tally, err := sets[g%len(sets)].Take(t.Context(), 0, 1)
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
	if admitted.Load() != 1000 {
		t.Errorf("%d admitted, want 1000", admitted.Load())
	}
}
