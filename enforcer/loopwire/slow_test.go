package loopwire

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// A node that joins and then reads nothing costs a bounded amount of memory, loses
// the oldest, and delays nobody.
func TestAStreamThatNobodyReads(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Controller: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	zone := start(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
	defer zone.end(t)

	const buckets, messages = 1000, 1500
	d := loop.Directives{Epoch: 1}
	report := loop.Report{Seq: 1}
	for i := range buckets {
		name := fmt.Sprint("bucket-", i)
		report.Paths = append(report.Paths, loop.PathReport{Path: loop.Path{name}, Dropped: []uint64{0}})
		d.List = append(d.List, loop.Directive{Bucket: name, Limit: 1.1, Keep: loop.Keep{1, 0.3, 0.3}, Nodes: 2, Load: 3.3})
	}
	join := func(node string) (grpc.BidiStreamingClient[pb.NodeUp, pb.Down], func()) {
		conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		s, err := pb.NewAggregatorClient(conn).Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := newWriter()
		m := &pb.NodeUp{Report: encodeReport(w, report)}
		if m.Names, err = w.take(); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*pb.NodeUp{{Hello: &pb.NodeHello{Node: node, Incarnation: 1}}, m} {
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		return s, func() { conn.Close() }
	}
	_, gone := join("deaf")
	defer gone()
	reading, leave := join("reading")
	defer leave()
	eventually(t, "both have reported", func() bool { return a.Stats().Reports == 2 })

	newest := make(chan bool, 1)
	go func() {
		seen := false
		for !seen {
			m, err := reading.Recv()
			if err != nil {
				break
			}
			seen = m.Directives.GetSeq() == messages
		}
		newest <- seen
	}()
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := heap()
	size := 0
	for seq := range messages {
		d.Seq = uint64(seq + 1)
		a.broadcast(d)
		if seq == 0 {
			a.mu.RLock()
			for m := range a.members {
				f, err := m.encode(d, false)
				if err != nil {
					t.Fatal(err)
				}
				size = len(f.data)
			}
			a.mu.RUnlock()
		}
	}
	if !<-newest {
		t.Error("the other node did not hear the newest word")
	}
	dropped, grown := a.Stats().DownDropped, heap()-before
	// What may be kept are the queue of each stream and its windows.
	if most := int64(4*downQueue*size + 8*window); dropped < messages/2 || grown > most || int64(messages*size) < 2*most {
		t.Errorf("%d messages of %d bytes: %d dropped, the heap grew by %d bytes; want most of them dropped and at most %d bytes", messages, size, dropped, grown, most)
	}
}
