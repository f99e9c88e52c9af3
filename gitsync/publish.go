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
	"github.com/openrlc/rlc/quotafile"
)

// humanEdit is the rule that holds a quota which a person set by hand.
const humanEdit = "human_edit"

// Publish puts a proposal up for review: it applies the moving changes to what
// the base branch's tip holds and commits the file to the branch rlc/<service>,
// rebuilt on that tip. It is idempotent: what an earlier call did, finished or
// killed, is found outside and not done again.
//
// The proposal comes back as it stands: Open with Branch, Commit, Base and
// Content; Open and Human, with nothing written, when a person committed to the
// branch; Accepted when it is on the base branch already; Superseded when
// nothing is left to change, the branch removed. Where no quota moves, but files
// rendered for targets do not hold the numbers in force (see Stale), the review
// is about these alone. A change whose line a person
// edited, or that is not what the run saw, keeps the line as it is and comes
// back held (human_edit). A line or file that would not validate is
// rlc.ErrInvalid and rlc.ErrUnpublishable, a refusing hook rlc.ErrRefused, a team's
// branch that a person works on rlc.ErrConflict; nothing is put up then. Where that
// is so of the proposal and not of the moment (all but the hook), the review of an
// earlier run is taken away, so that nobody merges what is superseded; p comes back
// with Branch where it stood, else as it was given.
func (r *Repo) Publish(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	if p.Service == "" || p.RunID == "" || inert(p.RunID) != p.RunID {
		return p, fmt.Errorf("%w: a proposal needs a service and a run whose id is one line", rlc.ErrInvalid)
	}
	segment := quotafile.PathSegment(p.Service)
	var out rlc.Proposal
	var failed error
	err := r.actOn(ctx, 0, r.cfg.Epoch, segment, func(v *view, t tips, epoch uint64) ([]move, error) {
		out, failed = p, nil
		out.Changes = slices.Clone(p.Changes)
		out.Branch, out.Error = branchName(segment), ""
		a := r.service(ctx, v, t, segment)
		moves, err := a.publish(&out, epoch)
		if !unseats(err) {
			return moves, err
		}
		failed = unpublishable(p, err)
		moves, branch, err := a.unseat(p.RunID, epoch)
		if out = p; branch != "" {
			out.Branch = branch
		}
		return moves, err
	})
	if err != nil {
		return p, fmt.Errorf("publish %s: %w", p.Service, err)
	}
	return out, failed
}

// service is one act's look at one service.
type service struct {
	*Repo
	ctx     context.Context
	v       *view
	t       tips
	segment string
	path    string // of its quotas.yaml
	parsed  map[plumbing.Hash]map[string]rlc.Quota
}

func (r *Repo) service(ctx context.Context, v *view, t tips, segment string) *service {
	return &service{Repo: r, ctx: ctx, v: v, t: t, segment: segment, path: "services/" + segment + "/quotas.yaml",
		parsed: map[plumbing.Hash]map[string]rlc.Quota{}}
}

func (s *service) publish(p *rlc.Proposal, epoch uint64) ([]move, error) {
	if i, ok := s.line.published(p.RunID, s.segment); ok {
		if err := s.accepted(p, i); err != nil {
			return nil, err
		}
		return s.cleanUp(p.RunID, epoch)
	}
	b, err := s.review()
	if err != nil {
		return nil, err
	}
	var todo []move
	switch {
	case b.human:
		p.State, p.Human, p.Commit, p.Branch = rlc.Open, true, s.t.branch.String(), s.on()
		p.Base, p.Content = b.base.String(), quotafile.Hash(b.quotas)
		return nil, nil
	case b.ours != nil && b.trailers.epoch > epoch:
		return nil, fmt.Errorf("%w: epoch %d, the review holds %d", rlc.ErrFenced, epoch, b.trailers.epoch)
	case b.ours != nil && b.trailers.run == p.RunID && !b.adrift:
		p.State, p.Commit, p.Base, p.Branch = rlc.Open, s.t.branch.String(), b.base.String(), s.on()
		if moves(*p) {
			p.Content = quotafile.Hash(b.quotas)
		}
		return nil, nil
	case b.ours != nil:
		// The earlier review goes; what people merged of it stays known as RLC's.
		if at, ok, err := s.mergedAt(b.ours); err != nil {
			return nil, err
		} else if ok {
			m, err := s.mark(s.t.proposal(), at)
			if err != nil {
				return nil, err
			}
			todo = append(todo, m)
		}
	}
	n, err := s.rebuild(p)
	if err != nil {
		return nil, err
	}
	tree := s.line.tip().tree
	if n != nil {
		if tree, err = s.next(p, n); err != nil {
			return nil, err
		}
	}
	if tree == s.line.tip().tree {
		p.State, p.Commit, p.Base, p.Branch = rlc.Superseded, "", s.t.base.String(), s.on()
		gone, err := s.withdraw(epoch, s.t.base, tree)
		return append(append(todo, move{branchRef(s.segment), s.t.single, plumbing.ZeroHash}), gone...), err
	}
	up, err := s.open(p, n, tree, epoch)
	return append(todo, up...), err
}

