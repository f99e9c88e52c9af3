package loopwire

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// eventually asks every 20 ms until it is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	limit := time.NewTimer(90 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not within 90 s: %s", what)
		}
	}
}

// part is something that runs until it is stopped.
type part struct {
	stop context.CancelFunc
	done chan error
}

func start(t testing.TB, run func(context.Context) error) *part {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{cancel, make(chan error, 1)}
	go func() { p.done <- run(ctx) }()
	t.Cleanup(func() { p.end(t) })
	return p
}

func (p *part) end(t testing.TB) {
	if p.stop == nil {
		return
	}
	p.stop()
	p.stop = nil
	if err := <-p.done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

const limit = 1200.0 // requests/s

// fleet is three zones of four nodes on loopback.
type fleet struct {
	t        *testing.T
	control  *Controller
	ctlPart  *part
	ctlAddr  string
	zones    []*Aggregator
	zonePart []*part
	proxies  []*toxiproxy.Proxy // between zone and controller
	addrs    []string
	clients  []*Client
	nodes    []*part
	load     atomic.Int64 // requests/s of the fleet
	admitted atomic.Int64
	offered  atomic.Int64
}

const perZone = 4

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t}
	f.load.Store(int64(3 * limit))
	f.startController("127.0.0.1:0")
	for z := range 3 {
		proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "zone", "127.0.0.1:0", f.ctlAddr)
		if err := proxy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Stop)
		f.proxies = append(f.proxies, proxy)
		f.zones, f.zonePart, f.addrs = append(f.zones, nil), append(f.zonePart, nil), append(f.addrs, "127.0.0.1:0")
		f.startZone(z)
		for n := range perZone {
			f.startNode(z, n)
		}
	}
	return f
}

func (f *fleet) startController(address string) {
	c, err := NewController(ControllerConfig{Zones: []string{"z0", "z1", "z2"}, Limits: func(b string, _ loop.Place) (loop.Setting, bool) {
		return loop.Setting{Rate: limit}, b == "a"
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	l := listen(f.t, address)
	f.control, f.ctlAddr = c, l.Addr().String()
	f.ctlPart = start(f.t, func(ctx context.Context) error { return c.Serve(ctx, l) })
}

func (f *fleet) startZone(z int) {
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z" + strconv.Itoa(z), Region: "r"}, Controller: f.proxies[z].Listen})
	if err != nil {
		f.t.Fatal(err)
	}
	l := listen(f.t, f.addrs[z])
	f.zones[z], f.addrs[z] = a, l.Addr().String()
	f.zonePart[z] = start(f.t, func(ctx context.Context) error { return a.Serve(ctx, l) })
}

// startNode joins a node that offers its part of the load, in requests that
// are spread evenly over time.
func (f *fleet) startNode(z, n int) {
	lc := loop.NewClient(loop.ClientConfig{Node: fmt.Sprint(z, ".", n)})
	c, err := NewClient(ClientConfig{Addresses: []string{f.addrs[z]}, Node: fmt.Sprint(z, ".", n), Client: lc})
	if err != nil {
		f.t.Fatal(err)
	}
	f.clients = append(f.clients, c)
	f.nodes = append(f.nodes, start(f.t, func(ctx context.Context) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			h := lc.Handle(loop.Path{"a"})
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			last, owed := time.Now(), 0.0
			for {
				select {
				case <-ctx.Done():
					return
				case now := <-tick.C:
					owed += now.Sub(last).Seconds() * float64(f.load.Load()) / (3 * perZone)
					last = now
				}
				for ; owed >= 1; owed-- {
					f.offered.Add(1)
					if h.Offer(loop.Normal) {
						f.admitted.Add(1)
					}
				}
			}
		})
		return c.Run(ctx)
	}))
}

// second measures a second: the rates offered and admitted.
func (f *fleet) second() (offered, admitted float64) {
	from, o, a := time.Now(), f.offered.Load(), f.admitted.Load()
	<-time.After(time.Second)
	span := time.Since(from).Seconds()
	return float64(f.offered.Load()-o) / span, float64(f.admitted.Load()-a) / span
}

// held waits until two seconds running are within 15 % of the limit. What a
// busy test machine does to clocks is more than what the law does; its figures
// are the simulator's.
func (f *fleet) held(what string) {
	f.t.Helper()
	good, worst := 0, ""
	for range 20 {
		o, a := f.second()
		if a > 0.85*limit && a < 1.15*limit {
			if good++; good == 2 {
				return
			}
			continue
		}
		good, worst = 0, fmt.Sprintf("offered %.0f/s, admitted %.0f/s", o, a)
	}
	f.t.Fatalf("%s: the limit of %.0f/s does not hold: %s", what, limit, worst)
}

func TestThreeZonesOnRealStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	// The proxies between the tiers leave goroutines of their own.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"))
	f := newFleet(t)
	defer func() {
		for _, p := range append(append(f.nodes, f.zonePart...), f.ctlPart) {
			p.end(t)
		}
		for _, p := range f.proxies {
			p.Stop()
		}
	}()
	f.held("at three times the limit")

	// The controller dies and the load doubles: each zone closes the loop.
	f.ctlPart.end(t)
	eventually(t, "the zones notice", func() bool {
		for _, z := range f.zones {
			if !z.Stats().Closed {
				return false
			}
		}
		return true
	})
	f.load.Store(int64(6 * limit))
	f.held("controller dead, load doubled")
	f.startController(f.ctlAddr)
	eventually(t, "the zones hear it again", func() bool {
		for _, z := range f.zones {
			if z.Stats().Closed {
				return false
			}
		}
		return f.control.Stats().Connected == 3
	})
	f.held("controller back")

	// A zone is cut off; the others go on, and together they stay at the limit.
	f.proxies[0].Stop()
	eventually(t, "zone 0 is alone", func() bool { return f.zones[0].Stats().Closed })
	f.held("zone 0 cut off")
	if err := f.proxies[0].Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "zone 0 is back", func() bool { return !f.zones[0].Stats().Closed })
	f.held("zone 0 back")

	// An aggregator dies and comes back: its nodes join again by themselves.
	f.zonePart[1].end(t)
	f.load.Store(int64(3 * limit))
	eventually(t, "its nodes are alone", func() bool { return !f.clients[perZone].Stats().Connected })
	f.startZone(1)
	eventually(t, "its nodes join again", func() bool { return f.zones[1].Stats().Members == perZone })
	f.held("aggregator back")

	// Two nodes of every zone leave; the rest may have all of it.
	for i, n := range f.nodes {
		if i%perZone < 2 {
			n.end(t)
		}
	}
	eventually(t, "the leavers are gone", func() bool { return f.zones[0].Stats().Members == 2 })
	f.held("half of the nodes gone")
}

