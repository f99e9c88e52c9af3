package gitsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// FirstBranch is where PublishFirst commits. It is no service's: no path segment
// begins with an underscore and has no hash.
const FirstBranch = "rlc/_init"

// PublishFirst commits files, in the name of who, to FirstBranch: one commit on
// the base branch's tip, and returns its hash. It is idempotent. A file that is
// on the base branch already is rlc.ErrConflict, as is a branch that holds
// something else and is not merged; a file that does not validate is
// rlc.ErrInvalid. Nothing is written then.
func (r *Repo) PublishFirst(ctx context.Context, who Person, message string, files rlc.Files) (commit string, err error) {
	changed := map[string]bool{}
	for path := range files {
		if !quotafile.Reads(path) {
			return "", fmt.Errorf("%w: %q is not a file of the config repository", rlc.ErrInvalid, clip(inert(path), 200))
		}
		changed[path] = true
	}
	ref := "refs/heads/" + FirstBranch
	var done plumbing.Hash
	err = r.act(ctx, "", func(v *view, t tips, _ uint64) ([]move, error) {
		tip := r.line.tip().tree
		if there, err := v.among(tip, files); err != nil || len(there) > 0 {
			return nil, errors.Join(err, taken(there, r.cfg.Branch))
		}
		tree, err := v.write(tip, files)
		if err != nil {
			return nil, err
		}
		if err := r.check(v, tree, "", changed); err != nil {
			return nil, err
		}
		was, err := r.bare.read(ref)
		if err != nil {
			return nil, err
		}
		if _, merged := r.line.contains(was); !was.IsZero() && !merged {
			done = was
			return nil, v.holds(was, tree, files)
		}
		msg := withTrailers(personal(message), []trailer{{actorTrailer, person(who.Name)}}, nil)
		if done, err = r.commit(v, who.signed(), tree, msg, t.base); err != nil {
			return nil, err
		}
		return []move{{ref, was, done}}, nil
	})
	if err != nil {
		return "", fmt.Errorf("publish the first policies: %w", err)
	}
	return done.String(), nil
}

// FirstOf are those of some services whose first policies wait on FirstBranch: the
// branch has one and the base branch has none. They are of the repository as it was
// last looked at.
func (r *Repo) FirstOf(ctx context.Context, services []string) (waiting []string, err error) {
	err = r.look(ctx, "", func(v *view, _ tips) error {
		waiting = nil
		at, err := r.bare.read("refs/heads/" + FirstBranch)
		if err != nil || at.IsZero() {
			return err
		}
		c, err := v.commit(at)
		if err != nil {
			return err
		}
		base := r.line.tip().tree
		for _, name := range services {
			path := quotafile.PolicyPath(name)
			_, on, err := v.find(c.TreeHash, path)
			if err != nil {
				return err
			}
			_, based, err := v.find(base, path)
			if err != nil {
				return err
			}
			if on && !based {
				waiting = append(waiting, name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for first policies: %w", err)
	}
	return waiting, nil
}

// among are the paths of files that a tree has already, sorted.
func (v *view) among(tree plumbing.Hash, files rlc.Files) (there []string, err error) {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		_, ok, err := v.find(tree, path)
		if err != nil {
			return nil, err
		}
		if ok {
			there = append(there, inert(path))
		}
	}
	return there, nil
}

func taken(there []string, branch string) error {
	if len(there) == 0 {
		return nil
	}
	return fmt.Errorf("%w: on %s there is already %s", rlc.ErrConflict, branch, clip(strings.Join(there, ", "), 400))
}

// holds is nil where a branch's commit has the files as tree has them.
func (v *view) holds(commit, tree plumbing.Hash, files rlc.Files) error {
	c, err := v.commit(commit)
	if err != nil {
		return err
	}
	for path := range files {
		is, _, err := v.find(c.TreeHash, path)
		if err != nil {
			return err
		}
		want, _, err := v.find(tree, path)
		if err != nil {
			return err
		}
		if is.Hash != want.Hash {
			return fmt.Errorf("%w: branch %s holds something else: merge it or delete it first", rlc.ErrConflict, FirstBranch)
		}
	}
	return nil
}
