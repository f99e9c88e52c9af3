package gitsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Edit is EditFrom the base branch's tip as it is when called.
func (r *Repo) Edit(ctx context.Context, who Person, message string, change rlc.Files) (rlc.Commit, error) {
	return r.EditFrom(ctx, "", who, message, change)
}

// EditFrom commits a named person's change to the base branch: each file of
// change takes the place of what is there, nil bytes remove it. base is the
// commit that the person looked at ("" for the tip): a file that has changed
// since is rlc.ErrConflict, one that does not validate or is not of config.md
// rlc.ErrInvalid. A change that changes nothing returns the tip; no files at all
// make an empty commit, which is how a person raises the epoch.
func (r *Repo) EditFrom(ctx context.Context, base string, who Person, message string, change rlc.Files) (rlc.Commit, error) {
	within, paths, services := "", map[string]bool{}, map[string]bool{}
	for path := range change {
		if !quotafile.Reads(path) {
			return rlc.Commit{}, fmt.Errorf("%w: %q is not a file of the config repository", rlc.ErrInvalid, clip(inert(path), 200))
		}
		segment := ""
		if part := strings.Split(path, "/"); part[0] == "services" {
			segment = part[1]
			services[segment] = true
		}
		if len(paths) == 0 {
			within = segment
		} else if within != segment {
			within = ""
		}
		paths[path] = true
	}
	from := plumbing.NewHash(base)
	var done plumbing.Hash
	err := r.act(ctx, "", func(v *view, t tips, epoch uint64) ([]move, error) {
		if from.IsZero() {
			from = t.base
		}
		seen, err := v.commit(from)
		if err != nil {
			return nil, err
		}
		tip := r.line.tip().tree
		for path := range change {
			was, _, err := v.find(seen.TreeHash, path)
			if err != nil {
				return nil, err
			}
			if now, _, err := v.find(tip, path); err != nil {
				return nil, err
			} else if now.Hash != was.Hash || now.Mode != was.Mode {
				return nil, fmt.Errorf("%w: %s", rlc.ErrConflict, inert(path))
			}
		}
		tree, err := v.write(tip, change)
		if err != nil {
			return nil, err
		}
		if tree == tip && len(change) > 0 {
			done = t.base
			return nil, nil
		}
		if err := r.check(v, tree, within, paths); err != nil {
			return nil, err
		}
		for _, segment := range slices.Sorted(maps.Keys(services)) {
			if tree, _, err = r.service(ctx, v, t, segment).render(tree); err != nil {
				return nil, err
			}
		}
		msg := withTrailers(personal(message), []trailer{{epochTrailer, fmt.Sprint(epoch)}, {actorTrailer, person(who.Name)}}, nil)
		if done, err = r.commit(v, who.signed(), tree, msg, t.base); err != nil {
			return nil, err
		}
		return []move{{r.baseRef(), t.base, done}}, nil
	})
	var c rlc.Commit
	if err == nil {
		c, err = r.placed(ctx, done)
	}
	if err != nil {
		return rlc.Commit{}, fmt.Errorf("edit: %w", err)
	}
	return c, nil
}
