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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

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

// empty answers every request with nothing: what gRPC itself costs.
type empty struct {
	pb.UnimplementedRateLimitServiceServer
}

func (empty) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
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
	if kind == "empty" {
		server := grpc.NewServer()
		pb.RegisterRateLimitServiceServer(server, empty{})
		go func() { served <- server.Serve(l) }()
		context.AfterFunc(ctx, server.Stop)
	} else {
		var counter enforcer.Counter
		if strings.HasPrefix(kind, "redis") {
			c, err := redis.New(redis.Config{URL: os.Getenv("RLS_BENCH_REDIS"), Strict: kind == "redis strict"})
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
		c := rls.Config{Enforcer: e, Headers: kind == "headers"}
		if kind == "in process" {
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
	late    atomic.Int64
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
			in := &pb.RateLimitRequest{Domain: "s", Descriptors: oneRequest.Descriptors}
			for sent.Add(1) <= n {
				switch _, err := s.clients[i%len(s.clients)].ShouldRateLimit(b.Context(), in); status.Code(err) {
				case codes.OK:
				case codes.Unavailable: // not in time: clients and servers share the machine
					s.late.Add(1)
				default:
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	return (s.spent(b) - before) / time.Duration(n)
}

// BenchmarkServer measures the processor time of one request, of the whole
// server process, against an empty gRPC server: medians of five alternating
// passes. It takes no notice of b.N.
func BenchmarkServer(b *testing.B) {
	const passes, requests = 5, 10_000
	kinds := []string{"empty", "in process", "deadline", "headers", "redis leased", "redis strict"}
	shared := redistest.Start(b)
	servers, took := map[string]*benched{}, map[string][]time.Duration{}
	for _, k := range kinds {
		servers[k] = launch(b, k, shared.URL())
		servers[k].load(b, requests/4) // connections, pools and caches are warm
	}
	for range passes {
		for _, k := range kinds {
			took[k] = append(took[k], servers[k].load(b, requests))
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
	}
	b.ReportMetric(float64(servers["deadline"].late.Load()), "deadline-late")
	b.ReportMetric(0, "ns/op")
}
