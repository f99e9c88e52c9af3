package loopwire

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// upQueue is how many messages may wait to go up: at 250 ms a report, some
// seconds.
const upQueue = 16

// ClientConfig is what a data plane's end of the loop is built from.
type ClientConfig struct {
	// Addresses are the zone's aggregators, host:port; required. Nodes spread
	// over them by a hash of their names, go over to another when theirs breaks or
	// falls silent, and come home once it answers again.
	Addresses []string
	Node      string       // unique in the zone; required
	Place     loop.Place   // where it runs: an aggregator of another zone refuses it; what is empty is not compared
	Client    *loop.Client // required; Run ticks it
	TLS       *tls.Config  // nil: without, for loopback
	// OnDocument hears each new snapshot and new overrides, for Document.Load; nil
	// for nobody. It is called by one goroutine at a time.
	OnDocument func(Document)
	Log        *slog.Logger // nil: discarded
}

// Client joins a data plane to its aggregator. It is safe for use by many
// goroutines.
type Client struct {
	config  ClientConfig
	clock   clock
	stamps  stamps
	reports *queue[loop.Report]
	acks    *queue[[]byte]
	newest  newest                      // of the goroutine that receives
	joined  atomic.Pointer[loop.Origin] // the aggregator that was last joined
	leaving chan struct{}
	up      *uplink[pb.NodeUp]
}

// NewClient makes a client that is not joined yet. The error wraps
// rlc.ErrInvalid.
func NewClient(c ClientConfig) (*Client, error) {
	if len(c.Addresses) == 0 || slices.Contains(c.Addresses, "") || c.Node == "" || c.Client == nil {
		return nil, fmt.Errorf("%w: joining the loop takes addresses, a node's name and a client", rlc.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	k := &Client{config: c, clock: clock{time.Now()}, reports: newQueue[loop.Report](upQueue), acks: newQueue[[]byte](1), leaving: make(chan struct{})}
	k.acks.wake = k.reports.wake // whoever waits, waits for both
	k.up = &uplink[pb.NodeUp]{
		addresses: spread(c.Node, c.Addresses), tls: c.TLS, log: c.Log,
		open: func(ctx context.Context, conn grpc.ClientConnInterface) (grpc.BidiStreamingClient[pb.NodeUp, pb.Down], error) {
			return pb.NewAggregatorClient(conn).Join(ctx)
		},
		begin: k.begin, next: k.next,
		directives: func(d loop.Directives) {
			if d.Seq > 0 {
				c.Client.Apply(d, k.clock.now())
			}
		},
		document: k.document,
		onPeers:  c.Client.SetPeers,
		hello:    func(h *pb.DownHello) { k.joined.Store(&loop.Origin{Name: h.Name, Epoch: h.Epoch}) },
	}
	return k, nil
}

// Run ticks the client and keeps it joined until ctx ends; it then leaves, so
// that its load is known to be gone. It returns nil.
func (c *Client) Run(ctx context.Context) error {
	group := new(errgroup.Group)
	streams, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group.Go(func() error { return c.up.run(streams) })
	group.Go(func() error {
		defer func() {
			close(c.leaving)
			c.reports.poke()
			c.up.part(cancel)
		}()
		return every(ctx, loop.ClientTick, func() {
			if r, send := c.config.Client.Tick(c.clock.now()); send && c.up.up.Load() {
				c.reports.push(r)
			}
		})
	})
	return group.Wait()
}

// begin opens an incarnation.
func (c *Client) begin() *pb.NodeUp {
	incarnation := c.stamps.next()
	c.reports.clear()
	c.config.Client.Connect(incarnation)
	hello := &pb.NodeHello{Node: c.config.Node, Incarnation: incarnation, Zone: c.config.Place.Zone, Region: c.config.Place.Region}
	if from := c.joined.Load(); from != nil {
		hello.From, hello.FromEpoch = from.Name, from.Epoch
	}
	return &pb.NodeUp{Hello: hello}
}

func (c *Client) next(ctx context.Context, w *writer) (*pb.NodeUp, error) {
	for {
		if r, ok := c.reports.take(); ok {
			m := &pb.NodeUp{Report: encodeReport(w, r)}
			var err error
			m.Names, err = w.take()
			return m, err
		}
		if a, ok := c.acks.take(); ok {
			return &pb.NodeUp{Ack: a}, nil
		}
		select {
		case <-c.leaving:
			return nil, errDone
		default:
		}
		if quiet, err := c.reports.waitOrQuiet(ctx); err != nil {
			return nil, err
		} else if quiet {
			return &pb.NodeUp{}, nil
		}
	}
}

func (c *Client) document(d *Document) {
	if c.newest.merge(d) && c.config.OnDocument != nil {
		c.config.OnDocument(*d)
	}
}

// Ack sends an acknowledgement up, JSON of an rlc.Ack. Of several that wait the
// last one goes.
func (c *Client) Ack(json []byte) { c.acks.push(json) }

// ClientStats are counts since the start, and the present state.
type ClientStats struct {
	Connected bool
	Refused   string // why the aggregator refuses it, and what to change; "": it does not
	Connects  uint64 // streams opened
	Dropped   uint64 // reports that waited too long
	Untracked uint64 // paths beyond the bound
}

// Stats returns counts and state.
func (c *Client) Stats() ClientStats {
	c.reports.mu.Lock()
	defer c.reports.mu.Unlock()
	s := ClientStats{Connected: c.up.up.Load(), Connects: c.up.connects.Load(), Dropped: c.reports.dropped, Untracked: c.config.Client.Untracked()}
	if text := c.up.refused.Load(); text != nil {
		s.Refused = *text
	}
	return s
}

// every calls f at this distance, from a random phase on, until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) error {
	select {
	case <-time.After(time.Duration(rand.Int64N(int64(period)))):
	case <-ctx.Done():
		return nil
	}
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		f()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}
