package gitsync

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Settle finds out what became of an open proposal outside of RLC: Accepted when
// its content is on the base branch, however it got there; Rejected when its
// branch is gone, or was merged after a person took the proposal out of it;
// Superseded when the branch is another run's, when the base branch moved on so that
// the proposal left its team's, or when history was rewritten and what the proposal
// stood on is on the base branch no more, the branch removed; Human, with Commit and Content of the branch as it
// is, when a person committed to it. An accepted one's branch is removed. Any other
// proposal comes back as it is.
func (r *Repo) Settle(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	if p.State != rlc.Open || p.Commit == "" {
		return p, nil
	}
	segment := quotafile.PathSegment(p.Service)
	var out rlc.Proposal
	sure := false
	settle := func(v *view, t tips, epoch uint64) ([]move, error) {
		out = p
		return r.service(ctx, v, t, segment).settle(&out, epoch, sure)
	}
	err := r.actOn(ctx, r.cfg.Fresh, r.cfg.Epoch, segment, settle)
	if errors.Is(err, errGone) {
		sure = true
		err = r.actOn(ctx, 0, r.cfg.Epoch, segment, settle)
	}
	if err != nil {
		return p, fmt.Errorf("settle the review of %s: %w", p.Service, err)
	}
	return out, nil
}

// errGone says that a branch is gone of which nothing was seen on the base branch.
// A server's references are not read at one instant: the merge that took the branch
// away may have come in between. So it is looked at once more.
var errGone = errors.New("the branch is gone")

func (s *service) settle(p *rlc.Proposal, epoch uint64, sure bool) ([]move, error) {
	put := plumbing.NewHash(p.Commit)
	at, ok := s.line.published(p.RunID, s.segment)
	if !ok {
		at, ok = s.line.contains(put)
	}
	own, err := s.ownOf(p)
	if err != nil {
		return nil, err
	}
	if !ok && own {
		at, ok = s.line.contains(s.t.branch)
	}
	if ok {
		return s.settled(p, at, own, epoch)
	}
	b, err := s.review()
	if err != nil {
		return nil, err
	}
	if b.ours != nil && b.trailers.run == p.RunID {
		put = s.t.proposal()
		p.Human, p.Commit, p.Base = b.human, s.t.branch.String(), b.base.String()
		if moves(*p) {
			p.Content = quotafile.Hash(b.quotas)
		}
	}
	if !moves(*p) {
		switch done, err := s.settleRendered(p); {
		case err != nil:
			return nil, err
		case done:
			return s.cleanUp(p.RunID, epoch)
		}
	}
	left, err := s.left(p.RunID)
	if err != nil {
		return nil, err
	}
	switch {
	case own:
		put = s.t.own
	case left != nil:
		put = left.Hash
	}
	at, ok, err = s.mergedByContent(put, p)
	switch {
	case err != nil:
		return nil, err
	case ok && own:
		return s.settled(p, at, own, epoch)
	case ok && left == nil:
		return s.settledByContent(p, put, at)
	case ok:
		todo, err := s.settledByContent(p, put, at)
		return append(todo, move{proposedRef(s.segment), s.t.own, plumbing.ZeroHash}), err
	case left != nil:
		p.State, p.Decided = rlc.Superseded, s.cfg.Now().UTC()
		return []move{{proposedRef(s.segment), s.t.own, plumbing.ZeroHash}}, nil
	case s.t.branch.IsZero():
		if at, ok, err := s.mergedPartly(put); err != nil {
			return nil, err
		} else if ok && own {
			return s.settled(p, at, own, epoch)
		} else if ok {
			return s.settledByContent(p, put, at)
		} else if !sure {
			return nil, errGone
		}
		p.State, p.Reason, p.Decided = rlc.Rejected, "the branch was deleted", s.cfg.Now().UTC()
		return []move{{proposedRef(s.segment), s.t.own, plumbing.ZeroHash}}, nil
	case b.ours == nil || b.trailers.run != p.RunID:
		p.State, p.Decided = rlc.Superseded, s.cfg.Now().UTC()
	case b.adrift && !b.human:
		p.State, p.Reason, p.Decided = rlc.Superseded, adrift(s.cfg.Branch), s.cfg.Now().UTC()
		gone, err := s.withdraw(epoch, s.t.base, s.line.tip().tree)
		return append([]move{{branchRef(s.segment), s.t.single, plumbing.ZeroHash}}, gone...), err
	}
	return nil, nil
}

// settledByContent makes p, whose commit is put, one whose content came onto the
// base branch at a position.
func (s *service) settledByContent(p *rlc.Proposal, put plumbing.Hash, at int) ([]move, error) {
	if err := s.accepted(p, at); err != nil {
		return nil, err
	}
	mark, err := s.mark(put, at)
	if err != nil || s.t.team != "" || s.t.branch != put {
		return []move{mark}, err
	}
	return []move{mark, {branchRef(s.segment), s.t.branch, plumbing.ZeroHash}}, nil
}

// ownOf reports whether a proposal is what the service has on its team's branch.
func (s *service) ownOf(p *rlc.Proposal) (bool, error) {
	if s.t.team == "" {
		return false, nil
	}
	c, err := s.v.commit(s.t.own)
	return err == nil && s.who.trailers(c).run == p.RunID, err
}

