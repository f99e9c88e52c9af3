package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// What each daemon is asked by how many.
const (
	daemonCallers = 64
	daemonConns   = 4
	daemonKeys    = 8
)

// The peers, each built from its own module with the versions that it pins.
const (
	ratelimitModule  = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"
	gubernatorModule = "github.com/gubernator-io/gubernator/v2/cmd/gubernator@v2.13.0"
)

// daemon is one way to answer a proxy over gRPC, in a process of its own.
type daemon struct {
	name    string
	program string // "" where it could not be built
	args    []string
	env     []string
	grpc    string // where it listens
	method  string
	ask     func(key int) []byte // a request, encoded

	process *exec.Cmd
	conns   []*grpc.ClientConn
	cost    []float64 // CPU µs a request, each round
	redis   float64   // CPU µs that Redis spent, all rounds
	scripts float64   // calls that Redis ran, all rounds
}

// daemons measures servers: the processor time of the whole process a request,
// beside a gRPC server that does nothing, and what Redis spends and is asked
// for it.
func daemons(requests int, peers bool) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		fmt.Println("\nno redis-server: daemons are not measured")
		return
	}
	addr := free()
	server := launch(program, addr)
	defer end(server)
	admin := connect(addr)
	defer admin.Close()
	dir, err := os.MkdirTemp("", "rlc-bench-")
	must(err)
	defer os.RemoveAll(dir)

	fmt.Printf("\ndaemons, %d callers on %d connections, %d keys, median of %d rounds of %d requests; load average %s\n\n", daemonCallers, daemonConns, daemonKeys, rounds, requests, load())
	var all []*daemon
	for _, d := range lineUp(dir, addr, peers) {
		if d.program == "" {
			continue
		}
		if err := d.start(); err != nil {
			fmt.Printf("%s does not answer: %v\n", d.name, err)
			continue
		}
		defer d.stop()
		d.load(requests / 4) // connections, pools and caches are warm
		all = append(all, d)
	}
	for range rounds {
		for _, d := range all {
			ran, spentBefore, own := scripts(admin), spent(context.Background(), admin), d.spent()
			d.load(requests)
			d.cost = append(d.cost, (d.spent()-own)*1e6/float64(requests))
			d.redis += (spent(context.Background(), admin) - spentBefore) * 1e6 / float64(requests*rounds)
			d.scripts += (scripts(admin) - ran) / float64(requests*rounds)
		}
	}
	fmt.Printf("%-44s %10s %8s %14s %12s\n", "", "CPU µs", "× empty", "Redis CPU µs", "Redis calls")
	for _, d := range all {
		slices.Sort(d.cost)
		fmt.Printf("%-44s %10.1f %8.2f %14.1f %12.2f\n", d.name, d.cost[rounds/2], d.cost[rounds/2]/all[0].cost[rounds/2], d.redis, d.scripts)
	}
}

// lineUp is what is measured, the empty server first.
func lineUp(dir, redis string, peers bool) []*daemon {
	self, err := os.Executable()
	must(err)
	enforcer := build(dir, "enforcer", "build", "-C", "..", "-o", filepath.Join(dir, "enforcer"), "./cmd/enforcer")
	config := write(dir, "config/services/s/policy.yaml", "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: s\nbuckets:\n  - {name: callers, each: [caller], mode: enforce, limit: {rate: 1000000000, burst: 1000000000}}\n")
	config = filepath.Dir(filepath.Dir(filepath.Dir(config)))
	ours := func(name string, more ...string) *daemon {
		at := free()
		return &daemon{name: name, program: enforcer, args: append([]string{"serve", "--config-dir", config, "--http", "off", "--grpc", at}, more...), grpc: at}
	}
	none := func(name, redis string) *daemon {
		at := free()
		return &daemon{name: name, program: self, env: []string{emptyAt + "=" + at, emptyRedis + "=" + redis}, grpc: at}
	}
	// On a busy machine an answer of Redis may be late. What is measured is its
	// cost, so that nothing may fall back.
	out := []*daemon{
		none("an empty gRPC server", ""),
		none("the same, one script in Redis that does nothing", redis),
		ours("rlc: enforcer, counters in process"),
		ours("rlc: enforcer, Redis, leased", "--redis", "redis://"+redis, "--redis-timeout", "1s", "--redis-prefix", "leased:"),
		ours("rlc: enforcer, Redis, strict", "--redis", "redis://"+redis, "--redis-timeout", "1s", "--redis-prefix", "strict:", "--strict"),
	}
	if peers {
		out = append(out, envoyRatelimit(dir, redis), gubernator(dir))
	}
	for _, d := range out {
		if d.method == "" {
			d.method, d.ask = pb.RateLimitService_ShouldRateLimit_FullMethodName, shouldRateLimit
		}
	}
	return out
}

// build makes a program, "" where that does not work here.
func build(dir, program string, args ...string) string {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Printf("%s is not measured: it cannot be built here: %v\n%s\n", program, err, last(string(out), 300))
		return ""
	}
	return filepath.Join(dir, program)
}

