package forge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/fault"
)

// Repository carries the branches; *gitsync.Repo is one.
type Repository interface {
	Publish(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error)
	Settle(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error)
	// RejectBranch rejects p together with all that is on its branch.
	RejectBranch(ctx context.Context, p rlc.Proposal, actor, reason string) error
	// Merged accepts an open proposal whose review the forge has merged, in whatever
	// form.
	Merged(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error)
	// Rebuild puts an open proposal on the base branch's tip, its numbers as they are.
	Rebuild(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error)
	// Branches are the branches that begin with rlc/.
	Branches(ctx context.Context) (map[string]bool, error)
}

// Config says how reviews are put up.
type Config struct {
	Repository Repository // required
	Forge      Forge      // nil: branches alone, reviewed on RLC's own pages

	// Title and Body make a review's text; required with a Forge. Several proposals
	// may be on one branch: any of them asks for the text of the whole.
	Title, Body func(rlc.Proposal) string
	// Reviewers are whom a review of a proposal is for; nil asks nobody.
	Reviewers func(context.Context, rlc.Proposal) ([]string, error)
	Labels    []string // put on every review

	// MaxOpen bounds the open reviews; 0 does not. What is beyond waits, and the
	// first to go is what Queue lists first. Proposals of one branch are one.
	MaxOpen int
	// Open lists the proposals under review, with their changes. Nil: each branch
	// has one proposal.
	Open func(context.Context) ([]rlc.Proposal, error)
	// Queue lists the open and the pending proposals in the order in which they
	// shall be put up; their changes may be missing. Required with MaxOpen.
	Queue func(context.Context) ([]rlc.Proposal, error)

	Fresh time.Duration    // how old the list of open reviews may be, 30 s by default
	Now   func() time.Time // time.Now by default
	Log   *slog.Logger     // slog.Default() by default
}

// Reviews publishes proposals and follows what becomes of them. It is safe for
// concurrent use.
type Reviews struct {
	cfg Config

	asking sync.Mutex // one listing at a time

	mu     sync.Mutex // guards what follows
	open   map[string]Review
	at     time.Time // when the forge was asked for open; zero: ask anew
	failed error     // what came of it, instead of open
	warned time.Time // when it was last logged that the forge does not tell
	texts  map[int64]string
}

// New checks c.
func New(c Config) (*Reviews, error) {
	if c.Repository == nil {
		return nil, fmt.Errorf("%w: reviews need a repository", rlc.ErrInvalid)
	}
	if c.Forge != nil && (c.Title == nil || c.Body == nil) {
		return nil, fmt.Errorf("%w: reviews on a forge need a title and a body", rlc.ErrInvalid)
	}
	if c.MaxOpen > 0 && c.Queue == nil {
		return nil, fmt.Errorf("%w: a bound on open reviews needs to know them", rlc.ErrInvalid)
	}
	if c.Fresh <= 0 {
		c.Fresh = 30 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Reviews{cfg: c, texts: map[int64]string{}}, nil
}

// Publish publishes the branch and puts it up on the forge. It is idempotent:
// an open review of the branch is updated, never doubled. A branch that a person
// committed to keeps the text it has. A review that a person closed at this very
// commit comes back Rejected. A forge's error comes after the branch stands; the
// next call goes on from there.
func (r *Reviews) Publish(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	out, err := r.cfg.Repository.Publish(ctx, p)
	if r.cfg.Forge == nil {
		return out, err
	}
	if err != nil && (errors.Is(err, rlc.ErrUnpublishable) || out.Branch != p.Branch) {
		// The review before went from its branch.
		if e := r.leave(ctx, out); e != nil {
			r.cfg.Log.Warn("the review of a withdrawn proposal stays open on the forge", "branch", out.Branch, "error", e)
		}
	}
	if err != nil {
		return out, err
	}
	if out.State != rlc.Open {
		return out, r.leave(ctx, out)
	}
	fault.Hit("before-review")
	return r.show(ctx, out)
}

// others are the other open proposals on a proposal's branch.
func (r *Reviews) others(ctx context.Context, p rlc.Proposal) ([]rlc.Proposal, error) {
	if r.cfg.Open == nil {
		return nil, nil
	}
	open, err := r.cfg.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for what else is on %s: %w", p.Branch, err)
	}
	return slices.DeleteFunc(slices.Clone(open), func(o rlc.Proposal) bool { return o.Branch != p.Branch || o.Service == p.Service }), nil
}