// open commits what a proposal would put in force and puts it up.
func (s *service) open(p *rlc.Proposal, n *next, tree plumbing.Hash, epoch uint64) ([]move, error) {
	team, err := s.team(s.line.tip().tree)
	if err != nil {
		return nil, err
	}
	p.State, p.Base, p.Branch = rlc.Open, s.t.base.String(), branchName(s.segment)
	if team != "" {
		p.Branch = teamBranch(team)
	}
	own, err := s.commit(s.v, s.who, tree, message(*p, n, epoch, s.segment, team), s.t.base)
	if err != nil {
		return nil, err
	}
	up, tip, err := s.put(own, team, epoch)
	p.Commit = tip.String()
	return up, err
}

// on is the branch on which the service's proposal stands.
func (s *service) on() string { return strings.TrimPrefix(s.t.ref(s.segment), "refs/heads/") }

// next makes the tree that a proposal would put in force, the tip's where nothing
// is left to change, and sets the proposal's content: of a proposal that moves no
// quota what its targets shall hold.
func (s *service) next(p *rlc.Proposal, n *next) (tree plumbing.Hash, err error) {
	tree = s.line.tip().tree
	if len(n.moved) > 0 {
		if tree, err = s.v.write(tree, rlc.Files{s.path: n.data}); err != nil {
			return tree, err
		}
		if err := s.check(s.v, tree, s.segment, map[string]bool{s.path: true}); err != nil {
			return tree, err
		}
		p.Content = quotafile.Hash(n.quotas)
	} else if p.Content, err = s.stale(); err != nil {
		return tree, err
	}
	tree, n.losses, err = s.render(tree)
	return tree, err
}

// next is a service's file as a proposal would make it.
type next struct {
	quotas []rlc.Quota
	data   []byte
	moved  []rlc.Change      // those that apply
	kept   []rlc.Change      // those whose line stays as a person left it
	edited map[string]string // quota ID → who, of the lines that stay a person's
	losses []string          // what the targets' limiters cannot say
}

// rebuild applies a proposal to the tip and marks in p.Changes what it keeps. It
// is nil when the service is no longer on the base branch.
func (s *service) rebuild(p *rlc.Proposal) (*next, error) {
	root := s.line.tip().tree
	policy, err := s.v.file(root, "services/"+s.segment+"/policy.yaml")
	if err != nil || policy == nil {
		return nil, err
	}
	lines, err := s.lines(root)
	if err != nil {
		return nil, err
	}
	edited, err := s.edits(lines)
	if err != nil {
		return nil, err
	}
	lines = maps.Clone(lines)
	n := &next{edited: edited}
	for i := range p.Changes {
		c := &p.Changes[i]
		if !c.Moves() {
			continue
		}
		id := c.ID()
		now, there := lines[id]
		was, next := c.Was(), c.Quota() // next is nil for a removal
		switch who := edited[id]; {
		case there == (next != nil) && (!there || now.Same(*next)):
			continue // put in force meanwhile
		case who != "":
			hold(c, now, there, "edited by "+inert(who))
		case there != (was != nil), there && !now.Same(*was):
			hold(c, now, there, "changed on "+s.cfg.Branch+" since the run read it")
		default:
			if delete(lines, id); next != nil {
				lines[id] = *next
			}
			n.moved = append(n.moved, *c)
			continue
		}
		n.kept = append(n.kept, *c)
	}
	n.quotas = sorted(lines)
	n.data = quotafile.MarshalQuotas(p.Service, n.quotas)
	return n, nil
}

