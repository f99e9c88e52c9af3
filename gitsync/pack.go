package gitsync

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/openrlc/rlc"
)

const (
	// maxObject bounds one object of a fetched pack, in bytes when inflated.
	maxObject = 64 << 20
	// inflation bounds all objects of a pack together, as a multiple of the
	// bytes that a fetch may have.
	inflation = 16
	// looseBelow is how many objects of a fetch become loose ones: a pack for
	// each of years of small fetches would make every look slow.
	looseBelow = 100
)

// receive puts what a server sent into the mirror: limit bytes and most objects
// at most. The pack is written to a file first and looked through, so that
// nothing is inflated that says to be, or turns out, larger than the limits.
func receive(dir string, r io.Reader, limit int64, most int) (err error) {
	tmp, err := os.CreateTemp(dir, "fetch-*.tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name())) }()
	n, err := io.Copy(tmp, io.LimitReader(r, limit+1))
	if err != nil {
		return err
	}
	if n > limit {
		return fmt.Errorf("%w: the pack has more than %d bytes", rlc.ErrInvalid, limit)
	}
	objects, err := survey(tmp, limit*inflation, most)
	if err != nil {
		return err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	st := filesystem.NewStorage(osfs.New(dir), cache.NewObjectLRU(32*cache.MiByte))
	defer st.Close()
	if objects < looseBelow {
		p, err := packfile.NewParserWithStorage(packfile.NewScanner(tmp), struct{ storer.EncodedObjectStorer }{st})
		if err == nil {
			_, err = p.Parse()
		}
		return bad(err)
	}
	return bad(packfile.WritePackfileToObjectStorage(st, tmp))
}

// bad says that a pack is not one.
func bad(err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) || errors.As(err, new(*os.PathError)) {
		return err // of this machine, not of the pack
	}
	return fmt.Errorf("%w: the pack is broken: %w", rlc.ErrInvalid, err)
}

// survey counts the objects of a pack and refuses those that are too many or too
// large. What a pack says of their number bounds what is made of it: an index of
// some 480 bytes of memory an object.
func survey(file io.ReadSeeker, total int64, most int) (uint32, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	s := packfile.NewScanner(file)
	_, objects, err := s.Header()
	if err != nil {
		return 0, bad(err)
	}
	if int64(objects) > int64(most) {
		return 0, fmt.Errorf("%w: the pack has %d objects, limit %d", rlc.ErrInvalid, objects, most)
	}
	for range objects {
		h, err := s.NextObjectHeader()
		if err != nil {
			return 0, bad(err)
		}
		size := h.Length
		var head bounded
		sink := io.Discard
		if h.Type.IsDelta() {
			head.max = 2 * binary.MaxVarintLen64
			sink = &head
		}
		if size <= maxObject {
			if _, _, err := s.NextObject(sink); err != nil {
				return 0, bad(err)
			}
		}
		if h.Type.IsDelta() {
			// A delta begins with the sizes of what it is of and what it makes.
			_, n := binary.Uvarint(head.Bytes())
			if n <= 0 {
				n = head.Len()
			}
			made, _ := binary.Uvarint(head.Bytes()[n:])
			size = max(size, int64(min(made, 1<<62)))
		}
		if size > maxObject {
			return 0, fmt.Errorf("%w: an object of the pack has %d bytes, limit %d", rlc.ErrInvalid, size, int64(maxObject))
		}
		if total -= size; total < 0 {
			return 0, fmt.Errorf("%w: the pack's objects are too large together", rlc.ErrInvalid)
		}
	}
	return objects, nil
}

// pack makes a pack of the commits and of what they hold beyond what the server
// has: known says which commits those are.
func (v *view) pack(commits []plumbing.Hash, known func(plumbing.Hash) bool) ([]byte, error) {
	out := map[plumbing.Hash]bool{}
	var order []plumbing.Hash
	add := func(h plumbing.Hash) bool {
		if h.IsZero() || out[h] {
			return false
		}
		out[h] = true
		order = append(order, h)
		return true
	}
	for queue := commits; len(queue) > 0; queue = queue[1:] {
		h := queue[0]
		if known(h) || !add(h) {
			continue
		}
		c, err := v.commit(h)
		if err != nil {
			return nil, err
		}
		var before plumbing.Hash
		if len(c.ParentHashes) > 0 {
			parent, err := v.commit(c.ParentHashes[0])
			if err != nil {
				return nil, err
			}
			before = parent.TreeHash
		}
		if err := v.beyond(before, c.TreeHash, add); err != nil {
			return nil, err
		}
		queue = append(queue[:1:1], append(queue[1:], c.ParentHashes...)...)
	}
	var b bytes.Buffer
	if _, err := packfile.NewEncoder(&b, v.store, false).Encode(order, 0); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return b.Bytes(), nil
}

// beyond adds a tree and what it holds that the tree before it does not.
func (v *view) beyond(before, tree plumbing.Hash, add func(plumbing.Hash) bool) error {
	if tree == before || !add(tree) {
		return nil
	}
	was := map[string]object.TreeEntry{}
	old, err := v.entries(before)
	if err != nil {
		return err
	}
	for _, e := range old {
		was[e.Name] = e
	}
	now, err := v.entries(tree)
	if err != nil {
		return err
	}
	for _, e := range now {
		o := was[e.Name]
		switch {
		case o.Hash == e.Hash || e.Mode == filemode.Submodule:
		case e.Mode == filemode.Dir:
			if o.Mode != filemode.Dir {
				o.Hash = plumbing.ZeroHash
			}
			if err := v.beyond(o.Hash, e.Hash, add); err != nil {
				return err
			}
		default:
			add(e.Hash)
		}
	}
	return nil
}

// whole reports whether every object behind the given commits is there and can
// be read. It reads the whole repository.
func (v *view) whole(commits []plumbing.Hash) bool {
	seen := map[plumbing.Hash]bool{}
	var tree func(h plumbing.Hash) bool
	tree = func(h plumbing.Hash) bool {
		if seen[h] {
			return true
		}
		seen[h] = true
		all, err := v.entries(h)
		if err != nil {
			return false
		}
		for _, e := range all {
			switch {
			case e.Mode == filemode.Submodule || seen[e.Hash]:
			case e.Mode == filemode.Dir:
				if !tree(e.Hash) {
					return false
				}
			default:
				seen[e.Hash] = true
				if _, err := v.blob(e.Hash, maxObject); err != nil {
					return false
				}
			}
		}
		return true
	}
	for queue := commits; len(queue) > 0; {
		h := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if h.IsZero() || seen[h] {
			continue
		}
		seen[h] = true
		c, err := v.commit(h)
		if err != nil || !tree(c.TreeHash) {
			return false
		}
		queue = append(queue, c.ParentHashes...)
	}
	return true
}