func last(s string, n int) string { return s[max(len(s)-n, 0):] }

func write(dir, name, text string) string {
	path := filepath.Join(dir, name)
	must(os.MkdirAll(filepath.Dir(path), 0o755))
	must(os.WriteFile(path, []byte(text), 0o644))
	return path
}

// envoyRatelimit is Envoy's own service, with the same Redis.
func envoyRatelimit(dir, redis string) *daemon {
	write(dir, "runtime/ratelimit/config/s.yaml", "domain: s\ndescriptors:\n  - key: caller\n    rate_limit: {unit: second, requests_per_unit: 1000000000}\n")
	grpc, http, debug := free(), free(), free()
	port := func(addr string) string {
		_, p, err := net.SplitHostPort(addr)
		must(err)
		return p
	}
	return &daemon{
		name: "envoyproxy/ratelimit, Redis", program: build(dir, "service_cmd", "install", ratelimitModule), grpc: grpc,
		env: []string{
			"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "PORT=" + port(http), "GRPC_PORT=" + port(grpc), "DEBUG_PORT=" + port(debug),
			"USE_STATSD=false", "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
			"RUNTIME_ROOT=" + filepath.Join(dir, "runtime"), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		},
	}
}

// gubernator keeps its counters in its own memory. It has a protocol of its
// own: a name, a key, one hit, a limit and a second in milliseconds.
func gubernator(dir string) *daemon {
	at := free()
	return &daemon{
		name: "gubernator, counters in process", program: build(dir, "gubernator", "install", gubernatorModule), grpc: at,
		env:    []string{"GUBER_GRPC_ADDRESS=" + at, "GUBER_HTTP_ADDRESS=" + free(), "GUBER_PEER_DISCOVERY_TYPE=none", "GUBER_LOG_LEVEL=error"},
		method: "/pb.gubernator.V1/GetRateLimits",
		ask: func(key int) []byte {
			var one []byte
			for i, s := range []string{"callers", "caller-" + strconv.Itoa(key)} {
				one = protowire.AppendString(protowire.AppendTag(one, protowire.Number(1+i), protowire.BytesType), s)
			}
			for i, n := range []uint64{1, 1e9, 1000} {
				one = protowire.AppendVarint(protowire.AppendTag(one, protowire.Number(3+i), protowire.VarintType), n)
			}
			return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), one)
		},
	}
}

func shouldRateLimit(key int) []byte {
	b, err := proto.Marshal(&pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "caller", Value: "caller-" + strconv.Itoa(key)}},
	}}})
	must(err)
	return b
}

// raw sends and takes messages as they are: what is measured is the server.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

// start runs the daemon and waits until it answers.
func (d *daemon) start() error {
	d.process = exec.Command(d.program, d.args...)
	d.process.Env = append(os.Environ(), d.env...)
	if err := d.process.Start(); err != nil {
		return err
	}
	for range daemonConns {
		conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.WaitForReady(true)))
		must(err)
		d.conns = append(d.conns, conn)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range d.conns {
		in, out := d.ask(0), []byte{}
		if err := c.Invoke(ctx, d.method, &in, &out); err != nil {
			d.stop()
			return err
		}
	}
	return nil
}

func (d *daemon) stop() {
	for _, c := range d.conns {
		must(c.Close())
	}
	must(d.process.Process.Kill())
	_ = d.process.Wait() // killed
}

// load sends so many requests. Every one has to be admitted.
func (d *daemon) load(requests int) {
	var sent atomic.Int64
	var callers sync.WaitGroup
	for i := range daemonCallers {
		callers.Go(func() {
			in := d.ask(i % daemonKeys)
			for sent.Add(1) <= int64(requests) {
				var out []byte
				must(d.conns[i%daemonConns].Invoke(context.Background(), d.method, &in, &out))
				if d.method == pb.RateLimitService_ShouldRateLimit_FullMethodName {
					var r pb.RateLimitResponse
					if must(proto.Unmarshal(out, &r)); r.OverallCode != pb.RateLimitResponse_OK {
						must(errors.New(d.name + " refuses"))
					}
				}
			}
		})
	}
	callers.Wait()
}

// spent is the processor time of the daemon's threads, in seconds.
func (d *daemon) spent() float64 {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", d.process.Process.Pid))
	must(err)
	sum := 0.0
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		must(err)
		ns, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
		must(err)
		sum += ns / 1e9
	}
	return sum
}

// scripts is how many commands that decide Redis has run so far: scripts, and
// the INCRBY of Envoy's service.
func scripts(c *goredis.Client) (n float64) {
	text, err := c.Info(context.Background(), "commandstats").Result()
	must(err)
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if name == "evalsha" || name == "eval" || name == "incrby" {
			count, _, _ := strings.Cut(rest, ",")
			calls, err := strconv.ParseFloat(count, 64)
			must(err)
			n += calls
		}
	}
	return n
}
