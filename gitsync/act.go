package gitsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/fault"
	"github.com/openrlc/rlc/quotafile"
)

// move is one reference to set.
type move struct {
	name     string
	old, new plumbing.Hash
}

// act is a person's act, or RLC's own where it leads.
func (r *Repo) act(ctx context.Context, segment string, plan func(*view, tips, uint64) ([]move, error)) error {
	under := r.cfg.Acting
	if under == nil {
		under = r.cfg.Epoch
	}
	return r.actOn(ctx, 0, under, segment, plan)
}

// actOn carries out what plan finds to do, in order, and starts over when a
// reference moved meanwhile: plan looks outside first, so what was done already
// is not done twice. The mirror may be as old as fresh at the first attempt; the
// writes are made under the epoch that under tells.
func (r *Repo) actOn(ctx context.Context, fresh time.Duration, under func() uint64, segment string, plan func(*view, tips, uint64) ([]move, error)) error {
	if r.cfg.ReadOnly {
		return fmt.Errorf("%w: the repository is open read only", rlc.ErrRefused)
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	for try := 1; ; try++ {
		var moves []move
		var epoch uint64
		var pack []byte
		err := r.lookNow(ctx, fresh, segment, func(v *view, t tips) (err error) {
			if epoch, err = r.fence(under); err != nil {
				return err
			}
			if moves, err = plan(v, t, epoch); err != nil || len(moves) == 0 {
				return err
			}
			if r.far != nil {
				pack, err = r.packed(v, moves)
				return err
			}
			return r.bare.keep(v.made)
		})
		if err != nil {
			return err
		}
		fault.Hit("gitsync-committed")
		still := func() bool { return under == nil || under() == epoch }
		err = r.carry(ctx, moves, still, pack)
		if !errors.Is(err, rlc.ErrConflict) || try == attempts {
			fault.Hit("gitsync-moved")
			return err
		}
		r.cfg.Log.Info("the repository moved, trying again", "attempt", try, "error", err)
		fresh = 0
		step := 20 * time.Millisecond
		if r.far != nil {
			step *= 10
		}
		if err := wait(ctx, rand.N(time.Duration(try)*step)+time.Millisecond); err != nil {
			return err
		}
	}
}

// errEnded says that the leadership under which a write was planned is over.
var errEnded = fmt.Errorf("%w: its epoch ended before the write", rlc.ErrFenced)

// carry moves references, each only while the epoch that planned it stands.
func (r *Repo) carry(ctx context.Context, moves []move, still func() bool, pack []byte) error {
	if r.far != nil {
		return r.carryFar(ctx, moves, still, pack)
	}
	for _, m := range moves {
		if !still() {
			return errEnded
		}
		if m.old == m.new {
			continue
		}
		if err := r.bare.move(ctx, m.name, m.old, m.new); err != nil {
			return err
		}
	}
	return nil
}

// fence returns the epoch to write under, or rlc.ErrFenced when the base branch
// holds a higher one.
func (r *Repo) fence(under func() uint64) (uint64, error) {
	base := r.line.tip().epoch
	if under == nil {
		return base, nil
	}
	own := under()
	if own < base {
		return 0, fmt.Errorf("%w: epoch %d, the base branch holds %d", rlc.ErrFenced, own, base)
	}
	return own, nil
}

// commit writes a commit object by RLC. An empty tree stands for no files.
func (r *Repo) commit(v *view, author Person, tree plumbing.Hash, message string, parents ...plumbing.Hash) (plumbing.Hash, error) {
	if tree.IsZero() {
		var err error
		if tree, err = v.putTree(nil); err != nil {
			return tree, err
		}
	}
	now := r.cfg.Now().UTC().Truncate(time.Second)
	c := &object.Commit{
		Author:       object.Signature{Name: author.Name, Email: author.Email, When: now},
		Committer:    object.Signature{Name: r.who.Name, Email: r.who.Email, When: now},
		Message:      message,
		TreeHash:     tree,
		ParentHashes: parents,
	}
	if err := r.sign(v, c); err != nil {
		return plumbing.ZeroHash, err
	}
	return v.encode(c)
}

// check validates the exact bytes of the changed files of a tree, within the
// files that they refer to. segment "" means the whole repository.
func (r *Repo) check(v *view, tree plumbing.Hash, segment string, changed map[string]bool) error {
	v.dirs = maps.Clone(r.dirs)
	files, err := v.files(tree, segment)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range quotafile.Parse(files, nil).Problems {
		if changed[p.File] && !p.Warning {
			errs = append(errs, errors.New(p.String()))
		}
	}
	if errs != nil {
		return fmt.Errorf("%w: %w", rlc.ErrInvalid, errors.Join(errs...))
	}
	return nil
}
