package gitsync

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/openrlc/rlc"
)

// References are moved by git's own protocol (git's refs/files-backend.c,
// "lockfile"): take <name>.lock by exclusive creation, read the reference,
// compare, rename the lock over it. go-git locks the reference file itself with
// flock and writes it in place; git does not look at that lock, so a person's
// push at the same moment would lose one of the two commits.

const (
	// lockPatience is how long a lock that another process holds is waited for.
	lockPatience = 2 * time.Second
	// spare is the file that becomes a lock by a hard link, so that a lock left
	// behind by a killed process is known as ours: it is the same file.
	spare = "rlc-ref.tmp"
)

// refs reads and moves references of a bare repository with the files backend.
// One process moves at a time: the flock of Open and Repo.writing see to that.
type refs struct {
	path string // the bare repository
}

// read returns what a branch or other reference points to, zero when there is
// none. A symbolic reference is refused: every reference used here is a plain one.
func (r refs) read(name string) (plumbing.Hash, error) {
	data, err := os.ReadFile(filepath.Join(r.path, filepath.FromSlash(name)))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return r.packed(name)
	case err != nil:
		return plumbing.ZeroHash, err
	}
	text := strings.TrimSpace(string(data))
	if !plumbing.IsHash(text) {
		return plumbing.ZeroHash, fmt.Errorf("%w: reference %s holds %q, want a hash", rlc.ErrInvalid, name, clip(inert(text), 80))
	}
	return plumbing.NewHash(text), nil
}

