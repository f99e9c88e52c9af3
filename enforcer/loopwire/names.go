package loopwire

import (
	"errors"
	"fmt"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// The bounds of one stream's names.
const (
	maxNames = 250_000
	maxName  = 8 << 10 // bytes
)

// errFull ends a stream whose names have run out; the next one starts anew.
var errFull = errors.New("the stream's names have run out")

// writer numbers names for one direction of a stream.
type writer struct {
	buckets, paths map[string]uint32
	fresh          *pb.Names // since the last message; nil for none
}

func newWriter() *writer {
	return &writer{buckets: map[string]uint32{}, paths: map[string]uint32{}}
}

func (w *writer) news() *pb.Names {
	if w.fresh == nil {
		w.fresh = &pb.Names{FirstBucket: uint32(len(w.buckets)) + 1, FirstPath: uint32(len(w.paths)) + 1}
	}
	return w.fresh
}

// bucket is a bucket's number.
func (w *writer) bucket(name string) uint32 {
	id, ok := w.buckets[name]
	if !ok {
		n := w.news()
		id = uint32(len(w.buckets)) + 1
		w.buckets[name] = id
		n.Buckets = append(n.Buckets, name)
	}
	return id
}

// path is a path's number.
func (w *writer) path(p loop.Path) uint32 {
	key := p.Join()
	id, ok := w.paths[key]
	if !ok {
		n := w.news()
		id = uint32(len(w.paths)) + 1
		n.Paths = append(n.Paths, uint32(len(p)))
		for _, b := range p {
			n.Paths = append(n.Paths, w.bucket(b))
		}
		w.paths[key] = id
	}
	return id
}

// take is the names to send along, nil for none. An error means that the
// stream has to end.
func (w *writer) take() (*pb.Names, error) {
	n := w.fresh
	w.fresh = nil
	if len(w.buckets) > maxNames || len(w.paths) > maxNames {
		return nil, errFull
	}
	return n, nil
}

// reader knows the names of one direction of a stream.
type reader struct {
	buckets  []string          // number n is at n − 1
	numbered map[uint32]string // instead, where the sender gives the numbers
	paths    []loop.Path
}

// learn takes new names. It returns the new paths.
func (r *reader) learn(n *pb.Names) ([]loop.Path, error) {
	if n == nil {
		return nil, nil
	}
	if len(n.Numbers) > 0 {
		return nil, r.learnNumbered(n)
	}
	if len(n.Buckets) > 0 && int(n.FirstBucket) != len(r.buckets)+1 || len(n.Paths) > 0 && int(n.FirstPath) != len(r.paths)+1 {
		return nil, fmt.Errorf("%w: names that do not follow on", rlc.ErrInvalid)
	}
	for _, name := range n.Buckets {
		if len(name) == 0 || len(name) > maxName || len(r.buckets) >= maxNames+loop.MaxPath {
			return nil, fmt.Errorf("%w: a name too many or too long", rlc.ErrInvalid)
		}
		r.buckets = append(r.buckets, name)
	}
	known := len(r.paths)
	for rest := n.Paths; len(rest) > 0; {
		length := int(rest[0])
		if length == 0 || length > loop.MaxPath || length > len(rest)-1 || len(r.paths) > maxNames {
			return nil, fmt.Errorf("%w: a damaged path", rlc.ErrInvalid)
		}
		p := make(loop.Path, length)
		for i, id := range rest[1 : 1+length] {
			name, err := r.bucket(id)
			if err != nil {
				return nil, err
			}
			p[i] = name
		}
		r.paths = append(r.paths, p)
		rest = rest[1+length:]
	}
	return r.paths[known:], nil
}

// learnNumbered takes new names that bring their numbers along, and no paths.
func (r *reader) learnNumbered(n *pb.Names) error {
	if len(n.Numbers) != len(n.Buckets) || len(r.numbered)+len(n.Buckets) > maxNames+loop.MaxPath {
		return fmt.Errorf("%w: names too many or without numbers", rlc.ErrInvalid)
	}
	if r.numbered == nil {
		r.numbered = map[uint32]string{}
	}
	for i, name := range n.Buckets {
		if len(name) == 0 || len(name) > maxName {
			return fmt.Errorf("%w: a name too long", rlc.ErrInvalid)
		}
		r.numbered[n.Numbers[i]] = name
	}
	return nil
}

func (r *reader) bucket(id uint32) (string, error) {
	if name, ok := r.numbered[id]; ok {
		return name, nil
	}
	if id == 0 || int(id) > len(r.buckets) {
		return "", fmt.Errorf("%w: an unknown bucket %d", rlc.ErrInvalid, id)
	}
	return r.buckets[id-1], nil
}

func (r *reader) path(id uint32) (loop.Path, error) {
	if id == 0 || int(id) > len(r.paths) {
		return nil, fmt.Errorf("%w: an unknown path %d", rlc.ErrInvalid, id)
	}
	return r.paths[id-1], nil
}
