package loopwire

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// ControllerConfig is what a controller is built from.
type ControllerConfig struct {
	// Limits, Zones and ReleaseAfter are loop.ControllerConfig's. Limits is
	// required.
	Limits func(bucket string, at loop.Place) (loop.Setting, bool)
	Zones  []string
	// Region, where it is not "", is the only one whose zones may attend.
	Region       string
	ReleaseAfter time.Duration
	TLS          *tls.Config // nil: without, loopback only
	// OnAck hears each acknowledgement of documents, JSON as the data plane sent
	// it; nil for nobody. It must not block, and may be called by several
	// goroutines.
	OnAck func(json []byte)
	Log   *slog.Logger // nil: discarded
}

// Controller serves the aggregators. It is safe for use by many goroutines.
type Controller struct {
	pb.UnimplementedControllerServer
	config ControllerConfig
	ctl    *loop.Controller
	clock  clock
	server *listener

	dropped atomic.Uint64

	mu     sync.Mutex
	zones  map[loop.Place]*downstream
	newest newest
}

// NewController makes a controller. The error wraps rlc.ErrInvalid.
func NewController(c ControllerConfig) (*Controller, error) {
	if c.Limits == nil {
		return nil, fmt.Errorf("%w: a controller takes the limits", rlc.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OnAck == nil {
		c.OnAck = func([]byte) {}
	}
	var s stamps
	return &Controller{config: c, clock: clock{time.Now()}, zones: map[loop.Place]*downstream{},
		ctl: loop.NewController(loop.ControllerConfig{Epoch: s.next(), Limits: c.Limits, Zones: c.Zones, ReleaseAfter: c.ReleaseAfter})}, nil
}

// Serve compares and answers on l until ctx ends. Without TLS l must be on
// loopback.
func (c *Controller) Serve(ctx context.Context, l net.Listener) (err error) {
	if c.server, err = newListener(l, c.config.TLS, c.config.Log); err != nil {
		return err
	}
	pb.RegisterControllerServer(c.server.server, c)
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return c.server.serve(inner, l) })
	group.Go(func() error { return every(inner, loop.ControllerTick, c.tick) })
	return group.Wait()
}

func (c *Controller) tick() {
	orders := c.ctl.Tick(c.clock.now())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range orders {
		if z := c.zones[o.Place]; z != nil {
			c.dropped.Add(z.queue.push(o.Directives))
		}
	}
}

// Publish sends a document to every data plane. An older one than the newest
// of its kind is ignored.
func (c *Controller) Publish(d Document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.newest.merge(&d) {
		return
	}
	for _, z := range c.zones {
		z.document(&d)
	}
}

// Attend serves one aggregator.
func (c *Controller) Attend(s grpc.BidiStreamingServer[pb.ZoneUp, pb.Down]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	if first.Hello.GetZone() == "" || len(first.Hello.Zone) > maxName || len(first.Hello.Region) > maxName {
		return fmt.Errorf("%w: the first message names no zone", rlc.ErrInvalid)
	}
	if c.config.Region != "" && first.Hello.Region != c.config.Region {
		return status.Errorf(codes.PermissionDenied, "a zone of region %q attends the controller of %q", first.Hello.Region, c.config.Region)
	}
	place, epoch := loop.Place{Zone: first.Hello.Zone, Region: first.Hello.Region}, first.Hello.Epoch
	d := newDownstream()
	c.enter(place, d)
	defer c.leave(place, d)
	var names reader
	return exchange(s.Context(), c.server, d, s.Send, func() error {
		in, err := s.Recv()
		if err != nil {
			return err
		}
		if _, err := names.learn(in.Names); err != nil {
			return err
		}
		if len(in.Ack) > 0 {
			c.config.OnAck(in.Ack)
		}
		if in.Sum == nil {
			return nil
		}
		sum, err := decodeSum(&names, in.Sum)
		if err != nil {
			return err
		}
		sum.Place, sum.Epoch = place, epoch
		c.ctl.Sum(sum, c.clock.now())
		return nil
	})
}

func (c *Controller) enter(place loop.Place, d *downstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.zones[place]; old != nil {
		old.end()
	}
	c.zones[place] = d
	for _, doc := range c.newest {
		if doc != nil {
			d.document(doc)
		}
	}
}

// leave forgets a stream. The zone's last sums stand: silence is not zero load.
func (c *Controller) leave(place loop.Place, d *downstream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones[place] == d {
		delete(c.zones, place)
	}
}

// State lists buckets and zones; see loop.Controller.State.
func (c *Controller) State() ([]loop.BucketState, []loop.ZoneState) {
	return c.ctl.State(c.clock.now())
}

// ControllerStats are counts since the start.
type ControllerStats struct {
	Connected   int    // aggregators with an open stream
	Late        uint64 // sums that came late, twice or damaged
	DownDropped uint64 // directives that waited too long for a slow reader
}

// Stats returns counts.
func (c *Controller) Stats() ControllerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ControllerStats{Connected: len(c.zones), Late: c.ctl.Late(), DownDropped: c.dropped.Load()}
}
