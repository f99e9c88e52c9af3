package redis

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/countertest"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// The library looks once more for a cluster up to a second after a connection
// of its own ended, and closes those of a node that is gone five seconds later;
// these goroutines end by themselves. The proxy that does harm leaves
// goroutines of its own.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
}

// patience bounds what a test waits for, and replaces the deadline of a
// decision where a test is about verdicts; nothing is asserted about time.
const patience = time.Minute

// settable is a clock for the scripts that a test sets.
const settable = `(function()
  local us = tonumber(call('GET', 'clock') or '0')
  return {math.floor(us / 1000000), us % 1000000}
end)()`

// timed is a Counter whose Redis has the callers' clock.
type timed struct {
	*Counter
	t testing.TB

	mu    sync.Mutex
	clock int64
	conn  net.Conn // past the Counter
}

func (c *timed) set(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clock == now {
		return
	}
	c.clock = now
	text := strconv.FormatInt(now, 10)
	_, err := fmt.Fprintf(c.conn, "*3\r\n$3\r\nSET\r\n$5\r\nclock\r\n$%d\r\n%s\r\n", len(text), text)
	if err == nil {
		_, err = io.ReadFull(c.conn, make([]byte, len("+OK\r\n")))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

type timedSet struct {
	*Set
	timed *timed
}

func (c *timed) Set(charges []gcra.Charge) enforcer.Set {
	return timedSet{c.Counter.Set(charges).(*Set), c}
}

func (s timedSet) Take(ctx context.Context, now, cost int64) (gcra.Tally, error) {
	s.timed.set(now)
	return s.Set.Take(ctx, now, cost)
}

func (s timedSet) Settle(ctx context.Context, now, by int64) error {
	return s.Set.Settle(ctx, now, by)
}

var prefixes atomic.Int64

// counter makes a Counter that is closed at the end and shares no key with
// others.
func counter(t testing.TB, url string, c Config) *Counter {
	t.Helper()
	r, err := newCounter(fill(url, c), clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func fill(url string, c Config) Config {
	c.URL = url
	if c.Prefix == "" {
		c.Prefix = fmt.Sprintf("t%d:", prefixes.Add(1))
	}
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	return c
}

// virtual is counter with a clock that the callers set.
func virtual(t testing.TB, server *redistest.Server, c Config) *timed {
	t.Helper()
	r, err := newCounter(fill(server.URL(), c), settable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &timed{Counter: r, t: t, clock: -1, conn: conn}
}

func compile(t testing.TB, rate rlc.Rate, burst rlc.Burst) gcra.Limit {
	t.Helper()
	l, err := gcra.Compile(rlc.Limit{Rate: rate, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t testing.TB, s enforcer.Set, now, cost int64) gcra.Tally {
	t.Helper()
	tally, err := s.Take(t.Context(), now, cost)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// soon waits until ok, which may be asked often.
func soon(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestRedisCountsAsEveryCounterDoes(t *testing.T) {
	server := redistest.Start(t)
	countertest.Run(t, countertest.Options{New: func(t *testing.T) enforcer.Counter {
		return virtual(t, server, Config{Strict: true})
	}})
}
