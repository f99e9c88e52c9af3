package gitsync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

// Bounds on what is read from the repository, beside those of quotafile. What is
// larger is refused by name.
const (
	maxCommit   = 16 << 20 // bytes of a commit object: RLC-Edited trailers make it long
	maxTree     = 16 << 20 // bytes of a tree object
	maxFolders  = 50_000   // service folders
	maxNameSize = 255      // bytes of a file name
)

// view is the repository as one act sees it: objects behind references that the
// caller read, and the identity that RLC commits under. It serves one goroutine.
type view struct {
	store *filesystem.Storage
	who   Person
	log   *slog.Logger
	dirs  map[plumbing.Hash]rlc.Files // files of folders read before, by tree; nil: read all
	made  []plumbing.Hash             // objects written by this act
	wide  []wideTree                  // trees of many entries, the newest last: one act asks for the same again and again
}

type wideTree struct {
	hash    plumbing.Hash
	entries []object.TreeEntry
}

// A tree of at least wideEntries is kept, the last wideTrees of them.
const (
	wideEntries = 256
	wideTrees   = 4
)

// load reads an object of a kind, refusing one larger than limit.
func (v *view) load(kind plumbing.ObjectType, h plumbing.Hash, limit int64) (plumbing.EncodedObject, error) {
	size, err := v.store.EncodedObjectSize(h)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", short(h), err)
	}
	if size > limit {
		return nil, fmt.Errorf("%w: %s %s has %d bytes, limit %d", rlc.ErrInvalid, kind, short(h), size, limit)
	}
	o, err := v.store.EncodedObject(kind, h)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", short(h), err)
	}
	return o, nil
}

func (v *view) commit(h plumbing.Hash) (*object.Commit, error) {
	o, err := v.load(plumbing.CommitObject, h, maxCommit)
	if err != nil {
		return nil, err
	}
	c := &object.Commit{}
	if err := c.Decode(o); err != nil {
		return nil, fmt.Errorf("%w: commit %s: %v", rlc.ErrInvalid, short(h), err)
	}
	return c, nil
}

// entries reads a tree, for reading only. The zero hash is an empty one.
func (v *view) entries(h plumbing.Hash) ([]object.TreeEntry, error) {
	if h.IsZero() {
		return nil, nil
	}
	for _, t := range v.wide {
		if t.hash == h {
			return t.entries, nil
		}
	}
	o, err := v.load(plumbing.TreeObject, h, maxTree)
	if err != nil {
		return nil, err
	}
	t := &object.Tree{}
	if err := t.Decode(o); err != nil {
		return nil, fmt.Errorf("%w: tree %s: %v", rlc.ErrInvalid, short(h), err)
	}
	if len(t.Entries) >= wideEntries {
		if len(v.wide) == wideTrees {
			v.wide = slices.Delete(v.wide, 0, 1)
		}
		v.wide = append(v.wide, wideTree{h, t.Entries})
	}
	return t.Entries, nil
}

// blob reads a file's bytes. In place of one over the limit comes a comment just
// longer than the limit, so that the validator, which knows the same limit,
// refuses the file by name, and nothing large is ever inflated.
func (v *view) blob(h plumbing.Hash, limit int) ([]byte, error) {
	size, err := v.store.EncodedObjectSize(h)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", short(h), err)
	}
	if size > int64(limit) {
		return bytes.Repeat([]byte{'#'}, limit+1), nil
	}
	o, err := v.store.EncodedObject(plumbing.BlobObject, h)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", short(h), err)
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	return data, errors.Join(err, r.Close())
}

// find returns the entry at a path below a tree; ok is false where there is none
// or a component on the way is not a folder.
func (v *view) find(root plumbing.Hash, path string) (e object.TreeEntry, ok bool, err error) {
	e = object.TreeEntry{Hash: root, Mode: filemode.Dir}
	for name := range strings.SplitSeq(path, "/") {
		if e.Mode != filemode.Dir {
			return object.TreeEntry{}, false, nil
		}
		all, err := v.entries(e.Hash)
		if err != nil {
			return object.TreeEntry{}, false, err
		}
		i := slices.IndexFunc(all, func(e object.TreeEntry) bool { return e.Name == name })
		if i < 0 {
			return object.TreeEntry{}, false, nil
		}
		e = all[i]
	}
	return e, true, nil
}

