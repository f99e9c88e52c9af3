package loop

import (
	"math"
	"sync"
	"testing"
	"time"
)

// ask is what whoever has a lane does.
func ask(l *Lane, h *Handle, c Class, n int) (passed int) {
	for range n {
		draw, admitted := l.Take(1)
		if admitted || h.Answer(c, 1, draw) == Admitted {
			passed++
		}
	}
	return passed
}

func offeredOf(h *Handle) (n [Classes]uint64) {
	h.client.mu.Lock()
	defer h.client.mu.Unlock()
	h.read(&n, make([]uint64, len(h.path)))
	return n
}

func TestALaneCountsAndDecidesAsItsHandleDoes(t *testing.T) {
	const n = 100_000
	c := newClient(t)
	h := c.Handle(Path{"a", "b"})
	var first, second Lane
	if draw, admitted := first.Take(1); draw != 0 || admitted {
		t.Error("a lane that was never opened decides")
	}
	h.Open(&first, Normal)
	h.Open(&second, Critical)
	c.Apply(order(1, keepNormal("a", 0.5), keepNormal("b", 0.4)), 0)
	got := [...]int{ask(&first, h, Normal, n), ask(&second, h, Critical, n)}
	for range n {
		if h.Offer(Normal) {
			got[0]++
		}
	}
	if want := 2 * n * 0.2; math.Abs(float64(got[0])-want) > 5*math.Sqrt(want) || got[1] != n {
		t.Errorf("%v passed, want about %.0f normal ones and all %d critical", got, want, n)
	}
	want := [Classes]uint64{Critical: n, Normal: 2 * n}
	if got := offeredOf(h); got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
	// What a lane has counted outlives it.
	h.Close(&first)
	h.Close(&first)
	if draw, admitted := first.Take(1); draw != 0 || admitted {
		t.Error("a closed lane decides")
	}
	ask(&first, h, Normal, 1)
	want[Normal]++
	if got := offeredOf(h); got != want {
		t.Errorf("after it was closed %v, want %v", got, want)
	}
}

// Where a handle has to look closer, its lanes leave the decision to it.
func TestALaneLeavesToItsHandleWhatNeedsALook(t *testing.T) {
	c := NewClient(ClientConfig{Node: "n", Stripes: 4})
	h := c.Handle(Path{"a"})
	var l Lane
	h.Open(&l, Normal)
	decides := func(when string, want bool) {
		t.Helper()
		if draw, _ := l.Take(1); draw != 0 != want {
			t.Errorf("%s the lane decides: %v, want %v", when, !want, want)
		}
	}
	decides("before anything was said", false)
	c.Apply(order(1, Directive{Bucket: "a", Limit: 1e12, Keep: keepAll}), 0)
	decides("after a word", true)
	if got := l.Room(); got != math.MaxUint32 {
		t.Errorf("room %d, want the most it holds", got)
	}
	c.Apply(order(2, Directive{Bucket: "a", Limit: 100, Load: 40, Keep: keepAll}), 0)
	if got := l.Room(); got != 60 {
		t.Errorf("room %d, want 60", got)
	}
	c.Tick(TTL + time.Second)
	decides("when the loop is silent", false)
	now := TTL + 2*time.Second
	c.Apply(order(3, keepNormal("a", 1)), now)
	decides("when it is heard again", true)
	now += parkAfter + time.Second
	c.Tick(now)
	c.Tick(now + parkAfter)
	decides("of a parked handle", false)
	ask(&l, h, Normal, 1)
	if h.parked.Load() {
		t.Error("a request by a lane leaves its handle parked")
	}
	now += parkAfter + time.Second
	c.Apply(order(4, keepNormal("a", 1)), now)
	decides("of one that came back", true)
	ask(&l, h, Normal, busy)
	c.Tick(now + ClientTick)
	decides("of one that counts in stripes", false)
}

func TestAHandleHasFewLanes(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a"})
	c.Apply(order(1, keepNormal("a", 1)), 0)
	lanes := make([]Lane, mostLanes+1)
	for i := range lanes {
		h.Open(&lanes[i], Class(i)) // beyond the classes: normal
		ask(&lanes[i], h, Class(i), 10)
	}
	if draw, _ := lanes[mostLanes].Take(1); draw != 0 {
		t.Error("one lane too many is open")
	}
	if got, want := offeredOf(h), ([Classes]uint64{10, 30, 10}); got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
	h.Close(&lanes[0])
	h.Open(&lanes[mostLanes], Batch)
	if draw, _ := lanes[mostLanes].Take(1); draw == 0 {
		t.Error("no lane took the place of one that was closed")
	}
}

func TestLanesOpenAndCloseWhileOthersDecide(t *testing.T) {
	c := newClient(t)
	h := c.Handle(Path{"a"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				var l Lane
				h.Open(&l, Normal)
				ask(&l, h, Normal, 100)
				h.Close(&l)
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			c.Apply(order(uint64(i+1), keepNormal("a", float64(i%10)/10)), time.Duration(i)*ClientTick)
			c.Tick(time.Duration(i) * ClientTick)
		}
	})
	wg.Wait()
	if got, want := offeredOf(h), ([Classes]uint64{Normal: 20_000}); got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
}
