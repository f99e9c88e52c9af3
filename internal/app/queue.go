package app

import (
	"context"
	"errors"
	"slices"

	"github.com/openrlc/rlc"
)

// refreshing does act and refreshes what pages read of the services whose
// proposals it put up or ended: one that waited for its turn outlives its run.
func (a *App) refreshing(ctx context.Context, act func(context.Context) error) error {
	before, err := a.Records.Queue(ctx)
	if err != nil {
		return err
	}
	if err = act(ctx); ctx.Err() != nil {
		return err
	}
	after, e := a.Records.Queue(ctx)
	if e != nil {
		return errors.Join(err, e)
	}
	waits := map[string]bool{}
	for _, p := range after {
		waits[p.ID] = p.State == rlc.Pending
	}
	var services []string
	for _, p := range before {
		if p.State == rlc.Pending && !waits[p.ID] {
			services = append(services, p.Service)
		}
	}
	if len(services) > 0 {
		slices.Sort(services)
		a.Nudge()
		err = errors.Join(err, a.summaries.rebuild(ctx, a, slices.Compact(services)))
	}
	return err
}
