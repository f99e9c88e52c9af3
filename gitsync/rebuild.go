package gitsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Rebuild puts an open proposal's branch on the base branch's tip: the same lines and
// words in another commit, for servers that merge nothing which is behind. It leaves
// alone what a person committed to, what is another run's and what is on the tip
// already. Lines that do not apply any more are rlc.ErrConflict.
func (r *Repo) Rebuild(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	segment := quotafile.PathSegment(p.Service)
	var out rlc.Proposal
	err := r.actOn(ctx, 0, r.cfg.Epoch, segment, func(v *view, t tips, epoch uint64) ([]move, error) {
		out = p
		return r.service(ctx, v, t, segment).onTip(&out, epoch)
	})
	if err != nil {
		return p, fmt.Errorf("rebuild the review of %s: %w", p.Service, err)
	}
	return out, nil
}

func (s *service) onTip(p *rlc.Proposal, epoch uint64) ([]move, error) {
	b, err := s.review()
	switch {
	case err != nil || b.ours == nil || b.human || b.trailers.run != p.RunID:
		return nil, err
	case b.trailers.epoch > epoch:
		return nil, fmt.Errorf("%w: epoch %d, the review holds %d", rlc.ErrFenced, epoch, b.trailers.epoch)
	case s.t.team != "":
		todo, tip, err := s.regroup(s.t.team, s.t.branch, s.t.own, epoch, s.t.base, s.line.tip().tree)
		p.Commit = tip.String()
		return todo, err
	case b.base == s.t.base:
		return nil, nil
	}
	tree, err := s.apply(member{s.segment, b.ours}, s.line.tip().tree)
	if err != nil || tree == s.line.tip().tree {
		return nil, err // nothing is left: whoever settles finds that
	}
	own, err := s.commit(s.v, s.who, tree, b.ours.Message, s.t.base)
	if err != nil {
		return nil, err
	}
	if moves(*p) {
		lines, err := s.lenient(tree)
		if err != nil {
			return nil, err
		}
		p.Content = quotafile.Hash(sorted(lines))
	}
	p.Commit, p.Base = own.String(), s.t.base.String()
	return []move{{branchRef(s.segment), s.t.branch, own}}, nil
}

// onlyMerged reports whether all that people did to a review was to merge the base
// branch into it, as a forge's button does: the tip holds what RLC's commit makes of
// the newest commit of the base branch in it.
func (s *service) onlyMerged(b review, strangers []*object.Commit) (bool, error) {
	at, ok := s.line.at[b.base]
	if b.ours == nil || !ok || len(b.ours.ParentHashes) != 1 {
		return false, nil
	}
	for _, c := range strangers {
		if len(c.ParentHashes) != 2 || !slices.ContainsFunc(c.ParentHashes, func(h plumbing.Hash) bool { _, on := s.line.at[h]; return on }) {
			return false, nil
		}
	}
	tree, err := s.apply(member{s.segment, b.ours}, s.line.points[at].tree)
	if errors.Is(err, rlc.ErrConflict) || errors.Is(err, rlc.ErrInvalid) {
		return false, nil
	}
	return tree == b.tree, err
}

// Branches are the branches whose names begin with rlc/, as the repository has them
// now.
func (r *Repo) Branches(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	err := r.lookNow(ctx, 0, "", func(*view, tips) error {
		clear(out)
		for _, prefix := range []string{"refs/heads/rlc/", "refs/heads/rlc/_team/"} {
			refs, err := r.bare.under(prefix)
			if err != nil {
				return err
			}
			for name := range refs {
				out[strings.TrimPrefix(name, "refs/heads/")] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list branches: %w", err)
	}
	return out, nil
}

// Publishable says whether Publish would put p up as things are, without doing it:
// rlc.ErrUnpublishable, as Publish words it, where no later try could.
func (r *Repo) Publishable(ctx context.Context, p rlc.Proposal) error {
	segment := quotafile.PathSegment(p.Service)
	err := r.look(ctx, segment, func(v *view, t tips) error {
		epoch, err := r.fence(r.cfg.Epoch)
		if err != nil {
			return err
		}
		out := p
		out.Changes = slices.Clone(p.Changes)
		_, err = r.service(ctx, v, t, segment).publish(&out, epoch)
		return err
	})
	return unpublishable(p, err)
}

// unpublishable words the error of a proposal that is not put up.
func unpublishable(p rlc.Proposal, err error) error {
	if errors.Is(err, rlc.ErrInvalid) {
		err = fmt.Errorf("%w: %w", rlc.ErrUnpublishable, err)
	}
	if err != nil {
		err = fmt.Errorf("publish %s: %w", p.Service, err)
	}
	return err
}
