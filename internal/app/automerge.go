package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync/forge"
	"github.com/openrlc/rlc/internal/fault"
	"github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/internal/store"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// mergeActor is in whose name automatic merging accepts.
const mergeActor = "rlc auto-merge"

// askedToMerge is the act of asking a forge to merge a proposal.
const askedToMerge = "proposal.auto_merge"

// merging remembers what the follower did, so that a standing refusal is not
// reckoned anew with every poll. Its fields but the counter are the follower's
// alone.
type merging struct {
	woken  atomic.Uint64   // messages of the forge: a label may be gone
	looked string          // which proposals, on which head, in which minute, after how many messages
	asked  map[string]bool // commits that a forge was asked to merge: whether it agreed
	told   map[string]bool // proposals and commits whose asking is on record
}

// mergeOpen merges the open proposals that need no person. A failure keeps the
// proposal open for people; it stops nothing else.
func (a *App) mergeOpen(ctx context.Context, open []rlc.Proposal) {
	head, desired := a.Desired()
	if desired == nil || !a.leads.Load() || a.mayAct() != nil {
		return
	}
	key := fmt.Sprint(head.Hash, time.Now().Unix()/60, a.merging.woken.Load())
	open = slices.DeleteFunc(slices.Clone(open), func(p rlc.Proposal) bool {
		svc := desired.Service(p.Service)
		return p.State != rlc.Open || svc == nil || svc.AutoMerge == nil
	})
	for _, p := range open {
		key += " " + p.ID + " " + p.Commit
	}
	if len(open) == 0 || key == a.merging.looked {
		return
	}
	for _, p := range open {
		ok, because, err := a.mergeable(ctx, p, time.Now().UTC())
		if err == nil && ok {
			err = a.merge(ctx, p, because)
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, rlc.ErrConflict): // its checks are pending, or it moved
			a.log.Info("a proposal does not merge by itself yet", "proposal", p.ID, "why", err)
		default:
			a.log.Warn("a proposal was not merged by itself", "proposal", p.ID, "error", err)
		}
	}
	a.merging.looked = key
}

// Mergeable tells whether an open proposal merges by itself, and because of
// what. What cannot be looked up keeps it from merging and is the reason.
func (a *App) Mergeable(ctx context.Context, p rlc.Proposal) (ok bool, because string) {
	ok, because, err := a.mergeable(ctx, p, time.Now().UTC())
	if err != nil {
		return false, "what it depends on cannot be read"
	}
	return ok, because
}

func (a *App) mergeable(ctx context.Context, p rlc.Proposal, now time.Time) (bool, string, error) {
	ok, because, err := a.mergeableAlone(ctx, p, now)
	if err != nil || !ok {
		return false, because, err
	}
	if why, err := a.shared(ctx, p, now); err != nil || why != "" {
		return false, why, err
	}
	return true, because, nil
}

// mergeableAlone is mergeable but for what else is in the review.
func (a *App) mergeableAlone(ctx context.Context, p rlc.Proposal, now time.Time) (bool, string, error) {
	_, desired := a.Desired()
	if desired == nil || desired.Service(p.Service) == nil {
		return false, "the service's files are not read", nil
	}
	m := policies.Merging{Service: desired.Service(p.Service), Changes: moving(p.Changes), Now: now}
	switch {
	case m.Service.AutoMerge == nil:
		ok, because := policies.AutoMerge(m)
		return ok, because, nil
	case p.Human:
		return false, "a person committed to its branch", nil
	case len(m.Changes) == 0:
		return false, "only files rendered for other limiters change", nil
	case p.Commit == "" || p.Content == "":
		return false, "it is not published yet", nil
	}
	var err error
	if m.MonthAgo, err = a.monthAgo(ctx, p.Service, now); err != nil {
		return false, "", err
	}
	if ok, because := policies.AutoMerge(m); !ok {
		return false, because, nil
	}
	last, err := a.lastMerge(ctx, p.Service)
	if err != nil {
		return false, "", err
	}
	if next := last.Add(a.Config.Reviews.MergeEvery); !last.IsZero() && now.Before(next) {
		return false, "the last one merged by itself at " + stat.TimeText(last) + ", the next may at " + stat.TimeText(next), nil
	}
	if held, err := a.reviews.Labelled(ctx, p, review.HoldLabel); err != nil || held {
		return false, "its review is labelled " + review.HoldLabel, err
	}
	_, because := policies.AutoMerge(m)
	return true, because, nil
}

