package gitsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/openrlc/rlc"
)

const (
	// hookTime bounds one run of a hook.
	hookTime = time.Minute
	// hookText bounds what is kept of a hook's output, in bytes.
	hookText = 2 << 10
)

// bare is a bare repository here: the one that the base branch lives in, or the
// mirror of a remote one. Everything above it needs two things of a repository:
// its objects and references as they are now (storage, refs.read), and a
// reference moved from an exact hash to another or not at all (move). A remote
// offers the same two by a fetch into its mirror and a push with the exact
// expected hashes.
type bare struct {
	refs
	objects cache.Object
	packs   []string // names of the packs when store was opened
	store   *filesystem.Storage
}

// localPath returns the path of a repository on this machine: an absolute path
// and nothing else. Anything odd is refused before any library sees it.
func localPath(url string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("%w: repository %q %s; want the absolute path of a bare repository, https://host/path or ssh://user@host/path", rlc.ErrInvalid, shown(url), why)
	}
	switch {
	case url == "":
		return refuse("is empty")
	case strings.ContainsFunc(url, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }):
		return refuse("holds a control character")
	case strings.TrimSpace(url) != url:
		return refuse("begins or ends with a space")
	case strings.HasPrefix(url, "-"):
		return refuse("looks like an option")
	case strings.Contains(url, "://"), strings.Contains(url, "::"), !filepath.IsAbs(url):
		return refuse("is neither an absolute path nor a URL that is allowed")
	case filepath.Clean(url) != strings.TrimSuffix(url, "/"):
		return refuse("is not a clean path")
	}
	return filepath.Clean(url), nil
}

// openBare checks that path is a bare repository that can be worked on.
func openBare(path string) (*bare, error) {
	b := &bare{refs: refs{path: path}, objects: cache.NewObjectLRU(32 * cache.MiByte)}
	for _, part := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(path, part)); err != nil {
			return nil, fmt.Errorf("%w: %s is not a bare repository: it has no %s; create one with git init --bare", rlc.ErrNotFound, path, part)
		}
	}
	if info, err := os.Stat(filepath.Join(path, "shallow")); err == nil && info.Size() > 0 {
		return nil, fmt.Errorf("%w: %s is a shallow clone: versions count all commits; run git fetch --unshallow", rlc.ErrInvalid, path)
	}
	st, err := b.storage()
	if err != nil {
		return nil, err
	}
	if _, err := git.Open(st, nil); err != nil {
		return nil, fmt.Errorf("%w: open %s: %v", rlc.ErrInvalid, path, err)
	}
	return b, nil
}

// storage returns the objects as they are now. go-git reads the list of packs
// once; a person's large push or a git gc changes it, so it is opened anew then.
func (b *bare) storage() (*filesystem.Storage, error) {
	entries, err := os.ReadDir(filepath.Join(b.path, "objects", "pack"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	packs := []string{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".idx") {
			packs = append(packs, e.Name())
		}
	}
	if b.store == nil || !slices.Equal(packs, b.packs) {
		b.forget()
		b.store, b.packs = filesystem.NewStorageWithOptions(osfs.New(b.path), b.objects, filesystem.Options{KeepDescriptors: true}), packs
	}
	return b.store, nil
}

// forget closes the packs; storage opens the objects anew.
func (b *bare) forget() {
	if b.store != nil {
		_ = b.store.Close()
		b.store = nil
	}
}

// keep makes loose objects last before a reference points at them: on the disk,
// and young, so that no git gc prunes one that lay there unused.
func (b *bare) keep(hashes []plumbing.Hash) error {
	now := time.Now()
	for _, h := range hashes {
		name := h.String()
		file := filepath.Join(b.path, "objects", name[:2], name[2:])
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
		if err := os.Chtimes(file, now, now); err != nil {
			return err
		}
		if err := syncDir(filepath.Dir(file)); err != nil {
			return err
		}
	}
	return nil
}

// move sets a reference from old to new or returns rlc.ErrConflict. It runs the
// repository's own pre-receive, update and post-receive hooks as a push would;
// a refusal is rlc.ErrRefused with the hook's text.
func (b *bare) move(ctx context.Context, name string, old, new plumbing.Hash) error {
	stdin := fmt.Sprintf("%s %s %s\n", old, new, name)
	if err := b.hook(ctx, "pre-receive", stdin); err != nil {
		return err
	}
	if err := b.hook(ctx, "update", "", name, old.String(), new.String()); err != nil {
		return err
	}
	if err := b.refs.move(ctx, name, old, new); err != nil {
		return err
	}
	// What post-receive says changes nothing: the reference has moved.
	_ = b.hook(ctx, "post-receive", stdin)
	return nil
}

// hook runs an executable file of the repository's hooks folder, if there is
// one. It is refused when it belongs to neither this process's user nor root:
// git would not trust such a repository either.
func (b *bare) hook(ctx context.Context, name, stdin string, args ...string) error {
	file := filepath.Join(b.path, "hooks", name)
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return nil
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: hook %s of %s belongs to another user", rlc.ErrRefused, name, b.path)
	}
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	out := &bounded{max: hookText}
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Dir = b.path
	cmd.Env = []string{"GIT_DIR=" + b.path, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: hook %s: %s", rlc.ErrRefused, name, cmpText(inert(strings.TrimSpace(out.String())), err.Error()))
	}
	return nil
}

func cmpText(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// bounded keeps the first max bytes written to it and drops the rest.
type bounded struct {
	bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.max - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