// subtree returns the hash of a folder of the root, zero where there is none.
func (v *view) subtree(root plumbing.Hash, name string) (plumbing.Hash, error) {
	e, ok, err := v.find(root, name)
	if err != nil || !ok || e.Mode != filemode.Dir {
		return plumbing.ZeroHash, err
	}
	return e.Hash, nil
}

// folders returns the folders of a tree by name.
func (v *view) folders(tree plumbing.Hash) (map[string]plumbing.Hash, error) {
	all, err := v.entries(tree)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]plumbing.Hash, len(all))
	for _, e := range all {
		if e.Mode == filemode.Dir {
			byName[e.Name] = e.Hash
		}
	}
	return byName, nil
}

// file reads a regular file at a path, nil where there is none. A symlink, a
// submodule or a folder there is not followed: it is as if there were none.
func (v *view) file(root plumbing.Hash, path string) ([]byte, error) {
	e, ok, err := v.find(root, path)
	if err != nil || !ok || !regular(e.Mode) {
		return nil, err
	}
	return v.blob(e.Hash, quotafile.SizeLimit(path))
}

// files reads the files of config.md, 1 below a root tree, of one service only
// where a path segment is given, and remembers the folders it read in place of
// those it knew. Where one of them is a symlink, a submodule or a folder, nothing is
// followed and quotafile.NotPlain stands in its place: a policy that was not read must
// not look like one that was removed.
func (v *view) files(root plumbing.Hash, segment string) (rlc.Files, error) {
	files, seen := rlc.Files{}, map[plumbing.Hash]rlc.Files{}
	top, err := v.entries(root)
	if err != nil {
		return nil, err
	}
	for _, e := range top {
		switch {
		case e.Name == "defaults.yaml" && !regular(e.Mode):
			files[e.Name] = quotafile.NotPlain()
		case e.Name == "defaults.yaml":
			if files[e.Name], err = v.blob(e.Hash, quotafile.MaxFile); err != nil {
				return nil, err
			}
		case (e.Name == "profiles" || e.Name == "contracts") && e.Mode == filemode.Dir:
			if err := v.folder(files, seen, e.Name, e.Hash); err != nil {
				return nil, err
			}
		case e.Name == "services" && e.Mode == filemode.Dir:
			services, err := v.entries(e.Hash)
			if err != nil {
				return nil, err
			}
			if len(services) > maxFolders {
				return nil, fmt.Errorf("%w: %d service folders, limit %d", rlc.ErrInvalid, len(services), maxFolders)
			}
			for _, s := range services {
				path := "services/" + s.Name
				if (s.Mode == filemode.Symlink || s.Mode == filemode.Submodule) && (segment == "" || s.Name == segment) && v.named(e.Name, s) {
					files[path+"/policy.yaml"] = quotafile.NotPlain()
				}
				if s.Mode != filemode.Dir || segment != "" && s.Name != segment || !v.named(e.Name, s) {
					continue
				}
				if err := v.folder(files, seen, path, s.Hash); err != nil {
					return nil, err
				}
			}
		case e.Name == "services":
			return nil, fmt.Errorf("%w: services is a file, a symbolic link or a submodule, and none of them is followed; put the folder itself in its place", rlc.ErrInvalid)
		case e.Name == "profiles" || e.Name == "contracts":
			// What refers to one that is in there is refused by name.
			v.log.Warn("not a folder: ignored", "path", e.Name, "mode", e.Mode.String())
		}
	}
	if v.dirs != nil {
		clear(v.dirs)
		maps.Copy(v.dirs, seen)
	}
	return files, nil
}

// folder adds the known files of one folder.
func (v *view) folder(files rlc.Files, seen map[plumbing.Hash]rlc.Files, dir string, tree plumbing.Hash) error {
	in, ok := v.dirs[tree]
	if !ok {
		all, err := v.entries(tree)
		if err != nil {
			return err
		}
		in = rlc.Files{}
		for _, e := range all {
			path := dir + "/" + e.Name
			if !quotafile.Reads(path) || !v.named(dir, e) {
				continue
			}
			if !regular(e.Mode) {
				in[e.Name] = quotafile.NotPlain()
				continue
			}
			if in[e.Name], err = v.blob(e.Hash, quotafile.SizeLimit(path)); err != nil {
				return err
			}
		}
	}
	seen[tree] = in
	for name, data := range in {
		files[dir+"/"+name] = data
	}
	return nil
}

