package memory

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// broken is a limit with a bug: its calendar has lost its time zone, so that
// whoever asks for a window's edge panics.
func broken(t *testing.T) gcra.Limit {
	t.Helper()
	l, err := gcra.CompileWindow(rlc.FixedWindow, rlc.WindowLimit{Requests: 5, Per: rlc.PerDay, Calendar: true, Location: "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	zone := reflect.ValueOf(&l).Elem().FieldByName("window").Elem().FieldByName("location")
	*(*unsafe.Pointer)(unsafe.Pointer(zone.UnsafeAddr())) = nil
	return l
}

// A limit that panics is its request's trouble: whoever comes to the same
// counter afterwards neither hangs nor stops the sweep.
func TestAPanicInTheArithmeticHoldsUpNobody(t *testing.T) {
	m := &Memory{}
	bad := gcra.Charge{Bucket: "bad", Key: "k", Limit: broken(t)}
	good := gcra.Charge{Bucket: "good", Key: "k", Limit: limit(t, 1, 5)}
	one, two := m.Set([]gcra.Charge{bad}), m.Set([]gcra.Charge{bad, good})
	panics := func(f func()) (did bool) {
		ended := make(chan bool, 1)
		go func() {
			defer func() { ended <- recover() != nil }()
			f()
		}()
		select {
		case did = <-ended:
		case <-time.After(time.Minute):
			t.Fatal("it hangs")
		}
		return did
	}
	for range 2 {
		for name, f := range map[string]func(){
			"a take":     func() { take(t, one, 1, 1) },
			"a peek":     func() { take(t, one, 1, 0) },
			"of two":     func() { take(t, two, 1, 1) },
			"settlement": func() { _ = one.Settle(t.Context(), 1, 5) },
		} {
			if !panics(f) {
				t.Errorf("%s did not panic", name)
			}
		}
	}
	if got := take(t, m.Set([]gcra.Charge{good}), 1, 0); got.Remaining != 5 {
		t.Errorf("%d left in the bucket beside it, want 5", got.Remaining)
	}
	if panics(func() { m.Sweep(1) }) || m.Live() != 0 {
		t.Errorf("swept: %d counters left, want none", m.Live())
	}
}
