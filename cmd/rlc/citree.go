package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// repository is a clone of the config repository, read by git itself.
type repository struct{ dir string }

// git runs a command that only reads. Its error is what git said.
func (g repository) git(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", g.dir, "--no-replace-objects"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	cmd.Stdin = stdin
	out, err := cmd.Output()
	var said *exec.ExitError
	if errors.As(err, &said) {
		if text := strings.TrimSpace(string(said.Stderr)); text != "" {
			err = errors.New(text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return out, nil
}

// commit is the hash that a name leads to, "" where it leads to none. Branches
// go before tags of the same name, and a remote's before those made here: who may
// push a tag does not choose what an edit is compared with.
func (g repository) commit(ctx context.Context, name string) string {
	for _, kind := range []string{"refs/remotes/", "refs/heads/"} {
		if hash := g.resolve(ctx, kind+name); hash != "" {
			return hash
		}
	}
	return g.resolve(ctx, name)
}

func (g repository) resolve(ctx context.Context, name string) string {
	out, err := g.git(ctx, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// between are the commits to compare: the head, and where it left the base.
func (g repository) between(ctx context.Context, base, head string) (from, to string, err error) {
	if to = g.commit(ctx, head); to == "" {
		if _, err := g.git(ctx, nil, "rev-parse", "--git-dir"); err != nil {
			return "", "", err
		}
		return "", "", fmt.Errorf("--head %q is no commit here", head)
	}
	names := []string{"origin/HEAD", "origin/main", "main"}
	if target := cmp.Or(os.Getenv("GITHUB_BASE_REF"), os.Getenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")); target != "" {
		names = []string{"origin/" + target, target}
	}
	if base != "" {
		names = []string{base}
	}
	tip := ""
	for _, name := range names {
		if tip = g.commit(ctx, name); tip != "" {
			break
		}
	}
	if tip == "" {
		return "", "", fmt.Errorf("no base: %s is no commit here; fetch it, or name another with --base", strings.Join(names, ", "))
	}
	out, err := g.git(ctx, nil, "merge-base", tip, to)
	if err != nil {
		return "", "", fmt.Errorf("%s and %s have no common commit here; fetch the whole history (fetch-depth: 0, GIT_DEPTH: 0)", short(tip), short(to))
	}
	return strings.TrimSpace(string(out)), to, nil
}

func short(commit string) string { return commit[:min(12, len(commit))] }

// files are the config repository's files at a commit. What nobody reads and
// somebody surely meant is a problem: a file called .yml, and a symlink, which a
// program that reads a checkout would follow and RLC does not.
func (g repository) files(ctx context.Context, commit string) (rlc.Files, []rlc.Problem, error) {
	all, err := g.entries(ctx, commit)
	if err != nil {
		return nil, nil, err
	}
	files := rlc.Files{}
	var wanted []entry
	var problems []rlc.Problem
	for _, e := range all {
		name := e.path
		if e.mode == "120000" && leads(name) {
			problems = append(problems, rlc.Problem{File: name, Line: 1, Column: 1, Message: "a symlink, which RLC does not follow in the config repository", Hint: "commit the file itself"})
		}
		if !e.plain() {
			continue
		}
		if stem, yml := strings.CutSuffix(name, ".yml"); yml && quotafile.Reads(stem+".yaml") {
			problems = append(problems, rlc.Problem{File: name, Line: 1, Column: 1, Message: "nobody reads this file", Hint: "rename it to " + path.Base(stem) + ".yaml"})
		}
		if !quotafile.Reads(name) {
			continue
		}
		if limit := quotafile.SizeLimit(name); e.size > limit { // the validator refuses it by name
			files[name] = bytes.Repeat([]byte{'#'}, limit+1)
			continue
		}
		wanted = append(wanted, e)
	}
	return files, problems, g.blobs(ctx, wanted, files)
}

// targets reads the rendered files that the policies of a commit name: the bytes
// at a path, fs.ErrNotExist where nothing is there.
func (g repository) targets(ctx context.Context, commit string, c *quotafile.Config) (func(path string) ([]byte, error), error) {
	named := map[string]bool{}
	for _, s := range c.Services {
		for _, t := range s.Targets {
			named[t.Path] = true
		}
	}
	files, odd := rlc.Files{}, map[string]bool{}
	if len(named) > 0 {
		all, err := g.entries(ctx, commit)
		if err != nil {
			return nil, err
		}
		var wanted []entry
		for _, e := range all {
			switch {
			case !named[e.path]:
			case !e.plain() || e.size > mostTarget:
				odd[e.path] = true
			default:
				wanted = append(wanted, e)
			}
		}
		if err := g.blobs(ctx, wanted, files); err != nil {
			return nil, err
		}
	}
	return func(path string) ([]byte, error) {
		data, ok := files[path]
		switch {
		case odd[path]:
			return nil, errNoTarget
		case !ok:
			return nil, fs.ErrNotExist
		}
		return data, nil
	}, nil
}

// entry is one file, symlink or submodule of a commit.
type entry struct {
	mode, hash, path string
	size             int // bytes; 0 of a submodule
}

func (e entry) plain() bool { return strings.HasPrefix(e.mode, "100") }

func (g repository) entries(ctx context.Context, commit string) (out []entry, err error) {
	tree, err := g.git(ctx, nil, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	for line := range strings.SplitSeq(string(tree), "\x00") {
		about, path, _ := strings.Cut(line, "\t")
		f := strings.Fields(about) // mode, type, hash, size
		if len(f) != 4 {
			continue
		}
		e := entry{mode: f[0], hash: f[2], path: path}
		if f[3] != "-" {
			if e.size, err = strconv.Atoi(f[3]); err != nil {
				return nil, fmt.Errorf("git ls-tree: %s: %w", path, err)
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// leads reports whether a symlink of this name would stand for what is read.
func leads(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return quotafile.Reads(name) || slices.Contains([]string{"services", "profiles", "contracts"}, top)
}

// blobs adds to files what entries hold. git cat-file --batch answers "hash type
// size", the bytes and a line's end, for each in turn.
func (g repository) blobs(ctx context.Context, entries []entry, files rlc.Files) error {
	if len(entries) == 0 {
		return nil
	}
	var ask bytes.Buffer
	for _, e := range entries {
		fmt.Fprintln(&ask, e.hash)
	}
	out, err := g.git(ctx, &ask, "cat-file", "--batch")
	if err != nil {
		return err
	}
	r := bufio.NewReader(bytes.NewReader(out))
	for _, e := range entries {
		line, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("git cat-file: %s: %w", e.path, err)
		}
		if f := strings.Fields(line); len(f) != 3 || f[2] != strconv.Itoa(e.size) {
			return fmt.Errorf("git cat-file: %s: %s", e.path, strings.TrimSpace(line))
		}
		data := make([]byte, e.size)
		if _, err := io.ReadFull(r, data); err != nil {
			return fmt.Errorf("git cat-file: %s: %w", e.path, err)
		}
		if _, err := r.Discard(1); err != nil {
			return fmt.Errorf("git cat-file: %s: %w", e.path, err)
		}
		files[e.path] = data
	}
	return nil
}