// authority makes TLS for both ends of certificates by name.
func authority(t *testing.T) func(name string) *tls.Config {
	ca := mtlstest.New(t)
	return func(name string) *tls.Config {
		cert, key := ca.Issue(t, name, time.Now().Add(time.Hour))
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: ca.Pool(), ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "127.0.0.1"}
	}
}

// heard is a controller without limits, which wants certificates, and the
// acknowledgements that come to it.
func heard(t *testing.T, tlsFor func(string) *tls.Config) (c *Controller, l net.Listener, p *part, acks chan string) {
	t.Helper()
	acks = make(chan string, 10)
	c, err := NewController(ControllerConfig{Limits: func(string, loop.Place) (loop.Setting, bool) { return loop.Setting{}, false },
		TLS: tlsFor("controller"), OnAck: func(json []byte) { acks <- string(json) }})
	if err != nil {
		t.Fatal(err)
	}
	l = listen(t, "127.0.0.1:0")
	return c, l, start(t, func(ctx context.Context) error { return c.Serve(ctx, l) }), acks
}

func TestDocumentsReachEveryNodeAndAcknowledgementsComeBack(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	tlsFor := authority(t)
	c, lc, control, acks := heard(t, tlsFor)
	content := make([]byte, 3*pieceSize)
	c.Publish(Document{Kind: Snapshot, Version: rlc.Version{Number: 1}, Content: content})

	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Controller: lc.Addr().String(), TLS: tlsFor("zone"), DialTLS: tlsFor("zone")})
	if err != nil {
		t.Fatal(err)
	}
	la := listen(t, "127.0.0.1:0")
	zone := start(t, func(ctx context.Context) error { return a.Serve(ctx, la) })

	docs := make(chan Document, 10)
	k, err := NewClient(ClientConfig{Addresses: []string{la.Addr().String()}, Node: "n", Client: loop.NewClient(loop.ClientConfig{Node: "n"}), TLS: tlsFor("node"),
		OnDocument: func(d Document) { docs <- d }})
	if err != nil {
		t.Fatal(err)
	}
	node := start(t, k.Run)
	if d := <-docs; d.Kind != Snapshot || d.Version.Number != 1 || len(d.Content) != len(content) {
		t.Errorf("got kind %d, version %v, %d bytes", d.Kind, d.Version, len(d.Content))
	}
	c.Publish(Document{Kind: Overrides, Version: rlc.Version{Number: 7}, Content: []byte("{}")})
	c.Publish(Document{Kind: Overrides, Version: rlc.Version{Number: 6}, Content: []byte("old")})
	if d := <-docs; d.Kind != Overrides || string(d.Content) != "{}" {
		t.Errorf("got %+v", d)
	}
	k.Ack([]byte(`{"enforcer":"n"}`))
	if ack := <-acks; !strings.HasPrefix(ack, `{"enforcer":"node/n",`) {
		t.Errorf("acknowledged %s, want it under the certificate's name", ack)
	}
	k.Ack([]byte(`{"enforcer":"node/n"}`))
	if ack := <-acks; ack != `{"enforcer":"node/n"}` {
		t.Errorf("acknowledged %s", ack)
	}
	// Somebody without a certificate is not let in.
	stranger, err := NewClient(ClientConfig{Addresses: []string{la.Addr().String()}, Node: "n", Client: loop.NewClient(loop.ClientConfig{Node: "n"})})
	if err != nil {
		t.Fatal(err)
	}
	outside := start(t, stranger.Run)
	eventually(t, "a leaving zone frees its place", func() bool { return a.Stats().Members == 1 })
	if stranger.Stats().Connected {
		t.Error("a node without a certificate has joined")
	}
	for _, p := range []*part{outside, node, zone} {
		p.end(t)
	}
	if _, zones := c.State(); len(zones) != 0 {
		t.Errorf("zones %v after the last one left", zones)
	}
	control.end(t)
}

// A reader that does not read costs a bounded queue, and others nothing.
func TestASlowReaderLosesTheOldest(t *testing.T) {
	d := newDownstream(nil, newNumbers())
	dropped := uint64(0)
	for i := range 10_000 {
		f, err := d.encode(loop.Directives{Epoch: 1, Seq: uint64(i + 1)}, false)
		if err != nil {
			t.Fatal(err)
		}
		dropped += d.push(f)
	}
	var first pb.Down
	if err := proto.Unmarshal(d.frames[0].data, &first); err != nil {
		t.Fatal(err)
	}
	if dropped != 10_000-downQueue || first.Directives.Seq != 10_000-downQueue+1 || cap(d.frames) > 4*downQueue {
		t.Errorf("%d dropped, the oldest left is %v, room for %d", dropped, &first, cap(d.frames))
	}
}
