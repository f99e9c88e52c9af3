package planner

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
)

// sized returns the service with its capacity in numbers: what one instance can
// carry times how many there are at now. Where that is not known the capacity's
// rate stays 0: nothing is made to fit it, and its cap stays as it is.
func (p *Planner) sized(ctx context.Context, service *rlc.Service, now time.Time) (*rlc.Service, error) {
	c := service.Capacity
	if c == nil || c.PerInstance <= 0 {
		return service, nil
	}
	sized, capacity := *service, *c
	sized.Capacity = &capacity
	capacity.Rate = 0
	if p.cfg.Instances == nil {
		return &sized, nil
	}
	n, known, err := p.cfg.Instances.Number(ctx, c.Instances, now)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		p.cfg.Log.Warn("instances not counted", "service", service.Name, "error", err)
		return &sized, nil
	}
	if rate := c.PerInstance * rlc.Rate(n); known && n > 0 && !math.IsInf(n, 0) && rate <= rlc.MaxRate {
		capacity.Rate = rate
	}
	return &sized, nil
}

// promised is what the caller of a quota was promised: by the contract that the
// bucket's policy names, else the largest of the caller's contracts that hold
// in span. A contract that policies name is a promise of their services only; one
// that none names holds in every service. Nil for nothing, and for caps.
func (j *job) promised(t *target, key rlc.Key, span rlc.Window) *rlc.Contract {
	switch {
	case t == nil:
		return nil
	case policies.ContractName(*t.bucket.Policy) != "" || t.bucket.Role == rlc.CapRole:
		return t.contract
	}
	caller := policies.CallerOf(t.bucket, key)
	if caller == "" {
		return nil
	}
	var best *rlc.Contract
	for _, name := range j.head.promises[caller] {
		c := j.head.config.Contracts[name]
		if by := j.head.namedBy[name]; len(by) > 0 && !by[j.service.Name] || !lasts(&c, span) {
			continue
		}
		if best == nil || c.Limit.Rate > best.Limit.Rate {
			best = &c
		}
	}
	return best
}

// lasts reports whether a contract, nil for none, holds at some time of span.
func lasts(c *rlc.Contract, span rlc.Window) bool {
	return c != nil && (c.From.IsZero() || c.From.Before(span.Until)) && (c.Until.IsZero() || span.From.Before(c.Until))
}

// now is the instant that the run is about.
func (j *job) now() rlc.Window {
	return rlc.Window{From: j.run.Now, Until: j.run.Now.Add(time.Nanosecond)}
}

// index notes which callers have contracts, and which services name them.
func (h *head) index() {
	h.promises, h.namedBy = map[string][]string{}, map[string]map[string]bool{}
	for _, name := range sortedKeys(h.config.Contracts) {
		caller := h.config.Contracts[name].Caller
		h.promises[caller] = append(h.promises[caller], name)
	}
	for _, s := range h.config.Services {
		for _, b := range s.Buckets {
			if b.Policy == nil {
				continue
			}
			if name := policies.ContractName(*b.Policy); name != "" {
				if h.namedBy[name] == nil {
					h.namedBy[name] = map[string]bool{}
				}
				h.namedBy[name][s.Name] = true
			}
		}
	}
}

// answers are what models outside answered in recorded runs of the same now, by
// input hash: a run that is made again reads them back. Of several runs the
// newest wins.
func (p *Planner) answers(ctx context.Context, run *rlc.Run) (map[string]string, error) {
	out := map[string]string{}
	runs, _, err := p.cfg.Records.Runs(ctx, rlc.Page{Number: 1, Size: 1000})
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if !r.Now.Equal(run.Now) || r.Stage == rlc.Claimed {
			continue
		}
		const size = 1000
		for number, more := 1, true; more; number++ {
			changes, _, err := p.cfg.Records.RunChanges(ctx, r.ID, false, rlc.Page{Number: number, Size: size})
			if err != nil && !errors.Is(err, rlc.ErrNotFound) {
				return nil, err
			}
			for _, c := range changes {
				if _, known := out[c.InputID]; c.Answer != "" && !known {
					out[c.InputID] = c.Answer
				}
			}
			more = len(changes) == size
		}
	}
	return out, nil
}
