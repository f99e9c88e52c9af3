package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// together are the proposals of one review, by service: p and the open ones on the
// same branch. team is whose review it is, "" where p has it for itself.
func (a *App) together(p rlc.Proposal) (all []rlc.Proposal, team string) {
	_, c := a.Desired()
	if !strings.HasPrefix(p.Branch, "rlc/_team/") || c == nil {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	open, err := a.openProposals(ctx)
	if err != nil {
		a.log.Warn("a review does not name all that is in it", "branch", p.Branch, "err", err)
	}
	all = []rlc.Proposal{p}
	for _, o := range open {
		if o.Branch == p.Branch && o.Service != p.Service {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(x, y rlc.Proposal) int { return strings.Compare(x.Service, y.Service) })
	team = strings.TrimPrefix(p.Branch, "rlc/_team/")
	if s := c.Service(p.Service); s != nil && len(s.Owners) > 0 {
		team = s.Owners[0]
	}
	return all, team
}

// shared says which other proposal keeps the forge from merging p's review, and
// why; "" where none does. Without a forge each proposal merges alone.
func (a *App) shared(ctx context.Context, p rlc.Proposal, now time.Time) (string, error) {
	if !a.reviews.OnForge() {
		return "", nil
	}
	all, _ := a.together(p)
	for _, o := range all {
		if o.Service == p.Service {
			continue
		}
		if ok, because, err := a.mergeableAlone(ctx, o, now); err != nil || !ok {
			return o.Service + " is in the same review: " + because, err
		}
	}
	return "", nil
}
