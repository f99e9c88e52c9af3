package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	tree, err := g.git(ctx, nil, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
	if err != nil {
		return nil, nil, err
	}
	files := rlc.Files{}
	var names []string
	var problems []rlc.Problem
	var ask bytes.Buffer
	for entry := range strings.SplitSeq(string(tree), "\x00") {
		about, name, _ := strings.Cut(entry, "\t")
		f := strings.Fields(about) // mode, type, hash, size
		if len(f) != 4 {
			continue
		}
		if f[0] == "120000" && leads(name) {
			problems = append(problems, rlc.Problem{File: name, Line: 1, Column: 1, Message: "a symlink, which RLC does not follow in the config repository", Hint: "commit the file itself"})
		}
		if !strings.HasPrefix(f[0], "100") {
			continue
		}
		if stem, yml := strings.CutSuffix(name, ".yml"); yml && quotafile.Reads(stem+".yaml") {
			problems = append(problems, rlc.Problem{File: name, Line: 1, Column: 1, Message: "nobody reads this file", Hint: "rename it to " + path.Base(stem) + ".yaml"})
		}
		if !quotafile.Reads(name) {
			continue
		}
		size, err := strconv.Atoi(f[3])
		if err != nil {
			return nil, nil, fmt.Errorf("git ls-tree: %s: %w", name, err)
		}
		if limit := quotafile.SizeLimit(name); size > limit { // the validator refuses it by name
			files[name] = bytes.Repeat([]byte{'#'}, limit+1)
			continue
		}
		names = append(names, name)
		fmt.Fprintln(&ask, f[2])
	}
	if len(names) == 0 {
		return files, problems, nil
	}
	out, err := g.git(ctx, &ask, "cat-file", "--batch")
	if err != nil {
		return nil, nil, err
	}
	return files, problems, blobs(bufio.NewReader(bytes.NewReader(out)), names, files)
}

// leads reports whether a symlink of this name would stand for what is read.
func leads(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return quotafile.Reads(name) || slices.Contains([]string{"services", "profiles", "contracts"}, top)
}

// blobs adds to files what git cat-file --batch answers: "hash type size", the
// bytes and a line's end, for each name in turn.
func blobs(r *bufio.Reader, names []string, files rlc.Files) error {
	for _, name := range names {
		line, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("git cat-file: %s: %w", name, err)
		}
		f := strings.Fields(line)
		if len(f) != 3 {
			return fmt.Errorf("git cat-file: %s: %s", name, strings.TrimSpace(line))
		}
		size, err := strconv.Atoi(f[2])
		if err != nil || size > quotafile.SizeLimit(name) {
			return fmt.Errorf("git cat-file: %s: size %s", name, f[2])
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(r, data); err != nil {
			return fmt.Errorf("git cat-file: %s: %w", name, err)
		}
		if _, err := r.Discard(1); err != nil {
			return fmt.Errorf("git cat-file: %s: %w", name, err)
		}
		files[name] = data
	}
	return nil
}
