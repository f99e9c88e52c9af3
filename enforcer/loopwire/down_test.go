package loopwire

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// At any time a bucket has one number on all streams, no two buckets share one,
// and numbers are no more than buckets were known at once.
func TestNumbersAreSharedAndUsedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNumbers()
		streams := map[int]*downstream{}
		most := 0
		t.Repeat(map[string]func(*rapid.T){
			"tell": func(t *rapid.T) {
				id := rapid.IntRange(0, 4).Draw(t, "stream")
				if streams[id] == nil {
					streams[id] = newDownstream(nil, n)
				}
				streams[id].tell(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "bucket"))
			},
			"end": func(t *rapid.T) {
				id := rapid.IntRange(0, 4).Draw(t, "stream")
				if streams[id] != nil {
					streams[id].forget()
					delete(streams, id)
				}
			},
			"": func(t *rapid.T) {
				known, names := map[string]uint32{}, map[uint32]string{}
				for _, d := range streams {
					for name, number := range d.told {
						if other, ok := known[name]; ok && other != number {
							t.Fatalf("%s is %d here and %d there", name, number, other)
						}
						if other, ok := names[number]; ok && other != name {
							t.Fatalf("%d is %s here and %s there", number, name, other)
						}
						known[name], names[number] = number, name
					}
				}
				most = max(most, len(known))
				if int(n.last) > most || len(n.used) != len(known) {
					t.Fatalf("numbers up to %d for at most %d buckets; %d in use, want %d", n.last, most, len(n.used), len(known))
				}
				for _, d := range streams {
					for _, o := range streams {
						if (d.set == o.set) != reflect.DeepEqual(d.told, o.told) {
							t.Fatalf("signatures do not tell %v from %v", d.told, o.told)
						}
					}
				}
			},
		})
	})
}

// crew is members of an aggregator whose streams nobody reads.
func crew(t *testing.T, buckets ...[]string) (a *Aggregator, members []*member) {
	t.Helper()
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Controller: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for i, list := range buckets {
		m := &member{downstream: newDownstream(nil, a.numbers), node: fmt.Sprint(i)}
		for _, b := range list {
			m.tell(b)
		}
		a.members[m] = struct{}{}
		members = append(members, m)
	}
	return a, members
}

// told is what waits for a member, as it arrives there.
func told(t *testing.T, m *member) (list [][]string) {
	t.Helper()
	names := &reader{}
	m.greet = nil
	m.send, m.sending = func(any) error { return nil }, true // here, instead of by a goroutine
	defer func() { m.send = nil }()
	for {
		v, err := m.next()
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			return list
		}
		data, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		var down pb.Down
		if err := proto.Unmarshal(bytes.Join(data, nil), &down); err != nil {
			t.Fatal(err)
		}
		if _, err := names.learn(down.Names); err != nil {
			t.Fatal(err)
		}
		d, err := decodeDirectives(names, down.Directives)
		if err != nil {
			t.Fatal(err)
		}
		buckets := []string{}
		for _, v := range d.List {
			buckets = append(buckets, v.Bucket)
		}
		list = append(list, buckets)
	}
}

func directives(seq uint64, buckets ...string) loop.Directives {
	d := loop.Directives{Epoch: 1, Seq: seq}
	for _, b := range buckets {
		d.List = append(d.List, loop.Directive{Bucket: b, Limit: 100, Keep: loop.Keep{1, 0.5, 0.001}})
	}
	return d
}

// Everybody is told what concerns him. It is encoded once for all who have the
// same buckets, however many they are.
func TestDirectivesAreEncodedOncePerSetOfBuckets(t *testing.T) {
	var sets [][]string
	for range 100 {
		sets = append(sets, []string{"a", "b"}, []string{"b", "a"}, []string{"c"})
	}
	a, members := crew(t, sets...)
	a.broadcast(directives(1, "a", "b", "c"))
	encoded := map[*byte]int{}
	for _, m := range members {
		f := m.frames[0]
		encoded[&f.data[0]]++
	}
	if len(encoded) != 2 {
		t.Errorf("%d encodings for 300 members of two sets of buckets, want 2", len(encoded))
	}
	for i, want := range [][][]string{{{"a", "b"}}, {{"a", "b"}}, {{"c"}}} {
		if got := told(t, members[i]); !reflect.DeepEqual(got, want) {
			t.Errorf("member %d is told %v, want %v", i, got, want)
		}
	}
}

// Who has none of the buckets is not woken for them, but hears each second that
// the zone is alive.
func TestWhomNothingConcernsIsLeftAlone(t *testing.T) {
	a, members := crew(t, []string{"a"}, []string{"b"})
	for seq := range uint64(5) {
		a.broadcast(directives(seq+1, "a"))
	}
	if first, second := told(t, members[0]), told(t, members[1]); len(first) != 5 || len(second) > 1 {
		t.Errorf("told %v and %v, want five messages and at most one", first, second)
	}
	a.broadcast(directives(9))
	if second := told(t, members[1]); len(second) != 1 {
		t.Errorf("the sign of life was told %d times, want once", len(second))
	}
}

// While a message is under way the next ones wait, whoever brings them; they go
// in order, a document's pieces after the directives that came before them. With
// nothing left nobody stays to send.
func TestWhatIsSentGoesOneByOneAndInOrder(t *testing.T) {
	d := newDownstream(&pb.DownHello{Name: "a"}, newNumbers())
	queue := func(seq uint64) {
		d.mu.Lock()
		defer d.mu.Unlock()
		f, err := d.encode(loop.Directives{Epoch: 1, Seq: seq}, false)
		if err != nil {
			t.Error(err)
		}
		d.push(f)
	}
	d.document(&Document{Kind: Snapshot, Content: make([]byte, pieceSize+1)})
	queue(1)
	var said []string
	var under atomic.Int32
	began, goOn := make(chan struct{}, 100), make(chan struct{})
	d.open(func(v any) error {
		if under.Add(1) != 1 {
			t.Error("two messages are under way")
		}
		defer under.Add(-1)
		began <- struct{}{}
		<-goOn
		data, err := encode(v)
		if err != nil {
			return err
		}
		var m pb.Down
		if err := proto.Unmarshal(bytes.Join(data, nil), &m); err != nil {
			return err
		}
		switch {
		case m.Hello != nil:
			said = append(said, "hello")
		case m.Directives != nil:
			said = append(said, fmt.Sprint(m.Directives.Seq))
		default:
			said = append(said, fmt.Sprint("piece of ", len(m.Document.Piece)))
		}
		return nil
	})
	for range 3 { // the hello, 1, and the first piece is under way
		<-began
		if len(began) == 0 && len(said) < 2 {
			goOn <- struct{}{}
		}
	}
	queue(2)
	queue(3)
	close(goOn)
	eventually(t, "nobody is sending", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !d.sending
	})
	if want := []string{"hello", "1", fmt.Sprint("piece of ", pieceSize), "2", "3", "piece of 1"}; !reflect.DeepEqual(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}

// A stream whose reader does not read can be ended all the same: its sender is
// not waited for.
func TestAStreamThatIsNotReadCanBeEnded(t *testing.T) {
	d := newDownstream(nil, newNumbers())
	stuck := make(chan struct{})
	defer close(stuck)
	sending := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- d.serve(func(any) error {
			close(sending)
			<-stuck
			return nil
		}, stuck, func() error { return io.EOF }, nil)
	}()
	<-sending
	d.end()
	if err := <-ended; status.Code(err) != codes.Aborted {
		t.Errorf("ended with %v, want that another stream has taken its place", err)
	}
}
