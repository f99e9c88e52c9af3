package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// Calls that come while others are under way share a batch, and each caller
// gets the answer to its own.
func TestCallsThatWaitTogetherAreAnsweredEachByItsOwn(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	until(t, strict(t, c, "warm", 1), "")
	server.Freeze()
	const callers = 200
	got := make([]string, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			charges := []gcra.Charge{{Bucket: "b", Key: fmt.Sprint(i), Limit: slow(t, int64(10+i))}}
			if i%3 == 0 { // some are charged to two
				charges = append(charges, gcra.Charge{Bucket: "c", Key: fmt.Sprint(i), Limit: slow(t, 5)})
			}
			tally, err := c.Set(charges).Take(t.Context(), 0, int64(1+i%7))
			got[i] = fmt.Sprint(tally.Refused, tally.Remaining, err)
		})
	}
	soon(t, "every call waiting", func() bool {
		c.sender.mu.Lock()
		defer c.sender.mu.Unlock()
		return len(c.sender.waiting)+c.sender.flying == callers
	})
	server.Thaw()
	group.Wait()
	for i := range got {
		want := fmt.Sprint(0, 10+i-1-i%7, nil)
		if i%3 == 0 && 1+i%7 > 5 {
			want = fmt.Sprint(2, 5, nil) // the second refuses, and neither is charged
		}
		if got[i] != want {
			t.Errorf("caller %d: %s, want %s", i, got[i], want)
		}
	}
	if n := c.sender.running + c.sender.flying + len(c.sender.waiting); n > batches {
		t.Errorf("left over: %+v running, %d flying, %d waiting", c.sender.running, c.sender.flying, len(c.sender.waiting))
	}
}

// Whoever leaves before the call is sent is never charged, and its call takes
// no room.
func TestACallThatNobodyWaitsForAnyMoreIsNotSent(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true, InFlight: batches})
	until(t, strict(t, c, "warm", 1), "")
	server.Freeze()
	s := strict(t, c, "k", 1000)
	var waiting sync.WaitGroup
	for range batches {
		waiting.Go(func() { take(t, s, 0, 1) }) // they are answered when the server goes on
	}
	soon(t, "the room taken", func() bool {
		c.sender.mu.Lock()
		defer c.sender.mu.Unlock()
		return c.sender.flying == batches
	})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 50)
	for range cap(errs) {
		go func() {
			_, err := s.Take(ctx, 0, 1)
			errs <- err
		}()
	}
	soon(t, "the others waiting", func() bool {
		c.sender.mu.Lock()
		defer c.sender.mu.Unlock()
		return len(c.sender.waiting) == cap(errs)
	})
	cancel()
	for range cap(errs) {
		if err := <-errs; err != context.Canceled {
			t.Errorf("left with %v", err)
		}
	}
	server.Thaw()
	waiting.Wait()
	if tally := take(t, s, 0, 0); tally.Remaining != 1000-batches {
		t.Errorf("%d left, want %d: only what was sent is charged", tally.Remaining, 1000-batches)
	}
}

// A strict decision allocates little: the call's own things are used again.
func TestAStrictDecisionAllocatesLittle(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	s := strict(t, c, "k", 1_000_000)
	until(t, s, "")
	ctx := context.Background()
	n := testing.AllocsPerRun(500, func() {
		if _, err := s.Take(ctx, 0, 1); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%g allocations", n)
	if n > 14 {
		t.Errorf("%g allocations, with those of the library and a batch for it alone", n)
	}
}
