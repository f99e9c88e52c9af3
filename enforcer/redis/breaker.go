package redis

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// breakers is how many there are. Those of a Cluster stand for neighbouring
	// slots each, so that a shard that is away takes none of the others with it.
	breakers = 64
	// tripAfter is after how many failures in a row a breaker opens. A stall of
	// a few milliseconds fails everything in flight at once, so the first time
	// it opens for a moment only.
	tripAfter = 10
	openFirst = 50 * time.Millisecond
	openMost  = 2 * time.Second
)

// breaker keeps requests from a Redis that does not answer. Closed, it lets
// everything through. After tripAfter failures in a row it opens, for a random
// time under a ceiling that doubles; then it lets one request through, a probe,
// whose success closes it. The zero value is closed.
type breaker struct {
	astir atomic.Bool // something failed since the last success

	mu       sync.Mutex
	failures int
	opened   int // how often in a row; 0: closed
	until    time.Time
	probing  bool
}

// allow reports whether a request may go through. One that may is reported.
func (b *breaker) allow() bool {
	if !b.astir.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened == 0 {
		return true
	}
	if b.probing || time.Now().Before(b.until) {
		return false
	}
	b.probing = true
	return true
}

// report says how a request that was allowed went. It reports whether the
// breaker opened by that.
func (b *breaker) report(ok bool) (tripped bool) {
	if ok && !b.astir.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.astir.Store(!ok)
	if ok {
		b.failures, b.opened, b.probing = 0, 0, false
		return false
	}
	b.failures++
	if b.opened > 0 && !b.probing || b.opened == 0 && b.failures < tripAfter {
		return false
	}
	ceiling := openMost
	if b.opened < 6 {
		ceiling = min(openFirst<<b.opened, openMost)
	}
	b.opened++
	b.probing = false
	b.until = time.Now().Add(ceiling/2 + rand.N(ceiling/2))
	return true
}

// forget takes back an allowed request whose fate says nothing of Redis.
func (b *breaker) forget() {
	if !b.astir.Load() {
		return
	}
	b.mu.Lock()
	b.probing = false
	b.mu.Unlock()
}

func (b *breaker) open() bool {
	if !b.astir.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened > 0
}
