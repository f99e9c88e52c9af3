package enforcer

import (
	"reflect"
	"testing"
	"time"
	"unsafe"
)

// A panic in a counter's own arithmetic, under its lock, turns the bucket off
// as any other does: nobody waits for that lock.
func TestAPanicUnderACountersLockTurnsTheBucketOff(t *testing.T) {
	e, l := loadedFor(t, "buckets:\n  - {name: daily, each: [caller], mode: enforce, algorithm: fixed_window, limit: {requests: 2, per: day}}\n")
	r := Request{Service: "s", Caller: "a"}
	s := l.find("s")
	limit := &e.route(l, s, &r).live.stages[0].charges[0].Limit
	// The limit loses its time zone, as a bug might have it.
	zone := reflect.ValueOf(limit).Elem().FieldByName("window").Elem().FieldByName("location")
	*(*unsafe.Pointer)(unsafe.Pointer(zone.UnsafeAddr())) = nil

	answered := make(chan Outcome, 3)
	go func() {
		for range cap(answered) {
			answered <- e.Decide(r).Outcome
		}
	}()
	for i := range cap(answered) {
		select {
		case got := <-answered:
			if got != Admit {
				t.Errorf("request %d: %s", i, got)
			}
		case <-time.After(time.Minute):
			t.Fatal("it hangs")
		}
	}
	if !s.buckets[0].counts.off.Load() {
		t.Error("the bucket is not turned off")
	}
	e.memory.Sweep(e.now().UnixMicro())
}
