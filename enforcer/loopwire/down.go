package loopwire

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// downQueue is how many messages may wait for one reader below.
const downQueue = 8

// numbers are what a tier calls its buckets on all of its streams down, so that
// directives are encoded once for everybody who is told the same. A number is
// used again once no stream knows it. It is safe for use by many goroutines.
type numbers struct {
	seeds [2]maphash.Seed // of signatures

	mu   sync.Mutex
	used map[string]*numbered
	free []uint32
	last uint32
}

type numbered struct {
	number  uint32
	streams int // that know it
}

func newNumbers() *numbers {
	return &numbers{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, used: map[string]*numbered{}}
}

// take finds or makes a bucket's number for one more stream.
func (n *numbers) take(name string) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := n.used[name]
	if v == nil {
		v = &numbered{}
		if last := len(n.free) - 1; last >= 0 {
			v.number, n.free = n.free[last], n.free[:last]
		} else {
			n.last++
			v.number = n.last
		}
		n.used[name] = v
	}
	v.streams++
	return v.number
}

// give says that a stream is gone that knew these.
func (n *numbers) give(told map[string]uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range told {
		v := n.used[name]
		if v.streams--; v.streams == 0 {
			delete(n.used, name)
			n.free = append(n.free, v.number)
		}
	}
}

// signature stands for a set of numbers: the sum of their hashes.
type signature [2]uint64

func (n *numbers) sign(s signature, number uint32) signature {
	for i := range s {
		s[i] += maphash.Comparable(n.seeds[i], number)
	}
	return s
}

// frame is a pb.Down of directives, encoded. It is shared by streams.
type frame struct {
	data  []byte
	empty bool // no directive at all
}

// downstream is one stream down: directives, and the documents that the reader
// does not have yet. Sending takes a goroutine only while there is something to
// send, so that a stream at rest costs none.
type downstream struct {
	numbers *numbers

	mu      sync.Mutex
	greet   *pb.Down // said first; nil: said
	frames  []frame  // at most downQueue
	docs    []*Document
	pieces  []*pb.Document    // what is left of the document that is being sent
	told    map[string]uint32 // buckets that the reader knows, once it has fresh
	set     signature         // of told
	fresh   *pb.Names         // goes along with the next message; nil: none
	send    func(any) error   // nil while the stream is not open
	sending bool              // by a goroutine, or for the last time in vain

	closed chan struct{} // closed to end the stream
	once   sync.Once
	why    error        // set before closed is
	heard  atomic.Int64 // when something last came up, ns of the tier's clock
}

// newDownstream makes a stream that begins with a message of no more than hello,
// so that the reader knows that it is heard.
func newDownstream(hello *pb.DownHello, n *numbers) *downstream {
	return &downstream{greet: &pb.Down{Hello: hello}, numbers: n, told: map[string]uint32{}, closed: make(chan struct{})}
}

// tell makes a bucket known to the reader. The caller holds mu.
func (d *downstream) tell(bucket string) {
	if _, ok := d.told[bucket]; ok {
		return
	}
	number := d.numbers.take(bucket)
	d.told[bucket] = number
	d.set = d.numbers.sign(d.set, number)
	if d.fresh == nil {
		d.fresh = &pb.Names{}
	}
	d.fresh.Buckets, d.fresh.Numbers = append(d.fresh.Buckets, bucket), append(d.fresh.Numbers, number)
}

// forget gives the numbers back. The stream has ended.
func (d *downstream) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numbers.give(d.told)
	d.told = nil
}

// encode leaves of v what the reader knows of, for the wire. A source is told its
// share, too. The caller holds mu.
func (d *downstream) encode(v loop.Directives, source bool) (frame, error) {
	list := encodeDirectives(d.told, v, source)
	data, err := proto.Marshal(&pb.Down{Directives: list})
	return frame{data, len(list.Buckets) == 0}, err
}

// parcel is what is sent of a pb.Down that holds directives.
type parcel struct {
	names *pb.Names // nil: none
	frame
}

// end ends a stream that another one replaces.
func (d *downstream) end() {
	d.endWith(status.Error(codes.Aborted, "another stream has taken this one's place"))
}

func (d *downstream) endWith(why error) {
	d.once.Do(func() {
		d.why = why
		close(d.closed)
	})
}

// alive says whether something was heard of late.
func (d *downstream) alive(now time.Duration) bool {
	return now-time.Duration(d.heard.Load()) < deadAfter
}

// open begins to send; what was queued before goes first.
func (d *downstream) open(send func(any) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.send = send
	d.wake()
}

// shut lets nothing more be sent. A message that is being sent ends with the
// stream.
func (d *downstream) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.send = nil
}

// push queues a frame and never blocks. Full, the queue drops the oldest: whoever
// is slow gets the newest word late rather than every word later. It reports how
// many were dropped, 0 or 1. The caller holds mu.
func (d *downstream) push(f frame) (dropped uint64) {
	if len(d.frames) >= downQueue {
		d.frames = append(d.frames[:0], d.frames[1:]...)
		dropped = 1
	}
	d.frames = append(d.frames, f)
	d.wake()
	return dropped
}

// document queues a document; one of the same kind that still waits is
// replaced.
func (d *downstream) document(doc *Document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.docs = append(slices.DeleteFunc(d.docs, func(old *Document) bool { return old.Kind == doc.Kind }), doc)
	d.wake()
}

// wake lets somebody send what waits. The caller holds mu.
func (d *downstream) wake() {
	if d.send != nil && !d.sending {
		d.sending = true
		go d.drain(d.send)
	}
}

// drain sends until nothing waits.
func (d *downstream) drain(send func(any) error) {
	for {
		v, err := d.next()
		if v == nil && err == nil {
			return
		}
		if err == nil {
			err = send(v)
		}
		if err != nil {
			d.endWith(err)
			return
		}
	}
}

// next is the message to send next; nil: none, and whoever asked sends no more.
// Directives do not wait for documents, but between two pieces of one.
func (d *downstream) next() (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.told) > maxNames {
		return nil, errFull
	}
	if len(d.pieces) == 0 && len(d.docs) > 0 {
		d.pieces, d.docs = d.docs[0].pieces(), d.docs[1:]
	}
	switch {
	case d.send == nil:
	case d.greet != nil:
		hello := d.greet
		d.greet = nil
		return hello, nil
	case len(d.frames) > 0:
		p := &parcel{d.fresh, d.frames[0]}
		d.fresh = nil
		d.frames = append(d.frames[:0], d.frames[1:]...)
		return p, nil
	case len(d.pieces) > 0:
		p := d.pieces[0]
		d.pieces = d.pieces[1:]
		return &pb.Down{Document: p}, nil
	}
	d.sending = false
	return nil, nil
}
