package loop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
)

const second = time.Second

// offer offers n requests and returns how many pass.
func offer(h *Handle, c Class, n int) (passed int) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		if h.Take(c, 1, r.Uint64()) == Admitted {
			passed++
		}
	}
	return passed
}

func newClient(t *testing.T) *Client {
	t.Helper()
	c := NewClient(ClientConfig{Node: "n", Stripes: 2})
	c.Connect(1)
	return c
}

func order(seq uint64, list ...Directive) Directives {
	return Directives{Epoch: 1, Seq: seq, List: list}
}

func keepNormal(bucket string, k float64) Directive {
	return Directive{Bucket: bucket, Limit: 100, Keep: Keep{1, k, MinKeep}, Nodes: 4, Load: 400}
}

func TestHandleForwardsWithoutADirective(t *testing.T) {
	if n := offer(newClient(t).Handle(Path{"a"}), Normal, 1000); n != 1000 {
		t.Errorf("%d of 1000 passed", n)
	}
}

func TestHandleKeepsTheProductOfItsPath(t *testing.T) {
	c := newClient(t)
	h, plain := c.Handle(Path{"a", "b"}), c.Handle(Path{"b"})
	c.Apply(order(1, keepNormal("a", 0.5), keepNormal("b", 0.4)), 0)
	if k, p := h.Keep(Normal), plain.Keep(Normal); k != 0.2 || p != 0.4 {
		t.Errorf("keeps %v and %v, want 0.2 and 0.4", k, p)
	}
	const n = 100_000
	if passed := offer(h, Normal, n); math.Abs(float64(passed)/n-0.2) > 0.005 {
		t.Errorf("%d of %d passed, want 20 %%", passed, n)
	}
	if passed := offer(h, Critical, n); passed != n {
		t.Errorf("%d of %d critical passed", passed, n)
	}
	var offered [Classes]uint64
	dropped := make([]uint64, 2)
	h.read(&offered, dropped)
	// Of the refused, a refuses a half and b 0.6 of what a leaves.
	if offered != [Classes]uint64{n, n, 0} || math.Abs(float64(dropped[0])/n-0.5) > 0.005 || math.Abs(float64(dropped[1])/n-0.3) > 0.005 {
		t.Errorf("counted %v offered, %v dropped", offered, dropped)
	}
}

// The same draw refuses under every ratio that refuses it and a lower one: a
// request that shadow would drop is the one that enforcing drops.
func TestHandlesAgreeOnADraw(t *testing.T) {
	c := newClient(t)
	live, asIf := c.Handle(Path{"a"}), c.Handle(Path{"shadow", "a"})
	c.Apply(order(1, keepNormal("a", 0.7), keepNormal("shadow", 0.7)), 0)
	for range 10_000 {
		draw := rand.Uint64()
		if live.Take(Normal, 1, draw) != Admitted && asIf.Take(Normal, 1, draw) == Admitted {
			t.Fatal("dropped, but not as if everything enforced")
		}
	}
}

func TestClientReports(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a", "b"})
	if _, send := c.Tick(0); send {
		t.Error("a report without a request")
	}
	c.Apply(order(1, Directive{Bucket: "a", Keep: Keep{1, 0, 0}, Hot: true}), 0)
	offer(h, Critical, 3)
	offer(h, Batch, 2)
	r, send := c.Tick(100 * time.Millisecond)
	want := Report{Node: "n", Incarnation: 1, Seq: 1, At: 100 * time.Millisecond, Paths: []PathReport{
		{Path: Path{"a", "b"}, Since: 100 * time.Millisecond, Offered: [Classes]uint64{Critical: 3, Batch: 2}, Dropped: []uint64{2, 0}},
	}}
	if !send || !reflect.DeepEqual(r, want) {
		t.Errorf("first report %+v, want at once %+v", r, want)
	}
	offer(h, Critical, 1)
	for _, at := range []time.Duration{200, 300} {
		if r, send := c.Tick(at * time.Millisecond); send {
			t.Errorf("a hot path reports %+v after %d ms, want after 250", r, at-100)
		}
	}
	r, send = c.Tick(400 * time.Millisecond)
	if !send || r.Seq != 2 || r.Paths[0].Offered != [Classes]uint64{Critical: 4, Batch: 2} || r.Paths[0].Since != 300*time.Millisecond {
		t.Errorf("second report %+v, want cumulative counts", r)
	}
	r, send = c.Tick(700 * time.Millisecond)
	if !send || r.Paths[0].Offered[Critical] != 4 {
		t.Errorf("third report %+v, want one that says that nothing came", r)
	}
	for at := 800 * time.Millisecond; at < 5*second; at += ClientTick {
		if r, send := c.Tick(at); send {
			t.Fatalf("an idle path reports %+v", r)
		}
	}
}

