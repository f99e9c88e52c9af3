package loopwire

import (
	"context"
	"sync"
)

// queue holds what waits to be sent. Full, it drops the oldest and counts it:
// whoever is slow gets the newest word late rather than every word later.
type queue[T any] struct {
	limit int
	wake  chan struct{} // has one element while something may wait

	mu      sync.Mutex
	items   []T
	dropped uint64
}

func newQueue[T any](limit int) *queue[T] {
	return &queue[T]{limit: limit, wake: make(chan struct{}, 1)}
}

// push never blocks. It reports how many were dropped for it, 0 or 1.
func (q *queue[T]) push(v T) (dropped uint64) {
	q.mu.Lock()
	if len(q.items) >= q.limit {
		q.items = append(q.items[:0], q.items[1:]...)
		q.dropped++
		dropped = 1
	}
	q.items = append(q.items, v)
	q.mu.Unlock()
	q.poke()
	return dropped
}

// poke wakes whoever waits.
func (q *queue[T]) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take is the oldest, if there is one.
func (q *queue[T]) take() (v T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return v, false
	}
	v = q.items[0]
	q.items = append(q.items[:0], q.items[1:]...)
	if len(q.items) > 0 {
		q.poke()
	}
	return v, true
}

// clear drops what waits, uncounted: it belongs to a stream that is gone.
func (q *queue[T]) clear() {
	q.mu.Lock()
	q.items = nil
	q.mu.Unlock()
}

// wait returns when something may be there, or with ctx's error.
func (q *queue[T]) wait(ctx context.Context) error {
	select {
	case <-q.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quietFor is how long a stream up says nothing before it says that it is
// there: a third of deadAfter.
const quietFor = deadAfter / 3

// waitOrQuiet waits as wait does, for quietFor at most.
func (q *queue[T]) waitOrQuiet(ctx context.Context) (quiet bool, err error) {
	short, cancel := context.WithTimeout(ctx, quietFor)
	defer cancel()
	if err = q.wait(short); err != nil && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}
