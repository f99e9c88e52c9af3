package loopwire

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
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
	data  mem.BufferSlice
	empty bool // no directive at all
}

// downstream is one stream down: directives, and the documents that the reader
// does not have yet.
type downstream struct {
	hello   *pb.DownHello // nil: none
	numbers *numbers
	queue   *queue[frame]

	mu    sync.Mutex
	docs  []*Document
	told  map[string]uint32 // buckets that the reader knows, once it has fresh
	set   signature         // of told
	fresh *pb.Names         // goes along with the next message; nil: none

	closed chan struct{} // closed to end the stream
	once   sync.Once
	why    error        // set before closed is
	heard  atomic.Int64 // when something last came up, ns of the tier's clock
}

func newDownstream(hello *pb.DownHello, n *numbers) *downstream {
	return &downstream{hello: hello, numbers: n, queue: newQueue[frame](downQueue), told: map[string]uint32{}, closed: make(chan struct{})}
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
	return frame{mem.BufferSlice{mem.SliceBuffer(data)}, len(list.Buckets) == 0}, err
}

// parcel is what is sent of a pb.Down that holds directives.
type parcel struct {
	names *pb.Names // nil: none
	frame
}

// directives sends a frame with the names that it needs.
func (d *downstream) directives(f frame, send func(any) error) error {
	d.mu.Lock()
	p := parcel{d.fresh, f}
	d.fresh = nil
	full := len(d.told) > maxNames
	d.mu.Unlock()
	if full {
		return errFull
	}
	return send(&p)
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

// document queues a document; one of the same kind that still waits is
// replaced.
func (d *downstream) document(doc *Document) {
	d.mu.Lock()
	for i, old := range d.docs {
		if old.Kind == doc.Kind {
			d.docs = append(d.docs[:i], d.docs[i+1:]...)
			break
		}
	}
	d.docs = append(d.docs, doc)
	d.mu.Unlock()
	d.queue.poke()
}

func (d *downstream) takeDocument() *Document {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.docs) == 0 {
		return nil
	}
	doc := d.docs[0]
	d.docs = d.docs[1:]
	return doc
}

// run sends until ctx ends or sending fails. It begins with a message of no
// more than hello, so that the reader knows that it is heard.
func (d *downstream) run(ctx context.Context, send func(any) error) error {
	if err := send(&pb.Down{Hello: d.hello}); err != nil {
		return err
	}
	for {
		// Directives first: between two pieces of a document they do not wait.
		for f, ok := d.queue.take(); ok; f, ok = d.queue.take() {
			if err := d.directives(f, send); err != nil {
				return err
			}
		}
		if doc := d.takeDocument(); doc != nil {
			for _, p := range doc.pieces() {
				if err := send(&pb.Down{Document: p}); err != nil {
					return err
				}
				if f, ok := d.queue.take(); ok {
					if err := d.directives(f, send); err != nil {
						return err
					}
				}
			}
			continue
		}
		if err := d.queue.wait(ctx); err != nil {
			return err
		}
	}
}