// settled makes p one that came onto the base branch at a position and removes its
// branch. What came with others on a team's branch is remembered by its own commit.
// One of which a person left nothing on the branch is rejected.
func (s *service) settled(p *rlc.Proposal, at int, own bool, epoch uint64) (todo []move, err error) {
	if err := s.accepted(p, at); err != nil {
		return nil, err
	}
	if own && moves(*p) {
		came, err := s.came(at)
		if err != nil {
			return nil, err
		}
		if !came {
			p.State, p.Reason = rlc.Rejected, "the team's review was merged without it"
			return s.cleanUp(p.RunID, epoch)
		}
	}
	if own && moves(*p) && !(s.line.points[at].ours && s.line.points[at].segment == s.segment) {
		m, err := s.mark(s.t.own, at)
		if err != nil {
			return nil, err
		}
		todo = append(todo, m)
	}
	gone, err := s.cleanUp(p.RunID, epoch)
	return append(todo, gone...), err
}

// came reports whether a line that the service's proposal on its team's branch
// changes is another at a position of the base branch than where the proposal began.
func (s *service) came(at int) (bool, error) {
	c, err := s.v.commit(s.t.own)
	if err != nil || len(c.ParentHashes) == 0 {
		return false, err
	}
	parent, err := s.v.commit(c.ParentHashes[0])
	if err != nil {
		return false, err
	}
	var lines [3]map[string]rlc.Quota
	for i, root := range []plumbing.Hash{parent.TreeHash, c.TreeHash, s.line.points[at].tree} {
		if lines[i], err = s.lenient(root); err != nil {
			return false, err
		}
	}
	before, after, now := lines[0], lines[1], lines[2]
	for _, side := range []map[string]rlc.Quota{before, after} {
		for id := range side {
			if !alike(before, after, id) && !alike(before, now, id) {
				return true, nil
			}
		}
	}
	return false, nil
}

// settleRendered makes a proposal that moves no quota accepted where the targets
// hold the numbers by now, however that came about.
func (s *service) settleRendered(p *rlc.Proposal) (done bool, err error) {
	stale, err := s.stale()
	if err != nil || stale != "" {
		return false, ignoreInvalid(err)
	}
	at, err := s.renderedAt()
	if err != nil {
		return false, err
	}
	return true, s.accepted(p, at)
}

// ignoreInvalid is err unless what it is about is a person's to mend.
func ignoreInvalid(err error) error {
	if errors.Is(err, rlc.ErrInvalid) {
		return nil
	}
	return err
}

// mergedByContent finds where a review's content came onto the base branch: all
// lines that it changed, or the whole file by its hash. put is the review's
// commit; it may be gone from the repository.
func (s *service) mergedByContent(put plumbing.Hash, p *rlc.Proposal) (int, bool, error) {
	c, err := s.nearest(put)
	if err != nil && !errors.Is(err, plumbing.ErrObjectNotFound) {
		return 0, false, err
	}
	if c != nil {
		if i, ok, err := s.mergedAt(c); err != nil || ok {
			return i, ok, err
		}
	}
	if err := s.line.scan(s.ctx, s.v); err != nil {
		return 0, false, err
	}
	after, known := s.line.at[plumbing.NewHash(p.Base)]
	for n, i := range slices.Backward(s.line.touched[s.segment]) {
		if known && i <= after || len(s.line.touched[s.segment])-n > maxBlame {
			break
		}
		lines, err := s.lenient(s.line.points[i].tree)
		if err != nil {
			return 0, false, err
		}
		if p.Content != "" && quotafile.Hash(sorted(lines)) == p.Content {
			return i, true, nil
		}
	}
	return 0, false, nil
}

// mark remembers that a review was merged by content at a position: a commit
// with both as parents, because a squash leaves no other trace of the first.
func (s *service) mark(put plumbing.Hash, at int) (move, error) {
	p := &s.line.points[at]
	m := move{mergedRef(s.segment), s.t.merged, s.t.merged}
	if _, err := s.v.commit(put); err != nil {
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return m, nil // pruned: nothing to remember it by
		}
		return m, err
	}
	h, err := s.commit(s.v, s.who, p.tree, "review merged by content\n", put, p.hash)
	m.new = h
	return m, err
}

// accepted makes p one that came onto the base branch at a position.
func (s *service) accepted(p *rlc.Proposal, at int) (err error) {
	p.State, p.Decided = rlc.Accepted, s.line.points[at].time
	p.Actor, err = s.actor(at)
	return err
}

// cleanUp removes the branch of a review that is on the base branch, unless it
// holds more than that by now. A team's branch is made anew without it.
func (s *service) cleanUp(run string, epoch uint64) ([]move, error) {
	if own, err := s.ownOf(&rlc.Proposal{RunID: run}); err != nil || own {
		if err != nil {
			return nil, err
		}
		todo := []move{{proposedRef(s.segment), s.t.own, plumbing.ZeroHash}}
		if _, in := s.line.contains(s.t.branch); !in {
			if person, err := s.personOn(s.t.team, s.t.branch); err != nil || person != nil {
				return todo, err
			}
		}
		if s.t.branch.IsZero() {
			return todo, nil
		}
		left, _, err := s.regroup(s.t.team, s.t.branch, plumbing.ZeroHash, epoch, s.t.base, s.line.tip().tree)
		return append(todo, left...), err
	}
	if s.t.branch.IsZero() || s.t.team != "" {
		return nil, nil
	}
	b, err := s.review()
	if err != nil || b.human || b.ours != nil && b.trailers.run != run {
		return nil, err
	}
	return []move{{branchRef(s.segment), s.t.branch, plumbing.ZeroHash}}, nil
}
