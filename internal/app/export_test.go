package app

import (
	"context"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/distribute"
)

// WindowsOf are the windows of overrides that are left out of a key's history.
func (a *App) WindowsOf(ctx context.Context, service, bucket string, key rlc.Key) []rlc.Verdict {
	past, _ := a.Records.Overrides(ctx, a.status.started.AddDate(0, 0, -1))
	_, c := a.Desired()
	return windowsOf(past, service, c.Service(service).Bucket(bucket), key)
}

// Follow joins the bus as one more enforcer.
func (a *App) Follow(ctx context.Context, apply func(distribute.Message) rlc.Ack) error {
	return a.bus.Follow(ctx, apply)
}

// AmendedChanges are a proposal's changes as its branch holds them.
var AmendedChanges = amended

// Acting reports whether an act of the emergency is being taken.
func (a *App) Acting() bool {
	if a.emergency.acting.TryLock() {
		a.emergency.acting.Unlock()
		return false
	}
	return true
}

// FoundWhileDeciding records a decision as found in the repository while a person
// of this replica decides on it, and says what became of the proposal.
func (a *App) FoundWhileDeciding(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	defer a.deciding.by(p.ID)()
	if err := a.found(ctx, p); err != nil {
		return p, err
	}
	return a.Records.ProposalByID(ctx, p.ID)
}
