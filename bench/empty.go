package main

import (
	"context"
	"net"
	"os"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
)

// With emptyAt in its environment the program is a gRPC server that answers
// nothing but OK, there; with emptyRedis it first waits there for a script that
// does nothing: what no limiter that asks Redis each time can do without.
const (
	emptyAt    = "RLC_BENCH_EMPTY"
	emptyRedis = "RLC_BENCH_EMPTY_REDIS"
)

type empty struct {
	pb.UnimplementedRateLimitServiceServer
	redis rueidis.Client // nil: none
	hash  string         // of the script
}

func (e empty) ShouldRateLimit(ctx context.Context, _ *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if e.redis != nil {
		if err := e.redis.Do(ctx, e.redis.B().Evalsha().Sha1(e.hash).Numkeys(0).Build()).Error(); err != nil {
			return nil, err
		}
	}
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
}

// serveEmpty serves until the process is killed.
func serveEmpty(at string) {
	var e empty
	if addr := os.Getenv(emptyRedis); addr != "" {
		var err error
		e.redis, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, AlwaysPipelining: true, PipelineMultiplex: -1, DisableCache: true})
		must(err)
		e.hash, err = e.redis.Do(context.Background(), e.redis.B().ScriptLoad().Script("return 1").Build()).ToString()
		must(err)
	}
	l, err := net.Listen("tcp", at)
	must(err)
	server := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(server, e)
	must(server.Serve(l))
}
