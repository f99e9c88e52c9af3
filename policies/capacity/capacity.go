// Package capacity proposes what a destination can carry, less its reserve: a
// cap over all callers together.
package capacity

import (
	"context"
	"fmt"
	"math"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Policy proposes the declared capacity. Its zero value is ready.
type Policy struct{}

// Needs asks for no history.
func (Policy) Needs() rlc.Needs { return rlc.Needs{} }

// Propose returns rate × (1 − reserve) and the declared burst; without one, a
// second's worth of the rate. It abstains where the service declares none.
func (Policy) Propose(_ context.Context, in rlc.Input) (rlc.Estimate, error) {
	est := rlc.Estimate{Fixed: true}
	c := in.Capacity
	if c != nil && c.Rate <= 0 && c.PerInstance > 0 {
		return est, fmt.Errorf("%w: the number of instances is not known", rlc.ErrAbstain)
	}
	if c == nil || c.Rate <= 0 {
		return est, fmt.Errorf("%w: the service declares no capacity", rlc.ErrAbstain)
	}
	if c.Reserve < 0 || c.Reserve >= 1 {
		return est, fmt.Errorf("%w: a reserve of %s leaves nothing", rlc.ErrInvalid, rlc.Number(c.Reserve))
	}
	rate := stat.Tidy(c.Rate * rlc.Rate(1-c.Reserve))
	est.Limit = rlc.Limit{Rate: rate, Burst: c.Burst}
	est.Why = fmt.Sprintf("capacity %s", stat.RateText(c.Rate))
	est.Steps = append(est.Steps, rlc.Reason{Rule: "capacity", Rate: c.Rate, Acted: true, Detail: detail(c)})
	if c.Reserve > 0 {
		est.Why += fmt.Sprintf(" × %.2f after reserve", 1-float64(c.Reserve))
		est.Steps = append(est.Steps, rlc.Reason{Rule: "reserve", Rate: rate, Acted: true, Detail: fmt.Sprintf("× %.2f: %.0f %% is kept free", 1-float64(c.Reserve), 100*float64(c.Reserve))})
	}
	if c.Burst == 0 {
		est.Limit.Burst = rlc.Burst(max(1, math.Ceil(float64(rate))))
		est.Steps = append(est.Steps, rlc.Reason{Rule: "burst", Rate: rate, Detail: "no burst declared: one second's worth"})
	}
	return est, nil
}

func detail(c *rlc.Capacity) string {
	if c.PerInstance > 0 {
		return fmt.Sprintf("%s for each of %s instances", stat.RateText(c.PerInstance), rlc.Number(math.Round(100*float64(c.Rate/c.PerInstance))/100))
	}
	if c.Evidence == "" {
		return "declared capacity " + stat.RateText(c.Rate)
	}
	return fmt.Sprintf("declared capacity %s (%s)", stat.RateText(c.Rate), c.Evidence)
}
