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
			return s.cleanUp(p.RunID)
		}
		if done, err = s.accept(p, actor, epoch); err != nil {
			return nil, err
		}
		return []move{{r.baseRef(), t.base, done}, {branchRef(segment), t.branch, plumbing.ZeroHash}}, nil
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
	case b.trailers.epoch > epoch:
		return plumbing.ZeroHash, fmt.Errorf("%w: epoch %d, the review holds %d", rlc.ErrFenced, epoch, b.trailers.epoch)
	case p.Commit != "" && p.Commit != s.t.branch.String(), b.human && !p.Human:
		return conflict("the branch changed since it was looked at")
	}
	tree, changed, err := s.merge(b)
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
	body, _, _ := cutTrailers(b.ours.Message)
	msg := withTrailers(body, []trailer{
		{runTrailer, p.RunID}, {serviceTrailer, s.segment}, {epochTrailer, fmt.Sprint(epoch)}, {actorTrailer, person(actor)},
	}, edited)
	parents := []plumbing.Hash{s.t.base}
	if b.human {
		parents = append(parents, s.t.branch)
	}
	return s.commit(s.v, s.who, tree, msg, parents...)
}

// merge applies what a review changed to the base branch's tip and returns the
// tree and the changed paths.
func (s *service) merge(b review) (tree plumbing.Hash, changed map[string]bool, err error) {
	at, ok := s.line.at[b.base]
	if !ok {
		return tree, nil, fmt.Errorf("%w: the branch shares no history with %s", rlc.ErrConflict, s.cfg.Branch)
	}
	from, tip := s.line.points[at].tree, s.line.tip().tree
	diff := map[string][2]object.TreeEntry{}
	if err := s.v.diff(from, b.tree, "", diff); err != nil {
		return tree, nil, err
	}
	changed = map[string]bool{}
	for path := range diff {
		changed[path] = true
	}
	if b.base == s.t.base {
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
	result, err := s.lenient(tree)
	if err != nil {
		return nil, err
	}
	put, err := s.lenient(b.ours.TreeHash)
	if err != nil {
		return nil, err
	}
	tip, err := s.lenient(s.line.tip().tree)
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
// rlc.ErrConflict.
func (r *Repo) Reject(ctx context.Context, p rlc.Proposal, actor, reason string) error {
	segment := quotafile.PathSegment(p.Service)
	err := r.act(ctx, segment, func(v *view, t tips, _ uint64) ([]move, error) {
		s := r.service(ctx, v, t, segment)
		if _, ok := s.line.published(p.RunID, segment); ok {
			return nil, fmt.Errorf("%w: it is on %s already", rlc.ErrConflict, r.cfg.Branch)
		}
		b, err := s.review()
		gone := move{branchRef(segment), t.branch, plumbing.ZeroHash}
		switch {
		case err != nil:
			return nil, err
		case b.ours != nil && b.trailers.run != p.RunID, t.branch.IsZero():
			return nil, nil
		case b.human && (!p.Human || p.Commit != t.branch.String()):
			return nil, fmt.Errorf("%w: a person committed to the branch", rlc.ErrConflict)
		case b.human:
			name := "refs/rlc/kept/" + refName(segment) + "/" + t.branch.String()
			was, err := r.bare.read(name)
			return []move{{name, was, t.branch}, gone}, err
		}
		return []move{gone}, nil
	})
	if err != nil {
		return fmt.Errorf("reject the review of %s: %w", p.Service, err)
	}
	r.cfg.Log.Info("review rejected", "service", p.Service, "run", p.RunID, "actor", inert(actor), "reason", clip(inert(reason), 200))
	return nil
}

// Settle finds out what became of an open proposal outside of RLC: Accepted when
// its content is on the base branch, however it got there; Rejected when its
// branch is gone; Superseded when the branch is another run's; Human, with
// Commit and Content of the branch as it is, when a person committed to it. An
// accepted one's branch is removed. Any other proposal comes back as it is.
func (r *Repo) Settle(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	if p.State != rlc.Open || p.Commit == "" {
		return p, nil
	}
	segment := quotafile.PathSegment(p.Service)
	var out rlc.Proposal
	err := r.actOn(ctx, r.cfg.Fresh, r.cfg.Epoch, segment, func(v *view, t tips, _ uint64) ([]move, error) {
		out = p
		return r.service(ctx, v, t, segment).settle(&out)
	})
	if err != nil {
		return p, fmt.Errorf("settle the review of %s: %w", p.Service, err)
	}
	return out, nil
}

func (s *service) settle(p *rlc.Proposal) ([]move, error) {
	put := plumbing.NewHash(p.Commit)
	at, ok := s.line.published(p.RunID, s.segment)
	if !ok {
		at, ok = s.line.contains(put)
	}
	if ok {
		if err := s.accepted(p, at); err != nil {
			return nil, err
		}
		return s.cleanUp(p.RunID)
	}
	b, err := s.review()
	if err != nil {
		return nil, err
	}
	if b.ours != nil && b.trailers.run == p.RunID {
		put = s.t.branch
		p.Human, p.Commit, p.Base = b.human, put.String(), b.base.String()
		if moves(*p) {
			p.Content = quotafile.Hash(b.quotas)
		}
	}
	if !moves(*p) {
		switch done, err := s.settleRendered(p); {
		case err != nil:
			return nil, err
		case done:
			return s.cleanUp(p.RunID)
		}
	}
	at, ok, err = s.mergedByContent(put, p)
	switch {
	case err != nil:
		return nil, err
	case ok:
		if err := s.accepted(p, at); err != nil {
			return nil, err
		}
		mark, err := s.mark(put, at)
		if err != nil {
			return nil, err
		}
		gone := move{branchRef(s.segment), s.t.branch, plumbing.ZeroHash}
		if s.t.branch != put {
			return []move{mark}, nil
		}
		return []move{mark, gone}, nil
	case s.t.branch.IsZero():
		p.State, p.Reason, p.Decided = rlc.Rejected, "the branch was deleted", s.cfg.Now().UTC()
	case b.ours == nil || b.trailers.run != p.RunID:
		p.State, p.Decided = rlc.Superseded, s.cfg.Now().UTC()
	}
	return nil, nil
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
// holds more than that by now.
func (s *service) cleanUp(run string) ([]move, error) {
	if s.t.branch.IsZero() {
		return nil, nil
	}
	b, err := s.review()
	if err != nil || b.human || b.ours != nil && b.trailers.run != run {
		return nil, err
	}
	return []move{{branchRef(s.segment), s.t.branch, plumbing.ZeroHash}}, nil
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
