package enforcer_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// late is a store that answers after a while, and is waited for 8 ms at most by
// each call, as the one in Redis is.
type late struct {
	enforcer.Counter
	after *time.Duration
}

type lateSet struct {
	enforcer.Settler
	after *time.Duration
}

func (late) Deadline() time.Duration { return 8 * time.Millisecond }

func (l late) Set(charges []gcra.Charge) enforcer.Set {
	return lateSet{l.Counter.Set(charges).(enforcer.Settler), l.after}
}

func (s lateSet) wait(ctx context.Context) error {
	select {
	case <-time.After(*s.after):
		return nil
	case <-time.After(late{}.Deadline()):
		return away("timeout")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s lateSet) Take(ctx context.Context, now, cost int64) (gcra.Tally, error) {
	if err := s.wait(ctx); err != nil {
		return gcra.Tally{}, err
	}
	return s.Settler.Take(ctx, now, cost)
}

func (s lateSet) Settle(ctx context.Context, at, by int64) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Settler.Settle(ctx, at, by)
}

// Two worlds, two stages in each (their costs differ), and what one charged
// given back where the other refuses: the store is asked up to six times.
const manyTrips = `defaults: {mode: enforce, on_failure: open}
buckets:
  - {name: callers, each: [caller], limit: {rate: 10, burst: 10}}
  - {name: dear, role: cap, cost: {Export: 5}, limit: {rate: 0.001, burst: 5}}
  - {name: all, role: cap, mode: shadow, limit: {rate: 10, burst: 10}}
`

func TestADecisionWaitsForTheStoreOnceHoweverOftenItAsks(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		after  time.Duration
		want   time.Duration
	}{
		"one trip, black hole":     {`buckets: [{name: callers, each: [caller], mode: enforce, limit: {rate: 10, burst: 10}}]`, time.Hour, 8 * time.Millisecond},
		"many trips, black hole":   {manyTrips, time.Hour, 8 * time.Millisecond},
		"many trips, 7 ms for one": {manyTrips, 7 * time.Millisecond, 8 * time.Millisecond},
		"many trips, 1 ms for one": {manyTrips, time.Millisecond, 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := start(t, enforcer.Config{Counter: late{enforcer.InProcess(nil), &c.after}})
				load(t, e, snap(1, policy("s", c.policy)))
				began := time.Now()
				e.Decide(enforcer.Request{Service: "s", Caller: "search", Procedure: "Export"})
				if took := time.Since(began); took != c.want {
					t.Errorf("answered after %s, want %s", took, c.want)
				}
				// Now the dear one refuses, and the callers' tokens go back.
				began = time.Now()
				body := strings.NewReader(`{"service":"s","attributes":{"caller":"search","procedure":"Export"}}`)
				e.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/check", body))
				if took := time.Since(began); took > 8*time.Millisecond {
					t.Errorf("/v1/check answered after %s", took)
				}
				synctest.Wait()
			})
		})
	}
}

// The caller's own end ends the waiting, too, and a cost that is known only
// afterwards is settled within one deadline.
func TestTheEndOfADecisionIsTheCallersOrTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := time.Millisecond
		e, _ := start(t, enforcer.Config{Counter: late{enforcer.InProcess(nil), &after}})
		load(t, e, snap(1, policy("s", `defaults: {mode: enforce}
buckets:
  - {name: callers, each: [caller], cost: {from: response_header, name: X-Cost, reserve: 2}, limit: {rate: 10, burst: 10}}
  - {name: all, role: cap, mode: shadow, cost: {from: response_header, name: X-Cost, reserve: 2}, limit: {rate: 10, burst: 10}}
`)))
		d := e.Decide(enforcer.Request{Service: "s", Attributes: search})
		after = 6 * time.Millisecond
		began := time.Now()
		d.Done(5)
		if took := time.Since(began); took != 8*time.Millisecond {
			t.Errorf("settled in %s, want 8ms for both worlds", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		began = time.Now()
		d = e.DecideContext(ctx, enforcer.Request{Service: "s", Attributes: search})
		if took := time.Since(began); took != 3*time.Millisecond || d.Outcome != enforcer.Admit {
			t.Errorf("%s after %s, want it admitted after 3ms", d.Outcome, took)
		}
	})
}
