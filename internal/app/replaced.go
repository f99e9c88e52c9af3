package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
)

// recorded finds out, before a proposal is put up and after, whether the review whose
// place it takes was merged: its own proposal is superseded since the run was stored,
// while its branch stands until now.
type recorded struct {
	planner.Publisher
	app *App
}

func (r recorded) Publish(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	replaced, err := r.app.settleReplaced(ctx, p)
	if err != nil {
		return p, fmt.Errorf("look for what became of the review before %s: %w", p.ID, err)
	}
	out, err := r.Publisher.Publish(ctx, p)
	if err == nil && replaced { // merged between the look and the push, it is merged all the same
		if _, err := r.app.settleReplaced(ctx, p); err != nil {
			return out, fmt.Errorf("look for what became of the review before %s: %w", p.ID, err)
		}
	}
	return out, err
}

// mostReplaced bounds how many proposals that were never put up are gone back over
// to the one whose review stands.
const mostReplaced = 20

// settleReplaced records the proposal whose review next takes the place of as
// accepted where that was merged. waits tells that there is one which was not, yet.
func (a *App) settleReplaced(ctx context.Context, next rlc.Proposal) (waits bool, err error) {
	past, _, err := a.Records.Proposals(ctx, "", next.Service, rlc.Page{Size: mostReplaced})
	if err != nil {
		return false, err
	}
	for _, p := range past {
		replaced := p.State == rlc.Superseded && strings.HasPrefix(p.Reason, rlc.SupersededBy)
		switch {
		case p.State == rlc.Pending, replaced && p.Commit == "":
			continue // never put up
		case !replaced:
			return false, nil // decided, and its review with it
		}
		asked := p
		asked.State = rlc.Open
		now, err := a.reviews.Settle(ctx, asked)
		if err != nil || now.State != rlc.Accepted {
			return true, err
		}
		now.Reason = ""
		return false, a.found(ctx, now)
	}
	return false, nil
}

// found records what became of a proposal outside of RLC. What a person decides
// here at this moment is theirs to record.
func (a *App) found(ctx context.Context, p rlc.Proposal) error {
	if a.deciding.now(p.ID) {
		return nil
	}
	p.Decided = time.Now().UTC()
	if p.Actor == committer {
		p.Actor = "" // a fast-forward names nobody but the commit's maker
	}
	audit := &rlc.AuditEntry{At: p.Decided, Actor: orUnknown(p.Actor), Action: "proposal." + string(p.State), Object: p.ID, Detail: "found in the config repository"}
	if err := a.Records.Fenced(a.epoch.Load()).SetProposal(ctx, p, audit); err != nil {
		return err
	}
	return a.summaries.rebuild(ctx, a, []string{p.Service})
}
