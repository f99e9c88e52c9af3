package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/fault"
	"github.com/openrlc/rlc/internal/planner"
)

// Accept merges a proposal as actor's act: the base branch moves, then the
// records say so with an audit row in the same transaction. A crash between
// the two is mended by the follower, which finds the content on the base. seen is
// what actor was shown, as Proposal.Holds or its commit; where the proposal holds
// something else by now it is rlc.ErrConflict. "" accepts what it holds.
func (a *App) Accept(ctx context.Context, id, seen, actor string) error {
	p, err := a.decidable(ctx, id)
	if err != nil {
		return err
	}
	if err := p.StillHolds(seen); err != nil {
		return err
	}
	defer a.deciding.by(id)()
	if _, err := a.Repo.Accept(ctx, p, actor); err != nil {
		return fmt.Errorf("accept %s: %w", id, err)
	}
	fault.Hit("after-accept")
	now := time.Now().UTC()
	p.State, p.Actor, p.Decided, p.Error = rlc.Accepted, actor, now, ""
	err = a.Records.SetProposal(ctx, p, &rlc.AuditEntry{At: now, Actor: actor, Action: "proposal.accepted", Object: id, Detail: p.Service})
	a.closeReview(ctx, p)
	a.Nudge()
	return err
}

// Reject closes a proposal as actor's act: the branch goes, then the records say
// so. A crash between the two leaves it rejected by nobody known, which the
// follower finds. It is not opened again for 30 days unless it changes by more
// than twice the deadband.
func (a *App) Reject(ctx context.Context, id, actor, reason string) error {
	p, err := a.decidable(ctx, id)
	if err != nil {
		return err
	}
	defer a.deciding.by(id)()
	if err := a.Repo.Reject(ctx, p, actor, reason); err != nil {
		return fmt.Errorf("reject %s: %w", id, err)
	}
	fault.Hit("after-reject")
	now := time.Now().UTC()
	p.State, p.Actor, p.Decided, p.Reason = rlc.Rejected, actor, now, reason
	if err := a.Records.SetProposal(ctx, p, &rlc.AuditEntry{At: now, Actor: actor, Action: "proposal.rejected", Object: id, Detail: reason}); err != nil {
		return err
	}
	a.closeReview(ctx, p)
	a.Nudge()
	return a.summaries.rebuild(ctx, a, []string{p.Service})
}

// deciding is the proposals on which a person of this replica is deciding: the
// repository tells of it before the records do.
type deciding struct{ ids sync.Map }

// by holds a proposal until the returned function is called.
func (d *deciding) by(id string) func() {
	d.ids.Store(id, nil)
	return func() { d.ids.Delete(id) }
}

func (d *deciding) now(id string) bool {
	_, ok := d.ids.Load(id)
	return ok
}

func (a *App) decidable(ctx context.Context, id string) (rlc.Proposal, error) {
	if err := a.mayAct(); err != nil {
		return rlc.Proposal{}, err
	}
	p, err := a.Records.ProposalByID(ctx, id)
	if err != nil {
		return p, err
	}
	if p.State != rlc.Open {
		return p, fmt.Errorf("%w: proposal %s is %s, not open", rlc.ErrConflict, id, p.State)
	}
	return p, nil
}

// Run starts a run that a person asked for and returns as soon as it is
// recorded; it goes on when the request is over, and after a restart.
func (a *App) Run(ctx context.Context, ask planner.Ask) (rlc.Run, error) {
	if err := a.mayAct(); err != nil {
		return rlc.Run{}, err
	}
	if err := a.known(ask.Service); err != nil {
		return rlc.Run{}, err
	}
	return a.ask(ctx, complete(ask))
}

// ask claims a run for whoever leads, and carries it where that is this
// replica; elsewhere the leader finds it within a moment.
func (a *App) ask(ctx context.Context, ask planner.Ask) (rlc.Run, error) {
	claim := ask
	claim.Epoch = a.leader.Load()
	run, err := a.Planner.Claim(ctx, claim)
	if err == nil && a.leads.Load() {
		a.start(ask)
	}
	return run, err
}

// mayAct says why nothing may be computed or merged now; nil where it may.
func (a *App) mayAct() error {
	if a.leader.Load() == 0 {
		return fmt.Errorf("%w: no replica leads yet; try again in a few seconds", rlc.ErrFenced)
	}
	if a.stopped() {
		return fmt.Errorf("%w: automation is stopped; let go of the switch on the page Emergency, or with rlc switch stop-automation off", rlc.ErrRefused)
	}
	if a.rewritten.Load() {
		return fmt.Errorf("%w: history of the base branch was rewritten; look at it, then let RLC follow it with rlc follow", rlc.ErrRefused)
	}
	return nil
}

// Plan computes what a run would propose and writes nothing.
func (a *App) Plan(ctx context.Context, ask planner.Ask) (rlc.Run, []rlc.Change, error) {
	p := a.Planner
	if ask.Policy == nil {
		if err := a.known(ask.Service); err != nil {
			return rlc.Run{}, nil, err
		}
	} else {
		drafts, done, err := a.drafts(ctx)
		if err != nil {
			return rlc.Run{}, nil, err
		}
		defer done()
		p = drafts
	}
	ask = complete(ask)
	run, changes, err := p.Plan(ctx, ask)
	run.Started, run.Finished = ask.Now, ask.Now // no record: equal asks give equal answers
	return run, changes, err
}

