package gitsync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/envoyconfig"
	"github.com/openrlc/rlc/quotafile"
)

// Stale says whether the files rendered for the service's targets on the base
// branch hold its numbers there: "" where they do, else a hash of what they shall
// hold. Of a service that does not validate, and of one with a target that is a
// person's file, nothing is rendered.
func (r *Repo) Stale(ctx context.Context, name string) (string, error) {
	segment := quotafile.PathSegment(name)
	var out string
	err := r.look(ctx, "", func(v *view, t tips) (err error) {
		out, err = r.service(ctx, v, t, segment).stale()
		return ignoreInvalid(err)
	})
	if err != nil {
		return "", fmt.Errorf("rendered files of %s: %w", name, err)
	}
	return out, nil
}

// stale is Stale, with rlc.ErrInvalid for a target that is a person's file.
func (s *service) stale() (string, error) {
	root := s.line.tip().tree
	set, _, err := s.rendering(root)
	if err != nil {
		return "", err
	}
	sum, differs := sha256.New(), false
	for _, path := range slices.Sorted(maps.Keys(set)) {
		was, err := s.v.file(root, path)
		if err != nil {
			return "", err
		}
		if (was == nil) == (set[path] == nil) && bytes.Equal(was, set[path]) {
			continue
		}
		differs = true
		fmt.Fprintf(sum, "%q %t %q\n", path, set[path] != nil, set[path])
	}
	if !differs {
		return "", nil
	}
	return fmt.Sprintf("rendered:%x", sum.Sum(nil)), nil
}

// renderedAt is the newest position whose commit changed a rendered file of the
// service; the tip's where none of the newest did.
func (s *service) renderedAt() (int, error) {
	tip := len(s.line.points) - 1
	set, _, err := s.rendering(s.line.tip().tree)
	if err != nil {
		return 0, err
	}
	for i := tip; i > 0 && tip-i < maxBlame; i-- {
		for path := range set {
			now, _, err := s.v.find(s.line.points[i].tree, path)
			if err != nil {
				return 0, err
			}
			before, _, err := s.v.find(s.line.points[i-1].tree, path)
			if err != nil {
				return 0, err
			}
			if now.Hash != before.Hash {
				return i, nil
			}
		}
	}
	return tip, nil
}

// render writes the numbers of a tree, which holds the service's files as they
// shall be, to the service's targets: the tree with them, and what the other
// limiters cannot say.
func (s *service) render(root plumbing.Hash) (tree plumbing.Hash, losses []string, err error) {
	set, losses, err := s.rendering(root)
	if err != nil || len(set) == 0 {
		return root, losses, err
	}
	tree, err = s.v.write(root, set)
	return tree, losses, err
}

// rendering is what the targets hold for the numbers of a tree, and what the
// other limiters cannot say. A target that the policy no longer names is to be
// removed. A file that rlc did not write is nobody's target: rlc.ErrInvalid. Of a
// service that does not validate nothing is rendered; check refuses it.
func (s *service) rendering(root plumbing.Hash) (set rlc.Files, losses []string, err error) {
	s.v.dirs = maps.Clone(s.dirs)
	files, err := s.v.files(root, s.segment)
	if err != nil {
		return nil, nil, err
	}
	c := quotafile.Parse(files, nil)
	if len(c.Services) == 0 && len(c.Broken) > 0 {
		return nil, nil, nil
	}
	set = rlc.Files{}
	for _, svc := range c.Services {
		for _, t := range svc.Targets {
			now, lost, err := envoyconfig.Export(t.Kind, envoyconfig.Source{Service: svc, Quotas: c.Quotas[svc.Name], Profile: c.Profiles[svc.Profile]}, envoyconfig.Options{})
			if err != nil {
				return nil, nil, err
			}
			was, err := s.v.file(root, t.Path)
			if err != nil {
				return nil, nil, err
			}
			if was != nil && !envoyconfig.Written(was) {
				return nil, nil, fmt.Errorf("%w: target %s is a file that a person wrote: move it or name another path", rlc.ErrInvalid, inert(t.Path))
			}
			set[t.Path] = now
			for _, l := range lost {
				losses = append(losses, t.Path+": "+l.String())
			}
		}
	}
	gone, err := s.formerTargets()
	if err != nil {
		return nil, nil, err
	}
	for _, path := range gone {
		if _, still := set[path]; still {
			continue
		}
		if was, err := s.v.file(root, path); err != nil {
			return nil, nil, err
		} else if envoyconfig.WrittenFor(was, s.segment, quotafile.PathSegment) {
			set[path] = nil
		}
	}
	return set, losses, nil
}

// formerTargets are the paths that the service's policies on the base branch
// named, back to the newest commit in which RLC itself rendered them.
func (s *service) formerTargets() (paths []string, err error) {
	if err := s.line.scan(s.ctx, s.v); err != nil {
		return nil, err
	}
	file := "services/" + s.segment + "/policy.yaml"
	seen := map[plumbing.Hash]bool{}
	touched := s.line.touched[s.segment]
	for n, i := range slices.Backward(touched) {
		if len(touched)-n > maxBlame {
			break
		}
		p := &s.line.points[i]
		e, ok, err := s.v.find(p.tree, file)
		if err != nil {
			return nil, err
		}
		if ok && regular(e.Mode) && !seen[e.Hash] {
			seen[e.Hash] = true
			data, err := s.v.blob(e.Hash, quotafile.MaxFile)
			if err != nil {
				return nil, err
			}
			if bytes.Contains(data, []byte("targets")) {
				files, err := s.v.files(p.tree, s.segment)
				if err != nil {
					return nil, err
				}
				for _, svc := range quotafile.Parse(files, nil).Services {
					for _, t := range svc.Targets {
						paths = append(paths, t.Path)
					}
				}
			}
		}
		if p.ours && p.segment == s.segment {
			break
		}
	}
	return paths, nil
}

// rendered reports whether a changed path outside of people's files holds, before
// or after, what rlc rendered: it is not merged, but rendered anew.
func (v *view) rendered(path string, before, after plumbing.Hash) (bool, error) {
	if quotafile.Reads(path) {
		return false, nil
	}
	for _, h := range []plumbing.Hash{before, after} {
		if h.IsZero() {
			continue
		}
		data, err := v.blob(h, quotafile.MaxQuotasFile)
		if err != nil || envoyconfig.Written(data) {
			return err == nil, err
		}
	}
	return false, nil
}
