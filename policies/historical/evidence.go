package historical

import (
	"context"
	"slices"

	"github.com/openrlc/rlc"
)

// Evidence is what history says to a kind that brings a number of its own: the
// highest step that counts (Peak), what was left out (Flags), how much is known,
// and the cautions, which hold whoever computes the number: thin evidence stays
// in shadow, a rise less than a day old is capped, and what enforcement or a
// failing service distorted lowers nothing. Its steps end with the weekly peak;
// it has no limit and no why. It abstains where the policy would.
func Evidence(ctx context.Context, in rlc.Input) (rlc.Estimate, error) {
	est, err := New(Config{Headroom: new(float64)}).Propose(ctx, in)
	if err != nil {
		return est, err
	}
	est.Limit, est.BurstUnseen, est.Why = rlc.Limit{}, false, ""
	for _, r := range est.Steps {
		if r.Rule == "kept_in_force" && est.NoDecrease == "" {
			est.NoDecrease = "hours with enforced drops or failing answers hide what was asked for"
		}
	}
	end := slices.IndexFunc(est.Steps, func(r rlc.Reason) bool { return r.Rule == "weekly_peak" })
	est.Steps = slices.Clone(est.Steps[:end+1])
	return est, nil
}
