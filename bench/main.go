// Bench measures RLC's decisions beside those of other limiters, in one pass on
// one machine, and prints them with their ratios. It is a module of its own so
// that no peer enters the product's go.mod.
//
//	make bench
//
// Each figure is CPU time of the process per decision, the median of five
// rounds in which the contenders take turns; wall times mean little on a busy
// machine. It says how busy the machine was before and after.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/memory"
)

const (
	keys   = 10_000
	rounds = 5
)

// contender is one way to decide. New returns what decides on the i-th key.
type contender struct {
	name string
	new  func() func(i int)
}

// result is CPU nanoseconds and allocations a decision.
type result struct {
	ns     float64
	allocs float64
}

func main() {
	testing.Init()
	each := flag.String("benchtime", "100ms", "how long one round of one contender takes")
	gone := flag.Int("redis-away", 0, "measure instead how long decisions take while Redis is away, with so many requests a second")
	requests := flag.Int("requests", 10_000, "how many requests each daemon is sent in one round")
	peers := flag.Bool("peers", true, "build envoyproxy/ratelimit and gubernator and measure them too")
	only := flag.Bool("daemons", false, "measure the daemons alone")
	flag.Parse()
	if at := os.Getenv(emptyAt); at != "" {
		serveEmpty(at)
		return
	}
	if *only {
		daemons(*requests, *peers)
		return
	}
	if *gone > 0 {
		away(*gone)
		return
	}
	if err := flag.Set("test.benchtime", *each); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Printf("%d keys, one goroutine, CPU time a decision, median of %d rounds of %s; load average %s\n\n", keys, rounds, *each, load())
	names := make([]string, keys)
	for i := range names {
		names[i] = "caller-" + strconv.Itoa(i)
	}
	// A request's names come in memory of its own: a limiter never finds the
	// very string that it keeps.
	kept := make([]string, keys)
	for i, n := range names {
		kept[i] = strings.Clone(n)
	}
	all := contenders(names, kept)
	decide := make([]func(int), len(all))
	for i, c := range all {
		decide[i] = c.new()
	}
	found := make([][]result, len(all))
	for range rounds {
		for i := range all {
			found[i] = append(found[i], measure(decide[i]))
		}
	}
	var reference float64
	medians := make([]result, len(all))
	for i := range all {
		slices.SortFunc(found[i], func(a, b result) int { return int(a.ns*1000) - int(b.ns*1000) })
		if medians[i] = found[i][rounds/2]; all[i].name == "sethvargo/go-limiter" {
			reference = medians[i].ns
		}
	}
	fmt.Printf("%-44s %10s %8s %14s\n", "", "ns", "allocs", "× sethvargo")
	for i, c := range all {
		fmt.Printf("%-44s %10.1f %8.0f %14.2f\n", c.name, medians[i].ns, medians[i].allocs, medians[i].ns/reference)
	}
	shared(100_000)
	daemons(*requests, *peers)
	fmt.Printf("\nload average %s\n", load())
}

