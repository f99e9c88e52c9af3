package backtest_test

import (
	"testing"
	"time"

	"github.com/openrlc/rlc/enforcer/gcra/gcratest"
	"github.com/openrlc/rlc/internal/backtest"
)

// The token vectors' streams are what every token bucket admits of evenly
// spread traffic, step by step. The replay must drop the rest.
func TestTheReplayAgreesWithTheTokenVectors(t *testing.T) {
	_, streams, err := gcratest.Load()
	if err != nil || len(streams) == 0 {
		t.Fatalf("%d streams, %v", len(streams), err)
	}
	for _, s := range streams {
		t.Run(s.Name, func(t *testing.T) {
			step := time.Duration(s.Step) * time.Second
			values := make([]float64, len(s.Counts))
			for i, n := range s.Counts {
				if values[i] = gap; n >= 0 {
					values[i] = float64(n) / float64(s.Step)
				}
			}
			// Each step's drops are what it adds to the replay of those before.
			before := 0.0
			for i, n := range s.Counts {
				got := backtest.Replay(step, backtest.Samples(step, monday, values[:i+1]), *s.Limit)
				want := 0.0
				if n >= 0 {
					want = float64(n - s.Admitted[i])
				}
				if !near(got.Drops-before, want) {
					t.Errorf("step %d drops %g, want %g", i, got.Drops-before, want)
				}
				before = got.Drops
			}
			want := backtest.Replay(step, backtest.Samples(step, monday, values), *s.Limit)
			compare(t, backtest.FromHistory(summarise(step, monday, values, 0), *s.Limit), want)
		})
	}
}
