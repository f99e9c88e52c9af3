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

// commit is the hash that a name leads to, "" where it leads to none.
func (g repository) commit(ctx context.Context, name string) string {
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

// files are the config repository's files at a commit. Symlinks are left out, as
// RLC leaves them out. A file that nobody reads and somebody surely meant (.yml)
// is a problem.
func (g repository) files(ctx context.Context, commit string) (rlc.Files, []rlc.Problem, error) {
	tree, err := g.git(ctx, nil, "ls-tree", "-r", "-z", "--full-tree", commit)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	var problems []rlc.Problem
	var ask bytes.Buffer
	for entry := range strings.SplitSeq(string(tree), "\x00") {
		about, name, _ := strings.Cut(entry, "\t")
		f := strings.Fields(about) // mode, type, hash
		if len(f) != 3 || !strings.HasPrefix(f[0], "100") {
			continue
		}
		if stem, yml := strings.CutSuffix(name, ".yml"); yml && quotafile.Reads(stem+".yaml") {
			problems = append(problems, rlc.Problem{File: name, Line: 1, Column: 1, Message: "nobody reads this file", Hint: "rename it to " + path.Base(stem) + ".yaml"})
		}
		if quotafile.Reads(name) {
			names = append(names, name)
			fmt.Fprintln(&ask, f[2])
		}
	}
	if len(names) == 0 {
		return rlc.Files{}, problems, nil
	}
	out, err := g.git(ctx, &ask, "cat-file", "--batch")
	if err != nil {
		return nil, nil, err
	}
	files, err := blobs(bufio.NewReader(bytes.NewReader(out)), names)
	return files, problems, err
}

// blobs reads what git cat-file --batch answers: "hash type size", the bytes and
// a line's end, for each name in turn. Of a file beyond its limit one byte more
// is kept, so that the validator refuses it by name.
func blobs(r *bufio.Reader, names []string) (rlc.Files, error) {
	files := rlc.Files{}
	for _, name := range names {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("git cat-file: %s: %w", name, err)
		}
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("git cat-file: %s: %s", name, strings.TrimSpace(line))
		}
		size, err := strconv.Atoi(f[2])
		if err != nil {
			return nil, fmt.Errorf("git cat-file: %s: %w", name, err)
		}
		data := make([]byte, min(size, quotafile.SizeLimit(name)+1))
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, fmt.Errorf("git cat-file: %s: %w", name, err)
		}
		if _, err := r.Discard(size - len(data) + 1); err != nil {
			return nil, fmt.Errorf("git cat-file: %s: %w", name, err)
		}
		files[name] = data
	}
	return files, nil
}
