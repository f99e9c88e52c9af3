package gitsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/escape"
	said "github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/quotafile"
)

// Accept puts a review on the base branch as one commit of its content, on
// behalf of a named person, and removes the branch. Where the base branch moved
// since, the review's lines are applied to its tip; a line or file that both
// changed is rlc.ErrConflict, as is a branch that is not at p.Commit any more or
// is gone: look again. A review with a person's commits (p.Human) becomes a
// merge, so that their commits stay. It is idempotent.
func (r *Repo) Accept(ctx context.Context, p rlc.Proposal, actor string) (rlc.Commit, error) {
	segment := quotafile.PathSegment(p.Service)
	var done plumbing.Hash
	err := r.act(ctx, segment, func(v *view, t tips, epoch uint64) (moves []move, err error) {
		s := r.service(ctx, v, t, segment)
		if i, ok := s.line.published(p.RunID, segment); ok {
			done = s.line.points[i].hash
			return s.cleanUp(p.RunID, epoch)
		}
		if done, err = s.accept(p, actor, epoch); err != nil {
			return nil, err
		}
		moves = []move{{r.baseRef(), t.base, done}}
		if t.team == "" {
			return append(moves, move{branchRef(segment), t.branch, plumbing.ZeroHash}), nil
		}
		c, err := v.commit(done)
		if err != nil {
			return nil, err
		}
		left, err := s.withdraw(epoch, done, c.TreeHash)
		return append(moves, left...), err
	})
	var c rlc.Commit
	if err == nil {
		c, err = r.placed(ctx, done)
	}
	if err != nil {
		return rlc.Commit{}, fmt.Errorf("accept the review of %s: %w", p.Service, err)
	}
	return c, nil
}

// accept makes the commit for the base branch.
func (s *service) accept(p rlc.Proposal, actor string, epoch uint64) (plumbing.Hash, error) {
	conflict := func(why string) (plumbing.Hash, error) {
		return plumbing.ZeroHash, fmt.Errorf("%w: %s", rlc.ErrConflict, why)
	}
	b, err := s.review()
	switch {
	case err != nil:
		return plumbing.ZeroHash, err
	case b.ours == nil:
		return conflict("the branch is gone or merged")
	case b.trailers.run != p.RunID:
		return conflict("the branch holds another run's proposal")
	case b.adrift:
		return conflict(adrift(s.cfg.Branch))
	case b.trailers.epoch > epoch:
		return plumbing.ZeroHash, fmt.Errorf("%w: epoch %d, the review holds %d", rlc.ErrFenced, epoch, b.trailers.epoch)
	case s.t.team != "" && b.human:
		return conflict("a person committed to the team's branch " + teamBranch(s.t.team) + ": merge it as a whole, with git or on the forge")
	case s.t.team != "" && moves(p) && p.Content != "" && p.Content != quotafile.Hash(b.quotas),
		s.t.team == "" && p.Commit != "" && p.Commit != s.t.branch.String(), b.human && !p.Human:
		return conflict("the branch changed since it was looked at")
	}
	tree, changed, err := s.merge(b, s.line.tip().tree)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	within := s.segment
	for path := range changed {
		if !strings.HasPrefix(path, "services/"+s.segment+"/") {
			within = ""
		}
	}
	if err := s.check(s.v, tree, within, changed); err != nil {
		return plumbing.ZeroHash, err
	}
	if tree, _, err = s.render(tree); err != nil {
		return plumbing.ZeroHash, err
	}
	edited, err := s.carried(tree, b)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	byHand, err := s.byHand(tree, b)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	body, _, _ := cutTrailers(b.ours.Message)
	msg := withTrailers(withEdits(body, byHand), []trailer{
		{runTrailer, p.RunID}, {serviceTrailer, s.segment}, {epochTrailer, fmt.Sprint(epoch)}, {actorTrailer, person(actor)},
	}, edited)
	parents := []plumbing.Hash{s.t.base}
	if b.human {
		parents = append(parents, s.t.branch)
	}
	return s.commit(s.v, s.who, tree, msg, parents...)
}

// sides are a service's lines in the result of a merge, in what the run had put up,
// and on the base branch's tip.
func (s *service) sides(tree plumbing.Hash, b review) (result, put, tip map[string]rlc.Quota, err error) {
	if result, err = s.lenient(tree); err != nil {
		return nil, nil, nil, err
	}
	if put, err = s.lenient(b.ours.TreeHash); err != nil {
		return nil, nil, nil, err
	}
	tip, err = s.lenient(s.line.tip().tree)
	return result, put, tip, err
}

