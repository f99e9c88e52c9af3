package gitsync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Entry is one commit of the base branch that touched a service.
type Entry struct {
	Hash    string
	Time    time.Time // committer's
	Author  string
	Subject string // the title, as one harmless line
	Actor   string // on whose behalf RLC committed it; ""
	Run     string // whose proposal it is or merges; "" for a person's change
}

// Log returns the newest n commits of the base branch that touched a service's
// folder, newest first.
func (r *Repo) Log(ctx context.Context, name string, n int) ([]Entry, error) {
	segment := quotafile.PathSegment(name)
	var out []Entry
	err := r.look(ctx, "", func(v *view, _ tips) error {
		out = nil
		if err := r.line.scan(ctx, v); err != nil {
			return err
		}
		for _, i := range slices.Backward(r.line.touched[segment]) {
			if len(out) >= n {
				break
			}
			p := &r.line.points[i]
			c, err := v.commit(p.hash)
			if err != nil {
				return err
			}
			title, _, _ := strings.Cut(c.Message, "\n")
			out = append(out, Entry{Hash: p.hash.String(), Time: p.time, Author: inert(c.Author.Name), Subject: clip(inert(title), 200), Actor: p.actor, Run: p.run})
		}
		return nil
	})
	return out, err
}

// Touched returns, for each of the services, who changed its folder by commits
// of their own since the commit from: people's names, newest first. A service
// that nobody touched, and one that RLC alone wrote to, is not in it. Without a
// from that is on the base branch nobody is named.
func (r *Repo) Touched(ctx context.Context, from string, services []string) (map[string][]string, error) {
	out := map[string][]string{}
	err := r.look(ctx, "", func(v *view, _ tips) error {
		clear(out)
		if err := r.line.scan(ctx, v); err != nil {
			return err
		}
		since, ok := r.line.at[plumbing.NewHash(from)]
		if !ok {
			return nil
		}
		for _, service := range services {
			for _, i := range slices.Backward(r.line.touched[quotafile.PathSegment(service)]) {
				if i <= since {
					break
				}
				p := &r.line.points[i]
				if p.run != "" {
					continue
				}
				c, err := v.commit(p.hash)
				if err != nil {
					return err
				}
				if who := inert(c.Author.Name); !slices.Contains(out[service], who) {
					out[service] = append(out[service], who)
				}
			}
		}
		return nil
	})
	return out, err
}

// Show returns a file of the config repository as it was at a commit. A commit
// or file that is not there, and a path that config.md does not name, is
// rlc.ErrNotFound.
func (r *Repo) Show(ctx context.Context, hash, path string) ([]byte, error) {
	missing := fmt.Errorf("%w: %s at %s", rlc.ErrNotFound, clip(inert(path), 200), clip(inert(hash), 40))
	if !plumbing.IsHash(hash) || !quotafile.Reads(path) {
		return nil, missing
	}
	var data []byte
	err := r.look(ctx, "", func(v *view, _ tips) error {
		c, err := v.commit(plumbing.NewHash(hash))
		if err != nil {
			return err
		}
		if data, err = v.file(c.TreeHash, path); err == nil && data == nil {
			return missing
		}
		return err
	})
	return data, err
}

// Changed returns what people changed between two commits that calls for a run:
// the services whose policy.yaml differs, sorted by name, and whether something
// that concerns all services does (defaults, profiles, contracts). RLC changes
// none of these files by itself, so its own commits fire nothing, nor do
// quotas.yaml, unless the service's targets do not hold its numbers any more (see
// Stale), and what is not part of the config. Without a from that is on the
// base branch everything has changed.
func (r *Repo) Changed(ctx context.Context, from, to string) (services []string, all bool, err error) {
	err = r.look(ctx, "", func(v *view, t tips) error {
		services, all = nil, false
		i, ok := r.line.at[plumbing.NewHash(from)]
		if !ok {
			all = true
			return nil
		}
		c, err := v.commit(plumbing.NewHash(to))
		if err != nil {
			return err
		}
		diff := map[string][2]object.TreeEntry{}
		if err := v.diff(r.line.points[i].tree, c.TreeHash, "", diff); err != nil {
			return err
		}
		names := map[string]bool{}
		for path, e := range diff {
			switch {
			case !quotafile.Reads(path):
			case !strings.HasPrefix(path, "services/"):
				all = true
			default:
				name := strings.Split(path, "/")[1]
				if strings.HasSuffix(path, "/quotas.yaml") {
					stale, err := r.service(ctx, v, t, name).stale()
					if err = ignoreInvalid(err); err != nil {
						return err
					}
					if stale == "" {
						continue
					}
				}
				for _, h := range []object.TreeEntry{e[1], e[0]} {
					if h.Hash.IsZero() || !regular(h.Mode) {
						continue
					}
					data, err := v.blob(h.Hash, quotafile.MaxFile)
					if err != nil {
						return err
					}
					if n := serviceName(path, data); n != "" {
						name = n
						break
					}
				}
				names[name] = true
			}
		}
		services = slices.Sorted(maps.Keys(names))
		return nil
	})
	return services, all, err
}

// serviceName is the service that a policy.yaml or quotas.yaml says it is of, ""
// where it cannot be read.
func serviceName(path string, data []byte) string {
	if data == nil {
		return ""
	}
	if strings.HasSuffix(path, "/quotas.yaml") {
		name, _, _ := quotafile.ParseQuotas(path, data)
		return name
	}
	c := quotafile.Parse(rlc.Files{path: data}, nil)
	for _, s := range c.Services {
		return s.Name
	}
	for name := range c.Broken {
		return name
	}
	return ""
}

// diff collects the files that differ between two trees, by path: before and
// after, a zero entry where there is none.
func (v *view) diff(a, b plumbing.Hash, prefix string, out map[string][2]object.TreeEntry) error {
	if a == b {
		return nil
	}
	if len(out) > maxFolders {
		return fmt.Errorf("%w: more than %d files differ", rlc.ErrInvalid, maxFolders)
	}
	both := map[string][2]object.TreeEntry{}
	for side, h := range []plumbing.Hash{a, b} {
		all, err := v.entries(h)
		if err != nil {
			return err
		}
		for _, e := range all {
			pair := both[e.Name]
			pair[side] = e
			both[e.Name] = pair
		}
	}
	for name, pair := range both {
		if pair[0].Hash == pair[1].Hash && pair[0].Mode == pair[1].Mode {
			continue
		}
		var dirs [2]plumbing.Hash
		for i, e := range pair {
			if e.Mode == filemode.Dir {
				dirs[i], pair[i] = e.Hash, object.TreeEntry{}
			}
		}
		if !pair[0].Hash.IsZero() || !pair[1].Hash.IsZero() {
			out[prefix+name] = pair
		}
		if err := v.diff(dirs[0], dirs[1], prefix+name+"/", out); err != nil {
			return err
		}
	}
	return nil
}