// measure runs one round.
func measure(decide func(int)) result {
	var before, after syscall.Rusage
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		b.ResetTimer()
		must(syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		for i := range b.N {
			decide(i % keys)
		}
		must(syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	})
	// The last call of the function is the one that counts.
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	return result{ns: float64(cpu.Nanoseconds()) / float64(r.N), allocs: float64(r.AllocsPerOp())}
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// plenty is a limit that nobody reaches: what is measured is admitting.
var plenty = rlc.Limit{Rate: 1e9, Burst: 1e9}

func contenders(names, kept []string) []contender {
	return []contender{
		{"rlc: drop ratio, held handle", func() func(int) {
			c := loop.NewClient(loop.ClientConfig{Node: "bench"})
			h := c.Handle(loop.Path{"b"})
			return func(int) { h.Offer(loop.Normal) }
		}},
		{"rlc: token bucket by handle, time passed in", func() func(int) {
			m := &memory.Memory{}
			limit, err := gcra.Compile(plenty)
			must(err)
			sets := make([]*memory.Set, keys)
			for i := range sets {
				sets[i] = m.Set([]gcra.Charge{{Bucket: "b", Key: names[i], Limit: limit}})
			}
			ctx, now := context.Background(), time.Now().UnixMicro()
			return func(i int) {
				now++
				_, err := sets[i].Take(ctx, now, 1)
				must(err)
			}
		}},
		{"rlc: whole decision, drop ratio", func() func(int) { return whole(names, kept, "drop_ratio") }},
		{"rlc: whole decision, token bucket", func() func(int) { return whole(names, kept, "token_bucket") }},
		{"sethvargo/go-limiter", func() func(int) {
			s, err := memorystore.New(&memorystore.Config{Tokens: 1e9, Interval: time.Second})
			must(err)
			ctx := context.Background()
			for _, n := range kept {
				_, _, _, _, err := s.Take(ctx, n)
				must(err)
			}
			return func(i int) {
				_, _, _, _, err := s.Take(ctx, names[i])
				must(err)
			}
		}},
		{"x/time/rate, a map of limiters", func() func(int) {
			m := map[string]*rate.Limiter{}
			for _, n := range kept {
				m[n] = rate.NewLimiter(1e9, 1e9)
			}
			return func(i int) { m[names[i]].Allow() }
		}},
		{"juju/ratelimit, a map of buckets", func() func(int) {
			m := map[string]*ratelimit.Bucket{}
			for _, n := range kept {
				m[n] = ratelimit.NewBucketWithRate(1e9, 1e9)
			}
			return func(i int) { m[names[i]].TakeAvailable(1) }
		}},
		{"throttled", func() func(int) {
			s, err := memstore.NewCtx(2 * keys)
			must(err)
			l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerSec(1e6), MaxBurst: 1e6})
			must(err)
			ctx := context.Background()
			for _, n := range kept {
				_, _, err := l.RateLimitCtx(ctx, n, 1)
				must(err)
			}
			return func(i int) {
				_, _, err := l.RateLimitCtx(ctx, names[i], 1)
				must(err)
			}
		}},
		{"ulule/limiter", func() func(int) {
			l := limiter.New(ululememory.NewStore(), limiter.Rate{Period: time.Second, Limit: 1e9})
			ctx := context.Background()
			for _, n := range kept {
				_, err := l.Get(ctx, n)
				must(err)
			}
			return func(i int) {
				_, err := l.Get(ctx, names[i])
				must(err)
			}
		}},
	}
}

// whole is an enforcer's decision, from a request's names to the counted
// outcome. Where the loop decides it has told of every caller.
func whole(names, kept []string, algorithm string) func(int) {
	ratios := loop.NewClient(loop.ClientConfig{Node: "bench"})
	e, err := enforcer.New(enforcer.Config{Name: "bench", Loop: ratios})
	must(err)
	go func() { _ = e.Run(context.Background()) }() // as long as the program
	must(e.Load(rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 1}, Files: rlc.Files{
		"services/s/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: s\nbuckets:\n  - {name: callers, each: [caller], mode: enforce, algorithm: " + algorithm + ", limit: {rate: 1000000000, burst: 1000000000}}\n"),
	}}))
	for _, n := range kept {
		e.Decide(enforcer.Request{Service: "s", Caller: n})
	}
	ratios.Tick(0)
	told := loop.Directives{Epoch: 1, Seq: 1}
	for i := range kept {
		told.List = append(told.List, loop.Directive{Bucket: "s\x00callers\x00callers/caller=" + kept[i], Keep: loop.Keep{1, 1, 1}, Limit: 1e9})
	}
	ratios.Apply(told, 0)
	return func(i int) {
		if d := e.Decide(enforcer.Request{Service: "s", Caller: names[i]}); d.Outcome != enforcer.Admit {
			panic(d.Outcome)
		}
	}
}
