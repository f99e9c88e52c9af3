package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// blackHole carries connections to an address until it is shut: then what was sent
// is neither delivered nor refused, on old connections and on new ones.
type blackHole struct {
	to       string
	listener net.Listener
	carrying sync.WaitGroup

	mu    sync.Mutex
	open  chan struct{} // closed while it carries
	ended chan struct{}
}

func newBlackHole(t *testing.T, to string) *blackHole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &blackHole{to: to, listener: l, open: make(chan struct{}), ended: make(chan struct{})}
	close(b.open)
	b.carrying.Go(b.accept)
	t.Cleanup(func() {
		close(b.ended)
		l.Close()
		b.carrying.Wait()
	})
	return b
}

func (b *blackHole) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = make(chan struct{})
}

func (b *blackHole) carry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.open)
}

// wait returns once it carries, or reports that it has ended.
func (b *blackHole) wait() bool {
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	select {
	case <-open:
		return true
	case <-b.ended:
		return false
	}
}

func (b *blackHole) accept() {
	for {
		in, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.carrying.Go(func() {
			defer in.Close()
			if !b.wait() {
				return
			}
			out, err := net.Dial("tcp", b.to)
			if err != nil {
				return
			}
			defer out.Close()
			done := make(chan struct{}, 2)
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				b.carrying.Go(func() {
					defer func() { done <- struct{}{} }()
					b.copy(way[1], way[0])
				})
			}
			select {
			case <-done:
			case <-b.ended:
			}
		})
	}
}

func (b *blackHole) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !b.wait() {
			return
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// A zone whose messages vanish on the way closes the loop on its share, the others
// keep theirs, and it comes back by itself.
func TestAZoneIsPartedFromTheController(t *testing.T) {
	dir := t.TempDir()
	writePolicy(t, dir, processLimit)
	controller := spawn(t, 1, "controller", "--http", "off", "--grpc", "127.0.0.1:0", "--zones", "z0,z1,z2", "--config-dir", dir, "--state", t.TempDir())
	hole := newBlackHole(t, controller.addr["grpc"])
	f := &loopFleet{t: t}
	f.load.Store(processLimit)
	ctx, stop := context.WithCancel(t.Context())
	defer f.callers.Wait()
	defer stop()
	var zones []*tierProcess
	for z := range 3 {
		at := controller.addr["grpc"]
		if z == 0 {
			at = hole.listener.Addr().String()
		}
		zones = append(zones, spawn(t, 2, "aggregator", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--zone", fmt.Sprint("z", z), "--controller", at))
		s := spawn(t, 1, "serve", "--grpc", "off", "--http", "127.0.0.1:0", "--zone", fmt.Sprint("z", z), "--name", fmt.Sprint("e", z), "--aggregator", zones[z].addr["grpc"])
		within(t, "a snapshot over the loop", func() bool { return strings.Contains(get(t, "http://"+s.addr["http"]+"/v1/config"), "0.1") })
		f.call(ctx, "http://"+s.addr["http"])
	}
	f.held("three times the limit", 0.8, 1.2)

	hole.shut()
	within(t, "the zone closes the loop", func() bool { return zones[0].says(t, "rlc_loop_closed 1") })
	f.load.Store(2 * processLimit)
	f.held("a zone parted, six times the limit", 0.75, 1.25)
	if zones[1].says(t, "rlc_loop_closed 1") {
		t.Error("a zone that is not parted closed the loop")
	}

	hole.carry()
	within(t, "the zone is back", func() bool {
		return zones[0].says(t, "rlc_loop_closed 0") && zones[0].says(t, "rlc_loop_controller_connected 1")
	})
	f.held("the zone back", 0.8, 1.2)
}