// packed looks a reference up in packed-refs, where git gc puts them.
func (r refs) packed(name string) (plumbing.Hash, error) {
	data, err := os.ReadFile(filepath.Join(r.path, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	for line := range strings.Lines(string(data)) {
		if hash, n, ok := strings.Cut(strings.TrimRight(line, "\n"), " "); ok && n == name && plumbing.IsHash(hash) {
			return plumbing.NewHash(hash), nil
		}
	}
	return plumbing.ZeroHash, nil
}

// all returns the references of packed-refs by name.
func (r refs) all() map[string]plumbing.Hash {
	data, _ := os.ReadFile(filepath.Join(r.path, "packed-refs"))
	out := map[string]plumbing.Hash{}
	for line := range strings.Lines(string(data)) {
		if hash, n, ok := strings.Cut(strings.TrimRight(line, "\n"), " "); ok && plumbing.IsHash(hash) {
			out[n] = plumbing.NewHash(hash)
		}
	}
	return out
}

// under is all references below a prefix that ends in a slash, by name.
func (r refs) under(prefix string) (map[string]plumbing.Hash, error) {
	names := map[string]bool{}
	for name := range r.all() {
		names[name] = strings.HasPrefix(name, prefix)
	}
	loose, err := os.ReadDir(filepath.Join(r.path, filepath.FromSlash(prefix)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range loose {
		if name := prefix + e.Name(); e.Type().IsRegular() && plumbing.ReferenceName(name).Validate() == nil && !strings.HasSuffix(name, ".lock") {
			names[name] = true
		}
	}
	out := map[string]plumbing.Hash{}
	for name, wanted := range names {
		if !wanted {
			continue
		}
		h, err := r.read(name)
		if err != nil {
			return nil, err
		}
		if !h.IsZero() {
			out[name] = h
		}
	}
	return out, nil
}

// branches lists the branches by name, for messages.
func (r refs) branches() []string {
	var names []string
	heads := filepath.Join(r.path, "refs", "heads")
	_ = filepath.WalkDir(heads, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(p, ".lock") {
			if rel, err := filepath.Rel(heads, p); err == nil {
				names = append(names, filepath.ToSlash(rel))
			}
		}
		return nil
	})
	data, _ := os.ReadFile(filepath.Join(r.path, "packed-refs"))
	for line := range strings.Lines(string(data)) {
		if _, n, ok := strings.Cut(strings.TrimSpace(line), " refs/heads/"); ok {
			names = append(names, n)
		}
	}
	return names
}

// move sets name from old to new, durably, or returns rlc.ErrConflict and
// changes nothing. A zero old creates, a zero new deletes.
func (r refs) move(ctx context.Context, name string, old, new plumbing.Hash) error {
	file := filepath.Join(r.path, filepath.FromSlash(name))
	content := []byte(new.String() + "\n")
	unlock, err := r.lock(ctx, "ref", file, content)
	if err != nil {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	defer unlock()
	switch now, err := r.read(name); {
	case err != nil:
		return err
	case now != old:
		return fmt.Errorf("%w: %s is at %s, not at %s", rlc.ErrConflict, name, short(now), short(old))
	}
	if new.IsZero() {
		return r.remove(ctx, name, file)
	}
	if err := os.Rename(file+".lock", file); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return syncDir(filepath.Dir(file))
}

// remove deletes a reference whose lock is held: from packed-refs first, so that
// an old value never shows up behind the deleted one.
func (r refs) remove(ctx context.Context, name, file string) error {
	packedFile := filepath.Join(r.path, "packed-refs")
	if hash, err := r.packed(name); err != nil {
		return err
	} else if !hash.IsZero() {
		unlock, err := r.lock(ctx, "packed", packedFile, nil)
		if err != nil {
			return fmt.Errorf("lock packed-refs: %w", err)
		}
		defer unlock()
		data, err := os.ReadFile(packedFile)
		if err != nil {
			return err
		}
		if err := writeSync(packedFile+".lock", without(data, name)); err != nil {
			return err
		}
		if err := os.Rename(packedFile+".lock", packedFile); err != nil {
			return err
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(file))
}

// without drops a reference, and the line of what its tag peels to, from the
// bytes of a packed-refs file.
func without(data []byte, name string) []byte {
	var out bytes.Buffer
	dropped := false
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		line := s.Text()
		if strings.HasPrefix(line, "^") && dropped {
			continue
		}
		_, n, ok := strings.Cut(line, " ")
		if dropped = ok && n == name && !strings.HasPrefix(line, "#"); !dropped {
			out.WriteString(line)
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// lock takes file.lock with the given content, waiting a little for another
// process. unlock gives it back unless it was renamed away. The spare file, one
// per kind of lock, stays as long as the lock does; it is never written to once
// linked, because after the rename it is the reference itself.
func (r refs) lock(ctx context.Context, kind, file string, content []byte) (unlock func(), err error) {
	tmp := filepath.Join(r.path, spare+"."+kind)
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := writeSync(tmp, content); err != nil {
		return nil, err
	}
	held, err := os.Stat(tmp)
	if err != nil {
		return nil, err
	}
	defer func() {
		if unlock == nil {
			_ = os.Remove(tmp)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		// The folder may go while we look: git removes the ones it emptied.
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return nil, err
		}
		err := os.Link(tmp, file+".lock")
		if err == nil {
			return func() {
				// Renamed away, the lock may be another's by now.
				if now, err := os.Lstat(file + ".lock"); err == nil && os.SameFile(now, held) {
					_ = os.Remove(file + ".lock")
				}
				_ = os.Remove(tmp)
			}, nil
		}
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if wait(ctx, 5*time.Millisecond) != nil {
			return nil, fmt.Errorf("%w: %s is held by another process; remove it when no git runs", rlc.ErrConflict, file+".lock")
		}
	}
}

// recover removes what a killed process of ours left: its spare file and the
// lock that is a hard link to it. Locks of others stay.
func (r refs) recover() error {
	spares, err := filepath.Glob(filepath.Join(globEscape(r.path), spare+".*"))
	if err != nil {
		return err
	}
	for _, tmp := range spares {
		ours, err := os.Stat(tmp)
		if err != nil {
			continue
		}
		unlock := func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, ".lock") {
				return nil
			}
			if info, err := d.Info(); err == nil && os.SameFile(info, ours) {
				return os.Remove(p)
			}
			return nil
		}
		if err := filepath.WalkDir(filepath.Join(r.path, "refs"), unlock); err != nil {
			return err
		}
		if info, err := os.Lstat(filepath.Join(r.path, "packed-refs.lock")); err == nil && os.SameFile(info, ours) {
			if err := os.Remove(filepath.Join(r.path, "packed-refs.lock")); err != nil {
				return err
			}
		}
		if err := os.Remove(tmp); err != nil {
			return err
		}
	}
	return nil
}

// writeSync writes a file and waits until it is on the disk.
func writeSync(file string, content []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes a rename in a folder last. A folder that is gone has nothing to sync.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// wait returns after d, or with ctx's error when that ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// flock takes the exclusive lock on the repository that keeps a second rlc out,
// until the returned file is closed. git does not look at it: people may push.
func flock(path string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(path, "rlc.lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: another rlc uses the repository %s", rlc.ErrConflict, path)
	}
	return locked{f}, nil
}

// locked is a file with a flock. Close unlocks first: a child that is just being
// started holds a copy of the file for a moment, and the lock with it.
type locked struct{ *os.File }

func (l locked) Close() error {
	return errors.Join(syscall.Flock(int(l.Fd()), syscall.LOCK_UN), l.File.Close())
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
