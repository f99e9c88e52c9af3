package loopwire

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/openrlc/rlc/enforcer/loop"
)

// A certificate that names a zone is good for that zone alone, whatever its owner
// says, and so are the acknowledgements that come with it.
func TestAnEnforcersCertificateBindsItToItsZone(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	tlsFor := authority(t)
	_, lc, control, acks := heard(t, tlsFor)
	var log logged
	const own = "spiffe://mesh/region/r/zone/z"
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z", Region: "r"}, Controller: lc.Addr().String(),
		TLS: tlsFor("zone"), DialTLS: tlsFor(own), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	zone := start(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
	join := func(cert string) (*Client, *part) {
		k, err := NewClient(ClientConfig{Addresses: []string{l.Addr().String()}, Node: "n", Place: loop.Place{Zone: "z", Region: "r"},
			Client: loop.NewClient(loop.ClientConfig{Node: "n"}), TLS: tlsFor(cert)})
		if err != nil {
			t.Fatal(err)
		}
		return k, start(t, k.Run)
	}
	for _, cert := range []string{"spiffe://mesh/region/r/zone/y/sa/shop", "spiffe://mesh/region/q/sa/shop"} {
		before := a.Stats().Foreigners
		k, p := join(cert)
		eventually(t, "it is refused", func() bool { return k.Stats().Refused != "" })
		if s := k.Stats(); s.Connected || !strings.Contains(s.Refused, cert) || a.Stats().Foreigners == before {
			t.Errorf("%s: %+v, want a refusal that names the certificate, and %d more than %d counted", cert, s, a.Stats().Foreigners, before)
		}
		p.end(t)
	}
	if n := strings.Count(log.String(), "certificate is for another zone"); n != 1 {
		t.Errorf("told %d times within a minute, want once:\n%s", n, log.String())
	}

	k, same := join(own + "/sa/shop")
	_, unbound := join("somebody")
	eventually(t, "those of the zone, and of none, join", func() bool { return a.Stats().Members == 2 })
	before := a.Stats().Foreigners
	k.Ack([]byte(`{"enforcer":"n","zone":"y"}`))
	eventually(t, "what it says of another zone is refused", func() bool { return a.Stats().Foreigners == before+1 })
	k.Ack([]byte(`{"enforcer":"n","zone":"z"}`))
	if ack := <-acks; !strings.Contains(ack, `"zone":"z"`) || !strings.Contains(ack, own+"/sa/shop/n") {
		t.Errorf("%s came through, want that of its zone", ack)
	}
	for _, p := range []*part{unbound, same, zone, control} {
		p.end(t)
	}
}

// Who attends the controller speaks for the zone and the region of its certificate,
// where that names them.
func TestASourceSpeaksForThePlaceOfItsCertificate(t *testing.T) {
	running := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, running) })
	tlsFor := authority(t)
	c, lc, control, acks := heard(t, tlsFor)
	t.Cleanup(func() { control.end(t) })
	attend := func(cert string, at loop.Place) *attendant {
		k := newAttendant(attendantConfig{address: lc.Addr().String(), tls: tlsFor(cert), queue: upQueue, log: slog.New(slog.DiscardHandler),
			source: loop.Source{Place: at, Name: cert}, epoch: 1, directives: func(loop.Directives) {}, document: func(*Document) {}})
		p := start(t, k.up.run)
		t.Cleanup(func() { p.end(t) })
		return k
	}
	for _, who := range []struct {
		cert    string
		at      loop.Place
		refused bool
	}{
		{"spiffe://mesh/zone/z", loop.Place{Zone: "z", Region: "r"}, false},
		{"spiffe://mesh/region/r", loop.Place{Zone: "x", Region: "r"}, false},
		{"spiffe://mesh/region/r/ns/loop", loop.Place{Region: "r"}, false}, // a region's controller
		{"spiffe://mesh/ns/loop", loop.Place{Zone: "w", Region: "q"}, false},
		{"spiffe://mesh/zone/y", loop.Place{Zone: "z", Region: "r"}, true},
		{"spiffe://mesh/zone/z/region/q", loop.Place{Zone: "z", Region: "r"}, true},
		{"spiffe://mesh/zone/z/ns/loop", loop.Place{Region: "r"}, true}, // a zone is no region
	} {
		connected, foreigners := c.Stats().Connected, c.Stats().Foreigners
		k := attend(who.cert, who.at)
		if !who.refused {
			eventually(t, who.cert+" attends", func() bool { return c.Stats().Connected == connected+1 })
			continue
		}
		eventually(t, who.cert+" is refused", func() bool { return k.up.refusal() != nil })
		if s := c.Stats(); s.Connected != connected || s.Foreigners == foreigners || !strings.Contains(k.up.refusal().Error(), who.cert) {
			t.Errorf("%s at %+v: %+v after %v, want it counted and named", who.cert, who.at, s, k.up.refusal())
		}
	}
	// An aggregator passes on what its own enforcers acknowledge.
	k := attend("spiffe://mesh/zone/v", loop.Place{Zone: "v"})
	k.acks.push([]byte(`{"enforcer":"n","zone":"w"}`))
	k.acks.push([]byte(`{"enforcer":"n","zone":"v"}`))
	if ack := <-acks; ack != `{"enforcer":"n","zone":"v"}` {
		t.Errorf("%s came through, want that of its zone", ack)
	}
}

// logged is a log that several goroutines write.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
