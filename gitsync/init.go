package gitsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Init makes path, on this machine, a bare repository whose HEAD is branch, with a first commit of
// the given files by who. Where the branch exists already it changes nothing;
// an Init that was killed goes on.
func Init(ctx context.Context, path, branch string, files rlc.Files, who Person, message string) error {
	dir, err := localPath(path)
	if err != nil {
		return err
	}
	ref := plumbing.NewBranchReferenceName(branch)
	if err := ref.Validate(); err != nil {
		return fmt.Errorf("%w: branch %q", rlc.ErrInvalid, inert(branch))
	}
	for p := range files {
		if !quotafile.Reads(p) {
			return fmt.Errorf("%w: %q is not a file of the config repository", rlc.ErrInvalid, inert(p))
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	st := filesystem.NewStorage(osfs.New(dir), cache.NewObjectLRUDefault())
	if _, err := os.Stat(filepath.Join(dir, "config")); errors.Is(err, fs.ErrNotExist) {
		repo, err := git.InitWithOptions(st, nil, git.InitOptions{DefaultBranch: ref})
		if err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
			return fmt.Errorf("create %s: %w", dir, err)
		}
		if err != nil {
			if repo, err = git.Open(st, nil); err != nil {
				return fmt.Errorf("create %s: %w", dir, err)
			}
		}
		cfg, err := repo.Config()
		if err != nil {
			return err
		}
		cfg.Core.IsBare = true
		if err := repo.SetConfig(cfg); err != nil {
			return err
		}
	}
	b, err := openBare(dir)
	if err != nil {
		return err
	}
	defer b.forget()
	lock, err := flock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := b.recover(); err != nil {
		return err
	}
	if now, err := b.read(ref.String()); err != nil || !now.IsZero() {
		return err
	}
	if st, err = b.storage(); err != nil {
		return err
	}
	v := &view{store: st}
	tree, err := v.write(plumbing.ZeroHash, files)
	if err == nil && tree.IsZero() {
		tree, err = v.putTree(nil)
	}
	if err != nil {
		return err
	}
	p := who.signed()
	sig := object.Signature{Name: p.Name, Email: p.Email, When: time.Now().UTC().Truncate(time.Second)}
	first, err := v.encode(&object.Commit{Author: sig, Committer: sig, Message: personal(message) + "\n", TreeHash: tree})
	if err != nil {
		return err
	}
	if err := b.keep(v.made); err != nil {
		return err
	}
	return b.refs.move(ctx, ref.String(), plumbing.ZeroHash, first)
}
