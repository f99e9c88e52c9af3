package loopwire

import (
	"context"
	"crypto/tls"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// ackQueue is how many acknowledgements may wait for the tier above.
const ackQueue = 1000

// attendant is a source's end of the stream to its controller: of an
// aggregator, or of the controller of a region.
type attendant struct {
	sums *queue[loop.Sum]
	acks *queue[[]byte]
	up   *uplink[pb.ZoneUp]
	left chan struct{} // closed once the last word is queued
}

// attendantConfig is what an attendant is built from.
type attendantConfig struct {
	address    string
	tls        *tls.Config // nil: without
	queue      int         // sums that may wait
	log        *slog.Logger
	source     loop.Source
	epoch      uint64
	directives func(loop.Directives) // hears each that is no mere greeting
	document   func(*Document)
	onRefused  func()    // nil for nobody
	onPeers    func(int) // nil for nobody
}

func newAttendant(c attendantConfig) *attendant {
	t := &attendant{sums: newQueue[loop.Sum](c.queue), acks: newQueue[[]byte](ackQueue), left: make(chan struct{})}
	t.acks.wake = t.sums.wake // whoever waits, waits for both
	t.up = &uplink[pb.ZoneUp]{
		addresses: []string{c.address}, tls: c.tls, log: c.log,
		open: func(ctx context.Context, conn grpc.ClientConnInterface) (grpc.BidiStreamingClient[pb.ZoneUp, pb.Down], error) {
			return pb.NewControllerClient(conn).Attend(ctx)
		},
		begin: func() *pb.ZoneUp {
			t.sums.clear()
			return &pb.ZoneUp{Hello: &pb.ZoneHello{Zone: c.source.Zone, Region: c.source.Region, Name: c.source.Name, Epoch: c.epoch}}
		},
		next: t.next,
		directives: func(d loop.Directives) {
			if d.Seq > 0 {
				c.directives(d)
			}
		},
		document: c.document, onRefused: c.onRefused, onPeers: c.onPeers,
	}
	return t
}

// tell queues a sum, where somebody hears it.
func (t *attendant) tell(s loop.Sum) {
	if t.up.up.Load() {
		t.sums.push(s)
	}
}

// part ends the stream, after a last word where there is one.
func (t *attendant) part(last *loop.Sum, cancel context.CancelFunc) {
	t.sums.clear()
	if last != nil {
		t.sums.push(*last)
	}
	close(t.left)
	t.sums.poke()
	t.up.part(cancel)
}

// dropped is how many sums waited too long.
func (t *attendant) dropped() uint64 {
	t.sums.mu.Lock()
	defer t.sums.mu.Unlock()
	return t.sums.dropped
}

func (t *attendant) next(ctx context.Context, w *writer) (*pb.ZoneUp, error) {
	for {
		if s, ok := t.sums.take(); ok {
			m := &pb.ZoneUp{Sum: encodeSum(w, s)}
			var err error
			m.Names, err = w.take()
			return m, err
		}
		if ack, ok := t.acks.take(); ok {
			return &pb.ZoneUp{Ack: ack}, nil
		}
		select {
		case <-t.left:
			return nil, errDone
		default:
		}
		if quiet, err := t.sums.waitOrQuiet(ctx); err != nil {
			return nil, err
		} else if quiet {
			return &pb.ZoneUp{}, nil
		}
	}
}
