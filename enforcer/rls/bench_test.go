package rls_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/redis"
	"github.com/openrlc/rlc/enforcer/rls"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// TestMain lets the test binary be a server of its own, so that its processor
// time is not the clients'.
func TestMain(m *testing.M) {
	if kind := os.Getenv("RLS_BENCH_SERVER"); kind != "" {
		if err := benchServer(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// empty answers every request with nothing: what gRPC itself costs. With a
// Redis it first waits there for a script that does nothing: what no strict
// limiter on this client library can do without.
type empty struct {
	pb.UnimplementedRateLimitServiceServer
	redis rueidis.Client
}

// nothing is the hash of nothingScript.
const (
	nothingScript = "return 1"
	nothing       = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
)

func (e empty) ShouldRateLimit(ctx context.Context, _ *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if e.redis != nil {
		if err := e.redis.Do(ctx, e.redis.B().Evalsha().Sha1(nothing).Numkeys(0).Build()).Error(); err != nil {
			return nil, err
		}
	}
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
}

// emptyServer serves with nothing but gRPC, and one script call a request
// where redis is not "".
func emptyServer(ctx context.Context, l net.Listener, redis string) error {
	var e empty
	if redis != "" {
		var err error
		e.redis, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis}, AlwaysPipelining: true, PipelineMultiplex: -1, DisableCache: true})
		if err != nil {
			return err
		}
		defer e.redis.Close()
		if err := e.redis.Do(ctx, e.redis.B().ScriptLoad().Script(nothingScript).Build()).Error(); err != nil {
			return err
		}
	}
	server := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(server, e)
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(l)
}

// benchServer serves until its standard input ends; it answers each line with
// the processor time that it has taken, in nanoseconds.
func benchServer(kind string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	shared := os.Getenv("RLS_BENCH_REDIS")
	switch kind {
	case "empty":
		go func() { served <- emptyServer(ctx, l, "") }()
	case "redis nothing":
		go func() { served <- emptyServer(ctx, l, strings.TrimPrefix(shared, "redis://")) }()
	default:
		var counter enforcer.Counter
		// On a busy machine an answer may be late. What is measured is its cost.
		c := rls.Config{Headers: kind == "headers", Deadline: time.Second}
		if strings.HasPrefix(kind, "redis") {
			c, err := redis.New(redis.Config{URL: shared, Strict: kind == "redis strict", Timeout: time.Second})
			if err != nil {
				return err
			}
			defer c.Close()
			go func() { _ = c.Run(ctx) }() // ends with ctx; the process ends with it
			counter = c
		}
		e, err := enforcer.New(enforcer.Config{Counter: counter})
		if err != nil {
			return err
		}
		if err := e.Load(snapshotOf(admitting)); err != nil {
			return err
		}
		if c.Enforcer = e; kind == "in process" {
			c.Deadline = -1
		}
		s, err := rls.New(c)
		if err != nil {
			return err
		}
		go func() { served <- s.Serve(ctx, l) }()
	}
	fmt.Println(l.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	cancel()
	return <-served
}

// benched is a server in a process of its own.
type benched struct {
	in      io.WriteCloser
	out     *bufio.Reader
	clients []pb.RateLimitServiceClient
}

func launch(b *testing.B, kind, redis string) *benched {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), self)
	cmd.Env = append(os.Environ(), "RLS_BENCH_SERVER="+kind, "RLS_BENCH_REDIS="+redis)
	cmd.Stderr = os.Stderr
	s := &benched{}
	if s.in, err = cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	addr := s.line(b)
	for range 4 {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		s.clients = append(s.clients, pb.NewRateLimitServiceClient(conn))
	}
	b.Cleanup(func() {
		s.in.Close()
		_ = cmd.Wait()
	})
	return s
}

func (s *benched) line(b *testing.B) string {
	line, err := s.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// spent is the server's processor time.
func (s *benched) spent(b *testing.B) time.Duration {
	fmt.Fprintln(s.in)
	var ns int64
	if _, err := fmt.Sscan(s.line(b), &ns); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}

// load sends n requests from 64 callers and returns the processor time of each.
func (s *benched) load(b *testing.B, n int64) time.Duration {
	before := s.spent(b)
	var sent atomic.Int64
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			in := &pb.RateLimitRequest{Domain: "s", Descriptors: []*common.RateLimitDescriptor{describe("caller", fmt.Sprint("caller", i%8))}}
			for sent.Add(1) <= n {
				if _, err := s.clients[i%len(s.clients)].ShouldRateLimit(b.Context(), in); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	return (s.spent(b) - before) / time.Duration(n)
}

// asked is what a Redis has been asked to run so far, and the processor time
// that it has used.
func asked(b *testing.B, server *redistest.Server) (calls float64, cpu time.Duration) {
	for _, line := range strings.Fields(server.Do("INFO", "everything")[0]) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			cpu += time.Duration(seconds * float64(time.Second))
		case "cmdstat_evalsha", "cmdstat_eval":
			count, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseFloat(count, 64)
			if err != nil {
				b.Fatal(err)
			}
			calls += n
		}
	}
	return calls, cpu
}

// BenchmarkServer measures the processor time of one request, of the whole
// server process, against an empty gRPC server: medians of five alternating
// passes. Beside it stands what Redis was asked and spent for each request. It
// takes no notice of b.N.
func BenchmarkServer(b *testing.B) {
	const passes, requests = 5, 10_000
	kinds := []string{"empty", "in process", "deadline", "headers", "redis leased", "redis nothing", "redis strict"}
	shared := redistest.Start(b)
	servers, took := map[string]*benched{}, map[string][]time.Duration{}
	calls, spent := map[string]float64{}, map[string]time.Duration{}
	for _, k := range kinds {
		servers[k] = launch(b, k, shared.URL())
		servers[k].load(b, requests/4) // connections, pools and caches are warm
	}
	for range passes {
		for _, k := range kinds {
			n, cpu := asked(b, shared)
			took[k] = append(took[k], servers[k].load(b, requests))
			m, now := asked(b, shared)
			calls[k], spent[k] = calls[k]+m-n, spent[k]+now-cpu
		}
	}
	median := func(k string) float64 {
		slices.Sort(took[k])
		return float64(took[k][passes/2].Nanoseconds()) / 1000
	}
	for _, k := range kinds {
		unit := strings.ReplaceAll(k, " ", "-")
		b.ReportMetric(median(k), unit+"-µs/request")
		b.ReportMetric(median(k)/median("empty"), unit+"-ratio")
		if strings.HasPrefix(k, "redis") {
			b.ReportMetric(calls[k]/(passes*requests), unit+"-calls/request")
			b.ReportMetric(float64(spent[k].Microseconds())/(passes*requests), unit+"-redis-µs/request")
		}
	}
	b.ReportMetric(0, "ns/op")
}
