package redis

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// restarts knows when Redis was started anew: its counters are gone then, and
// if all began full, the bursts of a whole fleet would arrive at once. So for
// one refill time a bucket that is not there begins with one second of its
// rate, or its burst if that is less. A Redis that was there before this
// process is taken as it is.
type restarts struct {
	looked atomic.Uint64 // turns of the connection when it was last looked at; 0: never
	since  atomic.Int64  // when it was found to be started anew, Unix microseconds; 0: never

	mu  sync.Mutex
	ids map[string]string // run id by address
}

// suspects reports whether a connection was made or ended since the last look:
// another server may stand at its end.
func (r *restarts) suspects(turns uint64) bool {
	looked := r.looked.Load()
	return looked != 0 && looked != turns
}

// lately reports whether a bucket that refills in so long, and is not there,
// may have been lost.
func (r *restarts) lately(turns uint64, refill time.Duration) bool {
	if r.suspects(turns) {
		return true
	}
	since := r.since.Load()
	return since != 0 && time.Since(time.UnixMicro(since)) < refill
}

// watch looks at every server's run id, and warns of one that evicts counters.
func (c *Counter) watch(ctx context.Context) {
	if c.shape.Load() != cluster && c.breakers[0].open() {
		return
	}
	turns := c.conn.Turns()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client, err := c.conn.Client(ctx)
	if err != nil {
		return // decisions say so
	}
	r := &c.restarts
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids = map[string]string{}
	}
	all, anew := true, false
	for addr, node := range client.Nodes() {
		info, err := node.Do(ctx, node.B().Info().Section("server", "memory").Build()).ToString()
		id := field(info, "run_id")
		if err != nil || id == "" {
			all = false
			continue
		}
		before := r.ids[addr]
		if before == "" {
			if policy := field(info, "maxmemory_policy"); field(info, "maxmemory") != "0" && policy != "noeviction" {
				c.log.Warn("redis may evict counters, which then start full: set maxmemory-policy noeviction", "node", addr, "policy", policy)
			}
		} else if before != id {
			anew = true
		}
		r.ids[addr] = id
	}
	if anew {
		r.since.Store(time.Now().UnixMicro())
		c.log.Warn("redis was started anew: counters begin with a second of their rate")
	}
	if all {
		r.looked.Store(max(turns, 1))
	}
}

// field is a line of INFO's answer; "" where there is none.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