// byHand says line by line what of the result is not what the run put into the
// review: nothing for a review without a person's commits.
func (s *service) byHand(tree plumbing.Hash, b review) (out []string, err error) {
	if !b.human {
		return nil, nil
	}
	result, put, tip, err := s.sides(tree, b)
	if err != nil {
		return nil, err
	}
	ids := maps.Clone(put)
	maps.Copy(ids, result)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		was, had := put[id]
		is, has := result[id]
		on, before := tip[id]
		if had == has && same(was, is) || before == has && same(on, is) {
			continue // the run's, or not the review's
		}
		out = append(out, fmt.Sprintf("- %s: %s, in place of %s", escape.Code(id), told(is, has), told(was, had)))
	}
	return out, nil
}

// told is a line of quotas.yaml in a message.
func told(q rlc.Quota, there bool) string {
	if !there {
		return "none"
	}
	return said.Limit(q.Limit, q.Mode, q.Hours)
}

// withEdits puts what a person changed below a message's title: what follows is the
// run's.
func withEdits(body string, lines []string) string {
	if len(lines) == 0 {
		return body
	}
	if more := len(lines) - said.Riskiest; more > 0 {
		lines = append(lines[:said.Riskiest:said.Riskiest], fmt.Sprintf("- and %d more", more))
	}
	title, rest, _ := strings.Cut(body, "\n")
	return title + "\n\nSet by hand before it was merged:\n\n" + strings.Join(lines, "\n") +
		"\n\nWhat follows is what the run had proposed.\n\n" + strings.TrimLeft(rest, "\n")
}

// adrift is why nothing comes of a review that is.
func adrift(branch string) string {
	return "it was made on commits that have been taken off " + branch + ": the next run proposes anew"
}

// merge applies what a review changed to the tree of the base branch's tip, or one
// that others were applied to, and returns the tree and the changed paths.
func (s *service) merge(b review, tip plumbing.Hash) (tree plumbing.Hash, changed map[string]bool, err error) {
	at, ok := s.line.at[b.base]
	if !ok {
		return tree, nil, fmt.Errorf("%w: the branch shares no history with %s", rlc.ErrConflict, s.cfg.Branch)
	}
	from := s.line.points[at].tree
	diff := map[string][2]object.TreeEntry{}
	if err := s.v.diff(from, b.tree, "", diff); err != nil {
		return tree, nil, err
	}
	changed = map[string]bool{}
	for path := range diff {
		changed[path] = true
	}
	if from == tip {
		return b.tree, changed, nil
	}
	set := rlc.Files{}
	for path, e := range diff {
		now, _, err := s.v.find(tip, path)
		if err != nil {
			return tree, nil, err
		}
		if again, err := s.v.rendered(path, e[0].Hash, e[1].Hash); err != nil {
			return tree, nil, err
		} else if again {
			continue
		}
		switch {
		case now.Hash == e[1].Hash && now.Mode == e[1].Mode:
			continue // both made the same change
		case path == s.path:
			if set[path], err = s.mergeLines(from, b.tree, tip); err != nil {
				return tree, nil, err
			}
		case now.Hash != e[0].Hash || now.Mode != e[0].Mode || !e[1].Hash.IsZero() && !regular(e[1].Mode):
			return tree, nil, fmt.Errorf("%w: %s changed on %s too", rlc.ErrConflict, clip(inert(path), 200), s.cfg.Branch)
		case e[1].Hash.IsZero():
			set[path] = nil
		default:
			if set[path], err = s.v.blob(e[1].Hash, quotafile.MaxQuotasFile); err != nil {
				return tree, nil, err
			}
		}
	}
	tree, err = s.v.write(tip, set)
	return tree, changed, err
}

