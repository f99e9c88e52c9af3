package planner

import (
	"context"
	"time"
)

// Often names the services that have a policy which wants to be asked more often
// than the schedule, and how often: whoever fires runs gives each of them runs
// of its own. A service whose policy cannot be read is not among them.
func (p *Planner) Often(ctx context.Context) (map[string]time.Duration, error) {
	h, err := p.head(ctx)
	if err != nil {
		return nil, err
	}
	often := map[string]time.Duration{}
	for _, s := range h.config.Services {
		for _, b := range s.Buckets {
			if b.Policy == nil {
				continue
			}
			policy, err := p.cfg.Policies.New(*b.Policy)
			if err != nil {
				continue
			}
			if every := policy.Needs().Every; every > 0 && (often[s.Name] == 0 || every < often[s.Name]) {
				often[s.Name] = every
			}
		}
	}
	return often, nil
}
