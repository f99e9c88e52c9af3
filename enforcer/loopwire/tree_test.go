package loopwire

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// The cost of the tree is measured, not asserted, where RLC_LOOP_TREE asks for
// it: "nodes,buckets,seconds". The nodes are another process, each with a
// connection of its own on which it reports every bucket each second.
const treeVariable, nodesVariable = "RLC_LOOP_TREE", "RLC_LOOP_TREE_NODES"

func TestMain(m *testing.M) {
	if address := os.Getenv(nodesVariable); address != "" {
		if err := nodesMain(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type treeSize struct{ nodes, buckets, seconds int }

func treeOf(text string) (s treeSize, err error) {
	_, err = fmt.Sscanf(text, "%d,%d,%d", &s.nodes, &s.buckets, &s.seconds)
	return s, err
}

// nodesMain is the nodes' process. It ends with its parent's pipe.
func nodesMain(address string) error {
	size, err := treeOf(os.Getenv(treeVariable))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var nodes sync.WaitGroup
	for n := range size.nodes {
		nodes.Go(func() {
			if err := oneNode(ctx, address, n, size); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "node:", err)
			}
		})
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent is done
	cancel()
	nodes.Wait()
	return nil
}

// rawNode is a node on a connection of its own. It writes HTTP/2 frames as they
// are, so that a machine that can carry the aggregator can carry its nodes.
type rawNode struct {
	conn net.Conn
	keep []atomic.Uint64 // of each bucket, bits of a float64
}

// The frames of HTTP/2 (RFC 9113, 6) that a gRPC stream needs.
const (
	frameData, frameHeaders, frameSettings, frameWindow = 0, 1, 4, 8
	endHeaders                                          = 4
	http2Preface                                        = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func appendFrame(to []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	to = append(to, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return append(binary.BigEndian.AppendUint32(to, stream), payload...)
}

func dialNode(address string, buckets int) (*rawNode, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	n := &rawNode{conn: conn, keep: make([]atomic.Uint64, buckets)}
	for i := range n.keep {
		n.keep[i].Store(math.Float64bits(1))
	}
	var headers []byte
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", pb.Aggregator_Join_FullMethodName}, {":authority", address},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		headers = append(append(headers, 0, byte(len(f[0]))), f[0]...) // literal, not indexed
		headers = append(append(headers, byte(len(f[1]))), f[1]...)
	}
	const much = 1 << 30 // so that nothing has to be said about windows any more
	begin := appendFrame([]byte(http2Preface), frameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, much))
	begin = appendFrame(begin, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, much))
	_, err = conn.Write(appendFrame(begin, frameHeaders, endHeaders, 1, headers))
	return n, err
}

// send sends one gRPC message.
func (n *rawNode) send(message []byte) error {
	data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	_, err := n.conn.Write(appendFrame(nil, frameData, 0, 1, data))
	return err
}

// receive is the next gRPC message. Documents do not come here, so a message
// is one frame.
func receive(r *bufio.Reader) ([]byte, error) {
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(r, payload); err != nil {
			return nil, err
		}
		if head[3] == frameData && len(payload) >= 5 {
			return payload[5:], nil
		}
	}
}

// listen obeys what comes down until the connection ends.
func (n *rawNode) listen(index map[string]int) {
	in := bufio.NewReaderSize(n.conn, 4<<10)
	var names reader
	for {
		data, err := receive(in)
		if err != nil {
			return
		}
		var m pb.Down
		if err := proto.Unmarshal(data, &m); err != nil {
			return
		}
		if _, err := names.learn(m.Names); err != nil {
			return
		}
		if m.Directives == nil {
			continue
		}
		d, err := decodeDirectives(&names, m.Directives)
		if err != nil {
			return
		}
		for _, v := range d.List {
			n.keep[index[v.Bucket]].Store(math.Float64bits(v.Keep[loop.Normal]))
		}
	}
}

// oneNode is offered 10 requests per bucket and second, as chance has it, and
// drops what it is told.
func oneNode(ctx context.Context, address string, number int, size treeSize) error {
	select { // spread the beginnings and the phases
	case <-time.After(time.Duration(number) * time.Second * 10 / time.Duration(size.nodes)):
	case <-ctx.Done():
		return nil
	}
	n, err := dialNode(address, size.buckets)
	if err != nil {
		return err
	}
	defer n.conn.Close()
	index := map[string]int{}
	r := loop.Report{}
	for b := range size.buckets {
		name := "service\x00callers\x00callers/caller=" + strconv.Itoa(b)
		index[name] = b
		r.Paths = append(r.Paths, loop.PathReport{Path: loop.Path{name}, Since: time.Second, Dropped: []uint64{0}})
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	defer n.conn.Close()
	listening.Go(func() { n.listen(index) })
	hello, err := proto.Marshal(&pb.NodeUp{Hello: &pb.NodeHello{Node: strconv.Itoa(number), Incarnation: 1}})
	if err != nil {
		return err
	}
	if err := n.send(hello); err != nil {
		return err
	}
	w := newWriter()
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		r.Seq++
		before := r.At
		r.At = time.Since(began)
		// A node that gets the processor late reports late, and more.
		mean := 10 * (r.At - before).Seconds()
		for i := range r.Paths {
			r.Paths[i].Since = r.At - before
			came := uint64(max(0, mean+rand.NormFloat64()*math.Sqrt(mean)+0.5))
			r.Paths[i].Offered[loop.Normal] += came
			drop := float64(came) * (1 - math.Float64frombits(n.keep[i].Load()))
			r.Paths[i].Dropped[0] += uint64(drop + rand.Float64())
		}
		m := &pb.NodeUp{Report: encodeReport(w, r)}
		if m.Names, err = w.take(); err != nil {
			return err
		}
		data, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		if err := n.send(data); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// cpu is the processor time this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestTreeCost(t *testing.T) {
	size, err := treeOf(os.Getenv(treeVariable))
	if err != nil {
		return // not asked for
	}
	c, err := NewController(ControllerConfig{Limits: func(string, loop.Place) (loop.Setting, bool) {
		return loop.Setting{Rate: 9 * float64(size.nodes)}, true // 10 are offered: every bucket is over its limit
	}})
	if err != nil {
		t.Fatal(err)
	}
	lc := listen(t, "127.0.0.1:0")
	start(t, func(ctx context.Context) error { return c.Serve(ctx, lc) })
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Controller: lc.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	la := listen(t, "127.0.0.1:0")
	start(t, func(ctx context.Context) error { return a.Serve(ctx, la) })

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), nodesVariable+"="+la.Addr().String(), "GOGC=400")
	pipe, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { pipe.Close(); _ = child.Wait() }()
	eventually(t, "all nodes report", func() bool { return a.Stats().Nodes >= size.nodes*95/100 })
	<-time.After(6 * time.Second)
	before, was, from := cpu(t), a.Stats(), time.Now()
	<-time.After(time.Duration(size.seconds) * time.Second)
	span, s := time.Since(from), a.Stats()
	used := cpu(t) - before
	reports, told := s.Reports-was.Reports, s.Told-was.Told
	fmt.Printf("nodes %d, buckets %d: %.3f cores, %.1f µs a report, %.0f reports/s, %.0f messages down/s, %d late, %d dropped\n", size.nodes, size.buckets,
		used.Seconds()/span.Seconds(), float64(used.Microseconds())/float64(reports), float64(reports)/span.Seconds(), float64(told)/span.Seconds(), s.Late-was.Late, s.DownDropped-was.DownDropped)
}
