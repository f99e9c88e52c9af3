package gitsync

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	said "github.com/openrlc/rlc/internal/review"
	"github.com/openrlc/rlc/quotafile"
)

// ByTeam is Config.GroupBy for one review per team.
const ByTeam = "team"

// A team's review is the branch rlc/_team/<team>: one commit on the base branch's
// tip that does what the proposals of the team's services do, each of which is a
// commit of its own, just as it would be alone, under refs/rlc/proposed/<service>.
// So all that is known of a service's proposal (its run, its lines, what became of
// them) is known in the same way, and the team's commit is made anew from the
// services' whenever one of them moves. While a person's commit is on the branch,
// nothing of it is. A proposal that the base branch has moved away from, or whose
// service is another team's by now, is taken off the branch, so that nobody who
// merges this merges that: its reference then says so (see leave), and Settle finds
// it superseded.
//
// A service's own reference moves after the branch when its proposal comes, and
// before it when it goes. So where the branch is gone and the reference is not, a
// person deleted the branch.

// teamTrailer names the team on whose branch a service's commit stands, and the
// team whose commit it is.
const teamTrailer = "RLC-Team"

func proposedRef(segment string) string { return proposedRefs + refName(segment) }

const proposedRefs = "refs/rlc/proposed/"

// teamBranch is a team's branch. No service's begins with an underscore and has no
// hash.
func teamBranch(team string) string { return "rlc/_team/" + refName(quotafile.PathSegment(team)) }

func teamRef(team string) string { return "refs/heads/" + teamBranch(team) }

// Branch is where a proposal for a service is put up: groupBy is Config.GroupBy.
// The team is the first of its owners; a service without has a branch of its own.
func Branch(s *rlc.Service, groupBy string) string {
	if team := teamOf(s, groupBy); team != "" {
		return teamBranch(team)
	}
	return branchName(quotafile.PathSegment(s.Name))
}

func teamOf(s *rlc.Service, groupBy string) string {
	if groupBy != ByTeam || len(s.Owners) == 0 {
		return ""
	}
	return inert(strings.TrimSpace(s.Owners[0]))
}

// team is whose branch the service's proposal is to stand on, "" for its own.
func (s *service) team(root plumbing.Hash) (string, error) {
	if s.cfg.GroupBy != ByTeam {
		return "", nil
	}
	team, _, err := s.owner(root)
	return team, err
}

// owner is the team that a tree names for the service, "" for none; known is false
// where the tree has no such service.
func (s *service) owner(root plumbing.Hash) (team string, known bool, err error) {
	files, err := s.v.files(root, s.segment)
	if err != nil {
		return "", false, err
	}
	for _, svc := range quotafile.Parse(files, nil).Services {
		return teamOf(svc, s.cfg.GroupBy), true, nil
	}
	return "", false, nil
}

// ref is the branch on which the service's proposal stands now.
func (t tips) ref(segment string) string {
	if t.team != "" {
		return teamRef(t.team)
	}
	return branchRef(segment)
}

// proposal is the commit that is the service's own: on its own branch the tip.
func (t tips) proposal() plumbing.Hash {
	if t.team != "" {
		return t.own
	}
	return t.branch
}

// teamReview reads a service's part of its team's branch. Where a person committed
// to the branch, the service's files are those of the branch's tip.
func (s *service) teamReview() (b review, err error) {
	c, err := s.v.commit(s.t.own)
	if err != nil {
		return review{}, fmt.Errorf("read the review: %w", err)
	}
	b = review{ours: c, trailers: s.who.trailers(c), tree: c.TreeHash, author: c.Author.Name, adrift: !s.based(c)}
	if len(c.ParentHashes) > 0 {
		if _, on := s.line.at[c.ParentHashes[0]]; on {
			b.base = c.ParentHashes[0]
		}
	}
	tip, err := s.personOn(s.t.team, s.t.branch)
	if err != nil {
		return review{}, err
	}
	if tip != nil {
		b.human, b.tree, b.author = true, tip.TreeHash, tip.Author.Name
	}
	lines, err := s.lenient(b.tree)
	b.quotas = sorted(lines)
	return b, err
}

// personOn is the tip of a team's branch where a person committed to it, nil where
// all of it is RLC's.
func (s *service) personOn(team string, branch plumbing.Hash) (*object.Commit, error) {
	if branch.IsZero() {
		return nil, nil
	}
	tip, err := s.v.commit(branch)
	if err != nil {
		return nil, fmt.Errorf("read the review: %w", err)
	}
	if t := s.who.trailers(tip); t.ours && t.team == team && t.segment == "" && len(tip.ParentHashes) == 1 {
		return nil, nil
	}
	return tip, nil
}

