package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// reason is an error's kind, "" for none.
func reason(err error) string {
	var e enforcer.Reasoned
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason()
	}
	return "no reason: " + err.Error()
}

// proxy stands between a Counter and a server and does it harm.
type proxy struct {
	*toxiproxy.Proxy
	t testing.TB
}

func newProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled)
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{toxiproxy.NewProxy(api, "redis", "127.0.0.1:0", upstream), t}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func (p *proxy) url() string { return "redis://" + p.Listen }

// harm adds a toxic by name; heal takes all away.
func (p *proxy) harm(kind, attributes string) {
	p.t.Helper()
	for _, stream := range []string{"upstream", "downstream"} {
		text := fmt.Sprintf(`{"name":"%s-%s","type":"%s","stream":"%s","attributes":{%s}}`, kind, stream, kind, stream, attributes)
		if _, err := p.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *proxy) heal() { p.Toxics.ResetToxics(context.Background()) }

// strict is a set of one bucket that never gives back during a test.
func strict(t testing.TB, c *Counter, key string, burst int64) *Set {
	t.Helper()
	return c.Set([]gcra.Charge{{Bucket: "b", Key: key, Limit: slow(t, burst)}}).(*Set)
}

func slow(t testing.TB, burst int64) gcra.Limit {
	t.Helper()
	return compile(t, 1e-5, rlc.Burst(burst))
}

// until asks until the answer is of a kind, a limited number of times a second.
func until(t testing.TB, s *Set, want string) {
	t.Helper()
	last := ""
	soon(t, "an answer of kind "+want, func() bool {
		_, err := s.Take(t.Context(), time.Now().UnixMicro(), 1)
		last = reason(err)
		return last == want
	})
}

func TestWhateverIsWrongWithRedisEveryRequestIsAnswered(t *testing.T) {
	server := redistest.Start(t)
	for _, harm := range []struct {
		name string
		do   func(*proxy)
		undo func(*proxy)
		want string // the kind before the breaker opens
	}{
		{"a black hole", func(p *proxy) { p.harm("timeout", `"timeout":0`) }, (*proxy).heal, Timeout},
		{"a second late", func(p *proxy) { p.harm("latency", `"latency":1000`) }, (*proxy).heal, Timeout},
		{"30 ms late", func(p *proxy) { p.harm("latency", `"latency":30`) }, (*proxy).heal, Timeout},
		{"not a byte goes through", func(p *proxy) { p.harm("bandwidth", `"rate":0`) }, (*proxy).heal, Timeout},
		{"connections that are reset", func(p *proxy) { p.harm("reset_peer", `"timeout":0`) }, (*proxy).heal, Refused},
		{"nobody listens", func(p *proxy) { p.Stop() }, func(p *proxy) {
			if err := p.Start(); err != nil {
				p.t.Fatal(err)
			}
		}, Refused},
		{"frozen", func(*proxy) { server.Freeze() }, func(*proxy) { server.Thaw() }, Timeout},
	} {
		t.Run(harm.name, func(t *testing.T) {
			p := newProxy(t, server.Addr())
			c := counter(t, p.url(), Config{Timeout: 8 * time.Millisecond, Strict: true, InFlight: 64})
			s := strict(t, c, harm.name, 1_000_000)
			until(t, s, "")
			harm.do(p)
			before := runtime.NumGoroutine()

			// All are answered, and what is sent is bounded by the breaker.
			kinds, most := storm(t, s)
			if kinds[harm.want] == 0 || kinds[BreakerOpen] == 0 || kinds[harm.want] > 200 {
				t.Errorf("answers by kind: %v; want a few of %s, then %s", kinds, harm.want, BreakerOpen)
			}
			// One goroutine for each call in flight, and what a few connections need.
			if grown := most - before - 32; grown > 64+40 {
				t.Errorf("%d goroutines more", grown)
			}
			// While it is open nothing goes over the network.
			sent, open := c.sent.Load(), 0
			for range 1000 {
				if _, err := s.Take(t.Context(), time.Now().UnixMicro(), 1); reason(err) == BreakerOpen {
					open++
				}
			}
			if n := c.sent.Load() - sent; n > 1000-uint64(open) {
				t.Errorf("%d sent for %d that were not refused at once", n, 1000-open)
			}
			harm.undo(p)
			// Requests to several buckets alone find out that it is back.
			two := c.Set([]gcra.Charge{{Bucket: "b", Limit: slow(t, 1000)}, {Bucket: "c", Limit: slow(t, 1000)}}).(*Set)
			until(t, two, "")
			until(t, s, "")
		})
	}
}

// A Take of a leased key, of another, and of what is asked for seldom waits three
// times in a row: for all together no longer than for one.
func TestAllThatATakeWaitsForSharesItsDeadline(t *testing.T) {
	server := redistest.Start(t)
	p := newProxy(t, server.Addr())
	c := counter(t, p.url(), Config{Timeout: 500 * time.Millisecond, LeaseTTL: time.Hour})
	s := c.Set([]gcra.Charge{
		{Bucket: "a", Limit: compile(t, 1000, 1000)}, {Bucket: "b", Limit: compile(t, 1000, 1000)}, {Bucket: "c", Limit: window(t, rlc.FixedWindow, false)},
	}).(*Set)
	until(t, s, "")
	hot := func() {
		for i := range 2 {
			k := s.parts[i].hot.Load()
			k.mu.Lock()
			k.hot, k.tokens, k.deny, k.from = true, 0, 0, time.Now().UnixMicro()
			k.mu.Unlock()
		}
	}
	p.harm("latency", `"latency":125`) // each way
	hot()
	if _, err := s.Take(t.Context(), time.Now().UnixMicro(), 1); reason(err) != Timeout {
		t.Errorf("three answers of 250 ms in a row within 500 ms: %v", err)
	}
	// And not at all where the caller has no more time.
	hot()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Take(ctx, time.Now().UnixMicro(), 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lease of 250 ms for a caller with one: %v", err)
	}
	// The lease that nobody waited for is there for the next.
	soon(t, "the lease", func() bool { return s.parts[0].hot.Load().held() > 0 })
}

// What is given back is sent, whether or not anybody waits for it.
func TestASettlementIsSentThoughNobodyWaits(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	s := strict(t, c, "k", 10)
	now := time.Now().UnixMicro()
	take(t, s, now, 5)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Settle(ctx, now, -5) // either it was quicker, or nobody waited
	soon(t, "5 tokens back", func() bool { return take(t, s, now, 0).Remaining == 10 })
}

// storm is 32 callers with 50 requests each. It counts the answers by kind, and
// the most goroutines that there were.
func storm(t *testing.T, s *Set) (kinds map[string]int, most int) {
	kinds = map[string]int{}
	var mu sync.Mutex
	took := map[bool][]time.Duration{} // by whether the breaker was open
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for range 50 {
				began := time.Now()
				_, err := s.Take(t.Context(), time.Now().UnixMicro(), 1)
				passed, kind := time.Since(began), reason(err)
				mu.Lock()
				kinds[kind]++
				took[kind == BreakerOpen] = append(took[kind == BreakerOpen], passed)
				most = max(most, runtime.NumGoroutine())
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for _, open := range []bool{false, true} {
		slices.Sort(took[open])
		if n := len(took[open]); n > 0 {
			t.Logf("breaker open %t: %d answers, p50 %s, p99 %s", open, n, took[open][n/2], took[open][n*99/100])
		}
	}
	return kinds, most
}

// What a request without an answer charged stays charged, and nothing is sent
// again when Redis is back: a script that was sent once runs once at most.
func TestNothingIsReplayedAfterAPause(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Timeout: 20 * time.Millisecond, Strict: true})
	s := strict(t, c, "k", 1_000_000)
	until(t, s, "")
	server.Freeze()
	until(t, s, BreakerOpen)
	server.Thaw()
	until(t, s, "")
	sent := c.sent.Load()
	soon(t, "an answer in time", func() bool {
		tally, err := s.Take(t.Context(), time.Now().UnixMicro(), 0)
		if err != nil {
			return false
		}
		if taken := 1_000_000 - tally.Remaining; taken > int64(sent) {
			t.Errorf("%d taken by %d calls", taken, sent)
		}
		return true
	})
}