// hold makes a change one that keeps the line as the base branch has it.
func hold(c *rlc.Change, now rlc.Quota, there bool, why string) {
	c.Held, c.HeldWhy, c.New, c.NewMode, c.Old, c.OldMode = humanEdit, why, nil, "", nil, ""
	c.Remove, c.OldTimed, c.NewTimed = false, now.Timed(), now.Timed()
	if there {
		c.Old, c.New, c.OldMode, c.NewMode = &now.Limit, &now.Limit, now.Mode, now.Mode
	}
}

// review is a service's review branch.
type review struct {
	human    bool           // a person's commit is on it
	adrift   bool           // ours stands on a commit that was taken off the base branch
	ours     *object.Commit // RLC's commit on it, nil where there is none
	trailers trailers       // of ours
	base     plumbing.Hash  // the newest commit of the base branch that it holds
	quotas   []rlc.Quota    // what its tip holds
	author   string         // of its tip
	tree     plumbing.Hash  // of its tip
}

// review reads the branch. A branch that is gone or merged is the zero value.
func (s *service) review() (b review, err error) {
	if _, in := s.line.contains(s.t.branch); s.t.branch.IsZero() || in {
		return review{}, nil
	}
	if s.t.team != "" {
		return s.teamReview()
	}
	baseAt := -1
	seen, queue := map[plumbing.Hash]bool{}, []plumbing.Hash{s.t.branch}
	var strangers []*object.Commit
	for len(queue) > 0 {
		h := queue[0]
		queue = queue[1:]
		if i, in := s.line.at[h]; in {
			baseAt = max(baseAt, i)
			continue
		}
		if _, in := s.line.merged[h]; seen[h] || in {
			continue
		}
		seen[h] = true
		if len(seen) > maxReview {
			b.human = true // whoever made so many commits, it was not RLC
			break
		}
		c, err := s.v.commit(h)
		if err != nil {
			return b, fmt.Errorf("read the review: %w", err)
		}
		if h == s.t.branch {
			b.tree, b.author = c.TreeHash, c.Author.Name
		}
		t := s.who.trailers(c)
		switch {
		case !t.ours || t.segment != s.segment:
			b.human = true
			strangers = append(strangers, c)
		case b.ours == nil:
			b.ours, b.trailers = c, t
		}
		if t.ours && t.segment == s.segment && !s.based(c) {
			b.adrift = true // what is below it was not committed to the branch
			continue
		}
		queue = append(queue, c.ParentHashes...)
	}
	if baseAt >= 0 {
		b.base = s.line.points[baseAt].hash
	}
	if len(strangers) > 0 && len(seen) <= maxReview {
		only, err := s.onlyMerged(b, strangers)
		if err != nil {
			return b, err
		}
		b.human = !only
	}
	lines, err := s.lenient(b.tree)
	b.quotas = sorted(lines)
	return b, err
}

// based reports whether a commit of RLC on a review's branch stands on the base
// branch, as each did when it was made. One that does not is left from before
// history was rewritten: nothing of it may bring back what was taken away.
func (s *service) based(c *object.Commit) bool {
	return slices.ContainsFunc(c.ParentHashes, func(h plumbing.Hash) bool { _, on := s.line.contains(h); return on })
}

// maxReview bounds how many commits of a review branch are looked at.
const maxReview = 1000

// moves reports whether a proposal would alter quotas.yaml; one that does not puts
// up what the targets shall hold.
func moves(p rlc.Proposal) bool {
	return slices.ContainsFunc(p.Changes, func(c rlc.Change) bool { return c.Moves() })
}

// sorted lists lines by ID.
func sorted(lines map[string]rlc.Quota) []rlc.Quota {
	return slices.SortedFunc(maps.Values(lines), func(a, b rlc.Quota) int { return strings.Compare(a.ID(), b.ID()) })
}
