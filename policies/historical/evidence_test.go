package historical

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestEvidenceIsThePeakAndItsCautionsWithoutTheFormula(t *testing.T) {
	storm := now.Add(-10 * day)
	in := input(28, 15*time.Minute, func(at time.Time) float64 {
		if at.Truncate(hour).Equal(storm) {
			return 900
		}
		return 100
	})
	est, err := Evidence(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	last := est.Steps[len(est.Steps)-1]
	if est.Peak.Rate != 100 || len(est.Flags) != 1 || est.Flags[0].With != 900 || est.Limit != (rlc.Limit{}) || est.Why != "" || last.Rule != "weekly_peak" || est.NoDecrease != "" || est.Shadow {
		t.Errorf("%+v", est)
	}
	// Enforced drops hide what was asked for: the number may not fall.
	for i := range in.History.Hours {
		if h := &in.History.Hours[i]; h.Max == 900 {
			h.Max, h.Drops = 150, 0.3
		}
	}
	in.Current = &rlc.Limit{Rate: 140, Burst: 280}
	if est, err := Evidence(context.Background(), in); err != nil || est.NoDecrease == "" || est.Peak.Rate != 100 {
		t.Errorf("no decrease %q, peak %v (%v)", est.NoDecrease, est.Peak, err)
	}
	if est, err := Evidence(context.Background(), input(3, time.Minute, flat)); err != nil || !est.Shadow || est.NoDecrease == "" {
		t.Errorf("three days: shadow %v, no decrease %q (%v)", est.Shadow, est.NoDecrease, err)
	}
	if _, err := Evidence(context.Background(), rlc.Input{Now: now}); !errors.Is(err, rlc.ErrAbstain) {
		t.Errorf("nothing known: %v", err)
	}
}