func TestEachFailureIsNamed(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
		do   func(t *testing.T, s *redistest.Server)
		undo func(s *redistest.Server)
	}{
		{ReadOnly, nil, func(_ *testing.T, s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }, func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
		{MasterDown, []string{"--replica-serve-stale-data", "no"}, func(_ *testing.T, s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }, func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
		{OOM, nil, func(_ *testing.T, s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") }, func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
		{NoReplicas, nil, func(_ *testing.T, s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") }, func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") }},
		{NoScript, nil, func(_ *testing.T, s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "-@scripting") }, func(s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "+@all") }},
		{Busy, []string{"--lua-time-limit", "1"}, busy, func(s *redistest.Server) { s.Do("SCRIPT", "KILL") }},
		{Loading, []string{"--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024", "--enable-debug-command", "yes"}, loading, nil},
	} {
		t.Run(c.want, func(t *testing.T) {
			server := redistest.Start(t, c.args...)
			r := counter(t, server.URL(), Config{Strict: true, Timeout: 2 * time.Second})
			s := strict(t, r, "k", 1000)
			until(t, s, "")
			c.do(t, server)
			until(t, s, c.want)
			until(t, s, BreakerOpen)
			if c.undo != nil {
				c.undo(server)
			}
			until(t, s, "")
		})
	}
}

