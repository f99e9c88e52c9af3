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

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/openrlc/rlc"
)

// packed makes the pack of what moves need on the server.
func (r *Repo) packed(v *view, moves []move) ([]byte, error) {
	there := map[plumbing.Hash]bool{}
	for _, h := range r.bare.all() {
		there[h] = true
	}
	var fresh []plumbing.Hash
	for _, m := range moves {
		if !m.new.IsZero() && m.new != m.old {
			fresh = append(fresh, m.new)
		}
	}
	if fresh == nil {
		return nil, nil
	}
	return v.pack(fresh, func(h plumbing.Hash) bool {
		_, on := r.line.contains(h)
		return on || there[h]
	})
}

// carryFar carries moves out on the server. A move that another had made, or
// that is found made after a push whose answer was lost, counts as done.
func (r *Repo) carryFar(ctx context.Context, moves []move, still func() bool, pack []byte) error {
	moves = slices.DeleteFunc(slices.Clone(moves), func(m move) bool { return m.old == m.new })
	for len(moves) > 0 {
		if !still() {
			return errEnded
		}
		n, err := r.far.push(ctx, moves, pack)
		if errors.Is(err, rlc.ErrConflict) && r.landed(ctx, moves) {
			return nil
		}
		if err != nil {
			return err
		}
		moves = moves[n:]
	}
	return nil
}

// landed reports whether all moves are found done in the mirror.
func (r *Repo) landed(ctx context.Context, moves []move) bool {
	ok := true
	err := r.look(ctx, "", func(*view, tips) error {
		ok = true
		for _, m := range moves {
			now, err := r.bare.read(m.name)
			if err != nil {
				return err
			}
			_, on := r.line.at[m.new]
			ok = ok && (now == m.new || m.name == r.baseRef() && on)
		}
		return nil
	})
	return err == nil && ok
}

// push moves references on the server from the exact hashes that the plan saw:
// all of them at once where the server can do that, else the first only. It
// returns how many it moved. What was sent and not answered for is looked at
// again before anybody is told that it failed.
func (f *remote) push(ctx context.Context, moves []move, pack []byte) (int, error) {
	f.talk.Lock()
	moved, sent := 0, false
	err := f.converse(ctx, pushing, func(c conversation, ar *packp.AdvRefs) error {
		for _, m := range moves {
			if now := ar.References[m.name]; now != m.old {
				return fmt.Errorf("%w: %s is at %s, not at %s", rlc.ErrConflict, m.name, short(now), short(m.old))
			}
		}
		n := 1
		if ar.Capabilities.Supports(capability.Atomic) {
			n = len(moves)
		}
		req := updateRequest(ar.Capabilities, moves[:n])
		var body bytes.Buffer
		if err := req.Encode(&body); err != nil {
			return err
		}
		if slices.ContainsFunc(moves[:n], func(m move) bool { return !m.new.IsZero() }) {
			body.Write(pack)
		}
		sent = true
		answer, err := c.ask(body.Bytes())
		if err == nil {
			err = became(req.Capabilities, answer)
		}
		if err == nil {
			moved = n
		}
		return err
	})
	if err == nil && f.known == nil {
		f.talk.Unlock()
		return moved, nil
	}
	if err == nil {
		now := maps.Clone(f.known)
		for _, m := range moves[:moved] {
			if now[m.name] = m.new; m.new.IsZero() {
				delete(now, m.name)
			}
		}
		err = f.set(now)
		f.talk.Unlock()
		return moved, err
	}
	f.talk.Unlock()
	if !sent || errors.Is(err, rlc.ErrConflict) {
		return 0, fmt.Errorf("push: %w", err)
	}
	return 0, f.outcome(ctx, moves, err)
}

// updateRequest asks to move references, all or none where the server can do that.
func updateRequest(can *capability.List, moves []move) *packp.ReferenceUpdateRequest {
	req := packp.NewReferenceUpdateRequestFromCapabilities(can)
	for _, c := range []capability.Capability{capability.Atomic, capability.Sideband64k} {
		if can.Supports(c) {
			_ = req.Capabilities.Set(c)
		}
	}
	for _, m := range moves {
		req.Commands = append(req.Commands, &packp.Command{Name: plumbing.ReferenceName(m.name), Old: m.old, New: m.new})
	}
	return req
}

// became reads what a server says of a push.
func became(caps *capability.List, answer io.ReadCloser) error {
	said := &bounded{max: hookText}
	report := packp.NewReportStatus()
	err := report.Decode(demux(caps, answer, said))
	if closed := answer.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("the server did not say what became of the push: %w", err)
	}
	return verdictOf(report, said.String())
}

// verdictOf says what a server's report means. Its words are no protocol; who
// won a race is told by looking again, and these words only tell a refusal from
// a lock that was held for a moment.
func verdictOf(report *packp.ReportStatus, said string) error {
	var bad []string
	if report.UnpackStatus != "ok" {
		bad = append(bad, "unpack: "+report.UnpackStatus)
	}
	for _, s := range report.CommandStatuses {
		if s.Status != "ok" && !slices.Contains(bad, s.Status) {
			bad = append(bad, s.Status)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	reason := strings.Join(bad, ", ")
	low := strings.ToLower(reason)
	for _, moved := range []string{"lock", "failed to update ref", "incorrect old value", "already exists", "fetch first", "stale info"} {
		if strings.Contains(low, moved) && !strings.Contains(low, "declined") {
			return fmt.Errorf("%w: %s", rlc.ErrConflict, clip(inert(reason), 300))
		}
	}
	if text := strings.TrimSpace(said); text != "" {
		reason += ": " + text
	}
	return fmt.Errorf("%w: the server refused the push: %s", rlc.ErrRefused, inert(reason))
}

// outcome looks again after a push that went wrong, and says what is true:
// rlc.ErrConflict when a reference is no longer where the plan began, so that
// the caller plans anew and finds what was done; else what went wrong.
func (f *remote) outcome(ctx context.Context, moves []move, failed error) error {
	ctx = context.WithoutCancel(ctx) // the push may have been done after all
	if err := f.follow(ctx); err != nil {
		return fmt.Errorf("push: %w (whether it was done is not known)", failed)
	}
	f.talk.Lock()
	defer f.talk.Unlock()
	for _, m := range moves {
		if f.known[m.name] != m.old {
			f.state.Lock()
			delete(f.pause, pushing) // it was heard, if not answered
			f.state.Unlock()
			return fmt.Errorf("%w: %s moved while it was pushed to: %w", rlc.ErrConflict, m.name, failed)
		}
	}
	return fmt.Errorf("push: %w", failed)
}
