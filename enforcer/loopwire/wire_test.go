package loopwire

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

func TestQueueDropsTheOldestAndCounts(t *testing.T) {
	q := newQueue[int](3)
	for i := range 10 {
		q.push(i)
	}
	var got []int
	for v, ok := q.take(); ok; v, ok = q.take() {
		got = append(got, v)
	}
	if !reflect.DeepEqual(got, []int{7, 8, 9}) || q.dropped != 7 || cap(q.items) > 8 {
		t.Errorf("took %v, %d dropped, room for %d; want the last three, 7, and room for few", got, q.dropped, cap(q.items))
	}
	if err := q.wait(t.Context()); err != nil {
		t.Error(err) // one wake is left over, at most
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an empty queue: %v", err)
	}
}

// wire passes a message through its encoding.
func wire[M proto.Message](t *rapid.T, m M) M {
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// arrive passes a message through its encoding to an aggregator.
func arrive(t *rapid.T, in *nodeUp, m *pb.NodeUp) *nodeUp {
	data, err := proto.Marshal(m)
	if err == nil {
		err = in.read(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func paths(t *rapid.T) []loop.Path {
	name := rapid.SampledFrom([]string{"a", "b", "c\x00d", "é"})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) loop.Path {
		return rapid.SliceOfN(name, 1, 4).Draw(t, "path")
	}), 0, 5).Draw(t, "paths")
}

// Whatever is said on a stream, in any number of messages, arrives as said.
func TestWhatIsSentArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, r, below, down := newWriter(), &reader{}, &reader{}, newDownstream(nil, newNumbers())
		in := &nodeUp{pool: &sync.Pool{New: func() any { return &columns{room: make([]loop.PathReport, 0, 2)} }}}
		learn := func(n *pb.Names, err error) {
			if err != nil {
				t.Fatal(err)
			}
			if n == nil {
				return
			}
			if _, err := r.learn(wire(t, n)); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 4).Draw(t, "messages") {
			report := loop.Report{Seq: rapid.Uint64().Draw(t, "seq"), At: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "at")) * time.Microsecond, Paths: []loop.PathReport{}}
			sum := loop.Sum{Seq: report.Seq, Leaving: rapid.Bool().Draw(t, "leaving"), Paths: []loop.PathSum{}, Keeps: []loop.BucketKeep{}}
			d := loop.Directives{Epoch: rapid.Uint64().Draw(t, "epoch"), Seq: report.Seq, List: []loop.Directive{}}
			number := rapid.Float64Range(0, 1e12)
			for _, p := range paths(t) {
				pr := loop.PathReport{Path: p, Since: time.Second, Dropped: make([]uint64, len(p))}
				ps := loop.PathSum{Path: p, Nodes: rapid.IntRange(0, 1e6).Draw(t, "nodes"), Dropped: make([]float64, len(p)), Doubted: number.Draw(t, "doubted"), Counted: number.Draw(t, "counted"), Spans: number.Draw(t, "spans")}
				for c := range pr.Offered {
					pr.Offered[c], ps.Offered[c] = rapid.Uint64().Draw(t, "offered"), number.Draw(t, "rate")
				}
				for i := range p {
					pr.Dropped[i], ps.Dropped[i] = rapid.Uint64().Draw(t, "dropped"), number.Draw(t, "rate")
				}
				report.Paths, sum.Paths = append(report.Paths, pr), append(sum.Paths, ps)
				sum.Keeps = append(sum.Keeps, loop.BucketKeep{Bucket: p[0], Keep: loop.Keep{1, 0.5, 0.25}})
				d.List = append(d.List, loop.Directive{Bucket: p[0], Scope: loop.Scope(rapid.IntRange(0, 2).Draw(t, "scope")),
					Limit: number.Draw(t, "limit"), None: rapid.Bool().Draw(t, "none"), Decide: rapid.Bool().Draw(t, "decide"), Hot: rapid.Bool().Draw(t, "hot"),
					Keep: loop.Keep{1, 0.5, 0.001}, Nodes: 7, Load: number.Draw(t, "load"), Share: 0.3, Spare: number.Draw(t, "spare")})
			}
			mr, ms := encodeReport(w, report), encodeSum(w, sum)
			learn(w.take())
			for i := range d.List {
				down.tell(d.List[i].Bucket)
			}
			md := encodeDirectives(down.told, d, true)
			if down.fresh != nil {
				if _, err := below.learn(wire(t, down.fresh)); err != nil {
					t.Fatal(err)
				}
				down.fresh = nil
			}
			gotReport, err1 := arrive(t, in, &pb.NodeUp{Report: mr}).columns.report(r)
			gotSum, err2 := decodeSum(r, wire(t, ms))
			gotD, err3 := decodeDirectives(below, wire(t, md))
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			for _, c := range [][2]any{{gotReport, report}, {gotSum, sum}, {gotD, d}} {
				if !reflect.DeepEqual(c[0], c[1]) {
					t.Fatalf("arrived %+v, want %+v", c[0], c[1])
				}
			}
		}
	})
}

