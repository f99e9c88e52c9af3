package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// Two regions below a global controller, one with two aggregators in its only
// zone. The aggregator that the enforcers prefer is killed, then a region's
// controller, then the global one: the limit of all holds.
func TestRegionsAndSeveralAggregators(t *testing.T) {
	dir := t.TempDir()
	writePolicy(t, dir, processLimit)
	global := spawn(t, 2, "controller", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--config-dir", dir, "--state", t.TempDir())
	f := &loopFleet{t: t}
	f.load.Store(processLimit)
	ctx, stop := context.WithCancel(t.Context())
	defer f.callers.Wait()
	defer stop()
	var regions, zones []*tierProcess
	for r := range 2 {
		region := fmt.Sprint("r", r)
		regions = append(regions, spawn(t, 1, "controller", "--http", "off", "--grpc", "127.0.0.1:0", "--region", region, "--parent", global.addr["grpc"]))
		var addresses []string
		for i := range 2 - r {
			args := []string{"aggregator", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--zone", "z" + region, "--region", region, "--controller", regions[r].addr["grpc"]}
			if r == 0 {
				args = append(args, "--name", fmt.Sprint("a", i))
			}
			z := spawn(t, 2, args...)
			zones, addresses = append(zones, z), append(addresses, z.addr["grpc"])
		}
		s := spawn(t, 1, "serve", "--grpc", "off", "--http", "127.0.0.1:0", "--zone", "z"+region, "--region", region, "--name", "e"+region, "--aggregator", strings.Join(addresses, ","))
		within(t, "a snapshot through every tier", func() bool { return strings.Contains(get(t, "http://"+s.addr["http"]+"/v1/config"), "0.1") })
		f.call(ctx, "http://"+s.addr["http"])
	}
	f.held("twice the limit", 0.8, 1.2)
	within(t, "acknowledgements through every tier", func() bool {
		return global.says(t, `rlc_loop_enforcers{version="0.1"} 2`)
	})

	home, other := zones[0], zones[1]
	if other.says(t, "rlc_loop_nodes 1") {
		home, other = other, home
	}
	home.kill()
	within(t, "its enforcer goes over", func() bool { return other.says(t, "rlc_loop_nodes 1") })
	f.held("an aggregator killed", 0.8, 1.2)

	regions[1].kill()
	within(t, "its zone closes the loop", func() bool { return zones[2].says(t, "rlc_loop_closed 1") })
	f.load.Store(2 * processLimit)
	f.held("a region's controller killed, twice the load", 0.75, 1.25)
	global.kill()
	f.held("the global controller killed", 0.75, 1.25)
}
