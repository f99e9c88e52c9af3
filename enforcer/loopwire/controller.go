package loopwire

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
	"github.com/openrlc/rlc/internal/bidi"
	"github.com/openrlc/rlc/internal/mtls"
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
	// Parent is the global controller, host:port, that a Region's controller
	// attends for what concerns all regions; "": none. OnDocument hears what
	// comes down from it, nil for nobody, one at a time.
	Parent     string
	OnDocument func(Document)
	DialTLS    *tls.Config // towards the parent; nil: without
	TLS        *tls.Config // nil: without, loopback only
	// OnAck hears each acknowledgement of documents, JSON as the data plane sent
	// it; nil for nobody. It must not block, and may be called by several
	// goroutines.
	OnAck func(json []byte)
	Log   *slog.Logger // nil: discarded
}

// Controller serves the aggregators. It is safe for use by many goroutines.
type Controller struct {
	config ControllerConfig
	ctl    *loop.Controller
	clock  clock
	ending chan struct{} // closed when streams are to end
	above  *attendant    // nil without a parent

	numbers    *numbers
	dropped    atomic.Uint64
	doubles    doubles
	foreigners refusals

	mu     sync.Mutex
	zones  map[loop.Source]*attendance
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
	if c.Parent != "" && c.Region == "" {
		return nil, fmt.Errorf("%w: a controller below another takes a region", rlc.ErrInvalid)
	}
	var s stamps
	epoch, clock := s.next(), clock{time.Now()}
	k := &Controller{config: c, clock: clock, ending: make(chan struct{}), numbers: newNumbers(), zones: map[loop.Source]*attendance{}, doubles: doubles{refusals{log: c.Log}}, foreigners: refusals{log: c.Log},
		ctl: loop.NewController(loop.ControllerConfig{Epoch: epoch, Limits: c.Limits, Zones: c.Zones, ReleaseAfter: c.ReleaseAfter,
			Minute: clock.intoMinute(), Region: c.Region, Parent: c.Parent != ""})}
	if c.Parent != "" {
		k.above = newAttendant(attendantConfig{
			address: c.Parent, tls: c.DialTLS, queue: upQueue, log: c.Log, source: loop.Source{Place: loop.Place{Region: c.Region}}, epoch: epoch,
			directives: func(d loop.Directives) { k.ctl.Apply(d, k.clock.now()) },
			document:   k.document,
		})
	}
	return k, nil
}

// document hears what comes from the parent.
func (c *Controller) document(d *Document) {
	if c.config.OnDocument != nil {
		c.config.OnDocument(*d)
	}
}

// Serve compares and answers on l until ctx ends. Without TLS l must be on
// loopback.
func (c *Controller) Serve(ctx context.Context, l net.Listener) error {
	server, err := newServer(l, c.config.TLS, c.config.Log, pb.Controller_Attend_FullMethodName, c.attend)
	if err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(inner, l, c.ending) })
	if c.above == nil {
		group.Go(func() error { return every(inner, loop.ControllerTick, c.tick) })
		return group.Wait()
	}
	streams, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group.Go(func() error { return c.above.up.run(streams) })
	group.Go(func() error {
		// A region does not take leave: its zones go on with its share.
		defer c.above.part(nil, cancel)
		return every(inner, loop.ControllerTick, c.tick)
	})
	return group.Wait()
}