func TestClientReportsAJumpAtOnce(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a"})
	now := time.Duration(0)
	reports := 0
	for ; now < 5*second; now += ClientTick {
		offer(h, Normal, 10) // 100/s
		if _, send := c.Tick(now); send && now >= 2*second {
			reports++
		}
	}
	if reports > 3 {
		t.Errorf("%d reports in 3 s of steady load, want one a second", reports)
	}
	c.Tick(now)
	offer(h, Normal, 60) // e = 10·k; 4·sqrt(10·1.1+1)+2 = 15.9 above it
	if _, send := c.Tick(now + ClientTick); !send {
		t.Error("a jump is not reported within a tick")
	}
}

func TestClientStartsItsCountsAnewWithEachStream(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a"})
	offer(h, Normal, 5)
	c.Tick(ClientTick)
	c.Connect(2)
	offer(h, Normal, 7)
	r, _ := c.Tick(2 * ClientTick)
	if r.Incarnation != 2 || r.Seq != 1 || r.Paths[0].Offered[Normal] != 7 {
		t.Errorf("after a new stream %+v, want 7 requests as report 1 of incarnation 2", r)
	}
}

func TestClientIgnoresWhatIsNotNewer(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a"})
	c.Apply(Directives{Epoch: 2, Seq: 5, List: []Directive{keepNormal("a", 0.5)}}, 0)
	for _, late := range []Directives{
		{Epoch: 2, Seq: 5, List: []Directive{keepNormal("a", 0.9)}},
		{Epoch: 2, Seq: 4, List: []Directive{keepNormal("a", 0.9)}},
		{Epoch: 1, Seq: 9, List: []Directive{keepNormal("a", 0.9)}},
	} {
		if c.Apply(late, second); h.Keep(Normal) != 0.5 {
			t.Errorf("%d.%d changed 2.5", late.Epoch, late.Seq)
		}
	}
	c.Apply(Directives{Epoch: 3, Seq: 1, List: []Directive{keepNormal("a", 0.25)}}, second)
	if h.Keep(Normal) != 0.25 {
		t.Error("a new epoch is ignored")
	}
	// Whoever spoke last has been silent past its TTL: its stamp binds nobody.
	c.Apply(Directives{Epoch: 1, Seq: 1, List: []Directive{keepNormal("a", 0.75)}}, second+TTL+1)
	if h.Keep(Normal) != 0.75 {
		t.Error("a lower epoch is ignored although the higher one is silent")
	}
}

func TestClientHeldToItsShareWhenNothingIsHeard(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a"})
	c.Apply(order(1, Directive{Bucket: "a", Limit: 1000, Keep: keepAll, Nodes: 4, Load: 800}), 0)
	passed := map[bool]int{}
	for now := ClientTick; now <= 30*second; now += ClientTick {
		c.Tick(now)
		silent := now > TTL
		if n := offer(h, Normal, 40); now > TTL+second || !silent { // 400/s here
			passed[silent] += n
		}
	}
	// 1000 · (0.5/4 + 0.5·400/800) = 375/s for 19 s.
	if n := passed[true]; math.Abs(float64(n)/19/375-1) > 0.02 {
		t.Errorf("%d passed in 19 s of silence, want 375/s", n)
	}
	if n := passed[false]; n != 4000 {
		t.Errorf("%d of 4000 passed within the TTL", n)
	}
	// Something is heard again, but of this bucket not yet: its share stands.
	for seq := range 12 {
		at := 31*second + time.Duration(seq)*second
		c.Apply(order(uint64(2+seq)), at)
		c.Tick(at)
		if n := offer(h, Normal, 1000); seq < 10 && n > 400 {
			t.Errorf("%d of 1000 passed %d s after something was heard", n, seq)
		}
	}
	// For as long again nothing was said of it: it has no limit any more.
	if n := offer(h, Normal, 1000); n != 1000 {
		t.Errorf("%d of 1000 passed without a directive", n)
	}
}