// mergeLines applies to the tip's quotas.yaml what a review changed in its own.
func (s *service) mergeLines(from, branch, tip plumbing.Hash) ([]byte, error) {
	var lines [3]map[string]rlc.Quota
	for i, root := range []plumbing.Hash{from, branch, tip} {
		var err error
		if lines[i], err = s.lines(root); err != nil {
			return nil, err
		}
	}
	old, want, now := lines[0], lines[1], lines[2]
	ids := map[string]bool{}
	for id := range old {
		ids[id] = true
	}
	for id := range want {
		ids[id] = true
	}
	for id := range ids {
		o, had := old[id]
		w, has := want[id]
		n, is := now[id]
		switch {
		case had == has && same(o, w):
		case is == has && same(n, w):
		case is != had || !same(n, o):
			return nil, fmt.Errorf("%w: %s changed on %s too", rlc.ErrConflict, clip(inert(id), 200), s.cfg.Branch)
		case has:
			now[id] = w
		default:
			delete(now, id)
		}
	}
	name, err := s.name(tip)
	if err != nil {
		return nil, err
	}
	return quotafile.MarshalQuotas(name, sorted(now)), nil
}

// carried says which lines of a tree that is about to be accepted are a
// person's: those that the review or the base branch held as such, and those
// that differ from what RLC put up.
func (s *service) carried(tree plumbing.Hash, b review) (map[string]string, error) {
	result, put, tip, err := s.sides(tree, b)
	if err != nil {
		return nil, err
	}
	edits, err := s.edits(tip)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for id, q := range result {
		c, ok := put[id]
		n, on := tip[id]
		switch who := b.trailers.edited[id]; {
		case ok && same(c, q) && who != "":
			out[id] = who
		case ok && same(c, q):
		case on && same(n, q) && edits[id] != "":
			out[id] = edits[id]
		case on && same(n, q):
		default:
			out[id] = inert(b.author)
		}
	}
	return out, nil
}

// Reject deletes a review's branch. A branch that is gone, or that a newer run
// took over, is left as it is. One with a person's commits goes only when the
// caller saw them (p.Human, p.Commit at its tip), and they stay reachable under
// refs/rlc/kept; otherwise, and for what is on the base branch, it is
// rlc.ErrConflict. Of a team's branch only this proposal goes; where a person
// committed to it, that is rlc.ErrConflict: see RejectBranch.
func (r *Repo) Reject(ctx context.Context, p rlc.Proposal, actor, reason string) error {
	return r.reject(ctx, p, actor, reason, false)
}

// RejectBranch is Reject, but takes the whole of a team's branch away: a person
// closed the review. The other proposals on it are found rejected by Settle.
func (r *Repo) RejectBranch(ctx context.Context, p rlc.Proposal, actor, reason string) error {
	return r.reject(ctx, p, actor, reason, true)
}

func (r *Repo) reject(ctx context.Context, p rlc.Proposal, actor, reason string, whole bool) error {
	segment := quotafile.PathSegment(p.Service)
	err := r.act(ctx, segment, func(v *view, t tips, epoch uint64) ([]move, error) {
		s := r.service(ctx, v, t, segment)
		if _, ok := s.line.published(p.RunID, segment); ok {
			return nil, fmt.Errorf("%w: it is on %s already", rlc.ErrConflict, r.cfg.Branch)
		}
		b, err := s.review()
		gone := move{t.ref(segment), t.branch, plumbing.ZeroHash}
		switch {
		case err != nil:
			return nil, err
		case b.ours != nil && b.trailers.run != p.RunID, t.branch.IsZero():
			return nil, nil
		case b.human && (!p.Human || p.Commit != t.branch.String()), b.human && t.team != "" && !whole:
			return nil, fmt.Errorf("%w: a person committed to the branch", rlc.ErrConflict)
		}
		var moves []move
		if b.human {
			kept, err := s.keep()
			if err != nil {
				return nil, err
			}
			moves = append(moves, kept)
		}
		if t.team != "" && !whole {
			return s.withdraw(epoch, t.base, s.line.tip().tree)
		}
		return append(moves, gone, move{proposedRef(segment), t.own, plumbing.ZeroHash}), nil
	})
	if err != nil {
		return fmt.Errorf("reject the review of %s: %w", p.Service, err)
	}
	r.cfg.Log.Info("review rejected", "service", p.Service, "run", p.RunID, "actor", inert(actor), "reason", clip(inert(reason), 200))
	return nil
}

// name is the service's name as its files of a tree say it, or its path segment.
func (s *service) name(root plumbing.Hash) (string, error) {
	for _, path := range []string{s.path, "services/" + s.segment + "/policy.yaml"} {
		data, err := s.v.file(root, path)
		if err != nil {
			return "", err
		}
		if name := serviceName(path, data); name != "" {
			return name, nil
		}
	}
	return s.segment, nil
}