func TestDamagedMessagesAreRefused(t *testing.T) {
	r := &reader{buckets: []string{"a"}, paths: []loop.Path{{"a"}}}
	report := func(c columns) error { return second(c.report(r)) }
	for name, err := range map[string]error{
		"a gap in the names":   second(r.learn(&pb.Names{FirstBucket: 5, Buckets: []string{"x"}})),
		"an empty name":        second(r.learn(&pb.Names{FirstBucket: 2, Buckets: []string{""}})),
		"an empty path":        second(r.learn(&pb.Names{FirstPath: 2, Paths: []uint32{0}})),
		"a path too long":      second(r.learn(&pb.Names{FirstPath: 2, Paths: []uint32{9, 1}})),
		"a path cut off":       second(r.learn(&pb.Names{FirstPath: 2, Paths: []uint32{1}})),
		"an unknown bucket":    second(r.learn(&pb.Names{FirstPath: 2, Paths: []uint32{1, 8}})),
		"numbers missing":      second(r.learn(&pb.Names{Buckets: []string{"x", "y"}, Numbers: []uint32{1}})),
		"an empty numbered":    second(r.learn(&pb.Names{Buckets: []string{""}, Numbers: []uint32{1}})),
		"lists that differ":    report(columns{paths: []uint64{1}}),
		"an unknown path":      report(columns{paths: []uint64{9}, since: []uint64{1}, offered: []uint64{1, 1, 1}, dropped: []uint64{1}}),
		"drops missing":        report(columns{paths: []uint64{1}, since: []uint64{1}, offered: []uint64{1, 1, 1}}),
		"sums that differ":     second(decodeSum(r, &pb.Sum{Paths: []uint32{1}})),
		"keeps that differ":    second(decodeSum(r, &pb.Sum{KeptBuckets: []uint32{1}})),
		"directives differ":    second(decodeDirectives(r, &pb.Directives{Buckets: []uint32{1}})),
		"path number zero":     second(r.path(0)),
		"a document too large": second((&assembly{parts: [kinds]*Document{1: {Kind: 1, Content: make([]byte, maxDocument)}}}).add(&pb.Document{Kind: 1, Piece: []byte("x")})),
	} {
		if !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAStreamOutOfNamesEnds(t *testing.T) {
	w := newWriter()
	for i := range maxNames + 1 {
		w.bucket(strconv.Itoa(i))
	}
	if _, err := w.take(); err != errFull {
		t.Errorf("%v, want the stream to end", err)
	}
}

func TestDocumentsComeInPieces(t *testing.T) {
	for _, size := range []int{0, 1, pieceSize, pieceSize + 1, 3 * pieceSize} {
		d := Document{Kind: Snapshot, Version: rlc.Version{Epoch: 2, Number: 9}, Content: make([]byte, size)}
		for i := range d.Content {
			d.Content[i] = byte(i)
		}
		var a assembly
		// A first try was broken off.
		_, _ = a.add(&pb.Document{Kind: 1, Epoch: 2, Number: 8, Piece: []byte("old")})
		var got *Document
		for _, p := range d.pieces() {
			var err error
			if got, err = a.add(p); err != nil {
				t.Fatal(err)
			}
		}
		if got == nil || got.Version != d.Version || string(got.Content) != string(d.Content) {
			t.Errorf("%d bytes: got %v", size, got)
		}
	}
}

func TestOlderDocumentsAreIgnored(t *testing.T) {
	var n newest
	for _, c := range []struct {
		v    rlc.Version
		want bool
	}{{rlc.Version{Epoch: 1, Number: 5}, true}, {rlc.Version{Epoch: 1, Number: 5}, false}, {rlc.Version{Epoch: 1, Number: 4}, false}, {rlc.Version{Epoch: 2, Number: 1}, true}} {
		if got := n.merge(&Document{Kind: Overrides, Version: c.v}); got != c.want {
			t.Errorf("%v: %v, want %v", c.v, got, c.want)
		}
	}
	if n.merge(&Document{Kind: 9, Version: rlc.Version{Epoch: 9}}) {
		t.Error("an unknown kind is kept")
	}
}

// Pauses are spread over their whole length from the first, and bounded.
func TestPausesAreJittered(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for failures := range 100 {
		most := time.Duration(0)
		least := time.Hour
		for range 200 {
			p := pause(failures, r.Int64N)
			most, least = max(most, p), min(least, p)
		}
		bound := min(firstPause<<min(failures, 9), lastPause)
		if most > bound || most < bound*9/10 || least > bound/10 {
			t.Fatalf("after %d failures between %v and %v, want all of 0 to %v", failures, least, most, bound)
		}
	}
}

func TestTheSameAddressBeyondLoopbackNeedsCertificates(t *testing.T) {
	c, err := NewController(ControllerConfig{Limits: func(string, loop.Place) (loop.Setting, bool) { return loop.Setting{}, false }})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Serve(t.Context(), listen(t, "0.0.0.0:0")); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("%v, want a refusal", err)
	}
}