// busy runs a script of somebody else's that does not end by itself.
func busy(t *testing.T, s *redistest.Server) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("EVAL \"while true do end\" 0\r\n")); err != nil {
		t.Fatal(err)
	}
}

// loading makes the server read so much from its disk that it takes a moment.
func loading(t *testing.T, s *redistest.Server) {
	t.Helper()
	s.Do("DEBUG", "POPULATE", "3000")
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("DEBUG RELOAD\r\n")); err != nil {
		t.Fatal(err)
	}
}

// SCRIPT FLUSH and a failover cost one EVAL and no verdict.
func TestAScriptThatWasForgottenIsSentOnce(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	s := strict(t, c, "k", 10)
	for i := range 4 {
		server.Do("SCRIPT", "FLUSH")
		sent := c.sent.Load()
		if tally := take(t, s, 0, 1); !tally.OK() || tally.Remaining != int64(9-2*i) {
			t.Fatalf("after a flush: %+v", tally)
		}
		take(t, s, 0, 1)
		if n := c.sent.Load() - sent; n != 3 {
			t.Errorf("%d calls for two decisions after a flush, want EVALSHA, EVAL, EVALSHA", n)
		}
	}
}

// A replica that took over has what the master had replicated; the rest is
// admitted once more, at most one burst.
func TestAFailoverCostsAtMostOneBurst(t *testing.T) {
	master, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	replica.Do("REPLICAOF", "127.0.0.1", master.Addr()[strings.LastIndexByte(master.Addr(), ':')+1:])
	soon(t, "a replica that follows", func() bool {
		return strings.Contains(replica.Do("INFO", "replication")[0], "master_link_status:up")
	})
	p := newProxy(t, master.Addr())
	c := counter(t, p.url(), Config{Strict: true, Timeout: time.Second})
	const burst = 50
	s := strict(t, c, "k", burst)
	admitted := 0
	for range burst {
		if take(t, s, 0, 1).OK() {
			admitted++
		}
	}
	master.Stop()
	p.Stop()
	p.Upstream = replica.Addr()
	replica.Do("REPLICAOF", "NO", "ONE")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for range 3 * burst {
		soon(t, "an answer after the failover", func() bool {
			tally, err := s.Take(t.Context(), 0, 1)
			if err == nil && tally.OK() {
				admitted++
			}
			return err == nil
		})
	}
	if admitted > 2*burst {
		t.Errorf("%d admitted over a failover, burst %d", admitted, burst)
	}
	t.Logf("admitted above the burst: %d of at most %d", admitted-burst, burst)
}

// Another tenant that wipes everything gives one burst, and no error.
func TestCountersThatWereWipedStartFull(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	s := strict(t, c, "k", 3)
	for range 4 {
		take(t, s, 0, 1)
	}
	server.Do("FLUSHALL")
	if tally := take(t, s, 0, 1); !tally.OK() || tally.Remaining != 2 {
		t.Errorf("after FLUSHALL: %+v", tally)
	}
}

// A Redis that is started anew has lost every counter: a fleet's bursts must
// not arrive at once.
func TestAfterARestartOfRedisBucketsBeginWithASecond(t *testing.T) {
	server := redistest.Start(t)
	c := counter(t, server.URL(), Config{Strict: true})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	take3 := func(key string) gcra.Tally {
		var tally gcra.Tally
		soon(t, "an answer", func() bool {
			var err error
			tally, err = c.Set([]gcra.Charge{{Bucket: "b", Key: key, Limit: compile(t, 3, 300)}}).Take(t.Context(), 0, 3)
			return err == nil
		})
		return tally
	}
	if tally := take3("before"); tally.Remaining != 297 {
		t.Errorf("a new bucket: %+v", tally)
	}
	soon(t, "the run id", func() bool { return c.restarts.looked.Load() != 0 })
	for round := range 2 {
		server.Stop()
		server.Start()
		// At once, over the first connection, and later, when it has been looked at.
		for _, key := range []string{"first", "second", "third"} {
			if tally := take3(fmt.Sprint(key, round)); !tally.OK() || tally.Remaining > 3 {
				t.Errorf("round %d, %s after the restart: %+v, want the rest of one second's 3", round, key, tally)
			}
			if key == "second" {
				soon(t, "the restart noticed", func() bool { return !c.restarts.suspects(c.conn.Turns()) })
			}
		}
	}
}
