package app

import (
	"context"
	"os"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/internal/config"
)

// MakeRepository makes the config repository that a configuration names, with its
// base branch, where it is on this machine and not there yet: for a command that
// writes to it before the server's first start. A remote one is made by those whose
// server it is. The error wraps rlc.ErrConflict while a server holds it.
func MakeRepository(ctx context.Context, s config.Server) error {
	if gitsync.Remote(s.Repository.URL) {
		return nil
	}
	if err := os.MkdirAll(s.Data, 0o700); err != nil { // it may be what holds the repository
		return err
	}
	return makeRepository(ctx, s.Repository, nil, gitsync.Person{})
}

// makeRepository makes a repository on this machine with a first commit of files
// by who; the zero values are RLC's own.
func makeRepository(ctx context.Context, r config.Repository, files rlc.Files, who gitsync.Person) error {
	if files == nil {
		files = rlc.Files{"defaults.yaml": []byte("apiVersion: rlc/v1\nkind: Defaults\nprofile: rlc\n")}
	}
	if who.Name == "" {
		who = gitsync.Person{Name: "rlc", Email: "rlc@localhost"}
	}
	return gitsync.Init(ctx, r.URL, r.Branch, files, who, "First configuration")
}
