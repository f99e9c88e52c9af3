package enforcer_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

// Everything that changes what is in force changes while requests are decided.
// The race detector watches; every request is decided by one state or another.
func TestDecisionsGoOnWhileEverythingChanges(t *testing.T) {
	var fail error
	e, err := enforcer.New(enforcer.Config{Name: "e1", Counter: faulty{enforcer.InProcess(nil), &fail, ""}})
	if err != nil {
		t.Fatal(err)
	}
	body := "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 100, burst: 100}}\n" +
		"  - {name: inflight, role: cap, algorithm: concurrency, limit: {concurrent: 5, timeout: 1s}}\n  - {name: all, role: cap, mode: shadow, limit: {rate: 10, burst: 10}}\n"
	load(t, e, snap(1, policy("s", body)))
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 1000 {
				d := one(e, rlc.Attributes{"caller": fmt.Sprint("c", (g+i)%7)}, 1)
				d.Done(-1)
				if d.Version.Number == 0 {
					t.Error("decided without a snapshot")
					return
				}
			}
		})
	}
	now := time.Now()
	for i := range uint64(20) {
		load(t, e, snap(2+i, policy("s", body)))
		overlay(t, e, 1+i, override("o1", func(o *enforcer.Override) { o.From, o.Until = now, now.Add(time.Minute) }))
		e.Switch(enforcer.AllToShadow, i%2 == 0)
		e.SetPeers(enforcer.Peers{Global: int(i)})
		e.Tick()
		e.Explain("s", search)
		e.Top("s", "callers", 5)
		e.Ready()
		metrics(t, e)
	}
	group.Wait()
	e.Switch(enforcer.AllToShadow, false)
	overlay(t, e, 100)
	if got := one(e, rlc.Attributes{"caller": "new"}, 1).Outcome; got == enforcer.Drop {
		t.Errorf("a place in flight was lost: %s", got)
	}
}
