package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/quotafile"
)

// Amend puts actor's number in place of a proposed one, as a commit of actor's on
// the review's branch: runs leave the branch alone from then on, and whoever accepts
// the review accepts that number. quota is an ID; seen is as for Accept. A crash before the records hear of
// it is mended by the follower, which finds the commit.
func (a *App) Amend(ctx context.Context, id, seen, quota string, limit rlc.Limit, actor, reason string) error {
	p, err := a.decidable(ctx, id)
	if err != nil {
		return err
	}
	if err := p.StillHolds(seen); err != nil {
		return err
	}
	reason = strings.Join(strings.Fields(reason), " ")
	now, err := a.Repo.Amend(ctx, p, gitsync.Person{Name: actor, Email: "actor@rlc.invalid"},
		fmt.Sprintf("rlc(%s): %s by hand\n\n%s", p.Service, quota, reason),
		gitsync.Amendment{Quota: quota, Limit: limit, Why: "set by " + actor + ": " + reason})
	if err != nil {
		return fmt.Errorf("change %s: %w", id, err)
	}
	err = a.Records.SetProposal(ctx, now, &rlc.AuditEntry{
		At: time.Now().UTC(), Actor: actor, Action: "proposal.edited", Object: id,
		Detail: fmt.Sprintf("%s to %s req/s, burst %s: %s", quota, rlc.Number(limit.Rate), rlc.Number(limit.Burst), reason),
	})
	a.Nudge()
	return err
}

// Amended are a proposal's changes as its branch holds them: those of the run, but
// where a person committed another number, took one back or added one. A branch
// that cannot be read any more is rlc.ErrNotFound.
func (a *App) Amended(ctx context.Context, p rlc.Proposal) ([]rlc.Change, error) {
	if !p.Human || p.Commit == "" {
		return p.Changes, nil
	}
	branch, err := a.quotasAt(ctx, p.Service, p.Commit)
	if err != nil {
		return nil, err
	}
	base, err := a.quotasAt(ctx, p.Service, p.Base)
	if err != nil {
		return nil, err
	}
	return amended(p, base, branch), nil
}

// quotasAt are a service's quotas at a commit, by ID; none where the file was not
// there.
func (a *App) quotasAt(ctx context.Context, service, hash string) (map[string]rlc.Quota, error) {
	path := quotafile.QuotasPath(service)
	data, err := a.Repo.Show(ctx, hash, path)
	if errors.Is(err, rlc.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, quotas, _ := quotafile.ParseQuotas(path, data)
	out := make(map[string]rlc.Quota, len(quotas))
	for _, q := range quotas {
		out[q.ID()] = q
	}
	return out, nil
}

// amended are the changes from base to branch: p's own where the branch holds what
// p put there, others with the line's own reason and without a backtest.
func amended(p rlc.Proposal, base, branch map[string]rlc.Quota) (out []rlc.Change) {
	of := map[string]rlc.Change{}
	for _, c := range p.Changes {
		of[c.ID()] = c
	}
	ids := maps.Clone(base)
	if ids == nil {
		ids = map[string]rlc.Quota{}
	}
	maps.Copy(ids, branch)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		was, had := base[id]
		is, has := branch[id]
		c, put := of[id]
		if ours := c.Quota(); put && (has && ours != nil && is.Same(*ours) || !has && c.Remove) {
			out = append(out, c)
			continue
		}
		if had && has && was.Same(is) || is.Zone != "" || was.Zone != "" {
			continue // a person took it back, or it is no change that a proposal can tell
		}
		c.RunID, c.Service, c.At = p.RunID, p.Service, cmp.Or(c.At, p.Created)
		c.Held, c.HeldWhy, c.Look, c.Backtest.New = "", "", "", nil
		c.Old, c.OldMode, c.OldTimed = nil, "", rlc.Timed{}
		if had {
			c.Bucket, c.Key, c.Region, c.Old, c.OldMode, c.OldTimed = was.Bucket, was.Key, was.Region, &was.Limit, was.Mode, was.Timed()
		}
		if has {
			c.Bucket, c.Key, c.Region, c.New, c.NewMode, c.NewTimed = is.Bucket, is.Key, is.Region, &is.Limit, is.Mode, is.Timed()
			c.Why, c.Remove = is.Why, false
		} else {
			c.New, c.NewMode, c.NewTimed, c.Why, c.Remove = c.Old, c.OldMode, c.OldTimed, "taken out by hand", true
		}
		c.Reasons = []rlc.Reason{{Rule: "by_hand", Detail: c.Why, Rate: c.New.Rate, Acted: true}}
		out = append(out, c)
	}
	return out
}
