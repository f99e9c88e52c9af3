package redis

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/countertest"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	t.Run("counts as every counter does", func(t *testing.T) {
		countertest.Run(t, countertest.Options{OwnClock: true, New: func(t *testing.T) enforcer.Counter {
			return counter(t, cluster.URL(), Config{Strict: true})
		}})
	})
	t.Run("slots are the Cluster's own", func(t *testing.T) {
		for i := range 100 {
			key := fmt.Sprint("key", i)
			if want := cluster.Servers[0].Do("CLUSTER", "KEYSLOT", key)[0]; want != strconv.Itoa(int(slot(key))) {
				t.Fatalf("%s: slot %d, want %s", key, slot(key), want)
			}
		}
	})
	t.Run("ten buckets take one round trip", func(t *testing.T) { tenBuckets(t, cluster) })
	t.Run("what was reserved goes back where one refuses", func(t *testing.T) { reserved(t, cluster) })
	t.Run("a slot moves during load", func(t *testing.T) { moving(t, cluster) })
	t.Run("a shard that is away takes no other with it", func(t *testing.T) { shardAway(t, cluster) })
	t.Run("a replica takes over", func(t *testing.T) { takeover(t, cluster) })
}

// many are charges on many shards.
func many(t *testing.T, n int, burst int64) (out []gcra.Charge) {
	for i := range n {
		out = append(out, gcra.Charge{Bucket: fmt.Sprint("b", i), Limit: slow(t, burst)})
	}
	return out
}

func tenBuckets(t *testing.T, cluster *redistest.Cluster) {
	c := counter(t, cluster.URL(), Config{Strict: true})
	s := c.Set(many(t, 10, 1000)).(*Set)
	take(t, s, 0, 1)
	sent := c.sent.Load()
	if tally := take(t, s, 0, 1); !tally.OK() {
		t.Fatalf("%+v", tally)
	}
	// One call a bucket, and no second: a refund or a wait for another would
	// have cost more.
	if n := c.sent.Load() - sent; n != 10 {
		t.Errorf("%d calls for ten buckets", n)
	}
	shards := map[int]bool{}
	for i := range s.parts {
		shards[cluster.Owner(int(s.parts[i].slot))] = true
	}
	if len(shards) != 3 {
		t.Errorf("the ten lie on %d shards", len(shards))
	}
}

func reserved(t *testing.T, cluster *redistest.Cluster) {
	c := counter(t, cluster.URL(), Config{Strict: true})
	charges := many(t, 6, 100)
	charges[4].Limit = slow(t, 5)
	s := c.Set(charges)
	var admitted atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 25 {
				tally, err := s.Take(t.Context(), 0, 1)
				if err != nil {
					t.Error(err)
				} else if tally.OK() {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	if admitted.Load() != 5 {
		t.Errorf("%d admitted, want 5", admitted.Load())
	}
	for i := range charges {
		want := int64(95)
		if i == 4 {
			want = 0
		}
		if got := take(t, c.Set(charges[i:i+1]), 0, 0).Remaining; got != want {
			t.Errorf("bucket %d has %d left, want %d", i, got, want)
		}
	}
}

// moving carries a key from shard to shard and back while it is charged: every
// request is answered, and the counter counts on.
func moving(t *testing.T, cluster *redistest.Cluster) {
	c := counter(t, cluster.URL(), Config{Strict: true})
	s := strict(t, c, "moving", 1_000_000)
	slot := int(s.parts[0].slot)
	from := cluster.Owner(slot)
	to := (from + 1) % 3
	take(t, s, 0, 1)
	stop := make(chan struct{})
	var admitted atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				tally, err := s.Take(t.Context(), 0, 1)
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
	more := func() {
		n := admitted.Load()
		soon(t, "requests admitted", func() bool { return admitted.Load() > n+20 || t.Failed() })
	}
	for range 2 {
		more()
		cluster.Begin(slot, from, to)
		more()
		cluster.Finish(slot, from, to)
		more()
		from, to = to, from
	}
	close(stop)
	group.Wait()
	if got, want := take(t, s, 0, 0).Remaining, 1_000_000-1-admitted.Load(); got != want {
		t.Errorf("%d left, want %d", got, want)
	}
}

// onShard finds a key that lies on a shard.
func onShard(t *testing.T, c *Counter, cluster *redistest.Cluster, shard int, name string) *Set {
	for i := 0; ; i++ {
		if s := strict(t, c, fmt.Sprint(name, i), 1_000_000); cluster.Owner(int(s.parts[0].slot)) == shard {
			return s
		}
	}
}

func shardAway(t *testing.T, cluster *redistest.Cluster) {
	c := counter(t, cluster.URL(), Config{Strict: true, Timeout: 300 * time.Millisecond})
	away, well := onShard(t, c, cluster, 0, "away"), onShard(t, c, cluster, 1, "well")
	until(t, away, "")
	until(t, well, "")
	// Not for so long that the replica takes over.
	cluster.Servers[0].Do("CONFIG", "SET", "cluster-node-timeout", "15000")
	for _, s := range cluster.Servers[1:] {
		s.Do("CONFIG", "SET", "cluster-node-timeout", "15000")
	}
	cluster.Servers[0].Freeze()
	until(t, away, BreakerOpen)
	for range 50 {
		if _, err := well.Take(t.Context(), 0, 1); err != nil {
			t.Errorf("a shard that is well: %v", err)
		}
	}
	both := c.Set([]gcra.Charge{away.parts[0].charge, well.parts[0].charge}).(*Set)
	until(t, both, Timeout)
	until(t, both, BreakerOpen)
	until(t, well, "")
	cluster.Servers[0].Thaw()
	until(t, both, "")
	until(t, away, "")
	for _, s := range cluster.Servers {
		s.Do("CONFIG", "SET", "cluster-node-timeout", "1000")
	}
}

func takeover(t *testing.T, cluster *redistest.Cluster) {
	c := counter(t, cluster.URL(), Config{Strict: true, Timeout: 300 * time.Millisecond})
	s := onShard(t, c, cluster, 2, "taken over")
	for range 10 {
		until(t, s, "")
	}
	cluster.Servers[2].Stop()
	until(t, s, "")
	if got := take(t, s, 0, 0).Remaining; got > 1_000_000-1 || got < 1_000_000-20 {
		t.Errorf("%d left after the failover", got)
	}
}
