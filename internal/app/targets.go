package app

import (
	"maps"
	"slices"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/envoyconfig"
	"github.com/openrlc/rlc/quotafile"
)

// renderLosses are what the files that a proposal would render for other
// limiters cannot say, a line each.
func renderLosses(c *quotafile.Config, p rlc.Proposal) (lines []string) {
	s := c.Service(p.Service)
	if s == nil || len(s.Targets) == 0 {
		return nil
	}
	next := map[string]rlc.Quota{}
	for _, q := range c.Quotas[p.Service] {
		next[q.ID()] = q
	}
	for _, ch := range moving(p.Changes) {
		if delete(next, ch.ID()); ch.Quota() != nil {
			next[ch.ID()] = *ch.Quota()
		}
	}
	var quotas []rlc.Quota
	for _, id := range slices.Sorted(maps.Keys(next)) {
		quotas = append(quotas, next[id])
	}
	for _, t := range s.Targets {
		_, losses, err := envoyconfig.Export(t.Kind, envoyconfig.Source{Service: s, Quotas: quotas, Profile: c.Profiles[s.Profile]}, envoyconfig.Options{})
		if err != nil {
			return append(lines, t.Path+": "+err.Error())
		}
		for _, l := range losses {
			lines = append(lines, t.Path+": "+l.String())
		}
	}
	return lines
}
