package promhistory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/openrlc/rlc"
)

// Labels are the labels that a service's metrics have in [from, until), sorted:
// of what a profile's sources select, before a sum leaves any out. A profile that
// names another one has to be corrected. One query for each selector.
func (r *Reader) Labels(ctx context.Context, p *rlc.Profile, service string, from, until time.Time) ([]string, error) {
	var all []string
	for _, source := range p.Sources {
		query, err := expand(source, service)
		if err != nil {
			return nil, err
		}
		for _, s := range selections(query) {
			names, _, _, err := r.api.LabelNames(ctx, []string{s.expr}, from, until)
			if err != nil {
				return nil, fmt.Errorf("list the labels of %s: %w", s.expr, r.http.translate(err))
			}
			for _, n := range names {
				if n != "__name__" {
					all = append(all, clip(string(n)))
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
