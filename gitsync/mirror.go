package gitsync

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/openrlc/rlc"
)

// openMirror locks the folder of the mirror, opens it and brings it up to the
// server. A server that is away, or refuses, is no error when there is a mirror
// to go on with: pages must survive a restart with an expired token.
func (r *Repo) openMirror(ctx context.Context) (err error) {
	f := r.far
	if err := os.MkdirAll(f.cfg.Dir, 0o777); err != nil {
		return err
	}
	if !f.cfg.ReadOnly {
		// A reader holds the lock for the time of one fetch.
		within, cancel := context.WithTimeout(ctx, lockPatience)
		defer cancel()
		for r.lock, err = flock(f.cfg.Dir); errors.Is(err, rlc.ErrConflict) && wait(within, 50*time.Millisecond) == nil; {
			r.lock, err = flock(f.cfg.Dir)
		}
		if err != nil {
			r.lock = nil
			return err
		}
		if r.bare, err = f.mirror(); err != nil {
			return err
		}
	}
	away := f.follow(ctx)
	if f.cfg.ReadOnly {
		if r.bare, err = openBare(f.dir); err != nil {
			return cmp.Or(away, err)
		}
	}
	nothing := func(*view, tips) error { return nil }
	if own := (*failure)(nil); errors.As(away, &own) && own.root != rlc.ErrInvalid && r.look(ctx, "", nothing) == nil {
		return nil
	}
	if away != nil {
		return away
	}
	return r.mended(ctx, "", nothing)
}

// lookNow is look at a repository as it is now: the mirror of a remote one is
// brought up to the server first, unless it was less than fresh ago.
func (r *Repo) lookNow(ctx context.Context, fresh time.Duration, segment string, f func(*view, tips) error) error {
	if r.far == nil {
		return r.look(ctx, segment, f)
	}
	if !r.far.young(fresh) {
		if err := r.far.follow(ctx); err != nil {
			return err
		}
	}
	return r.mended(ctx, segment, f)
}

// mended is look, with a mirror that turns out broken made anew.
func (r *Repo) mended(ctx context.Context, segment string, f func(*view, tips) error) error {
	err := r.look(ctx, segment, f)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, known := range []error{rlc.ErrConflict, rlc.ErrFenced, rlc.ErrInvalid, rlc.ErrRefused, rlc.ErrNotFound} {
		if errors.Is(err, known) && !errors.Is(err, plumbing.ErrObjectNotFound) {
			return err
		}
	}
	if whole, mendErr := r.mend(err); whole || mendErr != nil {
		return errors.Join(err, mendErr)
	}
	if err := r.far.follow(ctx); err != nil {
		return err
	}
	return r.look(ctx, segment, f)
}

// mend makes the mirror anew unless it is whole.
func (r *Repo) mend(why error) (whole bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bare.forget()
	if st, err := r.bare.storage(); err == nil {
		v := &view{store: st, who: r.who, log: r.cfg.Log}
		if v.whole(slices.Collect(maps.Values(r.bare.all()))) {
			return true, nil
		}
	}
	r.cfg.Log.Warn("the mirror is broken: it is made anew", "dir", r.far.dir, "error", why)
	b, err := r.far.mend(r.bare)
	if err == nil {
		r.bare = b
	}
	return false, err
}

// young reports whether the server was looked at less than fresh ago.
func (f *remote) young(fresh time.Duration) bool {
	f.talk.Lock()
	defer f.talk.Unlock()
	return f.known != nil && f.clock().Sub(f.at) < fresh
}

// mirror opens the local mirror. One of another URL, or one that cannot be
// opened, is made anew.
func (f *remote) mirror() (*bare, error) {
	mark := filepath.Join(f.dir, "rlc-mirror-of")
	if of, err := os.ReadFile(mark); err == nil && string(of) == f.addr.String() {
		b, err := openBare(f.dir)
		if err == nil {
			return b, b.recover()
		}
		f.cfg.Log.Warn("the mirror cannot be opened: it is made anew", "error", err)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.dir, 0o777); err != nil {
		return nil, err
	}
	if _, err := git.InitWithOptions(filesystem.NewStorage(osfs.New(f.dir), cache.NewObjectLRUDefault()), nil,
		git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName(f.cfg.Branch)}); err != nil {
		return nil, fmt.Errorf("create %s: %w", f.dir, err)
	}
	if err := os.WriteFile(mark, []byte(f.addr.String()), 0o666); err != nil {
		return nil, err
	}
	return openBare(f.dir)
}

// mirrored reports whether there is a mirror of this URL.
func (f *remote) mirrored() bool {
	of, err := os.ReadFile(filepath.Join(f.dir, "rlc-mirror-of"))
	return err == nil && string(of) == f.addr.String()
}

// set makes references the mirror's, all at once.
func (f *remote) set(now map[string]plumbing.Hash) error {
	var b bytes.Buffer
	b.WriteString("# pack-refs with: sorted \n")
	for _, name := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&b, "%s %s\n", now[name], name)
	}
	file := filepath.Join(f.dir, "packed-refs")
	if err := writeSync(file+".new", b.Bytes()); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	f.known = now
	return nil
}

// mend makes a broken mirror anew, once: what is broken twice is no accident.
// The caller holds the repository's mu.
func (f *remote) mend(b *bare) (*bare, error) {
	f.talk.Lock()
	defer f.talk.Unlock()
	if f.mended || f.cfg.ReadOnly {
		return nil, fmt.Errorf("the mirror %s is broken; stop rlc, remove it and start again", f.dir)
	}
	f.mended = true
	b.forget()
	f.known = nil
	if err := os.Remove(filepath.Join(f.dir, "rlc-mirror-of")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f.mirror()
}
