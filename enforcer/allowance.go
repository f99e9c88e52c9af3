package enforcer

import (
	"context"
	"sync/atomic"
	"time"
)

// allowance is a context that ends a while after somebody first waits for its
// end, so that a decision that asks the shared store several times waits no
// longer than one that asks once, and one that need not wait pays for no timer.
type allowance struct {
	context.Context // the caller's
	within          time.Duration
	begun           atomic.Pointer[begun]
}

// begun is the context of an allowance that somebody waits for.
type begun struct {
	context.Context
	cancel context.CancelFunc
}

func (a *allowance) begin() context.Context {
	if b := a.begun.Load(); b != nil {
		return b
	}
	ctx, cancel := context.WithTimeout(a.Context, a.within)
	b := &begun{ctx, cancel}
	if !a.begun.CompareAndSwap(nil, b) {
		cancel()
		return a.begun.Load()
	}
	return b
}

// Deadline implements context.Context.
func (a *allowance) Deadline() (time.Time, bool) { return a.begin().Deadline() }

// Done implements context.Context.
func (a *allowance) Done() <-chan struct{} { return a.begin().Done() }

// Err implements context.Context.
func (a *allowance) Err() error {
	if b := a.begun.Load(); b != nil {
		return b.Err()
	}
	return a.Context.Err()
}

// end ends it.
func (a *allowance) end() {
	if b := a.begun.Load(); b != nil {
		b.cancel()
	}
}
