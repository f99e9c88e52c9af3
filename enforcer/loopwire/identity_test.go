package loopwire

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/openrlc/rlc/enforcer/loop"
)

// Who shows another certificate cannot take the place of an aggregator, nor be
// kept out by who took its name: it is a source of its own, under its own name.
func TestNoAggregatorSpeaksForAnothers(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	tlsFor := authority(t)
	c, err := NewController(ControllerConfig{Limits: func(string, loop.Place) (loop.Setting, bool) { return loop.Setting{}, false }, TLS: tlsFor("controller")})
	if err != nil {
		t.Fatal(err)
	}
	lc := listen(t, "127.0.0.1:0")
	parts := []*part{start(t, func(ctx context.Context) error { return c.Serve(ctx, lc) })}
	var aggs []*Aggregator
	for _, cert := range []string{"spiffe://mesh/zone", "service"} {
		a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Name: "a", Controller: lc.Addr().String(), TLS: tlsFor(cert), DialTLS: tlsFor(cert)})
		if err != nil {
			t.Fatal(err)
		}
		l := listen(t, "127.0.0.1:0")
		parts = append(parts, start(t, func(ctx context.Context) error { return a.Serve(ctx, l) }))
		aggs = append(aggs, a)
	}
	known := func() map[string]bool {
		out := map[string]bool{}
		_, zones := c.State()
		for _, z := range zones {
			out[z.Zone+" "+z.Known()] = true
		}
		return out
	}
	eventually(t, "both are known under their certificates' names", func() bool {
		k := known()
		return len(k) == 2 && k["z spiffe://mesh/zone/a"] && k["z service/a"]
	})
	if s := c.Stats(); s.Doubles != 0 || aggs[0].Ready() != nil {
		t.Errorf("%d refused as doubles, the first one %v", s.Doubles, aggs[0].Ready())
	}
	for i := range parts {
		parts[len(parts)-1-i].end(t)
	}
}

// An enforcer that says it runs in another zone is told so, and counted nowhere.
func TestAnEnforcerOfAnotherZoneIsRefused(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z", Region: "r"}, Controller: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	zone := start(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
	join := func(name string, at loop.Place) (*Client, *part) {
		k, err := NewClient(ClientConfig{Addresses: []string{l.Addr().String()}, Node: name, Place: at, Client: loop.NewClient(loop.ClientConfig{Node: name})})
		if err != nil {
			t.Fatal(err)
		}
		return k, start(t, k.Run)
	}
	_, silent := join("silent", loop.Place{})
	_, same := join("same", loop.Place{Zone: "z", Region: "r"})
	eventually(t, "those that may have joined", func() bool { return a.Stats().Members == 2 })
	for _, at := range []loop.Place{{Zone: "y", Region: "r"}, {Zone: "z", Region: "q"}} {
		before := a.Stats().Foreigners
		k, p := join("foreign", at)
		eventually(t, "it is refused", func() bool { return a.Stats().Foreigners > before && k.Stats().Refused != "" })
		if s := k.Stats(); s.Connected || !strings.Contains(s.Refused, `of zone "`+at.Zone+`"`) || !strings.Contains(s.Refused, "--zone") {
			t.Errorf("%+v, want a refusal that names the zone and what to change", s)
		}
		p.end(t)
	}
	if n := a.Stats().Members; n != 2 {
		t.Errorf("%d members, want 2", n)
	}
	for _, p := range []*part{silent, same, zone} {
		p.end(t)
	}
}
