package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openrlc/rlc"
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
	files, err := quotafile.ReadDir(root)
	if err != nil {
		return nil, err
	}
	c := quotafile.Parse(files, policies.Builtin().Check)
	for _, s := range c.Services {
		for _, t := range s.Targets {
			want, _, err := envoyconfig.Export(t.Kind, envoyconfig.Source{Service: s, Quotas: c.Quotas[s.Name], Profile: c.Profiles[s.Profile]}, envoyconfig.Options{})
			if err != nil {
				return nil, err
			}
			p := rlc.Problem{File: filepath.Join(dir, filepath.FromSlash(t.Path)), Line: 1, Column: 1, Warning: true}
			switch have, err := readTarget(root, t.Path); {
			case errors.Is(err, fs.ErrNotExist):
				p.Message = fmt.Sprintf("the target of service %q is not rendered yet", s.Name)
			case err != nil:
				p.Warning = false
				p.Message, p.Hint = fmt.Sprintf("the target of service %q cannot be written here: %v", s.Name, err), "name another path in the policy"
			case bytes.Equal(have, want):
				continue
			case !envoyconfig.Written(have):
				p.Warning = false
				p.Message, p.Hint = fmt.Sprintf("the target of service %q is a file that a person wrote", s.Name), "move it, or name another path in the policy"
			default:
				p.Message = fmt.Sprintf("the target does not hold the numbers of service %q", s.Name)
			}
			if p.Hint == "" {
				p.Hint = "rlc renders it with its next commit for the service; or write here what rlc export " + t.Kind + " --service prints"
			}
			stale = append(stale, p)
		}
	}
	return stale, nil
}

// readTarget reads a rendered file, of which no more than rlc would write.
func readTarget(root *os.Root, path string) ([]byte, error) {
	info, err := root.Lstat(filepath.FromSlash(path))
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > 64<<20 {
		return nil, errors.New("it is no plain file below 64 MiB")
	}
	return root.ReadFile(filepath.FromSlash(path))
}