// named reports whether an entry's name is one that a file can have everywhere;
// a foreign tree may hold any bytes.
func (v *view) named(dir string, e object.TreeEntry) bool {
	switch name := e.Name; {
	case name == ".", name == "..", strings.EqualFold(name, ".git"), len(name) > maxNameSize,
		strings.ContainsAny(name, "/\\"), !utf8.ValidString(name), inert(name) != name:
		v.log.Warn("file name refused: ignored", "dir", dir, "name", clip(inert(name), 80))
		return false
	}
	return true
}

// write returns the root tree with the given files set, nil ones removed. Other
// entries stay as they are, whatever they are. A file goes where a file or
// nothing is: never through or over a symlink, a submodule or a folder.
func (v *view) write(root plumbing.Hash, change rlc.Files) (plumbing.Hash, error) {
	here, below := map[string][]byte{}, map[string]rlc.Files{}
	for path, data := range change {
		if dir, rest, deep := strings.Cut(path, "/"); deep {
			if below[dir] == nil {
				below[dir] = rlc.Files{}
			}
			below[dir][rest] = data
		} else {
			here[path] = data
		}
	}
	all, err := v.entries(root)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	all = slices.Clone(all)
	set := func(name string, want func(filemode.FileMode) bool, make func(old plumbing.Hash) (plumbing.Hash, filemode.FileMode, error)) error {
		i := slices.IndexFunc(all, func(e object.TreeEntry) bool { return e.Name == name })
		e := object.TreeEntry{Name: name}
		if i >= 0 {
			if e = all[i]; !want(e.Mode) {
				return fmt.Errorf("%w: %q in the repository is neither absent nor what is written there (mode %s)", rlc.ErrInvalid, name, e.Mode)
			}
		}
		h, mode, err := make(e.Hash)
		switch {
		case err != nil:
			return err
		case h.IsZero() && i >= 0:
			all = slices.Delete(all, i, i+1)
		case h.IsZero():
		case i >= 0:
			all[i].Hash = h
		default:
			all = append(all, object.TreeEntry{Name: name, Mode: mode, Hash: h})
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(here)) {
		if err := set(name, regular, func(plumbing.Hash) (plumbing.Hash, filemode.FileMode, error) {
			if here[name] == nil {
				return plumbing.ZeroHash, 0, nil
			}
			h, err := v.put(plumbing.BlobObject, here[name])
			return h, filemode.Regular, err
		}); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	isDir := func(m filemode.FileMode) bool { return m == filemode.Dir }
	for _, name := range slices.Sorted(maps.Keys(below)) {
		if err := set(name, isDir, func(old plumbing.Hash) (plumbing.Hash, filemode.FileMode, error) {
			h, err := v.write(old, below[name])
			return h, filemode.Dir, err
		}); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	if len(all) == 0 {
		return plumbing.ZeroHash, nil // an empty folder is no folder
	}
	return v.putTree(all)
}

func (v *view) putTree(all []object.TreeEntry) (plumbing.Hash, error) {
	sort.Sort(object.TreeEntrySorter(all))
	return v.encode(&object.Tree{Entries: all})
}

// put stores a blob.
func (v *view) put(kind plumbing.ObjectType, data []byte) (plumbing.Hash, error) {
	o := v.store.NewEncodedObject()
	o.SetType(kind)
	w, err := o.Writer()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if _, err := w.Write(data); err != nil {
		return plumbing.ZeroHash, err
	}
	if err := w.Close(); err != nil {
		return plumbing.ZeroHash, err
	}
	return v.set(o)
}

// encode stores a tree or a commit.
func (v *view) encode(x interface {
	Encode(plumbing.EncodedObject) error
}) (plumbing.Hash, error) {
	o := v.store.NewEncodedObject()
	if err := x.Encode(o); err != nil {
		return plumbing.ZeroHash, err
	}
	return v.set(o)
}

func (v *view) set(o plumbing.EncodedObject) (plumbing.Hash, error) {
	h, err := v.store.SetEncodedObject(o)
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("write %s: %w", o.Type(), err)
	}
	v.made = append(v.made, h)
	return h, nil
}

func regular(m filemode.FileMode) bool { return m == filemode.Regular || m == filemode.Executable }

// short is a hash as people read it; "nothing" for the zero one.
func short(h plumbing.Hash) string {
	if h.IsZero() {
		return "nothing"
	}
	return h.String()[:12]
}