// leave closes the review of a proposal that is over; where others are on its
// branch, the review says what is left.
func (r *Reviews) leave(ctx context.Context, p rlc.Proposal) error {
	others, err := r.others(ctx, p)
	if err != nil {
		return err
	}
	if len(others) == 0 {
		return r.close(ctx, p.Branch)
	}
	now, err := r.cfg.Forge.Find(ctx, p.Branch)
	if err != nil || now.State != Open || others[0].Human {
		return err
	}
	t := Text{Title: r.cfg.Title(others[0]), Body: Fit(r.cfg.Body(others[0]), r.cfg.Forge.BodyLimit())}
	if !r.differs(now, t) {
		return nil
	}
	if err := r.cfg.Forge.Update(ctx, now.Number, t); err != nil {
		return fmt.Errorf("update the review of %s: %w", p.Branch, err)
	}
	r.remember(now, t)
	return nil
}

// Waiting are the pending proposals whose turn has not come, by ID, and why: the
// first in the queue go, as many as fit into MaxOpen. Whoever publishes asks first.
func (r *Reviews) Waiting(ctx context.Context) (map[string]string, error) {
	if r.cfg.MaxOpen <= 0 {
		return nil, nil
	}
	queue, err := r.cfg.Queue(ctx)
	if err != nil {
		return nil, fmt.Errorf("count open reviews: %w", err)
	}
	up := map[string]bool{}
	for _, p := range queue {
		if p.State == rlc.Open {
			up[p.Branch] = true
		}
	}
	out := map[string]string{}
	for _, p := range queue {
		switch {
		case p.State == rlc.Open, up[p.Branch]: // it takes the place of one, or joins it
		case len(up) < r.cfg.MaxOpen:
			up[p.Branch] = true
		default:
			out[p.ID] = fmt.Sprintf("waits for its turn: no more than %d may be open (reviews.max_open)", r.cfg.MaxOpen)
		}
	}
	return out, nil
}

// show opens the review of a published branch, or updates it.
func (r *Reviews) show(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	f := r.cfg.Forge
	now, err := f.Find(ctx, p.Branch)
	known := err == nil
	if err != nil && !errors.Is(err, rlc.ErrNotFound) {
		return p, fmt.Errorf("look for the review of %s: %w", p.Service, err)
	}
	if known && now.State == Closed && now.Commit == p.Commit && p.Commit != "" {
		return r.rejected(ctx, p, now)
	}
	if known && now.State == Open && p.Human {
		p.URL = now.URL
		return p, nil
	}
	t := Text{Title: r.cfg.Title(p), Body: Fit(r.cfg.Body(p), f.BodyLimit()), Labels: r.cfg.Labels}
	if r.cfg.Reviewers != nil {
		if t.Reviewers, err = r.cfg.Reviewers(ctx, p); err != nil {
			// Who should look is help, not a condition.
			r.cfg.Log.Warn("reviewers are not known", "service", p.Service, "error", err)
		}
	}
	if !known || now.State != Open {
		now, err = f.Open(ctx, p.Branch, t)
		if err != nil && now.Number == 0 {
			return p, fmt.Errorf("open the review of %s: %w", p.Service, err)
		}
		if err != nil {
			r.cfg.Log.Warn("a review is open without all its labels and reviewers", "service", p.Service, "error", err)
		}
	} else if r.differs(now, t) {
		if err := f.Update(ctx, now.Number, t); err != nil {
			return p, fmt.Errorf("update the review of %s: %w", p.Service, err)
		}
	}
	r.remember(now, t)
	p.URL = now.URL
	return p, nil
}

// differs reports whether the forge shows another text than t. Forges change
// line ends and trailing spaces: what was sent last counts as well.
func (r *Reviews) differs(now Review, t Text) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent, ok := r.texts[now.Number]; ok && sent == t.Title+"\n"+t.Body {
		return false
	}
	plain := func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }
	return plain(now.Title) != plain(t.Title) || plain(now.Body) != plain(t.Body)
}

func (r *Reviews) remember(now Review, t Text) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts[now.Number] = t.Title + "\n" + t.Body
	r.at = time.Time{}
}

