// Package contractual proposes the rate that was promised to a caller, and
// nothing else: history only shows how much of it is used.
package contractual

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Shares of the promised rate that are reported, and how long ahead an end is
// (policies.md 3).
const (
	used     = 0.80
	nearly   = 0.95
	endAhead = 30 * 24 * time.Hour
	lookback = 28 * 24 * time.Hour
)

// Policy proposes a fixed limit. It is safe for concurrent use.
type Policy struct {
	inline *rlc.Contract
}

// New returns a policy for a contract written into the policy itself, or, for
// nil, for the one that each input carries.
func New(inline *rlc.Contract) *Policy { return &Policy{inline: inline} }

// Needs asks for four weeks, to report utilisation.
func (p *Policy) Needs() rlc.Needs { return rlc.Needs{Lookback: lookback} }

// Propose returns the contract's limit. It abstains where there is no
// contract, before it begins and after it ended: the quota in force stands.
func (p *Policy) Propose(_ context.Context, in rlc.Input) (rlc.Estimate, error) {
	est := rlc.Estimate{Fixed: true}
	c := p.inline
	if c == nil {
		c = in.Contract
	}
	switch {
	case c == nil:
		return est, fmt.Errorf("%w: the contract that the policy names does not exist", rlc.ErrAbstain)
	case !c.From.IsZero() && in.Now.Before(c.From):
		return est, fmt.Errorf("%w: %s begins at %s", rlc.ErrAbstain, name(c), stat.TimeText(c.From))
	case !c.Until.IsZero() && !in.Now.Before(c.Until):
		est.Look = fmt.Sprintf("%s ended at %s: renew it or give the bucket another policy", name(c), stat.TimeText(c.Until))
		return est, fmt.Errorf("%w: %s ended at %s", rlc.ErrAbstain, name(c), stat.TimeText(c.Until))
	}
	est.Limit = c.Limit
	if est.Limit.Burst == 0 {
		est.Limit.Burst = rlc.Burst(max(1, math.Ceil(2*float64(c.Limit.Rate))))
	}
	rate := est.Limit.Rate
	est.Why = fmt.Sprintf("%s %s", name(c), stat.RateText(rate))
	if c.Reference != "" {
		est.Why += " (" + c.Reference + ")"
	}
	est.Steps = []rlc.Reason{{Rule: "contract", Detail: est.Why, Rate: rate, Acted: true}}

	cover := stat.Cover(in.History, in.Location, in.Exclude)
	est.ValidDays, est.Coverage = cover.Days, cover.Least()
	est.Peak = peak(in)
	var looks []string
	if share := float64(est.Peak.Rate) / float64(rate); rate > 0 && est.Peak.Rate > 0 {
		r := rlc.Reason{Rule: "utilisation", Rate: rate, Detail: fmt.Sprintf("peak %s at %s is %.0f %% of the contract", stat.RateText(est.Peak.Rate), stat.TimeText(est.Peak.At), math.Floor(100*share))}
		switch {
		case share > 1:
			r.Rule = "contract_below_peak"
			r.Detail += ": the contract wins, what lies above it is dropped"
			looks = append(looks, r.Detail)
		case share >= nearly:
			r.Detail += fmt.Sprintf(", above %.0f %%", 100*nearly)
			looks = append(looks, r.Detail)
		case share >= used:
			r.Detail += fmt.Sprintf(", above %.0f %%", 100*used)
		}
		est.Steps = append(est.Steps, r)
	}
	if !c.Until.IsZero() && c.Until.Sub(in.Now) <= endAhead {
		d := fmt.Sprintf("%s ends at %s, in %.0f days", name(c), stat.TimeText(c.Until), math.Floor(c.Until.Sub(in.Now).Hours()/24))
		est.Steps = append(est.Steps, rlc.Reason{Rule: "expiry", Detail: d, Rate: rate})
		looks = append(looks, d)
	}
	est.Look = strings.Join(looks, "; ")
	return est, nil
}

func name(c *rlc.Contract) string {
	if c.Name == "" {
		return "contract"
	}
	return "contract " + c.Name
}

// peak is the highest step of the window outside declared incidents.
func peak(in rlc.Input) rlc.Peak {
	var p rlc.Peak
	for _, h := range in.History.Hours {
		if h.Present > 0 && h.Max > p.Rate && !math.IsInf(float64(h.Max), 0) && !stat.Overlaps(in.Exclude, h.Start) {
			p = rlc.Peak{Rate: h.Max, At: h.Start}
		}
	}
	return p
}
