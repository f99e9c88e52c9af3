package enforcer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// While Run keeps the clock it is at most one tick behind to a second, and exact
// to the microsecond where it is asked for; before and after, it is read.
func TestTheClockIsKeptWhileRunRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Name: "e1"})
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, kept bool) {
			t.Helper()
			want := instantOf(time.Now())
			if got := e.exact(); got != want {
				t.Errorf("%s: exact %+v, want %+v", what, got, want)
			}
			if kept {
				want.micros = 0 // not read
			}
			if got := e.glance(); got != want {
				t.Errorf("%s: glance %+v, want %+v", what, got, want)
			}
		}
		check("before", false)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait()
		check("at the beginning", true)
		<-time.After(10*time.Second + 7*time.Microsecond)
		synctest.Wait()
		check("10 s later", true)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		check("after the end", false)
	})
}