// close closes the open review of a branch that has nothing left to say.
func (r *Reviews) close(ctx context.Context, branch string) error {
	now, err := r.cfg.Forge.Find(ctx, branch)
	if errors.Is(err, rlc.ErrNotFound) || err == nil && now.State != Open {
		return nil
	}
	if err == nil {
		err = r.cfg.Forge.Close(ctx, now.Number)
	}
	if err != nil {
		return fmt.Errorf("close the review of %s: %w", branch, err)
	}
	r.Wake()
	return nil
}

// Wake makes the next Settle ask the forge: something happened there.
func (r *Reviews) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
}

// Settle finds out what became of an open proposal. What the repository says
// counts; the forge adds what the repository cannot tell: that a review was
// closed, or merged together with edits, and by whom. While the forge is away
// the repository's word is all.
func (r *Reviews) Settle(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	out, err := r.cfg.Repository.Settle(ctx, p)
	if err != nil || r.cfg.Forge == nil || p.State != rlc.Open {
		return out, err
	}
	settled, err := r.settle(ctx, out)
	if err != nil {
		r.warn(p, err)
		return out, nil
	}
	return settled, nil
}

// warn logs that the forge did not tell, once in Fresh however many proposals ask.
func (r *Reviews) warn(p rlc.Proposal, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.cfg.Now(); r.warned.IsZero() || now.Sub(r.warned) >= r.cfg.Fresh {
		r.warned = now
		r.cfg.Log.Warn("the forge did not tell of a review", "service", p.Service, "error", err)
	}
}

func (r *Reviews) settle(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	open, err := r.reviews(ctx)
	if err != nil {
		return p, err
	}
	if now, ok := open[p.Branch]; ok {
		if p.State == rlc.Open {
			p.URL = now.URL
			return p, nil
		}
		if p.State == rlc.Superseded {
			return p, nil // the branch is a newer run's, and so is the review
		}
		return p, r.leave(ctx, p)
	}
	if p.State == rlc.Superseded {
		return p, nil
	}
	now, err := r.cfg.Forge.Find(ctx, p.Branch)
	switch {
	case errors.Is(err, rlc.ErrNotFound):
		return p, nil
	case err != nil:
		return p, err
	case now.State == Merged && p.State == rlc.Rejected:
		// Its branch went with the merge, and people changed it before.
		p.State, p.Actor, p.Reason, p.Decided = rlc.Accepted, now.By, "", now.At
	case now.State == Merged && p.State == rlc.Open:
		if now.Commit != p.Commit {
			return p, nil // an earlier review of the branch
		}
		out, err := r.cfg.Repository.Merged(ctx, p)
		if err == nil && now.By != "" {
			out.Actor = now.By
		}
		return out, err
	case now.State == Merged && p.State == rlc.Accepted && now.By != "":
		p.Actor = now.By // git names who made the branch, or the forge itself
	case now.State == Closed && p.State == rlc.Rejected:
		p.Actor, p.Reason = now.By, "closed on the forge"
	case now.State == Closed && now.Commit == p.Commit:
		return r.rejected(ctx, p, now)
	}
	return p, nil
}

// rejected makes p one that a person closed on the forge and removes its branch;
// people's commits on it are kept.
func (r *Reviews) rejected(ctx context.Context, p rlc.Proposal, now Review) (rlc.Proposal, error) {
	if err := r.cfg.Repository.RejectBranch(ctx, p, now.By, "closed on the forge"); err != nil {
		return p, err
	}
	p.State, p.Actor, p.Reason, p.Decided, p.URL = rlc.Rejected, now.By, "closed on the forge", now.At, now.URL
	return p, nil
}

// reviews are the open ones by branch, as of at most Fresh ago: one question to
// the forge however many proposals are open, also where it is not answered.
func (r *Reviews) reviews(ctx context.Context) (map[string]Review, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	now := r.cfg.Now()
	r.mu.Lock()
	open, failed, fresh := r.open, r.failed, !r.at.IsZero() && now.Sub(r.at) < r.cfg.Fresh
	r.mu.Unlock()
	if fresh {
		return open, failed
	}
	r.mu.Lock()
	r.at = now // what wakes it while it asks makes it ask again
	r.mu.Unlock()
	all, err := r.cfg.Forge.List(ctx)
	if ctx.Err() != nil {
		r.Wake()
		return nil, err
	}
	open = make(map[string]Review, len(all))
	for _, v := range all {
		open[v.Branch] = v
	}
	r.mu.Lock()
	r.open, r.failed = open, err
	r.mu.Unlock()
	if err == nil {
		r.sweep(ctx, all)
	}
	return open, err
}

