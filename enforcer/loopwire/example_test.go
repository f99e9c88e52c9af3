package loopwire_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/loopwire"
)

// A service that decides by itself: its limits, and what to drop of its requests,
// come from the zone's aggregator, without a store or a daemon beside it.
func ExampleNewClient() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	aggregator := exampleTiers(ctx, &running)

	counts := loop.NewClient(loop.ClientConfig{Node: "checkout-1"})
	e, err := enforcer.New(enforcer.Config{Name: "checkout-1", Loop: counts})
	if err != nil {
		fmt.Println(err)
		return
	}
	loaded := make(chan error, 10)
	joined, err := loopwire.NewClient(loopwire.ClientConfig{
		Addresses:  []string{aggregator},
		Node:       "checkout-1",
		Place:      loop.Place{Zone: "eu-1a"},
		Client:     counts,
		OnDocument: func(d loopwire.Document) { loaded <- d.Load(e) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	running.Go(func() { _ = e.Run(ctx) })
	running.Go(func() { _ = joined.Run(ctx) })

	fmt.Println("loaded:", <-loaded, e.Version())
	d := e.Decide(enforcer.Request{Service: "checkout", Caller: "web"})
	fmt.Println(d.Outcome, d.Bucket, d.Limit.Rate)
	// Output:
	// loaded: <nil> 0.1
	// admit callers 1000
}

// exampleTiers is what runs elsewhere: enforcer controller and enforcer aggregator.
func exampleTiers(ctx context.Context, running *sync.WaitGroup) (aggregator string) {
	limits := func(string, loop.Place) (loop.Setting, bool) { return loop.Setting{Rate: 1000}, true }
	control, err := loopwire.NewController(loopwire.ControllerConfig{Limits: limits})
	if err != nil {
		panic(err)
	}
	policy := "apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: checkout\nbuckets:\n" +
		"  - {name: callers, each: [caller], mode: enforce, algorithm: drop_ratio, limit: {rate: 1000, burst: 1000}}\n"
	snapshot, err := json.Marshal(rlc.Snapshot{Version: rlc.Version{Number: 1}, Commit: "example", Files: rlc.Files{"services/checkout/policy.yaml": []byte(policy)}})
	if err != nil {
		panic(err)
	}
	control.Publish(loopwire.Document{Kind: loopwire.Snapshot, Version: rlc.Version{Number: 1}, Content: snapshot})
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		return l
	}
	above, below := listen(), listen()
	zone, err := loopwire.NewAggregator(loopwire.AggregatorConfig{Place: loop.Place{Zone: "eu-1a"}, Controller: above.Addr().String()})
	if err != nil {
		panic(err)
	}
	running.Go(func() { _ = control.Serve(ctx, above) })
	running.Go(func() { _ = zone.Serve(ctx, below) })
	return below.Addr().String()
}
