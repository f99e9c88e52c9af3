package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/checks"
	"github.com/openrlc/rlc/internal/envoyconfig"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// staleTargets warns of the targets of a checkout whose file is not what its
// service's numbers render to. Anything but a whole repository has none.
func staleTargets(dir string) (stale []rlc.Problem, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil // a file
	}
	defer root.Close()
	if _, err := root.Stat("services"); err != nil {
		return nil, nil
	}
	files, err := quotafile.ReadCheckout(root)
	if err != nil {
		return nil, err
	}
	all, err := targetsOf(quotafile.Parse(files, policies.Builtin().Check), func(path string) ([]byte, error) { return readTarget(root, path) })
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if p := t.problem; p != nil {
			p.File = filepath.Join(dir, filepath.FromSlash(p.File))
			stale = append(stale, *p)
		}
	}
	return stale, nil
}

// target is one rendered file of a service as a repository holds it.
type target struct {
	service string
	path    string
	losses  []string     // what the other limiter cannot say, a line each
	problem *rlc.Problem // where the file is not what the numbers render to; nil where it is
}

// targetsOf looks at every target of the valid services; read gives the file at a
// path, or fs.ErrNotExist.
func targetsOf(c *quotafile.Config, read func(path string) ([]byte, error)) (out []target, err error) {
	for _, s := range c.Services {
		for _, t := range s.Targets {
			want, losses, err := envoyconfig.Export(t.Kind, envoyconfig.Source{Service: s, Quotas: c.Quotas[s.Name], Profile: c.Profiles[s.Profile]}, envoyconfig.Options{})
			if err != nil {
				return nil, err
			}
			one := target{service: s.Name, path: t.Path}
			for _, l := range losses {
				one.losses = append(one.losses, t.Path+": "+l.String())
			}
			p := rlc.Problem{File: t.Path, Line: 1, Column: 1, Warning: true,
				Hint: "rlc puts it up in a review of the service; or write here what rlc export " + t.Kind + " --service prints"}
			switch have, err := read(t.Path); {
			case errors.Is(err, fs.ErrNotExist):
				p.Message = fmt.Sprintf("the target of service %q is not rendered yet", s.Name)
			case err != nil:
				p.Warning = false
				p.Message, p.Hint = fmt.Sprintf("the target of service %q cannot be written here: %v", s.Name, err), "name another path in the policy"
			case bytes.Equal(have, want):
			case !envoyconfig.Written(have):
				p.Warning = false
				p.Message, p.Hint = fmt.Sprintf("the target of service %q is a file that a person wrote", s.Name), "move it, or name another path in the policy"
			default:
				p.Message = fmt.Sprintf("the target does not hold the numbers of service %q", s.Name)
			}
			if p.Message != "" {
				one.problem = &p
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// addTargets adds to an edit what it does to rendered files: those that it leaves
// behind, those that are a person's, and what a rendered file could say before and
// cannot any more. A file that was behind already is named where the edit touches
// its service.
func addTargets(e *checks.Edit, before, after []target) {
	was, touched := map[string]target{}, map[string]bool{}
	for _, t := range before {
		was[t.service+"\n"+t.path] = t
	}
	for _, s := range e.Services {
		touched[s.Name] = true
	}
	for _, t := range after {
		old := was[t.service+"\n"+t.path]
		if p := t.problem; p != nil && (!p.Warning || old.problem == nil || touched[t.service]) {
			e.Problems = append(e.Problems, *p)
		}
		for _, l := range t.losses {
			if !slices.Contains(old.losses, l) {
				e.Tell(t.service, "lost in "+l)
			}
		}
	}
}

var errNoTarget = errors.New("it is no plain file below 64 MiB")

// mostTarget is more bytes than rlc would render.
const mostTarget = 64 << 20

// readTarget reads a rendered file, of which no more than rlc would write.
func readTarget(root *os.Root, path string) ([]byte, error) {
	info, err := root.Lstat(filepath.FromSlash(path))
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostTarget {
		return nil, errNoTarget
	}
	return root.ReadFile(filepath.FromSlash(path))
}
