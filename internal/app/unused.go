package app

import (
	"slices"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// unused reports whether the base branch is about no service and no enforcer is known
// to have a snapshot: an installation that is new. There is nothing to distribute
// then. Where something is in force, a branch that became empty is sent all the same,
// and refused.
func (a *App) unused(parsed *quotafile.Config) bool {
	return len(parsed.Services) == 0 && a.Enforcer.Snapshot() == nil &&
		!slices.ContainsFunc(a.Acks(), func(k rlc.Ack) bool { return k.Version != rlc.Version{} })
}
