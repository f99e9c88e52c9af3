package gitsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/openrlc/rlc"
)

// follow brings the mirror up to the server, which costs one question and, when
// something moved, one answer with what is new.
func (f *remote) follow(ctx context.Context) error {
	f.talk.Lock()
	defer f.talk.Unlock()
	if f.cfg.ReadOnly {
		lock, err := flock(f.cfg.Dir)
		if errors.Is(err, rlc.ErrConflict) && f.mirrored() {
			return nil // the rlc that holds it keeps it up
		}
		if err != nil {
			return err
		}
		defer lock.Close()
		b, err := f.mirror()
		if err != nil {
			return err
		}
		b.forget()
	}
	err := f.converse(ctx, fetching, func(c conversation, ar *packp.AdvRefs) error {
		if len(ar.Shallows) > 0 {
			return fmt.Errorf("%w: it is a shallow clone: versions count all commits", rlc.ErrInvalid)
		}
		now, heads, err := f.wanted(ar)
		if err != nil {
			return err
		}
		f.heads = heads
		if f.known != nil && maps.Equal(now, f.known) {
			return nil
		}
		if err := f.fetch(c, ar, now); err != nil {
			return err
		}
		return f.set(now)
	})
	if err != nil {
		return fmt.Errorf("look at the config repository: %w", err)
	}
	f.at = f.clock()
	return nil
}

// wanted picks the references that RLC uses from all that a server has.
func (f *remote) wanted(ar *packp.AdvRefs) (now map[string]plumbing.Hash, heads []string, err error) {
	now = map[string]plumbing.Hash{}
	for name, h := range ar.References {
		if head, ok := strings.CutPrefix(name, "refs/heads/"); ok && !strings.HasPrefix(head, "rlc/") && len(heads) < 20 {
			heads = append(heads, head)
		}
		ours := name == "refs/heads/"+f.cfg.Branch || strings.HasPrefix(name, "refs/heads/rlc/") || strings.HasPrefix(name, "refs/rlc/")
		if !ours || h.IsZero() || len(name) > 400 || inert(name) != name || plumbing.ReferenceName(name).Validate() != nil {
			continue
		}
		now[name] = h
	}
	if len(now) > maxMirrored {
		return nil, nil, fmt.Errorf("%w: %d references under refs/rlc and refs/heads/rlc, limit %d", rlc.ErrInvalid, len(now), maxMirrored)
	}
	slices.Sort(heads)
	return now, heads, nil
}

// fetch gets the objects behind references that the mirror lacks.
func (f *remote) fetch(c conversation, ar *packp.AdvRefs, now map[string]plumbing.Hash) error {
	st := filesystem.NewStorage(osfs.New(f.dir), cache.NewObjectLRUDefault())
	defer st.Close()
	req := packp.NewUploadPackRequestFromCapabilities(ar.Capabilities)
	if ar.Capabilities.Supports(capability.NoProgress) {
		_ = req.Capabilities.Set(capability.NoProgress)
	}
	for _, h := range now {
		if st.HasEncodedObject(h) != nil && !slices.Contains(req.Wants, h) {
			req.Wants = append(req.Wants, h)
		}
	}
	if len(req.Wants) == 0 {
		return nil
	}
	req.Haves = f.haves(&view{store: st})
	var body bytes.Buffer
	if err := errors.Join(req.UploadRequest.Encode(&body), req.UploadHaves.Encode(&body, false), pktline.NewEncoder(&body).EncodeString("done\n")); err != nil {
		return err
	}
	answer, err := c.ask(body.Bytes())
	if err != nil {
		return err
	}
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(answer); err != nil {
		return errors.Join(err, answer.Close())
	}
	err = receive(f.dir, demux(req.Capabilities, res, io.Discard), f.cfg.FetchBytes, f.cfg.FetchObjects)
	return errors.Join(err, res.Close())
}

// haves are commits of the mirror that the server is likely to have.
func (f *remote) haves(v *view) []plumbing.Hash {
	var out []plumbing.Hash
	walk := func(h plumbing.Hash, steps int) {
		for ; steps > 0 && len(out) < haves && !h.IsZero(); steps-- {
			c, err := v.commit(h)
			if err != nil {
				return
			}
			out = append(out, h)
			h = plumbing.ZeroHash
			if len(c.ParentHashes) > 0 {
				h = c.ParentHashes[0]
			}
		}
	}
	tips := refs{path: f.dir}.all()
	walk(tips["refs/heads/"+f.cfg.Branch], haves/4) // where a rewrite may have gone back to
	for _, h := range tips {
		walk(h, 1)
	}
	return out
}

// demux takes a stream apart where the server was asked to say more in it.
func demux(caps *capability.List, r io.Reader, progress io.Writer) io.Reader {
	kind := sideband.Sideband64k
	switch {
	case caps.Supports(capability.Sideband64k):
	case caps.Supports(capability.Sideband):
		kind = sideband.Sideband
	default:
		return r
	}
	d := sideband.NewDemuxer(kind, r)
	d.Progress = progress
	return d
}
