package gitsync

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/envoyconfig"
	"github.com/openrlc/rlc/quotafile"
)

// render writes the numbers of a tree, which holds the service's files as they
// shall be, to the service's targets: the tree with them, and what the other
// limiters cannot say. A target that the policy no longer names is removed. A
// file that rlc did not write is nobody's target: rlc.ErrInvalid. Of a service
// that does not validate nothing is rendered; check refuses it.
func (s *service) render(root plumbing.Hash) (tree plumbing.Hash, losses []string, err error) {
	s.v.dirs = maps.Clone(s.dirs)
	files, err := s.v.files(root, s.segment)
	if err != nil {
		return root, nil, err
	}
	c := quotafile.Parse(files, nil)
	if len(c.Services) == 0 && len(c.Broken) > 0 {
		return root, nil, nil
	}
	set := rlc.Files{}
	for _, svc := range c.Services {
		for _, t := range svc.Targets {
			now, lost, err := envoyconfig.Export(t.Kind, envoyconfig.Source{Service: svc, Quotas: c.Quotas[svc.Name], Profile: c.Profiles[svc.Profile]}, envoyconfig.Options{})
			if err != nil {
				return root, nil, err
			}
			was, err := s.v.file(root, t.Path)
			if err != nil {
				return root, nil, err
			}
			if was != nil && !envoyconfig.Written(was) {
				return root, nil, fmt.Errorf("%w: target %s is a file that a person wrote: move it or name another path", rlc.ErrInvalid, inert(t.Path))
			}
			set[t.Path] = now
			for _, l := range lost {
				losses = append(losses, t.Path+": "+l.String())
			}
		}
	}
	gone, err := s.formerTargets()
	if err != nil {
		return root, nil, err
	}
	for _, path := range gone {
		if _, still := set[path]; still {
			continue
		}
		if was, err := s.v.file(root, path); err != nil {
			return root, nil, err
		} else if envoyconfig.WrittenFor(was, s.segment, quotafile.PathSegment) {
			set[path] = nil
		}
	}
	if len(set) == 0 {
		return root, nil, nil
	}
	tree, err = s.v.write(root, set)
	return tree, losses, err
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
