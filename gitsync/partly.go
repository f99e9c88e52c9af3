package gitsync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Merged makes an open proposal accepted whose review a forge has merged, in whatever
// form: Settle cannot tell a squash together with edits from a branch that people
// still work on. The branch goes; people's commits on it stay reachable under
// refs/rlc/kept. While nothing of the service came onto the base branch it is
// rlc.ErrConflict: the forge is ahead of what git shows.
func (r *Repo) Merged(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	segment := quotafile.PathSegment(p.Service)
	var out rlc.Proposal
	err := r.actOn(ctx, 0, r.cfg.Epoch, segment, func(v *view, t tips, epoch uint64) ([]move, error) {
		out = p
		return r.service(ctx, v, t, segment).mergedAs(&out, epoch)
	})
	if err != nil {
		return p, fmt.Errorf("settle the merged review of %s: %w", p.Service, err)
	}
	return out, nil
}

func (s *service) mergedAs(p *rlc.Proposal, epoch uint64) ([]move, error) {
	own, err := s.ownOf(p)
	if err != nil {
		return nil, err
	}
	put := plumbing.NewHash(p.Commit)
	if own {
		put = s.t.own
	}
	at, ok, err := s.mergedPartly(put)
	if err == nil && !ok {
		at, ok, err = s.newest(put)
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("%w: it is not on %s yet", rlc.ErrConflict, s.cfg.Branch)
	case own:
		return s.settled(p, at, own, epoch)
	}
	if err := s.accepted(p, at); err != nil {
		return nil, err
	}
	m, err := s.mark(put, at)
	if err != nil || s.t.branch.IsZero() || s.t.branch.String() != p.Commit {
		return []move{m}, err
	}
	todo := []move{m}
	if p.Human {
		kept, err := s.keep()
		if err != nil {
			return nil, err
		}
		todo = append(todo, kept)
	}
	return append(todo, move{branchRef(s.segment), s.t.branch, plumbing.ZeroHash}), nil
}

// keep is the move that keeps a branch's commits reachable.
func (s *service) keep() (move, error) {
	name := "refs/rlc/kept/" + refName(s.segment) + "/" + s.t.branch.String()
	was, err := s.bare.read(name)
	return move{name, was, s.t.branch}, err
}

// mergedPartly finds where a review came onto the base branch together with edits: a
// person's commit after its base gives a line that it changed the value it proposed.
func (s *service) mergedPartly(put plumbing.Hash) (int, bool, error) {
	c, err := s.nearest(put)
	if err != nil || c == nil {
		return 0, false, ignoreMissing(err)
	}
	positions, err := s.since(c)
	for _, i := range positions {
		if ok, err := s.partlyIn(c, i); err != nil || ok {
			return i, ok, err
		}
	}
	return 0, false, err
}

// newest is the newest commit of people, after a review's base, that touches the
// service.
func (s *service) newest(put plumbing.Hash) (int, bool, error) {
	c, err := s.nearest(put)
	if err != nil || c == nil {
		return 0, false, ignoreMissing(err)
	}
	positions, err := s.since(c)
	if err != nil || len(positions) == 0 {
		return 0, false, err
	}
	return positions[0], true, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil
	}
	return err
}

// since are the positions after a review's base, the newest first, at which people
// touched the service.
func (s *service) since(c *object.Commit) (out []int, err error) {
	if err := s.line.scan(s.ctx, s.v); err != nil || len(c.ParentHashes) == 0 {
		return nil, err
	}
	after, ok := s.line.at[c.ParentHashes[0]]
	if !ok {
		return nil, nil
	}
	for _, i := range slices.Backward(s.line.touched[s.segment]) {
		if i <= after || len(out) == maxBlame {
			break
		}
		if p := &s.line.points[i]; !p.ours || p.segment != s.segment {
			out = append(out, i)
		}
	}
	return out, nil
}

// partlyIn reports whether a line that c changed has c's value at a position, and had
// not just before.
func (s *service) partlyIn(c *object.Commit, i int) (bool, error) {
	parent, err := s.v.commit(c.ParentHashes[0])
	if err != nil {
		return false, err
	}
	roots := []plumbing.Hash{parent.TreeHash, c.TreeHash, s.line.points[i].tree}
	if i > 0 {
		roots = append(roots, s.line.points[i-1].tree)
	}
	var lines [4]map[string]rlc.Quota
	for n, root := range roots {
		if lines[n], err = s.lenient(root); err != nil {
			return false, err
		}
	}
	before, after, now, was := lines[0], lines[1], lines[2], lines[3]
	for _, side := range []map[string]rlc.Quota{before, after} {
		for id := range side {
			if !alike(before, after, id) && alike(after, now, id) && !alike(after, was, id) {
				return true, nil
			}
		}
	}
	return false, nil
}

// alike reports whether two files say the same of a line.
func alike(a, b map[string]rlc.Quota, id string) bool {
	x, in := a[id]
	y, is := b[id]
	return in == is && (!in || same(x, y))
}
