package loopwire

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
	"github.com/openrlc/rlc/internal/bidi"
	"github.com/openrlc/rlc/internal/mtls"
)

// AggregatorConfig is what a zone's aggregator is built from.
type AggregatorConfig struct {
	loop.Place
	Name       string      // tells it from others in its zone; "" for the only one
	Controller string      // host:port; required
	TLS        *tls.Config // for those who join; nil: without, loopback only
	DialTLS    *tls.Config // towards the controller; nil: without
	Trusted    []string    // see loop.AggregatorConfig
	MaxPaths   int         // see loop.AggregatorConfig
	// Queue is how many sums may wait for a slow controller; 0 means 16.
	Queue int
	Log   *slog.Logger // nil: discarded
}

// Aggregator serves the data planes of one zone and attends the controller. It
// is safe for use by many goroutines.
type Aggregator struct {
	config AggregatorConfig
	agg    *loop.Aggregator
	clock  clock
	epoch  uint64
	above  *attendant
	ending chan struct{} // closed when streams are to end

	numbers     *numbers
	columns     sync.Pool
	downDropped atomic.Uint64
	told        atomic.Uint64
	doubles     doubles
	outcasts    outcasts
	foreigners  refusals

	mu      sync.RWMutex
	members map[*member]struct{}
	names   map[string]*member // by node
	newest  newest
}

// member is a joined data plane.
type member struct {
	*downstream
	node        string
	peer        string     // of its certificate; "" without one
	bound       loop.Place // of its certificate
	from        loop.Origin
	incarnation uint64
	spoke       time.Duration // when it was last told anything; mu guards it

	receiving sync.Mutex // one report at a time, and none after the end
	over      bool
}

// aliveEvery is how often a member hears something, whatever there is to say.
const aliveEvery = time.Second

