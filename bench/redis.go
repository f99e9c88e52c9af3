package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/redis"
)

// shared measures limiters that keep their counters in Redis: its processor
// time a decision, and decisions a second from 64 goroutines. Without a
// redis-server there is nothing to measure, and it says so.
func shared(decisions int) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		fmt.Println("\nno redis-server: shared counters are not measured")
		return
	}
	addr := free()
	server := launch(program, addr)
	defer end(server)
	ctx := context.Background()
	admin := connect(addr)
	defer admin.Close()
	ours := func(strict bool, keys int) func(int) {
		c, err := redis.New(redis.Config{URL: "redis://" + addr, Strict: strict, Prefix: "bench" + strconv.FormatBool(strict) + ":", Timeout: time.Second})
		must(err)
		go func() { _ = c.Run(ctx) }() // as long as the program
		limit, err := gcra.Compile(rlc.Limit{Rate: 1e9, Burst: 1e9})
		must(err)
		sets := make([]interface {
			Take(context.Context, int64, int64) (gcra.Tally, error)
		}, keys)
		for i := range sets {
			sets[i] = c.Set([]gcra.Charge{{Bucket: "b", Key: strconv.Itoa(i), Limit: limit}})
		}
		return func(i int) {
			_, err := sets[i%len(sets)].Take(ctx, time.Now().UnixMicro(), 1)
			must(err)
		}
	}
	peer := redis_rate.NewLimiter(admin)
	fmt.Printf("\nin Redis, 1,000 keys, 64 goroutines, %d decisions each; load average %s\n\n%-44s %12s %10s %14s %10s\n", decisions, load(), "", "Redis CPU µs", "x INCR", "decisions/s", "x INCR")
	var floorCPU, floorRate float64 // of the first
	for _, c := range []contender{
		{"INCR alone (the floor)", func() func(int) {
			return func(i int) { must(admin.Incr(ctx, "incr"+strconv.Itoa(i%1000)).Err()) }
		}},
		{"rlc: strict token bucket", func() func(int) { return ours(true, 1000) }},
		// A key is leased once a node is asked for it 200 times a second.
		{"rlc: leased token bucket, 8 keys", func() func(int) { return ours(false, 8) }},
		{"redis_rate", func() func(int) {
			limit := redis_rate.Limit{Rate: 1e6, Burst: 1e6, Period: time.Second}
			return func(i int) {
				_, err := peer.Allow(ctx, "k"+strconv.Itoa(i%1000), limit)
				must(err)
			}
		}},
	} {
		decide := c.new()
		for i := range 2000 {
			decide(i)
		}
		before, begun := spent(ctx, admin), time.Now()
		var next atomic.Int64
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for i := next.Add(1); i <= int64(decisions); i = next.Add(1) {
					decide(int(i))
				}
			})
		}
		group.Wait()
		took := time.Since(begun)
		cpu := spent(ctx, admin) - before
		each, rate := cpu*1e6/float64(decisions), float64(decisions)/took.Seconds()
		if floorRate == 0 {
			floorCPU, floorRate = each, rate
		}
		fmt.Printf("%-44s %12.2f %10.3f %14.0f %10.2f\n", c.name, each, each/floorCPU, rate, rate/floorRate)
	}
}

// free is an address on loopback that nobody listens on.
func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	addr := l.Addr().String()
	must(l.Close())
	return addr
}

// launch starts a redis-server that keeps nothing.
func launch(program, addr string) *exec.Cmd {
	_, port, err := net.SplitHostPort(addr)
	must(err)
	server := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	must(server.Start())
	return server
}

func end(server *exec.Cmd) {
	must(server.Process.Kill())
	_ = server.Wait() // killed
}

// connect waits until the server answers.
func connect(addr string) *goredis.Client {
	ctx := context.Background()
	c := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 64})
	for try := 0; c.Ping(ctx).Err() != nil; try++ {
		if try > 100 {
			must(c.Ping(ctx).Err())
		}
	}
	return c
}

// spent is Redis' own processor time, in seconds.
func spent(ctx context.Context, c *goredis.Client) float64 {
	text, err := c.Info(ctx, "cpu").Result()
	must(err)
	sum := 0.0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			n, err := strconv.ParseFloat(value, 64)
			must(err)
			sum += n
		}
	}
	if sum == 0 {
		fmt.Fprintln(os.Stderr, "bench: Redis does not tell its processor time")
		os.Exit(1)
	}
	return sum
}
