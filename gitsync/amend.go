package gitsync

import (
	"context"
	"fmt"
	"maps"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Amendment is another number for one quota of a review.
type Amendment struct {
	Quota string // its ID
	Limit rlc.Limit
	Why   string // the line's reason, in place of the run's
}

// Amend commits a named person's number to a review's branch, on top of what is
// there: the proposal comes back Human, with Commit and Content of the branch as it
// is then. From there on it is a person's commit like any other: runs leave the
// branch alone, and Accept keeps it. It is idempotent.
//
// A branch that is not at p.Commit any more, that is gone, that holds another run's
// proposal or is a team's (see Accept) is rlc.ErrConflict: look again. A quota that
// the review does not hold is rlc.ErrNotFound; one whose limits differ by time, or a
// number that does not validate, rlc.ErrInvalid.
func (r *Repo) Amend(ctx context.Context, p rlc.Proposal, who Person, message string, a Amendment) (rlc.Proposal, error) {
	segment := quotafile.PathSegment(p.Service)
	var out rlc.Proposal
	err := r.act(ctx, segment, func(v *view, t tips, epoch uint64) ([]move, error) {
		out = p
		return r.service(ctx, v, t, segment).amend(&out, who, message, a, epoch)
	})
	if err != nil {
		return p, fmt.Errorf("change the review of %s: %w", p.Service, err)
	}
	return out, nil
}

func (s *service) amend(p *rlc.Proposal, who Person, message string, a Amendment, epoch uint64) ([]move, error) {
	b, err := s.review()
	conflict := ""
	switch {
	case err != nil:
		return nil, err
	case b.ours == nil:
		conflict = "the branch is gone or merged"
	case b.trailers.run != p.RunID:
		conflict = "the branch holds another run's proposal"
	case b.adrift:
		conflict = adrift(s.cfg.Branch)
	case s.t.team != "":
		conflict = "it shares the branch " + teamBranch(s.t.team) + " with other services of its team: commit to that, with git or on the forge"
	}
	if conflict != "" {
		return nil, fmt.Errorf("%w: %s", rlc.ErrConflict, conflict)
	}
	lines, err := s.lines(b.tree)
	if err != nil {
		return nil, err
	}
	q, ok := lines[a.Quota]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: the review holds no quota %s", rlc.ErrNotFound, clip(inert(a.Quota), 300))
	case len(q.Windows) > 0 || q.Hours != nil:
		return nil, fmt.Errorf("%w: %s has limits that differ by time: commit them to the branch %s with git", rlc.ErrInvalid, inert(a.Quota), s.on())
	case b.human && q.Limit == a.Limit && q.Why == a.Why: // done before, and nobody was told
		p.Human, p.Commit, p.Base, p.Content = true, s.t.branch.String(), b.base.String(), quotafile.Hash(b.quotas)
		return nil, nil
	case p.Commit != s.t.branch.String():
		return nil, fmt.Errorf("%w: the branch changed since it was looked at", rlc.ErrConflict)
	}
	q.Limit, q.Why = a.Limit, a.Why
	lines = maps.Clone(lines)
	lines[a.Quota] = q
	quotas := sorted(lines)
	tree, err := s.v.write(b.tree, rlc.Files{s.path: quotafile.MarshalQuotas(p.Service, quotas)})
	if err != nil {
		return nil, err
	}
	if err := s.check(s.v, tree, s.segment, map[string]bool{s.path: true}); err != nil {
		return nil, err
	}
	if tree, _, err = s.render(tree); err != nil {
		return nil, err
	}
	msg := withTrailers(personal(message), []trailer{{epochTrailer, fmt.Sprint(epoch)}, {actorTrailer, person(who.Name)}}, nil)
	done, err := s.commit(s.v, who.signed(), tree, msg, s.t.branch)
	if err != nil {
		return nil, err
	}
	p.Human, p.Commit, p.Base, p.Content = true, done.String(), b.base.String(), quotafile.Hash(quotas)
	return []move{{branchRef(s.segment), s.t.branch, plumbing.NewHash(p.Commit)}}, nil
}