// sweep closes the reviews whose branches are gone: those that nobody could close
// when they went. Some forges close them by themselves.
func (r *Reviews) sweep(ctx context.Context, all []Review) {
	branches, err := r.cfg.Repository.Branches(ctx)
	for _, v := range all {
		if err == nil && !branches[v.Branch] {
			err = r.cfg.Forge.Close(ctx, v.Number)
		}
	}
	if err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("a review without a branch stays open on the forge", "error", err)
	}
}

// Merge has the forge merge a proposal's review: exactly the commit that the
// proposal names, which its content hash was taken from. rlc.ErrConflict where
// the review's head is another by now.
func (r *Reviews) Merge(ctx context.Context, p rlc.Proposal) error {
	now, err := r.review(ctx, p)
	if err != nil {
		return err
	}
	if now.Commit != p.Commit {
		return fmt.Errorf("merge the review of %s: %w: its head is %.12s, not %.12s", p.Service, rlc.ErrConflict, now.Commit, p.Commit)
	}
	if err := r.cfg.Forge.Merge(ctx, now.Number, p.Commit); err != nil {
		return fmt.Errorf("merge the review of %s: %w", p.Service, err)
	}
	r.Wake()
	return nil
}

// Rebuild puts a proposal's branch on the base branch's tip: its forge merges no
// review that is behind. Its numbers stay, its commit is another.
func (r *Reviews) Rebuild(ctx context.Context, p rlc.Proposal) (rlc.Proposal, error) {
	out, err := r.cfg.Repository.Rebuild(ctx, p)
	r.Wake()
	return out, err
}

// OnForge reports whether reviews are on a forge.
func (r *Reviews) OnForge() bool { return r.cfg.Forge != nil }

// Labelled reports whether the open review of a proposal carries a label; without
// a forge none does.
func (r *Reviews) Labelled(ctx context.Context, p rlc.Proposal, label string) (bool, error) {
	if r.cfg.Forge == nil {
		return false, nil
	}
	now, err := r.review(ctx, p)
	if errors.Is(err, rlc.ErrNotFound) {
		return false, nil
	}
	return slices.Contains(now.Labels, label), err
}

// Comment writes RLC's one comment on a proposal's review, or changes it.
func (r *Reviews) Comment(ctx context.Context, p rlc.Proposal, body string) error {
	now, err := r.review(ctx, p)
	if err != nil {
		return err
	}
	return r.cfg.Forge.Comment(ctx, now.Number, Fit(body, r.cfg.Forge.BodyLimit()-MarkBytes))
}

// Status sets a status on a proposal's commit.
func (r *Reviews) Status(ctx context.Context, p rlc.Proposal, s Status) error {
	if r.cfg.Forge == nil {
		return fmt.Errorf("%w: no forge is configured", rlc.ErrInvalid)
	}
	return r.cfg.Forge.Status(ctx, p.Commit, s)
}

// CloseReview closes a proposal's review on the forge where it is open, or takes
// the proposal out of its text where others are in it: after a person rejected or
// accepted it on RLC's own page.
func (r *Reviews) CloseReview(ctx context.Context, p rlc.Proposal) error {
	if r.cfg.Forge == nil {
		return nil
	}
	return r.leave(ctx, p)
}

// review is the open review of a proposal.
func (r *Reviews) review(ctx context.Context, p rlc.Proposal) (Review, error) {
	if r.cfg.Forge == nil {
		return Review{}, fmt.Errorf("%w: no forge is configured", rlc.ErrInvalid)
	}
	now, err := r.cfg.Forge.Find(ctx, p.Branch)
	if err == nil && now.State != Open {
		err = fmt.Errorf("%w: the review is %s", rlc.ErrConflict, now.State)
	}
	if err != nil {
		return Review{}, fmt.Errorf("the review of %s: %w", p.Service, err)
	}
	return now, nil
}
