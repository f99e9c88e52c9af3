package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/follow"
	"github.com/openrlc/rlc/enforcer/grpclimit"
)

// A server that limits itself: an enforcer that follows a checkout of the
// config repository (follow.Config.Redis follows the bus instead), and its
// interceptors.
func Example() {
	dir := checkout()
	defer os.RemoveAll(dir)

	e, err := follow.Start(follow.Config{Dir: dir}, enforcer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	limiter, err := grpclimit.New(grpclimit.Config{
		Enforcer: e.Enforcer, Service: "checkout",
		CallerKey: "x-caller", PeerAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // the gateway's
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limiter.Unary), grpc.StreamInterceptor(limiter.Stream))
	server.RegisterService(&service, &echo{})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { server.Stop(); <-served }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		err := say(metadata.AppendToOutgoingContext(context.Background(), "x-caller", "search"), conn)
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// checkout stands in for a checkout of the config repository.
func checkout() string {
	dir, err := os.MkdirTemp("", "rlc-example")
	if err != nil {
		log.Fatal(err)
	}
	folder := filepath.Join(dir, "services", "checkout")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		log.Fatal(err)
	}
	policy := `apiVersion: rlc/v1
kind: ServicePolicy
service: checkout
owners: [team-payments]
defaults: {mode: enforce}
buckets:
  - {name: callers, each: [caller], limit: {rate: 0.01, burst: 2}}
`
	if err := os.WriteFile(filepath.Join(folder, "policy.yaml"), []byte(policy), 0o600); err != nil {
		log.Fatal(err)
	}
	return dir
}
