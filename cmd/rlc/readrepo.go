package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// readRepository reads a config repository: the files of a checkout, or, of a bare
// repository, those of its base branch. It takes no lock, so that a server may hold
// the repository. A folder without any file of a config repository is refused.
func readRepository(ctx context.Context, dir string) (*quotafile.Config, error) {
	files, err := repositoryFiles(ctx, dir)
	if err != nil {
		return nil, exit{exitInvalid, err}
	}
	if len(files) == 0 {
		return nil, exit{exitInvalid, fmt.Errorf("%s holds no file of a config repository", dir)}
	}
	return quotafile.Parse(files, policies.Builtin().Check), nil
}

func repositoryFiles(ctx context.Context, dir string) (rlc.Files, error) {
	if bare(dir) {
		files, _, err := repository{dir}.files(ctx, "HEAD")
		return files, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return quotafile.ReadCheckout(root)
}

// bare reports whether a folder is a git repository without a checkout.
func bare(dir string) bool {
	for _, part := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, part)); err != nil {
			return false
		}
	}
	return true
}
