package rls

import (
	"context"
	"sync"
	"time"
)

// hands is how many ends of time a clock knows at once.
const hands = 4

// clock tells many requests when their deadline is over, with one timer for
// all: a timer of its own costs a request more than its decision. It runs while
// somebody asks.
type clock struct {
	step time.Duration // a request's deadline is three to four steps away

	mu      sync.Mutex
	ends    [hands]chan struct{} // closed one a step, the first first
	idle    int                  // steps since somebody asked
	running bool
}

// newClock makes a clock for deadlines of at most d.
func newClock(d time.Duration) *clock {
	c := &clock{step: d / hands}
	for i := range c.ends {
		c.ends[i] = make(chan struct{})
	}
	return c
}

// end is closed when the deadline of a request that begins now is over: at most
// the clock's d from now, and at least three quarters of it.
func (c *clock) end() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = 0
	if !c.running {
		c.running = true
		time.AfterFunc(c.step, c.tick)
	}
	return c.ends[hands-1]
}

// tick ends a step. The clock stops when the last one who asked has been told.
func (c *clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ends[0])
	copy(c.ends[:], c.ends[1:])
	c.ends[hands-1] = make(chan struct{})
	if c.idle++; c.idle >= hands {
		c.running = false
		return
	}
	time.AfterFunc(c.step, c.tick)
}

// ending is a context that ends when a clock says so. The end of the one in it
// does not matter: whoever left is not waited for much longer either.
type ending struct {
	context.Context
	end <-chan struct{}
}

// Done implements context.Context.
func (e *ending) Done() <-chan struct{} { return e.end }

// Err implements context.Context.
func (e *ending) Err() error {
	select {
	case <-e.end:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