// put is the moves that put the service's commit up where it is to stand, and take
// it from where it stood; and the branch's tip then.
func (s *service) put(own plumbing.Hash, team string, epoch uint64) (todo []move, tip plumbing.Hash, err error) {
	if team == "" {
		todo = append(todo, move{branchRef(s.segment), s.t.single, own})
		gone, err := s.withdraw(epoch, s.t.base, s.line.tip().tree)
		return append(todo, gone...), own, err
	}
	at := s.t.branch
	if team != s.t.team {
		if at, err = s.bare.read(teamRef(team)); err != nil {
			return nil, tip, err
		}
		switch person, err := s.personOn(team, at); {
		case err != nil:
			return nil, tip, err
		case person != nil:
			return nil, tip, fmt.Errorf("%w: %w %s; this waits until it is merged or closed", rlc.ErrConflict, errPersonOn, teamBranch(team))
		}
	}
	if todo, tip, err = s.regroup(team, at, own, epoch, s.t.base, s.line.tip().tree); err != nil {
		return nil, tip, err
	}
	todo = append(todo, move{proposedRef(s.segment), s.t.own, own}, move{branchRef(s.segment), s.t.single, plumbing.ZeroHash})
	if s.t.team != "" && s.t.team != team {
		left, _, err := s.regroup(s.t.team, s.t.branch, plumbing.ZeroHash, epoch, s.t.base, s.line.tip().tree)
		return append(todo, left...), tip, err
	}
	return todo, tip, nil
}

// withdraw is the moves that take the service's commit from its team's branch, if
// it stands on one, which is made anew on a commit of the base branch. What a
// person committed to the branch stays.
func (s *service) withdraw(epoch uint64, onto, tree plumbing.Hash) ([]move, error) {
	if s.t.own.IsZero() {
		return nil, nil
	}
	todo := []move{{proposedRef(s.segment), s.t.own, plumbing.ZeroHash}}
	if s.t.team == "" {
		return todo, nil
	}
	if person, err := s.personOn(s.t.team, s.t.branch); err != nil || person != nil {
		return todo, err
	}
	left, _, err := s.regroup(s.t.team, s.t.branch, plumbing.ZeroHash, epoch, onto, tree)
	return append(todo, left...), err
}

// member is one service's proposal on a team's branch.
type member struct {
	segment string
	commit  *object.Commit
}

// regroup makes a team's branch, which is at the commit at, anew: the proposals of
// its services, that of this service being own (zero: none), on a commit of the
// base branch and its tree. One that has nothing left to change there is left out;
// another service's that does not apply leaves the branch, unless that is merged.
// The moves begin with the branch's; where a person deleted the branch, the
// proposals that were on it go with it.
func (s *service) regroup(team string, at, own plumbing.Hash, epoch uint64, onto, tree plumbing.Hash) (todo []move, tip plumbing.Hash, err error) {
	members, err := s.members(team, own)
	if err != nil {
		return nil, tip, err
	}
	if at.IsZero() {
		for _, m := range members {
			if m.segment != s.segment {
				todo = append(todo, move{proposedRef(m.segment), m.commit.Hash, plumbing.ZeroHash})
			}
		}
		members = slices.DeleteFunc(members, func(m member) bool { return m.segment != s.segment })
	}
	var on []member
	_, merged := s.line.contains(at)
	if !merged {
		var left []move
		if members, left, err = s.stay(members, team, tree); err != nil {
			return nil, tip, err
		}
		todo = append(todo, left...)
	}
	for _, m := range members {
		next, err := s.apply(m, tree)
		switch {
		case err == nil && next == tree:
		case err == nil:
			tree = next
			on = append(on, m)
		case m.segment == s.segment || !errors.Is(err, rlc.ErrConflict) && !errors.Is(err, rlc.ErrInvalid):
			return nil, tip, err
		case !merged: // what is merged, Settle finds accepted
			s.cfg.Log.Info("a proposal does not apply to the base branch any more: it leaves its team's review, and the next run makes another", "service", m.segment, "error", err)
			left, err := s.leave(m)
			if err != nil {
				return nil, tip, err
			}
			todo = append(todo, left)
		}
	}
	if len(on) > 0 {
		if tip, err = s.teamCommit(team, at, epoch, onto, tree, on); err != nil {
			return nil, tip, err
		}
	}
	return append([]move{{teamRef(team), at, tip}}, todo...), tip, nil
}

