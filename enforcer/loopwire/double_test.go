package loopwire

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

func startZone(t *testing.T, controller, name string) (*Aggregator, string, *part) {
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Name: name, Controller: controller})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	return a, l.Addr().String(), start(t, func(ctx context.Context) error { return a.Serve(ctx, l) })
}

func startRoot(t *testing.T) (*Controller, string) {
	c, err := NewController(ControllerConfig{Limits: func(string, loop.Place) (loop.Setting, bool) { return loop.Setting{Rate: 1}, true }})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	start(t, func(ctx context.Context) error { return c.Serve(ctx, l) })
	return c, l.Addr().String()
}

func TestASecondAggregatorOfOneNameIsRefusedAndItsNodesGoOver(t *testing.T) {
	c, root := startRoot(t)
	first, firstAddr, firstPart := startZone(t, root, "")
	eventually(t, "the first attends", func() bool { return first.Stats().Connected })
	second, secondAddr, _ := startZone(t, root, "")
	eventually(t, "the second is refused", func() bool { return second.Ready() != nil })
	if got, want := second.Ready().Error(), `refused by the tier above: another process is open as aggregator "" of zone "z", region "": give each aggregator of a zone a --name of its own`; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	node := ""
	for n := 'a'; spread(node, []string{firstAddr, secondAddr})[0] != secondAddr || node == ""; n++ {
		node = string(n)
	}
	k, err := NewClient(ClientConfig{Addresses: []string{firstAddr, secondAddr}, Node: node, Client: loop.NewClient(loop.ClientConfig{Node: node})})
	if err != nil {
		t.Fatal(err)
	}
	start(t, k.Run)
	eventually(t, "its node goes over", func() bool { return first.Stats().Members == 1 })
	if s := c.Stats(); first.Stats().Connects != 1 || first.Ready() != nil || second.Stats().Members != 0 || s.Doubles == 0 || s.Connected != 1 {
		t.Errorf("the first connected %d times, ready %v; the second has %d nodes; the controller %+v", first.Stats().Connects, first.Ready(), second.Stats().Members, s)
	}
	// Once the first has gone, the second is taken in.
	firstPart.end(t)
	eventually(t, "the second takes its place", func() bool { return second.Stats().Connected && second.Ready() == nil })
	eventually(t, "with the node", func() bool { return second.Stats().Members == 1 })
}

// Nodes that know nobody but a refused aggregator hear how many there are, those
// of the aggregator that works included, and share their limits by head.
func TestNodesOfARefusedAggregatorShareByHead(t *testing.T) {
	_, root := startRoot(t)
	first, firstAddr, _ := startZone(t, root, "")
	eventually(t, "the first attends", func() bool { return first.Stats().Connected })
	join := func(name, address string) *loop.Handle {
		lc := loop.NewClient(loop.ClientConfig{Node: name})
		h := lc.Handle(loop.Path{"a"})
		k, err := NewClient(ClientConfig{Addresses: []string{address}, Node: name, Client: lc})
		if err != nil {
			t.Fatal(err)
		}
		start(t, func(ctx context.Context) error {
			h.Offer(loop.Normal)
			return k.Run(ctx)
		})
		return h
	}
	inside := join("in", firstAddr)
	// A request before the stream stands is told of to nobody: one more each time.
	eventually(t, "a node is directed", func() bool { inside.Offer(loop.Normal); return inside.Directed() })
	second, secondAddr, _ := startZone(t, root, "")
	eventually(t, "the second is refused", func() bool { return second.Ready() != nil })
	outside := []*loop.Handle{join("x", secondAddr), join("y", secondAddr)}
	for _, h := range outside {
		eventually(t, "one in three", func() bool { return h.Heads() == 3 })
	}
	if inside.Heads() != 0 {
		t.Errorf("a directed node is one of %d on their own", inside.Heads())
	}
}

func TestARestartedAggregatorTakesThePlaceOfADeadStream(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c, root := startRoot(t)
	conn, err := grpc.NewClient("passthrough:///"+root, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer cancel()
	attend := func(epoch uint64) grpc.BidiStreamingClient[pb.ZoneUp, pb.Down] {
		s, err := pb.NewControllerClient(conn).Attend(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pb.ZoneUp{Hello: &pb.ZoneHello{Zone: "z", Epoch: epoch}}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	dead := attend(1) // says nothing more
	if _, err := dead.Recv(); err != nil {
		t.Fatal(err)
	}
	again := attend(1) // the same process need not wait
	if _, err := again.Recv(); err != nil {
		t.Errorf("the same process is not taken in: %v", err)
	}
	a, _, p := startZone(t, root, "")
	eventually(t, "the restarted one is in", func() bool { return a.Stats().Connected })
	for err == nil {
		_, err = again.Recv()
	}
	if status.Code(err) != codes.Aborted || c.Stats().Connected != 1 {
		t.Errorf("the dead stream ended with %v; %d are connected", err, c.Stats().Connected)
	}
	p.end(t)
}

func TestTwoRegionControllersOfOneRegion(t *testing.T) {
	_, root := startRoot(t)
	region := func() *Controller {
		c, err := NewController(ControllerConfig{Region: "eu", Parent: root, Limits: func(string, loop.Place) (loop.Setting, bool) { return loop.Setting{}, false }})
		if err != nil {
			t.Fatal(err)
		}
		l := listen(t, "127.0.0.1:0")
		start(t, func(ctx context.Context) error { return c.Serve(ctx, l) })
		return c
	}
	first := region()
	eventually(t, "the first attends", func() bool { return first.Stats().Parent })
	second := region()
	eventually(t, "the second is refused", func() bool { return second.Ready() != nil })
	if text := second.Ready().Error(); !strings.Contains(text, `the controller of region "eu"`) || !strings.Contains(text, "--region") {
		t.Errorf("said %q", text)
	}
}

func TestASecondNodeOfOneNameIsRefused(t *testing.T) {
	_, root := startRoot(t)
	a, address, _ := startZone(t, root, "")
	node := func() *Client {
		lc := loop.NewClient(loop.ClientConfig{Node: "n"})
		lc.Handle(loop.Path{"a"}).Offer(loop.Normal)
		k, err := NewClient(ClientConfig{Addresses: []string{address}, Node: "n", Client: lc})
		if err != nil {
			t.Fatal(err)
		}
		start(t, k.Run)
		return k
	}
	first := node()
	eventually(t, "the first joins", func() bool { return first.Stats().Connected })
	node()
	eventually(t, "the second is refused", func() bool { return a.Stats().Doubles > 0 })
	if s := first.Stats(); !s.Connected || s.Connects != 1 {
		t.Errorf("the first is %+v", s)
	}
}
