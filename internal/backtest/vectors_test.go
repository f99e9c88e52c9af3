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
		if s.Algorithm != "" {
			continue // by ReplayCounted
		}
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

// ReplayCounted takes the streams of every algorithm, right to one batch.
func TestTheReplayOfEveryAlgorithmAgreesWithTheVectors(t *testing.T) {
	_, streams, err := gcratest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		t.Run(s.Name, func(t *testing.T) {
			limit, err := s.Compile()
			if err != nil {
				t.Fatal(err)
			}
			step := time.Duration(s.Step) * time.Second
			values := make([]float64, len(s.Counts))
			for i, n := range s.Counts {
				if values[i] = gap; n >= 0 {
					values[i] = float64(n) / float64(s.Step)
				}
			}
			before := 0.0
			for i, n := range s.Counts {
				got := backtest.ReplayCounted(step, backtest.Samples(step, monday, values[:i+1]), limit)
				batch := max(float64(n)/240, 1)
				want := 0.0
				if n >= 0 {
					want = float64(n - s.Admitted[i])
				}
				if d := got.Drops - before - want; d < -batch || d > batch {
					t.Errorf("step %d drops %g, want %g ± %g", i, got.Drops-before, want, batch)
				}
				before = got.Drops
			}
		})
	}
}
