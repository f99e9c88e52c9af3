package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// shards is how many a Cluster has; each is a master and a replica.
const shards = 3

// slots is how many a Cluster has in all.
const slots = 16384

// Cluster is six servers: three masters, then a replica of each.
type Cluster struct {
	t       testing.TB
	Servers []*Server
}

// StartCluster runs a Cluster until the test ends. The arguments go to every
// redis-server.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, func(more ...string) *Server { return Start(t, append(more, args...)...) })
}

// StartTLSCluster is StartCluster with servers as of StartTLS, which speak TLS
// among each other, too.
func StartTLSCluster(t testing.TB, ca *mtlstest.Authority, args ...string) *Cluster {
	t.Helper()
	args = append([]string{"--tls-cluster", "yes", "--tls-replication", "yes"}, args...)
	return startCluster(t, func(more ...string) *Server { return StartTLS(t, ca, append(more, args...)...) })
}

// startCluster makes one of servers that start makes.
func startCluster(t testing.TB, start func(args ...string) *Server) *Cluster {
	t.Helper()
	c := &Cluster{t: t, Servers: make([]*Server, 2*shards)}
	var bus []string // each server's port for the others
	for i := range c.Servers {
		bus = append(bus, freePort(t))
		c.Servers[i] = start(
			"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", bus[i],
			"--cluster-config-file", fmt.Sprintf("nodes%d.conf", i), "--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0",
		)
	}
	for i, s := range c.Servers {
		if i < shards {
			first, last := i*slots/shards, (i+1)*slots/shards-1
			s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		}
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	first := c.Servers[0]
	for _, s := range c.Servers[1:] {
		s.Do("CLUSTER", "MEET", "127.0.0.1", first.port, bus[0])
	}
	c.await("nodes that know each other", func(s *Server) bool {
		return strings.Contains(s.Do("CLUSTER", "INFO")[0], "cluster_known_nodes:6\r")
	})
	for i := range shards {
		c.Servers[shards+i].Do("CLUSTER", "REPLICATE", c.ID(i))
	}
	c.await("a Cluster that is whole", func(s *Server) bool {
		return strings.Contains(s.Do("CLUSTER", "INFO")[0], "cluster_state:ok")
	})
	for i := range shards {
		replica := c.Servers[shards+i]
		await(t, "a replica that follows", func() bool {
			return strings.Contains(replica.Do("INFO", "replication")[0], "master_link_status:up")
		})
	}
	return c
}

// URL names all servers.
func (c *Cluster) URL() string {
	urls := []string{c.Servers[0].URL()}
	for _, s := range c.Servers[1:] {
		urls = append(urls, s.Addr())
	}
	return strings.Join(urls, ",")
}

// ID is a server's name within the Cluster.
func (c *Cluster) ID(i int) string { return c.Servers[i].Do("CLUSTER", "MYID")[0] }

// Owner is which of the first three servers a slot was given to at the start.
func (c *Cluster) Owner(slot int) int {
	for i := range shards {
		if slot < (i+1)*slots/shards {
			return i
		}
	}
	return shards - 1
}

// Begin begins to move a slot: keys that are not where they were are asked for
// at the new place, with ASK.
func (c *Cluster) Begin(slot, from, to int) {
	n := strconv.Itoa(slot)
	c.Servers[to].Do("CLUSTER", "SETSLOT", n, "IMPORTING", c.ID(from))
	c.Servers[from].Do("CLUSTER", "SETSLOT", n, "MIGRATING", c.ID(to))
}

// Finish moves a slot's keys and gives it away: who asks at the old place is
// answered MOVED.
func (c *Cluster) Finish(slot, from, to int) {
	n, id := strconv.Itoa(slot), c.ID(to)
	for {
		keys := c.Servers[from].Do("CLUSTER", "GETKEYSINSLOT", n, "100")
		if len(keys) == 0 {
			break
		}
		args := []string{"MIGRATE", "127.0.0.1", c.Servers[to].port, "", "0", "5000", "KEYS"}
		c.Servers[from].Do(append(args, keys...)...)
	}
	c.Servers[to].Do("CLUSTER", "SETSLOT", n, "NODE", id)
	c.Servers[from].Do("CLUSTER", "SETSLOT", n, "NODE", id)
}

func (c *Cluster) await(what string, ok func(*Server) bool) {
	c.t.Helper()
	for _, s := range c.Servers {
		await(c.t, what, func() bool { return ok(s) })
	}
}

// await waits until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(90 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