// monthAgo are the service's limits of 30 days ago, of younger quotas the first
// ones that were accepted.
func (a *App) monthAgo(ctx context.Context, service string, now time.Time) (map[string]rlc.Limit, error) {
	const month = 30 * 24 * time.Hour
	was := map[string]rlc.Limit{}
	for page := 1; ; page++ { // the newest first, so that the first ones stay
		all, total, err := a.Records.Proposals(ctx, rlc.Accepted, service, rlc.Page{Number: page, Size: 20})
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			for _, c := range p.Changes {
				if c.Old == nil && c.New != nil {
					was[c.ID()] = *c.New
				}
			}
		}
		if page*20 >= total || len(all) == 0 || now.Sub(all[len(all)-1].Created) > month {
			break
		}
	}
	files, err := a.Repo.At(ctx, now.Add(-month))
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return nil, err
	}
	name := quotafile.QuotasPath(service)
	if data, ok := files[name]; ok {
		_, quotas, _ := quotafile.ParseQuotas(name, data)
		for _, q := range quotas {
			was[q.ID()] = q.Limit
		}
	}
	return was, nil
}

// lastMerge is when a proposal of the service last merged by itself; zero for
// never, as far as the newest hundred accepted tell. What a forge merged is in
// the name of whoever the forge says; that RLC asked for it stands in the audit
// log.
func (a *App) lastMerge(ctx context.Context, service string) (last time.Time, err error) {
	all, _, err := a.Records.Proposals(ctx, rlc.Accepted, service, rlc.Page{Number: 1, Size: 100})
	if err != nil {
		return last, err
	}
	for _, p := range all {
		if !p.Decided.After(last) {
			continue
		}
		itself := p.Actor == mergeActor
		if !itself && a.reviews.OnForge() {
			if itself, err = a.asked(ctx, p); err != nil {
				return last, err
			}
		}
		if itself {
			last = p.Decided
		}
	}
	return last, nil
}

// asked reports whether RLC asked the forge to merge p as it was accepted. One
// that a person merged after the forge refused RLC counts as well: the next one
// then waits longer than it need.
func (a *App) asked(ctx context.Context, p rlc.Proposal) (bool, error) {
	rows, _, err := a.Records.AuditLog(ctx, rlc.AuditFilter{Actor: mergeActor, Action: askedToMerge, Object: p.ID}, rlc.Page{Number: 1, Size: 100})
	return slices.ContainsFunc(rows, func(e rlc.AuditEntry) bool {
		return e.Object == p.ID && strings.HasSuffix(e.Detail, contentOf(p))
	}), err
}

// contentOf is what an audit row names a proposal's content by.
func contentOf(p rlc.Proposal) string { return "; content " + p.Content }

// merge accepts p in the name of automatic merging: exactly the commit whose
// content was judged. On a forge the forge merges it, under its own rules; that
// it was asked is on record before it is, so that no crash hides a merge from
// the next proposal's turn.
func (a *App) merge(ctx context.Context, p rlc.Proposal, because string) error {
	now := time.Now().UTC()
	audit := &rlc.AuditEntry{At: now, Actor: mergeActor, Action: "proposal.accepted", Object: p.ID,
		Detail: p.Service + ": " + because + contentOf(p)}
	records := a.Records.Fenced(a.epoch.Load())
	if a.reviews.OnForge() {
		return a.mergeOnForge(ctx, records, p, audit)
	}
	if _, err := a.Repo.Accept(ctx, p, mergeActor); err != nil {
		return err
	}
	p.State, p.Actor, p.Decided, p.Error = rlc.Accepted, mergeActor, now, ""
	if err := records.SetProposal(ctx, p, audit); err != nil {
		return err
	}
	a.Nudge()
	return a.summaries.rebuild(ctx, a, []string{p.Service})
}

// mergeOnForge asks once for each commit, again where the forge refused: checks may
// be pending. Each proposal of a commit is on record first. A review that the forge
// wants on the base branch's tip is put there, and judged anew as it is then.
func (a *App) mergeOnForge(ctx context.Context, records *store.DB, p rlc.Proposal, audit *rlc.AuditEntry) error {
	if a.merging.asked == nil {
		a.merging.asked, a.merging.told = map[string]bool{}, map[string]bool{}
	}
	if id := p.ID + " " + p.Commit; !a.merging.told[id] {
		audit.Action = askedToMerge
		if err := records.SetProposal(ctx, p, audit); err != nil {
			return err
		}
		a.merging.told[id] = true
		fault.Hit("after-auto-merge")
	}
	if a.merging.asked[p.Commit] {
		return nil
	}
	err := a.reviews.Merge(ctx, p)
	fault.Hit("after-forge-merge")
	a.merging.asked[p.Commit] = err == nil
	if errors.Is(err, forge.ErrBehind) {
		now, e := a.reviews.Rebuild(ctx, p)
		if e != nil {
			return errors.Join(err, e)
		}
		err = records.SetProposal(ctx, now, nil)
	}
	if err == nil {
		a.Nudge()
	}
	return err
}