func (c *Controller) tick() {
	now := c.clock.now()
	orders := c.ctl.Tick(now)
	if c.above != nil {
		if sum, up := c.ctl.Up(now); up {
			c.above.tell(sum)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range orders {
		if z := c.zones[o.Source]; z != nil {
			c.push(z, o.Directives)
		}
	}
}

// push queues directives for a source, and the names that it does not know. The
// caller holds mu.
func (c *Controller) push(z *attendance, d loop.Directives) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for i := range d.List {
		z.tell(d.List[i].Bucket)
	}
	f, err := z.encode(d, true)
	if err != nil {
		z.endWith(err)
		return
	}
	c.dropped.Add(z.push(f))
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

// attend serves one aggregator.
func (c *Controller) attend(s *bidi.Stream) error {
	var begin pb.ZoneUp
	if err := first(s, &begin); err != nil {
		return err
	}
	hello := begin.Hello
	if hello.GetZone() == "" && hello.GetRegion() == "" || max(len(hello.Zone), len(hello.Region), len(hello.Name)) > maxName {
		return fmt.Errorf("%w: the first message names neither zone nor region", rlc.ErrInvalid)
	}
	if c.config.Region != "" && (hello.Region != c.config.Region || hello.Zone == "") {
		return status.Errorf(codes.PermissionDenied, "zone %q of region %q attends the controller of region %q: change its --region or its --controller", hello.Zone, hello.Region, c.config.Region)
	}
	source := loop.Source{Place: loop.Place{Zone: hello.Zone, Region: hello.Region}, Name: hello.Name, Peer: mtls.Name(s.TLS())}
	var bound loop.Place
	bound.Zone, bound.Region = mtls.Place(s.TLS())
	if err := c.foreign(source, bound); err != nil {
		return err
	}
	d := &attendance{downstream: newDownstream(nil, c.numbers), epoch: hello.Epoch}
	if err := c.enter(source, d); err != nil {
		s.SetTrailer(peersKey, strconv.Itoa(c.peers()))
		return err
	}
	defer c.leave(source, d)
	var names reader
	return exchange(s, d.downstream, func(data []byte) error {
		var in pb.ZoneUp
		if err := damaged(proto.Unmarshal(data, &in)); err != nil {
			return err
		}
		d.heard.Store(int64(c.clock.now()))
		if _, err := names.learn(in.Names); err != nil {
			return err
		}
		if len(in.Ack) > 0 && !c.foreignAck(source, bound, in.Ack) {
			c.config.OnAck(in.Ack)
			if c.above != nil {
				c.above.acks.push(in.Ack)
			}
		}
		if in.Sum == nil {
			return nil
		}
		sum, err := decodeSum(&names, in.Sum)
		if err != nil {
			return err
		}
		sum.Source, sum.Epoch = source, hello.Epoch
		c.ctl.Sum(sum, c.clock.now())
		return nil
	}, c.ending)
}

// attendance is a source's stream.
type attendance struct {
	*downstream
	epoch uint64 // of the source's process
}

// enter takes a source in, unless another process of its name is heard. The
// same process that comes again has lost its old stream.
func (c *Controller) enter(s loop.Source, d *attendance) error {
	now := c.clock.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.zones[s]; old != nil {
		if old.epoch != d.epoch && old.alive(now) {
			return c.doubles.refuse(identity(s))
		}
		old.end()
	}
	d.heard.Store(int64(now))
	c.zones[s] = d
	for _, doc := range c.newest {
		if doc != nil {
			d.document(doc)
		}
	}
	return nil
}

// identity names a source, and says what to change where two bear one name.
func identity(s loop.Source) (who, advice string) {
	if s.Zone == "" {
		return fmt.Sprintf("the controller of region %q", s.Region), "one controller per --region; stop one of the two"
	}
	return fmt.Sprintf("aggregator %q of zone %q, region %q", s.Known(), s.Zone, s.Region), "give each aggregator of a zone a --name of its own"
}

// leave forgets a stream. The source's last sums stand: silence is not zero
// load.
func (c *Controller) leave(s loop.Source, d *attendance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones[s] == d {
		delete(c.zones, s)
	}
	d.forget()
}

// State lists buckets and zones; see loop.Controller.State.
func (c *Controller) State() ([]loop.BucketState, []loop.ZoneState) {
	return c.ctl.State(c.clock.now())
}

// ControllerStats are counts since the start.
type ControllerStats struct {
	Connected   int    // sources with an open stream
	Parent      bool   // the stream to the parent is open
	Late        uint64 // sums that came late, twice or damaged
	DownDropped uint64 // directives that waited too long for a slow reader
	Doubles     uint64 // streams refused because another process of the same name was heard
	Foreigners  uint64 // streams, and acknowledgements, refused because a certificate is for another zone or region
	Clipped     uint64 // claims of sources so far above the others' that they were not believed whole
}

// Stats returns counts.
func (c *Controller) Stats() ControllerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ControllerStats{Connected: len(c.zones), Parent: c.above != nil && c.above.up.up.Load(), Late: c.ctl.Late(), DownDropped: c.dropped.Load(), Doubles: c.doubles.count.Load(), Foreigners: c.foreigners.count.Load(), Clipped: c.ctl.Clipped()}
}