// leave takes a member from its team's branch: its reference goes to a commit on top
// of the proposal, RLC's and of the same run, that stands on no team's branch.
func (s *service) leave(m member) (move, error) {
	run := s.who.trailers(m.commit).run
	msg := withTrailers("left the team's review", []trailer{{runTrailer, run}, {serviceTrailer, m.segment}}, nil)
	h, err := s.commit(s.v, s.who, m.commit.TreeHash, msg, m.commit.Hash)
	return move{proposedRef(m.segment), m.commit.Hash, h}, err
}

// left is a run's proposal for the service where it left its team's branch, nil
// where it did not.
func (s *service) left(run string) (*object.Commit, error) {
	if s.t.own.IsZero() || s.t.team != "" {
		return nil, nil
	}
	c, err := s.v.commit(s.t.own)
	if err != nil || s.who.trailers(c).run != run || len(c.ParentHashes) != 1 {
		return nil, err
	}
	return s.v.commit(c.ParentHashes[0])
}

// members are a team's proposals by path segment, this service's being own.
func (s *service) members(team string, own plumbing.Hash) ([]member, error) {
	refs, err := s.bare.under(proposedRefs)
	if err != nil {
		return nil, err
	}
	var out []member
	for _, h := range refs {
		c, err := s.v.commit(h)
		if err != nil {
			return nil, fmt.Errorf("read a proposal: %w", err)
		}
		if t := s.who.trailers(c); t.ours && t.team == team && t.segment != s.segment {
			out = append(out, member{t.segment, c})
		}
	}
	if !own.IsZero() {
		c, err := s.v.commit(own)
		if err != nil {
			return nil, err
		}
		out = append(out, member{s.segment, c})
	}
	slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.segment, b.segment) })
	return out, nil
}

// apply is a tree with what a member's proposal changes, and its targets for it.
func (s *service) apply(m member, tree plumbing.Hash) (plumbing.Hash, error) {
	of := s.service(s.ctx, s.v, s.t, m.segment)
	b := review{ours: m.commit, tree: m.commit.TreeHash}
	if len(m.commit.ParentHashes) > 0 {
		b.base = m.commit.ParentHashes[0]
	}
	next, changed, err := of.merge(b, tree)
	if err != nil {
		return tree, err
	}
	if err := of.check(s.v, next, m.segment, changed); err != nil {
		return tree, err
	}
	next, _, err = of.render(next)
	return next, err
}

// teamCommit is the commit of a team's branch: the one that is there where it says
// and holds the same already.
func (s *service) teamCommit(team string, at plumbing.Hash, epoch uint64, onto, tree plumbing.Hash, on []member) (plumbing.Hash, error) {
	msg := s.teamMessage(team, epoch, on)
	if !at.IsZero() {
		is, err := s.v.commit(at)
		if err != nil {
			return at, err
		}
		if is.TreeHash == tree && is.Message == msg && slices.Equal(is.ParentHashes, []plumbing.Hash{onto}) {
			return at, nil
		}
	}
	return s.commit(s.v, s.who, tree, msg, onto)
}

// maxTeamText bounds, in bytes, what a team's commit repeats of its services'.
const maxTeamText = 48 << 10

// teamMessage says what each proposal says, the whole of it while there is room.
func (s *service) teamMessage(team string, epoch uint64, on []member) string {
	var titles, bodies strings.Builder
	for _, m := range on {
		text, _, _ := cutTrailers(m.commit.Message)
		text, _, _ = strings.Cut(text, onMerge)
		title, rest, _ := strings.Cut(text, "\n")
		fmt.Fprintf(&titles, "- %s\n", title)
		if bodies.Len()+len(rest) <= maxTeamText {
			fmt.Fprintf(&bodies, "\n## %s\n%s\n", title, strings.TrimRight(rest, "\n"))
		}
	}
	body := said.TeamTitle(team, len(on)) + "\n\n" + titles.String() + bodies.String() + "\n" + strings.TrimLeft(onMerge, "\n")
	t := s.who.trailers(on[0].commit)
	return withTrailers(body, []trailer{{runTrailer, t.run}, {teamTrailer, team}, {epochTrailer, fmt.Sprint(epoch)}}, nil)
}