// Compute runs ask to its end and returns the finished run.
func (a *App) Compute(ctx context.Context, ask planner.Ask) (rlc.Run, error) {
	return a.carry(ctx, complete(ask))
}

func complete(ask planner.Ask) planner.Ask {
	if ask.Now.IsZero() {
		ask.Now = time.Now()
	}
	ask.Now = ask.Now.UTC().Truncate(time.Second)
	if ask.Trigger == "" {
		ask.Trigger = rlc.ByPerson
	}
	if ask.Slot == "" {
		ask.Slot = ask.Now.Format("20060102T150405Z")
		if ask.Service != "" {
			ask.Slot += "-" + ask.Service
		}
	}
	return ask
}

func (a *App) known(service string) error {
	if service == "" {
		return nil
	}
	_, c := a.Desired()
	if c == nil || (c.Service(service) == nil && c.Broken[service] == nil) {
		return fmt.Errorf("%w: no service %q in the config repository", rlc.ErrNotFound, service)
	}
	return nil
}

// SetVerdict records a person's word on a flagged window and recomputes the
// service with it.
func (a *App) SetVerdict(ctx context.Context, v rlc.Verdict) error {
	if err := a.known(v.Service); err != nil {
		return err
	}
	act := "verdict.exclude"
	if v.Count {
		act = "verdict.count"
	}
	err := a.Records.SetVerdict(ctx, v, rlc.AuditEntry{
		At: v.At, Actor: v.Actor, Action: act, Object: v.Service + "/" + rlc.QuotaID(v.Bucket, v.Key),
		Detail: fmt.Sprintf("%s to %s: %s", v.From.Format(time.RFC3339), v.Until.Format(time.RFC3339), v.Reason),
	})
	if err != nil {
		return err
	}
	if a.mayAct() != nil {
		return nil
	}
	_, err = a.ask(ctx, complete(planner.Ask{Service: v.Service, Actor: v.Actor}))
	return err
}

// start carries a run in the background, for as long as the server runs.
func (a *App) start(ask planner.Ask) {
	ctx := a.running.Load()
	if ctx == nil || (*ctx).Err() != nil {
		return
	}
	a.tasks.Add(1)
	go func() {
		defer a.tasks.Done()
		if _, err := a.carry(*ctx, ask); err != nil && (*ctx).Err() == nil {
			a.log.Warn("run", "trigger", ask.Trigger, "slot", ask.Slot, "err", err)
		}
	}()
}

// carry runs ask to its end, counts it, and refreshes what pages read.
func (a *App) carry(ctx context.Context, ask planner.Ask) (rlc.Run, error) {
	run, err := a.Planner.Run(ctx, ask)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, rlc.ErrFenced) {
			return run, err // the next leader carries it on
		}
		a.metrics.failed()
		a.status.set("run", "bad", "The last run failed: quotas stay as they are.", err.Error())
		return run, err
	}
	return run, a.conclude(ctx, run)
}

// conclude refreshes what pages and metrics say after a finished run. Only the
// first time that it is told of a run counts.
func (a *App) conclude(ctx context.Context, run rlc.Run) error {
	if !a.status.first(run.ID) {
		return nil
	}
	held, _, err := a.Records.RunChanges(ctx, run.ID, true, rlc.Page{Size: 1000})
	if err != nil {
		return err
	}
	a.metrics.ran(run)
	a.metrics.heldBy(held)
	a.judge(run, held)
	a.Nudge()
	services := []string{run.Service}
	if run.Service == "" {
		services = nil
	}
	return a.summaries.rebuild(ctx, a, services)
}

// judge turns a finished run, and what it held, into the banner that it
// deserves.
func (a *App) judge(run rlc.Run, held []rlc.Change) {
	switch run.Result {
	case rlc.ResultOK:
		a.status.clear("run")
		a.status.good(run.Finished)
	case rlc.ResultRefused:
		a.status.set("run", "bad", "The fleet breaker stopped the last run: nothing was published.", run.Detail)
	case rlc.ResultDegraded:
		failed, invalid := 0, 0
		for _, c := range held {
			switch {
			case c.Held == "policy_invalid":
				invalid++
			case c.Failed:
				failed++
			}
		}
		var why []string
		if failed > 0 {
			why = append(why, fmt.Sprintf("%d because history was missing or in doubt", failed))
		}
		if invalid > 0 {
			why = append(why, fmt.Sprintf("%d because their service's files do not validate", invalid))
		}
		text := "The last run did not do all that it was to do."
		if len(why) > 0 {
			text = fmt.Sprintf("The last run held %s, of %d quotas.", strings.Join(why, " and "), run.Total)
		}
		a.status.set("run", "warn", text, run.Detail)
	case rlc.ResultFailed:
		a.status.set("run", "bad", "The last run failed: quotas stay as they are.", run.Detail)
	}
}
