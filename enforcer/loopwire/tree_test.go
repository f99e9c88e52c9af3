package loopwire

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// The cost of the tree is measured, not asserted, where RLC_LOOP_TREE asks for
// it: "nodes,buckets,connections,seconds". The nodes are another process, each
// with a stream of its own that reports every bucket each second.
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

type treeSize struct{ nodes, buckets, connections, seconds int }

func treeOf(text string) (s treeSize, err error) {
	_, err = fmt.Sscanf(text, "%d,%d,%d,%d", &s.nodes, &s.buckets, &s.connections, &s.seconds)
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
	conns := make([]*grpc.ClientConn, size.connections)
	for i := range conns {
		if conns[i], err = grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10)); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	for n := range size.nodes {
		nodes.Go(func() {
			if err := oneNode(ctx, conns[n%len(conns)], n, size); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "node:", err)
			}
		})
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent is done
	cancel()
	nodes.Wait()
	return nil
}

// oneNode reports 10 requests per bucket and second.
func oneNode(ctx context.Context, conn *grpc.ClientConn, n int, size treeSize) error {
	select { // spread the beginnings and the phases over a second
	case <-time.After(time.Duration(n) * 4 * time.Second / time.Duration(size.nodes)):
	case <-ctx.Done():
		return nil
	}
	s, err := pb.NewAggregatorClient(conn).Join(ctx)
	if err != nil {
		return err
	}
	go func() {
		for {
			if _, err := s.Recv(); err != nil {
				return
			}
		}
	}()
	if err := s.Send(&pb.NodeUp{Hello: &pb.NodeHello{Node: strconv.Itoa(n), Incarnation: 1}}); err != nil {
		return err
	}
	w := newWriter()
	r := loop.Report{}
	for b := range size.buckets {
		r.Paths = append(r.Paths, loop.PathReport{Path: loop.Path{"service\x00callers\x00callers/caller=" + strconv.Itoa(b)}, Since: time.Second, Dropped: []uint64{0}})
	}
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		r.Seq++
		r.At = time.Since(began)
		for i := range r.Paths {
			r.Paths[i].Offered[loop.Normal] += 10
		}
		m := &pb.NodeUp{Report: encodeReport(w, r)}
		if m.Names, err = w.take(); err != nil {
			return err
		}
		if err := s.Send(m); err != nil {
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
	eventually(t, "all nodes report", func() bool { return a.Stats().Nodes >= size.nodes*98/100 })
	<-time.After(3 * time.Second)
	before, reports, from := cpu(t), a.Stats().Reports, time.Now()
	<-time.After(time.Duration(size.seconds) * time.Second)
	span, s := time.Since(from), a.Stats()
	used := cpu(t) - before
	n := s.Reports - reports
	if _, err := os.Stdout.WriteString(strings.Join([]string{fmt.Sprintf("nodes %d, buckets %d, connections %d:", size.nodes, size.buckets, size.connections),
		fmt.Sprintf("%.3f cores", used.Seconds()/span.Seconds()), fmt.Sprintf("%.1f µs a report", float64(used.Microseconds())/float64(n)),
		fmt.Sprintf("%.0f reports/s", float64(n)/span.Seconds()), fmt.Sprintf("down dropped %d, late %d", s.DownDropped, s.Late)}, " ") + "\n"); err != nil {
		t.Fatal(err)
	}
}
