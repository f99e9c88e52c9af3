package redis

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// batches is how many are under way at one time: what comes meanwhile waits for
// the next, and shares its packets, its system calls and its wake-ups. One alone
// would cost a little less and let a call wait for a whole round trip before it
// is sent; with two it is half of one.
const batches = 2

// sender sends the calls of all who wait in batches. The zero value is ready.
type sender struct {
	mu      sync.Mutex
	waiting []*job
	running int // batches under way
	flying  int // calls in them
	free    sync.Pool
}

// job is a call that somebody waits for.
type job struct {
	call   query
	answer answer        // set before done is
	done   chan struct{} // has room for one
	timer  *time.Timer
	fate   atomic.Int32
}

// What becomes of a job. Whoever comes second, the one who waits or the one who
// sends, leaves it alone.
const (
	queued   int32 = iota
	sent           // it may be answered
	answered       // before it was left
	left           // nobody waits any more: what is not sent is not going to be
)

// batched sends a call in the next batch and waits for its answer.
func (c *Counter) batched(ctx context.Context, within time.Duration, call *query) ([]answer, error) {
	j, _ := c.sender.free.Get().(*job)
	if j == nil {
		j = &job{done: make(chan struct{}, 1), timer: time.NewTimer(within)}
	} else {
		j.timer.Reset(within)
	}
	j.call = *call
	c.enqueue(j)
	var err error
	select {
	case <-j.done:
	case <-j.timer.C:
		err = c.late()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil && (j.fate.CompareAndSwap(queued, left) || j.fate.CompareAndSwap(sent, left)) {
		j.timer.Stop()
		return nil, err
	}
	if err != nil {
		<-j.done // at the last moment
	}
	answers := []answer{j.answer}
	j.timer.Stop()
	j.answer, j.call = answer{}, query{}
	j.fate.Store(queued)
	c.sender.free.Put(j)
	return answers, nil
}

// enqueue lets a job wait for the next batch, which it starts where there is
// room for one.
func (c *Counter) enqueue(j *job) {
	s := &c.sender
	s.mu.Lock()
	s.waiting = append(s.waiting, j)
	start := s.running < batches
	if start {
		s.running++
	}
	s.mu.Unlock()
	if start {
		c.calls.Go(c.sendBatches)
	}
}

// next takes the jobs of a batch, as many as may be in flight. Without any the
// caller is done.
func (s *sender) next(most int) (batch []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), most-s.flying)
	if n <= 0 {
		s.running--
		return nil
	}
	batch = s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	s.flying += n
	return batch
}

// sendBatches sends batches as long as anybody waits. Before each it lets the
// goroutines go on that are ready to: those that are about to ask come along.
// That is over at once on an idle machine, and the busier it is the more is
// shared.
func (c *Counter) sendBatches() {
	for {
		runtime.Gosched()
		batch := c.sender.next(c.config.InFlight)
		if batch == nil {
			return
		}
		c.sendBatch(batch)
		c.sender.mu.Lock()
		c.sender.flying -= len(batch)
		c.sender.mu.Unlock()
	}
}

// sendBatch sends the jobs that are still waited for and hands out the answers.
func (c *Counter) sendBatch(batch []*job) {
	calls, jobs := make([]query, 0, len(batch)), batch[:0]
	for _, j := range batch {
		if j.fate.CompareAndSwap(queued, sent) {
			calls, jobs = append(calls, j.call), append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return
	}
	answers := make([]answer, len(jobs))
	c.send(calls, answers)
	for i, j := range jobs {
		j.answer = answers[i]
		if j.fate.CompareAndSwap(sent, answered) {
			j.done <- struct{}{}
		}
	}
}
