// Package redis keeps the counters of buckets in Redis, a single server or a
// Cluster, so that all enforcers charge the same ones. A decision is one script
// call, or a token of a lease that was taken by one.
//
// Time is the server's alone. An answer comes within the deadline or not at
// all: then Take fails with an *Error, and the enforcer decides as the buckets'
// on_failure says. Nothing is sent twice.
package redis

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/redisconn"
)

// Config is what a Counter is made from.
type Config struct {
	// URL is redis://[user:password@]host[:port][/database], or rediss:// for
	// TLS; several hosts, separated by commas, for a Cluster. Required. It is
	// never logged or returned in an error.
	URL string
	// PasswordFile holds the password, read anew at each connection; "" takes
	// the URL's.
	PasswordFile string
	// RootCAs judge the server's certificate; nil takes the system's.
	RootCAs *x509.CertPool
	// Prefix begins every key; default "rlc:".
	Prefix string

	// Timeout is the deadline of a decision, all of it; default 8 ms.
	Timeout time.Duration
	// InFlight bounds the calls whose answers are awaited at one time; default
	// 512, at most 1,000. Who finds no room waits for it until the deadline.
	InFlight int

	// Strict asks Redis for every decision, so that a limit is exact to the
	// token; false leases tokens for keys that are asked for often.
	Strict bool
	// LeaseFrom is from how many requests a second on this node on a key is
	// leased; default 200.
	LeaseFrom float64
	// LeaseFor is for how long a lease's tokens are meant to last at the
	// measured rate; default 20 ms. At most one call a key is made in about that
	// time.
	LeaseFor time.Duration
	// LeaseTTL is how long tokens may be held before they go back; default 500 ms.
	LeaseTTL time.Duration
	// MaxKeys bounds the keys whose rates are measured; default 100,000. Those
	// beyond are not leased.
	MaxKeys int

	Log *slog.Logger // nil: discarded
}

// Counter charges counters in Redis. It is made without a connection and
// connects when it is first used; it is safe for use by many goroutines.
type Counter struct {
	config Config
	conn   *redisconn.Conn
	log    *slog.Logger
	main   script // buckets and windows
	logs   script // sliding logs
	slots  chan struct{}
	shape  atomic.Int32 // of the server: unknown until it is connected
	closed atomic.Bool
	sender sender
	calls  sync.WaitGroup // those under way
	sent   atomic.Uint64  // script calls
	ahead  atomic.Int64   // Redis's clock less the callers', microseconds, as of the last answer

	times    times // of round trips
	breakers [breakers]breaker
	restarts restarts
	keys     keys
}

// clock is how the scripts learn the time.
const clock = "call('TIME')"

// New checks c and makes a Counter. It does not connect: Redis may be away.
func New(c Config) (*Counter, error) { return newCounter(c, clock) }

// newCounter is New with another clock in the scripts, for tests.
func newCounter(c Config, clock string) (*Counter, error) {
	if c.Prefix == "" {
		c.Prefix = "rlc:"
	}
	if err := redisconn.CheckPrefix(c.Prefix); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&c.Timeout, 8 * time.Millisecond}, {&c.LeaseFor, 20 * time.Millisecond}, {&c.LeaseTTL, 500 * time.Millisecond}} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	if c.LeaseTTL < c.LeaseFor {
		return nil, fmt.Errorf("%w: a lease must live at least %s, for which it is meant to last; got %s", rlc.ErrInvalid, rlc.DurationText(c.LeaseFor), rlc.DurationText(c.LeaseTTL))
	}
	if c.InFlight <= 0 {
		c.InFlight = 512
	}
	c.InFlight = min(c.InFlight, 1000)
	if !(c.LeaseFrom > 0) {
		c.LeaseFrom = 200
	}
	if c.MaxKeys <= 0 {
		c.MaxKeys = 100_000
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	conn, err := redisconn.New(redisconn.Config{
		URL: c.URL, PasswordFile: c.PasswordFile, RootCAs: c.RootCAs,
		DialTimeout: time.Second, Silence: time.Second, Tune: tune,
	})
	if err != nil {
		return nil, err
	}
	r := &Counter{
		config: c, conn: conn, log: c.Log.With("redis", conn.Addr()), slots: make(chan struct{}, c.InFlight),
		main: newScript(countersSource, clock), logs: newScript(logSource, clock),
	}
	r.keys.max = c.MaxKeys
	return r, nil
}

// tune asks for one connection a node, on which calls share packets: it costs
// Redis least.
func tune(o *rueidis.ClientOption) {
	o.PipelineMultiplex = -1
	o.AlwaysPipelining = true
	o.RingScaleEachConn = 10 // more places than calls in flight
	o.ReadBufferEachConn = 64 << 10
	o.WriteBufferEachConn = 64 << 10
	o.Dialer.KeepAlive = time.Second // how often a silent connection is asked whether it lives
	o.ClusterOption.MaxMovedRedirections = 4
}

// Set prepares charging these counters together.
func (c *Counter) Set(charges []gcra.Charge) enforcer.Set {
	if len(charges) > gcra.MaxCharges {
		panic(fmt.Sprintf("redis: %d charges in one set, at most %d", len(charges), gcra.MaxCharges))
	}
	s := &Set{counter: c, parts: make([]part, len(charges))}
	for i := range charges {
		c.prepare(&s.parts[i], charges[i])
	}
	return s
}

// Deadline is how long a Take waits at most.
func (c *Counter) Deadline() time.Duration { return c.config.Timeout }

// Run returns leases that lie idle, forgets keys that nobody asks for, and
// watches whether Redis was started anew, until ctx ends; then it returns nil.
func (c *Counter) Run(ctx context.Context) error {
	const often = 100 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if n%10 == 0 || c.restarts.suspects(c.conn.Turns()) {
			c.watch(ctx)
		}
		c.sweep(often)
	}
}

// Close returns what is leased, as far as a second allows, and ends every
// connection. What is under way fails, as does every later Take.
func (c *Counter) Close() {
	if c.closed.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, k := range c.keys.all() {
		if ctx.Err() == nil {
			c.giveBack(k)
		}
	}
	c.conn.Close()
	c.calls.Wait()
}

// Stats is what can be counted of a Counter.
type Stats struct {
	Calls       uint64 // scripts sent to Redis so far, those for leases among them
	Leased      int    // keys of which tokens are held now
	Outstanding int64  // those tokens: by so many a limit may be exceeded on this node's account
	Measured    int    // keys whose rate is known
	Open        bool   // a breaker is open: some or all counters are not asked
	RoundTrips  RoundTrips
}

// Stats looks at every key that is measured; it is meant for scrapes.
func (c *Counter) Stats() Stats {
	s := Stats{Calls: c.sent.Load(), RoundTrips: c.times.roundTrips()}
	for _, k := range c.keys.all() {
		s.Measured++
		if n := k.held(); n > 0 {
			s.Leased++
			s.Outstanding += n
		}
	}
	for i := range c.breakers {
		s.Open = s.Open || c.breakers[i].open()
	}
	return s
}
