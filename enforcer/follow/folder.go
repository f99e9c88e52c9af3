package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/quotafile"
)

const (
	// pollEvery is how often the folder is read.
	pollEvery = time.Second
	// settle is how long a changed folder must stay the same before it is
	// believed: a checkout under way is half a folder.
	settle = 200 * time.Millisecond
	// patience bounds the share of a processor that polling a very large folder
	// takes: it waits this many times as long as reading took.
	patience = 20
)

// folder feeds an enforcer from a checkout of the config repository. Its
// snapshots have epoch 0 and a number that goes up with each changed content;
// the enforcer's last good snapshot keeps it over a restart.
type folder struct {
	dir       string
	removedBy string // who answers for buckets that are gone; "" for nobody
	enforcer  *enforcer.Enforcer
	log       *slog.Logger
	refused   string        // digest that was refused for what it is
	problem   string        // what was logged last
	took      time.Duration // by the last reading
}

func newFolder(dir, removedBy string, e *enforcer.Enforcer, log *slog.Logger) *folder {
	return &folder{dir: dir, removedBy: removedBy, enforcer: e, log: log}
}

// follow reads the folder until ctx ends; it returns nil. A folder that cannot
// be read or is refused leaves what is in force alone.
func (f *folder) follow(ctx context.Context) error {
	for {
		wait := pollEvery
		if !f.poll(ctx) {
			wait = settle
		}
		wait = max(wait, patience*f.took)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// poll reads the folder and loads it if it has changed. It reports false where
// the folder is changing right now.
func (f *folder) poll(ctx context.Context) (steady bool) {
	files, digest, ok := f.read()
	if !ok {
		return true
	}
	switch digest {
	case f.enforcer.Commit():
		f.problem, f.refused = "", ""
		f.enforcer.Confirm()
		return true
	case f.refused:
		return true
	}
	select {
	case <-ctx.Done():
		return true
	case <-time.After(settle):
	}
	if _, again, ok := f.read(); !ok || again != digest {
		return !ok
	}
	err := f.enforcer.Load(rlc.Snapshot{
		Version:   rlc.Version{Number: f.enforcer.Version().Number + 1},
		Commit:    digest,
		Files:     files,
		RemovedBy: f.removedBy,
	})
	f.refused = ""
	if errors.Is(err, rlc.ErrInvalid) || errors.Is(err, rlc.ErrRefused) {
		f.refused = digest // the same content will be refused again
	}
	return true
}

// read reads the folder anew from its root: mounts replace the folder behind
// a link.
func (f *folder) read() (rlc.Files, string, bool) {
	defer func(began time.Time) { f.took = time.Since(began) }(time.Now())
	root, err := os.OpenRoot(f.dir)
	var files rlc.Files
	if err == nil {
		files, err = quotafile.ReadDir(root)
		root.Close()
	}
	if v := f.enforcer.Version(); err == nil && v.Epoch > 0 {
		err = fmt.Errorf("%w: the state folder holds snapshot %s of a control plane, and a folder's are older: give another --state", rlc.ErrRefused, v)
	}
	if err != nil {
		f.enforcer.Unreadable(err)
		if f.problem != err.Error() {
			f.problem = err.Error()
			f.log.Error("config folder cannot be used", "dir", f.dir, "error", err)
		}
		return nil, "", false
	}
	return files, enforcer.ContentHash + enforcer.Digest(files), true
}
