package gitsync

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// maxBlame bounds how many commits are searched for who edited a line.
const maxBlame = 200

// Edited returns the quotas whose value in quotas.yaml on the base branch is a
// person's: quota ID to who. Value means rate, burst and mode; a changed "why",
// comment or order is no edit, and a line that a person removed is handed back
// to RLC. A merge or squash by a person of what RLC put up is not an edit. An
// edit stays one when RLC later commits other lines (trailer RLC-Edited).
func (r *Repo) Edited(ctx context.Context, name string) (map[string]string, error) {
	segment := quotafile.PathSegment(name)
	var out map[string]string
	err := r.look(ctx, segment, func(v *view, t tips) error {
		s := r.service(ctx, v, t, segment)
		lines, err := s.lines(r.line.tip().tree)
		if err != nil {
			return err
		}
		out, err = s.edits(lines)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("edits of %s: %w", name, err)
	}
	return out, nil
}

// edits compares the tip's lines with the newest commit of RLC whose content is
// on the base branch: where they differ, a person set them; and what that commit
// says it carried along of a person's still is.
func (s *service) edits(now map[string]rlc.Quota) (map[string]string, error) {
	out := map[string]string{}
	if len(now) == 0 {
		return out, nil
	}
	c, err := s.reference()
	if err != nil {
		return nil, err
	}
	var then map[string]rlc.Quota
	var carried map[string]string
	if c != nil {
		if then, err = s.lenient(c.TreeHash); err != nil {
			return nil, err
		}
		carried = s.who.trailers(c).edited
	}
	differ := map[string]bool{}
	for id, q := range now {
		if old, ok := then[id]; !ok || !same(old, q) {
			differ[id] = true
		} else if who, ok := carried[id]; ok {
			out[id] = who
		}
	}
	return out, s.blame(differ, out)
}

// reference finds the newest commit of RLC whose content is on the base branch:
// RLC's own there, one that a person merged, or a review that is known to have
// been merged by content. It is nil where there is none.
func (s *service) reference() (*object.Commit, error) {
	if err := s.line.scan(s.ctx, s.v); err != nil {
		return nil, err
	}
	open, err := s.nearest(s.t.proposal()) // may have been merged by content
	if err != nil {
		return nil, err
	}
	var merged *object.Commit // was, at position mergedAt
	mergedAt := -1
	if !s.t.merged.IsZero() {
		m, err := s.v.commit(s.t.merged)
		if err != nil {
			return nil, err
		}
		if len(m.ParentHashes) == 2 {
			if i, on := s.line.at[m.ParentHashes[1]]; on {
				mergedAt = i
			}
			if merged, err = s.nearest(m.ParentHashes[0]); err != nil {
				return nil, err
			}
		}
	}
	for _, i := range slices.Backward(s.line.touched[s.segment]) {
		p := &s.line.points[i]
		if merged != nil && i < mergedAt {
			return merged, nil // by a commit that left the service's folder alone
		}
		if p.ours && p.segment == s.segment {
			return s.v.commit(p.hash)
		}
		for _, h := range p.sides {
			if c, err := s.nearest(h); err != nil || c != nil {
				return c, err
			}
		}
		if merged != nil && i == mergedAt {
			return merged, nil
		}
		if open != nil {
			if ok, err := s.mergedIn(open, i); err != nil {
				return nil, err
			} else if ok {
				return open, nil
			}
		}
	}
	return nil, nil
}

// nearest walks first parents from h, before they reach the base branch's line,
// to a commit of RLC for this service. It is nil where there is none.
func (s *service) nearest(h plumbing.Hash) (*object.Commit, error) {
	for range maxReview {
		if _, on := s.line.at[h]; on || h.IsZero() {
			break
		}
		c, err := s.v.commit(h)
		if err != nil {
			return nil, err
		}
		if t := s.who.trailers(c); t.ours && t.segment == s.segment {
			return c, nil
		}
		h = plumbing.ZeroHash
		if len(c.ParentHashes) > 0 {
			h = c.ParentHashes[0]
		}
	}
	return nil, nil
}

// mergedIn reports whether position i is where a review's content came onto the
// base branch: every line that c changed has c's value there, and not before.
func (s *service) mergedIn(c *object.Commit, i int) (bool, error) {
	if len(c.ParentHashes) == 0 {
		return false, nil
	}
	parent, err := s.v.commit(c.ParentHashes[0])
	if err != nil {
		return false, err
	}
	before, err := s.lenient(parent.TreeHash)
	if err != nil {
		return false, err
	}
	after, err := s.lenient(c.TreeHash)
	if err != nil {
		return false, err
	}
	changed := false
	for id, q := range after {
		old, ok := before[id]
		changed = changed || !ok || !same(old, q)
	}
	if !changed && len(after) == len(before) {
		return false, nil // it only renders: nothing of it is in quotas.yaml
	}
	carries := func(root plumbing.Hash) (bool, error) {
		lines, err := s.lenient(root)
		for id, q := range after {
			if old, ok := before[id]; ok && same(old, q) {
				continue
			}
			if now, ok := lines[id]; !ok || !same(now, q) {
				return false, err
			}
		}
		return true, err
	}
	if ok, err := carries(s.line.points[i].tree); err != nil || !ok {
		return false, err
	}
	if i == 0 {
		return true, nil
	}
	ok, err := carries(s.line.points[i-1].tree)
	return !ok, err
}

// mergedAt finds the position after a review's base at which its content came
// onto the base branch.
func (s *service) mergedAt(c *object.Commit) (int, bool, error) {
	if err := s.line.scan(s.ctx, s.v); err != nil {
		return 0, false, err
	}
	after := -1
	if len(c.ParentHashes) > 0 {
		if i, ok := s.line.at[c.ParentHashes[0]]; ok {
			after = i
		}
	}
	for _, i := range slices.Backward(s.line.touched[s.segment]) {
		if i <= after {
			break
		}
		if ok, err := s.mergedIn(c, i); err != nil || ok {
			return i, ok, err
		}
	}
	return 0, false, nil
}

// blame says who last set each of the given lines to its present value.
func (s *service) blame(ids map[string]bool, out map[string]string) error {
	left := maps.Clone(ids)
	touched := s.line.touched[s.segment]
	for n, i := range slices.Backward(touched) {
		if len(left) == 0 || len(touched)-n > maxBlame {
			break
		}
		now, err := s.lenient(s.line.points[i].tree)
		if err != nil {
			return err
		}
		before := map[string]rlc.Quota{}
		if i > 0 {
			if before, err = s.lenient(s.line.points[i-1].tree); err != nil {
				return err
			}
		}
		who := ""
		for id := range left {
			q, ok := now[id]
			if old, was := before[id]; ok == was && (!ok || same(q, old)) {
				continue
			}
			if ours, err := s.setByTeam(id, q, i); err != nil {
				return err
			} else if ours {
				delete(left, id)
				continue
			}
			if who == "" {
				if who, err = s.actor(i); err != nil {
					return err
				}
			}
			out[id] = who
			delete(left, id)
		}
	}
	for id := range left {
		out[id] = "a person"
	}
	return nil
}

// actor names the person behind a commit of the base branch.
func (s *service) actor(i int) (string, error) {
	p := &s.line.points[i]
	if p.actor != "" {
		return p.actor, nil
	}
	c, err := s.v.commit(p.hash)
	if err != nil {
		return "", err
	}
	return inert(c.Author.Name), nil
}

// lines reads the quotas of a tree by ID; a file that does not validate is
// rlc.ErrInvalid.
func (s *service) lines(root plumbing.Hash) (map[string]rlc.Quota, error) {
	data, err := s.v.file(root, s.path)
	if err != nil || data == nil {
		return map[string]rlc.Quota{}, err
	}
	_, quotas, problems := quotafile.ParseQuotas(s.path, data)
	for _, p := range problems {
		if !p.Warning {
			return nil, fmt.Errorf("%w: %s is broken on %s: %s", rlc.ErrInvalid, s.path, s.cfg.Branch, p)
		}
	}
	return index(quotas), nil
}

// lenient reads the quotas of a tree of the past: of a file that does not
// validate, what could be read. Callers do not change the map.
func (s *service) lenient(root plumbing.Hash) (map[string]rlc.Quota, error) {
	e, ok, err := s.v.find(root, s.path)
	if err != nil || !ok || !regular(e.Mode) {
		return nil, err
	}
	if lines, ok := s.parsed[e.Hash]; ok {
		return lines, nil
	}
	data, err := s.v.blob(e.Hash, quotafile.MaxQuotasFile)
	if err != nil {
		return nil, err
	}
	_, quotas, _ := quotafile.ParseQuotas(s.path, data)
	s.parsed[e.Hash] = index(quotas)
	return s.parsed[e.Hash], nil
}

func index(quotas []rlc.Quota) map[string]rlc.Quota {
	byID := make(map[string]rlc.Quota, len(quotas))
	for _, q := range quotas {
		byID[q.ID()] = q
	}
	return byID
}

// same reports whether two lines say the same to an enforcer.
func same(a, b rlc.Quota) bool { return a.Same(b) }
