package loopwire

import (
	"context"
	"testing"
	"time"

	"github.com/openrlc/rlc/enforcer/loop"
)

// A node whose aggregator dies goes over to another of the zone, and comes home
// once the first one answers again.
func TestANodeGoesOverAndComesHome(t *testing.T) {
	_, root := startRoot(t)
	zones := map[string]*Aggregator{}
	parts := map[string]*part{}
	for _, name := range []string{"a1", "a2"} {
		a, address, p := startZone(t, root, name)
		zones[address], parts[address] = a, p
	}
	var addresses []string
	for address := range zones {
		addresses = append(addresses, address)
	}
	k, err := NewClient(ClientConfig{Addresses: addresses, Node: "n", Client: loop.NewClient(loop.ClientConfig{Node: "n"})})
	if err != nil {
		t.Fatal(err)
	}
	k.up.homeEvery = 50 * time.Millisecond
	order := spread("n", addresses)
	home, other := order[0], order[1]
	start(t, k.Run)
	eventually(t, "it is at home", func() bool { return zones[home].Stats().Members == 1 })
	name := zones[home].config.Name
	parts[home].end(t)
	eventually(t, "it goes over", func() bool { return zones[other].Stats().Members == 1 })
	again, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Name: name, Controller: root})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, home)
	start(t, func(ctx context.Context) error { return again.Serve(ctx, l) })
	eventually(t, "it comes home", func() bool { return again.Stats().Members == 1 && zones[other].Stats().Members == 0 })
}