func TestParkedHandleComesBack(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a"})
	offer(h, Normal, 1)
	c.Tick(ClientTick)
	c.Tick(parkAfter + second)
	if len(c.order) != 0 || len(c.buckets) != 0 {
		t.Fatalf("%d handles and %d buckets after ten idle minutes", len(c.order), len(c.buckets))
	}
	if n := offer(h, Normal, 10); n != 10 {
		t.Errorf("%d of 10 passed", n)
	}
	c.Apply(order(1, keepNormal("a", 0.5)), parkAfter+2*second)
	if h.Keep(Normal) != 0.5 || c.Handle(Path{"a"}) != h {
		t.Error("it hears no directives")
	}
}

func TestHandlesAreBounded(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n", MaxHandles: 1})
	c.Handle(Path{"a"})
	h := c.Handle(Path{"b"})
	if n := offer(h, Normal, 10); n != 10 || c.Untracked() != 1 || len(c.order) != 1 {
		t.Errorf("%d passed, %d untracked, %d reported", n, c.Untracked(), len(c.order))
	}
}

func TestOfferDoesNotAllocate(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n"})
	h := c.Handle(Path{"a", "b"})
	c.Apply(order(1, keepNormal("a", 0.5)), 0)
	if n := testing.AllocsPerRun(1000, func() { h.Offer(Normal) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestClientUnderConcurrency(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n", Stripes: 4})
	c.Connect(1)
	h := c.Handle(Path{"a"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 5000 {
				h.Offer(Class(i % 4))
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			c.Apply(order(uint64(i+1), keepNormal("a", float64(i%10)/10)), time.Duration(i)*ClientTick)
			c.Tick(time.Duration(i) * ClientTick)
			c.Handle(Path{"a", "x"})
		}
	})
	wg.Wait()
	var offered [Classes]uint64
	h.read(&offered, make([]uint64, 1))
	if offered != [Classes]uint64{5000, 10000, 5000} { // the class out of range is normal
		t.Errorf("counted %v", offered)
	}
}

func TestABusyHandleCountsInStripesAndLosesNothing(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n", Stripes: 4})
	c.Connect(1)
	busy, quiet, long := c.Handle(Path{"a"}), c.Handle(Path{"b"}), c.Handle(Path{"1", "2", "3", "4", "5", "6"})
	c.Apply(order(1, keepNormal("6", 0)), 0)
	offer := func(n int) {
		for range n {
			busy.Offer(Normal)
		}
		quiet.Offer(Batch)
		long.Offer(Critical)
	}
	offer(2000) // of one tick: 20,000 a second
	c.Tick(ClientTick)
	offer(500)
	for _, x := range []struct {
		h       *Handle
		stripes int
		offered [Classes]uint64
		dropped []uint64
	}{
		{busy, 4, [Classes]uint64{Normal: 2500}, []uint64{0}},
		{quiet, 0, [Classes]uint64{Batch: 2}, []uint64{0}},
		{long, 0, [Classes]uint64{Critical: 2}, []uint64{0, 0, 0, 0, 0, 0}},
	} {
		var offered [Classes]uint64
		dropped := make([]uint64, len(x.dropped))
		x.h.read(&offered, dropped)
		n := 0
		if w := x.h.wide.Load(); w != nil {
			n = int(w.mask + 1)
		}
		if offered != x.offered || !slices.Equal(dropped, x.dropped) || n != x.stripes {
			t.Errorf("%v: offered %v, dropped %v in %d stripes, want %v, %v in %d", x.h.path, offered, dropped, n, x.offered, x.dropped, x.stripes)
		}
	}
}

// A path on which nobody has said anything for two seconds is shared among the
// nodes that are known, from who refuses or from what is said of other paths.
func TestAPathWithoutAWordIsSharedByHead(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n"})
	h := c.Handle(Path{"a"})
	heads := func(at time.Duration) int {
		c.Tick(at)
		return h.Heads()
	}
	got := []int{heads(time.Second), heads(3 * time.Second)}
	c.SetPeers(7)
	got = append(got, heads(4*time.Second))
	c.Handle(Path{"b"})
	c.Apply(order(1, Directive{Bucket: "b", Limit: 100, Keep: keepAll, Nodes: 40}), 5*time.Second)
	got = append(got, heads(5*time.Second))
	c.Apply(order(2, Directive{Bucket: "a", None: true}), 6*time.Second) // no limit is a word
	got = append(got, heads(6*time.Second))
	if want := []int{0, 1, 7, 40, 0}; !slices.Equal(got, want) {
		t.Errorf("among %v, want %v", got, want)
	}
	fresh := c.Handle(Path{"c"})
	c.Tick(7 * time.Second)
	if fresh.Heads() != 0 {
		t.Error("a new path does not wait for its answer")
	}
}

// What a decision touches is one cache line.
func TestAHandleIsACacheLine(t *testing.T) {
	if size := reflect.TypeFor[Handle]().Size(); size != 64 {
		t.Errorf("%d bytes, want 64", size)
	}
}

// A handle's own draws keep the share that was told, whatever requests cost and
// however many handles there are.
func TestDrawsKeepTheShare(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n"})
	const handles, each = 50, 4000
	seq := uint64(0)
	for _, keep := range []float64{0.01, 0.3, 0.97} {
		var all float64
		for i := range handles {
			name := fmt.Sprint(keep, i)
			h := c.Handle(Path{name})
			seq++
			c.Apply(order(seq, keepNormal(name, keep)), 0)
			kept := 0
			for j := range each {
				if h.Draw(Normal, uint64(1+j%3*i)) == Admitted {
					kept++
				}
			}
			all += float64(kept)
			// Six deviations of a binomial: 1 in 10⁹ by chance.
			if mean, dev := each*keep, math.Sqrt(each*keep*(1-keep)); math.Abs(float64(kept)-mean) > 6*dev {
				t.Errorf("keep %g: %d of %d, want %g ± %g", keep, kept, each, mean, dev)
			}
		}
		if mean, dev := handles*each*keep, math.Sqrt(handles*each*keep*(1-keep)); math.Abs(all-mean) > 6*dev {
			t.Errorf("keep %g: %g of all, want %g ± %g", keep, all, mean, dev)
		}
	}
}

// A client says how long it has heard nothing, and how many buckets it holds to its
// own share meanwhile.
func TestAClientSaysThatTheLoopIsAway(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n"})
	h := c.Handle(Path{"a"})
	c.Tick(time.Second)
	if s := c.State(); s != (ClientState{Buckets: 1}) || h.Local() {
		t.Errorf("before a word: %+v, local %v", s, h.Local())
	}
	c.Apply(order(1, Directive{Bucket: "a", Limit: 100, Keep: Keep{0, 0, 0}, Nodes: 2}), 2*time.Second)
	if k := h.Keep(Batch); k != MinKeep {
		t.Errorf("%v of batch is kept at a word of 0, want %v", k, MinKeep)
	}
	c.Tick(11 * time.Second)
	if s := c.State(); s != (ClientState{Talking: true, Silent: 9 * time.Second, Buckets: 1}) || h.Local() {
		t.Errorf("while the word holds: %+v, local %v", s, h.Local())
	}
	c.Tick(13 * time.Second)
	if s := c.State(); s != (ClientState{Talking: true, Silent: 11 * time.Second, Buckets: 1, Local: 1}) || !h.Local() {
		t.Errorf("after it ran out: %+v, local %v", s, h.Local())
	}
}