// NewAggregator makes an aggregator. The error wraps rlc.ErrInvalid.
func NewAggregator(c AggregatorConfig) (*Aggregator, error) {
	if c.Controller == "" || c.Zone == "" {
		return nil, fmt.Errorf("%w: an aggregator takes a zone and the controller's address", rlc.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Queue <= 0 {
		c.Queue = upQueue
	}
	var s stamps
	a := &Aggregator{config: c, doubles: doubles{refusals{log: c.Log}}, foreigners: refusals{log: c.Log}, clock: clock{time.Now()}, epoch: s.next(), ending: make(chan struct{}), numbers: newNumbers(), members: map[*member]struct{}{}, names: map[string]*member{}}
	source := loop.Source{Place: c.Place, Name: c.Name}
	a.agg = loop.NewAggregator(loop.AggregatorConfig{Source: source, Epoch: a.epoch, Trusted: c.Trusted, MaxPaths: c.MaxPaths})
	a.above = newAttendant(attendantConfig{
		address: c.Controller, tls: c.DialTLS, queue: c.Queue, log: c.Log, source: source, epoch: a.epoch,
		directives: func(d loop.Directives) { a.broadcast(a.agg.Apply(d, a.clock.now())) },
		document:   a.document,
		onRefused:  a.turnAway,
		onPeers:    func(n int) { a.outcasts.others.Store(int64(n)) },
	})
	return a, nil
}

// Serve sums and answers on l until ctx ends. It then tells the controller
// that the zone leaves, so that its share is free at once, and ends the
// streams. Without TLS l must be on loopback.
func (a *Aggregator) Serve(ctx context.Context, l net.Listener) error {
	server, err := newServer(l, a.config.TLS, a.config.Log, pb.Aggregator_Join_FullMethodName, a.join)
	if err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	streams, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group.Go(func() error { return server.Serve(inner, l, a.ending) })
	group.Go(func() error { return a.above.up.run(streams) })
	group.Go(func() error {
		defer func() {
			leave := a.agg.Leave()
			a.above.part(&leave, cancel)
		}()
		return every(inner, loop.AggregatorTick, a.tick)
	})
	return group.Wait()
}

func (a *Aggregator) tick() {
	sum, up, d, down := a.agg.Tick(a.clock.now())
	if up {
		a.above.tell(sum)
	}
	if down {
		a.broadcast(d)
	}
}

// document keeps a document that came down and passes it on.
func (a *Aggregator) document(d *Document) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.newest.merge(d) {
		return
	}
	for m := range a.members {
		m.document(d)
	}
}

// broadcast queues directives for everybody whose buckets they concern. An
// empty list goes to all: it says that the zone is alive. They are encoded once
// for all who have the same buckets.
func (a *Aggregator) broadcast(d loop.Directives) {
	if d.Seq == 0 {
		return
	}
	own := map[string]loop.Directives{}
	for _, node := range a.agg.Doubted() {
		own[node] = a.agg.For(node, d)
	}
	frames := map[signature]frame{}
	a.mu.RLock()
	defer a.mu.RUnlock()
	for m := range a.members {
		if v, ok := own[m.node]; ok {
			a.push(m, v, nil)
			continue
		}
		a.push(m, d, frames)
	}
}

// push queues directives for a member, encoded as they were for others with the
// same buckets.
func (a *Aggregator) push(m *member, d loop.Directives, frames map[signature]frame) {
	m.mu.Lock()
	f, ok := frames[m.set]
	if !ok {
		var err error
		if f, err = m.encode(d, false); err != nil {
			m.mu.Unlock()
			m.endWith(err)
			return
		}
		if frames != nil {
			frames[m.set] = f
		}
	}
	// Where nothing concerns the member, only that the zone is alive does.
	now := a.clock.now()
	if f.empty && len(d.List) > 0 && now-m.spoke < aliveEvery {
		m.mu.Unlock()
		return
	}
	m.spoke = now
	dropped := m.push(f)
	m.mu.Unlock()
	a.told.Add(1)
	if dropped > 0 {
		a.downDropped.Add(dropped)
	}
}

// join serves one data plane.
func (a *Aggregator) join(s *bidi.Stream) error {
	var begin pb.NodeUp
	if err := first(s, &begin); err != nil {
		return err
	}
	hello := begin.Hello
	if hello.GetNode() == "" || len(hello.Node) > maxName || len(hello.From) > maxName {
		return fmt.Errorf("%w: the first message names no node", rlc.ErrInvalid)
	}
	m := &member{downstream: newDownstream(&pb.DownHello{Name: a.config.Name, Epoch: a.epoch}, a.numbers), node: hello.Node,
		from: loop.Origin{Name: hello.From, Epoch: hello.FromEpoch}, incarnation: hello.Incarnation}
	m.identify(mtls.Name(s.TLS()))
	m.bound.Zone, m.bound.Region = mtls.Place(s.TLS())
	if err := a.enter(m, hello); err != nil {
		if code := status.Code(err); code == codes.Unavailable || code == codes.FailedPrecondition || code == codes.PermissionDenied {
			s.SetTrailer(peersKey, strconv.Itoa(a.outcasts.add(m.node, time.Now())))
		}
		return err
	}
	defer a.leave(m)
	var names reader
	in := nodeUp{pool: &a.columns}
	return exchange(s, m.downstream, func(data []byte) error {
		if err := damaged(in.read(data)); err != nil {
			return err
		}
		m.heard.Store(int64(a.clock.now()))
		return a.receive(m, &names, &in)
	}, a.ending)
}

func (a *Aggregator) receive(m *member, names *reader, in *nodeUp) error {
	defer in.done()
	paths, err := names.learn(in.Names)
	if err != nil {
		return err
	}
	m.receiving.Lock()
	defer m.receiving.Unlock()
	if m.over {
		return io.EOF
	}
	if len(paths) > 0 {
		m.mu.Lock()
		for _, p := range paths {
			for _, b := range p {
				m.tell(b)
			}
		}
		m.mu.Unlock()
	}
	if len(in.Ack) > 0 {
		if ack := a.signed(m, in.Ack); ack != nil {
			a.above.acks.push(ack)
		}
	}
	if in.columns == nil {
		return nil
	}
	r, err := in.columns.report(names)
	if err != nil {
		return err
	}
	r.Node, r.From, r.Incarnation = m.node, m.from, m.incarnation
	if answer := a.agg.Report(r, a.clock.now()); len(answer.List) > 0 {
		a.push(m, answer, nil)
	}
	return nil
}

// enter takes a node in, unless it is of another zone, or another of a name that
// is heard.
func (a *Aggregator) enter(m *member, hello *pb.NodeHello) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Ready() != nil {
		return a.turnedAway()
	}
	if err := a.foreign(m, hello); err != nil {
		return err
	}
	now := a.clock.now()
	if old := a.names[m.node]; old != nil {
		if old.alive(now) {
			return a.doubles.refuse(fmt.Sprintf("node %q", m.node), "give each enforcer a --name of its own")
		}
		old.end()
	}
	m.heard.Store(int64(now))
	a.names[m.node] = m
	a.members[m] = struct{}{}
	for _, d := range a.newest {
		if d != nil {
			m.document(d)
		}
	}
	return nil
}

func (a *Aggregator) leave(m *member) {
	m.receiving.Lock()
	m.over = true
	m.receiving.Unlock()
	a.mu.Lock()
	delete(a.members, m)
	if a.names[m.node] == m {
		delete(a.names, m.node)
	}
	a.mu.Unlock()
	m.forget()
	a.agg.Gone(m.node, m.incarnation)
}

// AggregatorStats are counts since the start, and the present state.
type AggregatorStats struct {
	loop.AggregatorStats
	Members     int    // open streams of data planes
	Connected   bool   // to the controller
	Connects    uint64 // streams opened to the controller
	Told        uint64 // messages queued for data planes
	UpDropped   uint64 // sums that waited too long
	DownDropped uint64 // directives that waited too long for a slow reader
	Doubles     uint64 // streams refused because a node of the same name was heard
	Foreigners  uint64 // streams, and acknowledgements, refused because the node runs in another zone or region
}

// Stats returns counts and state.
func (a *Aggregator) Stats() AggregatorStats {
	a.mu.RLock()
	members := len(a.members)
	a.mu.RUnlock()
	return AggregatorStats{AggregatorStats: a.agg.Stats(a.clock.now()), Members: members, Connected: a.above.up.up.Load(),
		Connects: a.above.up.connects.Load(), Told: a.told.Load(), UpDropped: a.above.dropped(), DownDropped: a.downDropped.Load(), Doubles: a.doubles.count.Load(), Foreigners: a.foreigners.count.Load()}
}
