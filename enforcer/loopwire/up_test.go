package loopwire

import (
	"reflect"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// wide is a list as it is read.
func wide(list []uint32) []uint64 {
	out := []uint64{}
	for _, v := range list {
		out = append(out, uint64(v))
	}
	return out
}

// What is read by hand is what protobuf reads, whatever a message holds and in
// whatever of the forms that protobuf allows.
func TestAReportIsReadAsProtobufReadsIt(t *testing.T) {
	pool := &sync.Pool{}
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Uint64(), 0, 20)
		m := &pb.NodeUp{Report: &pb.Report{Seq: rapid.Uint64().Draw(t, "seq"), AtUs: rapid.Int64().Draw(t, "at"),
			Paths: rapid.SliceOfN(rapid.Uint32(), 0, 20).Draw(t, "paths"), SinceUs: list.Draw(t, "since"),
			Offered: list.Draw(t, "offered"), Dropped: list.Draw(t, "dropped")}}
		if rapid.Bool().Draw(t, "more") {
			m.Hello, m.Ack = &pb.NodeHello{Node: "n", Incarnation: 7}, []byte("ack")
			m.Names = &pb.Names{FirstBucket: 1, Buckets: []string{"b"}}
		}
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "a second part") { // lists one by one, and a field of later versions
			var part []byte
			for range 3 {
				part = protowire.AppendVarint(protowire.AppendTag(part, fieldOffer, protowire.VarintType), 300)
			}
			part = protowire.AppendFixed64(protowire.AppendTag(part, 99, protowire.Fixed64Type), 1)
			data = protowire.AppendBytes(protowire.AppendTag(data, fieldReport, protowire.BytesType), part)
		}
		var want pb.NodeUp
		if err := proto.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		in := nodeUp{pool: pool}
		if err := in.read(data); err != nil {
			t.Fatal(err)
		}
		c, r := in.columns, want.Report
		got := []any{c.seq, int64(c.at), append([]uint64{}, c.paths...), append([]uint64{}, c.since...), append([]uint64{}, c.offered...), append([]uint64{}, c.dropped...)}
		if w := []any{r.Seq, r.AtUs, wide(r.Paths), append([]uint64{}, r.SinceUs...), append([]uint64{}, r.Offered...), append([]uint64{}, r.Dropped...)}; !reflect.DeepEqual(got, w) {
			t.Fatalf("read %v, want %v", got, w)
		}
		if want.Report = nil; !proto.Equal(&in.NodeUp, &want) {
			t.Fatalf("read %v besides, want %v", &in.NodeUp, &want)
		}
		in.done()
	})
}

// Nothing of one message is left in the next one.
func TestMessagesDoNotMix(t *testing.T) {
	in := nodeUp{pool: &sync.Pool{}}
	for _, m := range []*pb.NodeUp{
		{Hello: &pb.NodeHello{Node: "n"}, Report: &pb.Report{Seq: 1, Paths: []uint32{1, 2}}},
		{Report: &pb.Report{Seq: 2, Paths: []uint32{3}}},
		{Ack: []byte("a")},
		{},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.read(data); err != nil {
			t.Fatal(err)
		}
		if (m.Report != nil) != (in.columns != nil) || m.Report != nil && !reflect.DeepEqual(in.columns.paths, wide(m.Report.Paths)) {
			t.Errorf("after %v the report is %v", m, in.columns)
		}
		if m.Report = nil; !proto.Equal(m, &in.NodeUp) {
			t.Errorf("besides the report there is %v, want %v", &in.NodeUp, m)
		}
	}
}

// A report of many buckets is read without an allocation.
func TestReadingAReportAllocatesNothing(t *testing.T) {
	w, names := newWriter(), &reader{}
	r := loop.Report{Seq: 1}
	for range 50 {
		r.Paths = append(r.Paths, loop.PathReport{Path: loop.Path{"bucket"}, Offered: [loop.Classes]uint64{loop.Normal: 1e6}, Dropped: []uint64{1e5}})
	}
	data, err := proto.Marshal(&pb.NodeUp{Report: encodeReport(w, r)})
	if err != nil {
		t.Fatal(err)
	}
	fresh, _ := w.take()
	if _, err := names.learn(fresh); err != nil {
		t.Fatal(err)
	}
	columns := &columns{}
	in := nodeUp{pool: &sync.Pool{New: func() any { return columns }}}
	if n := testing.AllocsPerRun(50, func() {
		if err := in.read(data); err != nil {
			t.Fatal(err)
		}
		if got, err := in.columns.report(names); err != nil || len(got.Paths) != 50 {
			t.Fatal(got, err)
		}
		in.columns = nil
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// Bytes of any kind are a message or an error.
func FuzzNodeUp(f *testing.F) {
	f.Add([]byte{0x1a, 2, 0x1a, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := nodeUp{pool: &sync.Pool{}}
		err := in.read(data)
		var m pb.NodeUp
		if proto.Unmarshal(data, &m) == nil && err != nil {
			t.Errorf("refused what protobuf reads: %v", err)
		}
	})
}
