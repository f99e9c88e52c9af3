package demo

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/loopwire"
	"github.com/openrlc/rlc/internal/app"
)

// ratios is the whole drop-ratio loop on loopback: what would be a process of
// each tier in production is a listener here, with gRPC between them.
type ratios struct {
	client     *loopwire.Client
	aggregator *loopwire.Aggregator
	controller *loopwire.Controller
	zones      net.Listener // of the controller
	nodes      net.Listener // of the aggregator
}

// openRatios joins the app's enforcer, whose hot path asks c, to a loop of its
// own, which the pages of the app show. Nothing runs yet.
func openRatios(a *app.App, c *loop.Client, log *slog.Logger) (_ *ratios, err error) {
	r := &ratios{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.zones, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen for the loop's controller: %w", err)
	}
	if r.nodes, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen for the loop's aggregator: %w", err)
	}
	if r.controller, err = loopwire.NewController(loopwire.ControllerConfig{Limits: a.Enforcer.LoopLimit, Zones: []string{zone}, Log: log}); err != nil {
		return nil, fmt.Errorf("the loop's controller: %w", err)
	}
	if r.aggregator, err = loopwire.NewAggregator(loopwire.AggregatorConfig{Place: loop.Place{Zone: zone}, Controller: r.zones.Addr().String(), Log: log}); err != nil {
		return nil, fmt.Errorf("the loop's aggregator: %w", err)
	}
	if r.client, err = loopwire.NewClient(loopwire.ClientConfig{Addresses: []string{r.nodes.Addr().String()}, Node: node, Client: c, Log: log}); err != nil {
		return nil, fmt.Errorf("join the loop: %w", err)
	}
	a.ShowLoop(r.controller, r.aggregator)
	return r, nil
}

// The names that the demo's only zone and its only enforcer have in the loop.
const (
	zone = "demo"
	node = "embedded"
)

// run carries the three tiers until ctx ends.
func (r *ratios) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.controller.Serve(ctx, r.zones) })
	g.Go(func() error { return r.aggregator.Serve(ctx, r.nodes) })
	g.Go(func() error { return r.client.Run(ctx) })
	return g.Wait()
}

// Close releases the listeners. It may be called on a half-built value.
func (r *ratios) Close() {
	for _, l := range []net.Listener{r.zones, r.nodes} {
		if l != nil {
			_ = l.Close() // run has closed it, as a rule
		}
	}
}
