package gitsync

import (
	"errors"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
)

// errPersonOn says that a person works on the team's branch that a proposal is to
// join.
var errPersonOn = errors.New("a person works on the branch")

// unseats reports whether a publish that failed so is the earlier review's end: it
// has a newer proposal, which is not up and will not be with the next try.
func unseats(err error) bool {
	return errors.Is(err, rlc.ErrInvalid) || errors.Is(err, errPersonOn)
}

// unseat is the moves that take an earlier run's review of the service away, so that
// nobody merges numbers that were superseded. What people merged of it stays known
// as RLC's; where a person committed to it, it stays. branch is where it stood, ""
// where none did.
func (s *service) unseat(run string, epoch uint64) (todo []move, branch string, err error) {
	b, err := s.review()
	if err != nil || b.ours == nil || b.human || b.trailers.run == run || b.trailers.epoch > epoch {
		return nil, "", err
	}
	if at, ok, err := s.mergedAt(b.ours); err != nil {
		return nil, "", err
	} else if ok {
		m, err := s.mark(s.t.proposal(), at)
		if err != nil {
			return nil, "", err
		}
		todo = append(todo, m)
	}
	gone, err := s.withdraw(epoch, s.t.base, s.line.tip().tree)
	todo = append(todo, move{branchRef(s.segment), s.t.single, plumbing.ZeroHash})
	return append(todo, gone...), s.on(), err
}

// stay are the members whose services are still the team's on a tree of the base
// branch, and the moves with which the others leave. This service stays, as does one
// whose files do not say, and all do while nothing is grouped.
func (s *service) stay(members []member, team string, root plumbing.Hash) (stay []member, left []move, err error) {
	if s.cfg.GroupBy != ByTeam {
		return members, nil, nil
	}
	for _, m := range members {
		if m.segment != s.segment {
			now, known, err := s.service(s.ctx, s.v, s.t, m.segment).owner(root)
			if err != nil {
				return nil, nil, err
			}
			if known && now != team {
				l, err := s.leave(m)
				if err != nil {
					return nil, nil, err
				}
				left = append(left, l)
				continue
			}
		}
		stay = append(stay, m)
	}
	return stay, left, nil
}

// setByTeam reports whether a line's value came onto the base branch, at a position,
// with a team's commit of RLC that set it.
func (s *service) setByTeam(id string, q rlc.Quota, i int) (bool, error) {
	p := &s.line.points[i]
	for _, h := range append(slices.Clone(p.sides), p.hash) {
		for range maxReview {
			if at, on := s.line.at[h]; h.IsZero() || on && at != i {
				break
			}
			c, err := s.v.commit(h)
			if err != nil {
				return false, err
			}
			if len(c.ParentHashes) == 0 {
				break
			}
			if t := s.who.trailers(c); t.ours && t.team != "" && t.segment == "" {
				set, err := s.sets(id, q, c.TreeHash, c.ParentHashes[0])
				if err != nil || set {
					return set, err
				}
				break
			}
			h = c.ParentHashes[0]
		}
	}
	return false, nil
}

// sets reports whether a tree holds the line and the commit before it does not.
func (s *service) sets(id string, q rlc.Quota, tree, parent plumbing.Hash) (bool, error) {
	before, err := s.v.commit(parent)
	if err != nil {
		return false, err
	}
	has := func(root plumbing.Hash) (bool, error) {
		lines, err := s.lenient(root)
		now, ok := lines[id]
		return ok && same(now, q), err
	}
	now, err := has(tree)
	if err != nil || !now {
		return false, err
	}
	was, err := has(before.TreeHash)
	return !was, err
}
