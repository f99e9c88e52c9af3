package loopwire

import (
	"encoding/json"
	"fmt"

	"github.com/openrlc/rlc"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// Kind tells documents apart.
type Kind uint8

// The kinds of document.
const (
	Snapshot  Kind = 1 // an rlc.Snapshot as JSON
	Overrides Kind = 2 // the emergency limits, as the enforcer reads them
)

const kinds = 3

// Document is what every enforcer gets besides directives. A newer version of
// a kind replaces an older one; nothing else changes anything.
type Document struct {
	Kind    Kind
	Version rlc.Version
	Content []byte
}

// Keeper puts documents in force: an enforcer.Enforcer.
type Keeper interface {
	Load(rlc.Snapshot) error
	LoadOverrides(rlc.Version, []byte) error
	Unreadable(error) // a snapshot that is none
}

// Load puts the document in force in k. The error is k's, which has kept what was in
// force before; a kind that is not known is left alone.
func (d Document) Load(k Keeper) error {
	switch d.Kind {
	case Snapshot:
		var s rlc.Snapshot
		if err := json.Unmarshal(d.Content, &s); err != nil {
			err = fmt.Errorf("read snapshot %s from the loop: %w", d.Version, err)
			k.Unreadable(err)
			return err
		}
		return k.Load(s)
	case Overrides:
		return k.LoadOverrides(d.Version, d.Content)
	default:
		return nil
	}
}

const (
	pieceSize   = 256 << 10
	maxDocument = 256 << 20
	maxMessage  = 4 << 20
)

// pieces cuts a document for the wire.
func (d *Document) pieces() (out []*pb.Document) {
	for at := 0; ; at += pieceSize {
		end := min(at+pieceSize, len(d.Content))
		p := &pb.Document{Kind: pb.Document_Kind(d.Kind), Epoch: d.Version.Epoch, Number: d.Version.Number, Piece: d.Content[at:end], Last: end == len(d.Content)}
		out = append(out, p)
		if p.Last {
			return out
		}
	}
}

// assembly puts pieces together again.
type assembly struct{ parts [kinds]*Document }

// add takes a piece. It returns the document that it completes, or nil.
func (a *assembly) add(p *pb.Document) (*Document, error) {
	if p.Kind <= 0 || p.Kind >= kinds {
		return nil, nil // of a later version: not for us
	}
	v := rlc.Version{Epoch: p.Epoch, Number: p.Number}
	d := a.parts[p.Kind]
	if d == nil || d.Version != v {
		d = &Document{Kind: Kind(p.Kind), Version: v}
		a.parts[p.Kind] = d
	}
	if len(d.Content)+len(p.Piece) > maxDocument {
		return nil, fmt.Errorf("%w: a document of more than %d bytes", rlc.ErrInvalid, maxDocument)
	}
	d.Content = append(d.Content, p.Piece...)
	if !p.Last {
		return nil, nil
	}
	a.parts[p.Kind] = nil
	return d, nil
}

// newest holds the newest document of each kind. Its owner's lock guards it.
type newest [kinds]*Document

// merge enters d and reports whether it changed anything.
func (n *newest) merge(d *Document) bool {
	if d.Kind == 0 || d.Kind >= kinds {
		return false
	}
	if old := n[d.Kind]; old != nil && d.Version.Compare(old.Version) <= 0 {
		return false
	}
	n[d.Kind] = d
	return true
}
