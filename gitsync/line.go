package gitsync

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// maxEpoch bounds the epoch trailer that is believed: a person's commit with an
// absurd one must not lock every later leader out. It is what JSON holds exactly.
const maxEpoch = 1 << 53

// point is one commit of the base branch's first-parent line.
type point struct {
	hash    plumbing.Hash
	tree    plumbing.Hash
	sides   []plumbing.Hash // the other parents of a merge
	time    time.Time       // committer's
	epoch   uint64          // highest RLC-Epoch so far
	ours    bool            // by RLC itself: committer and RLC-Run
	run     string          // of RLC's commit: this one, or the one that this merges
	segment string          // likewise
	actor   string          // RLC-Actor
}

// line is the base branch's first-parent line, oldest first. It is kept between
// acts and grows by what is new, so that no act costs the length of history.
type line struct {
	points []point
	at     map[plumbing.Hash]int // position of each point
	merged map[plumbing.Hash]int // side parent → position of its merge
	// touched holds, by path segment of a service, the ascending positions
	// whose commit changed the service's folder; complete below scanned.
	touched map[string][]int
	scanned int
}

func newLine() *line {
	return &line{at: map[plumbing.Hash]int{}, merged: map[plumbing.Hash]int{}, touched: map[string][]int{}}
}

// tip is the newest point, nil on an empty line.
func (l *line) tip() *point {
	if len(l.points) == 0 {
		return nil
	}
	return &l.points[len(l.points)-1]
}

// contains reports whether a commit is on the line or was merged into it, and at
// which position it became part of it.
func (l *line) contains(h plumbing.Hash) (int, bool) {
	if i, ok := l.at[h]; ok {
		return i, true
	}
	i, ok := l.merged[h]
	return i, ok
}

// follow brings the line to a tip: it appends what is new and drops what a
// rewrite of history took away.
func (l *line) follow(ctx context.Context, v *view, tip plumbing.Hash) error {
	var fresh []point
	keep := 0
	for h := tip; !h.IsZero(); {
		if i, ok := l.at[h]; ok {
			keep = i + 1
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := v.commit(h)
		if err != nil {
			return fmt.Errorf("read the base branch: %w", err)
		}
		p, err := v.point(c)
		if err != nil {
			return err
		}
		fresh = append(fresh, p)
		h = plumbing.ZeroHash
		if len(c.ParentHashes) > 0 {
			h = c.ParentHashes[0]
		}
	}
	l.truncate(keep)
	for _, p := range slices.Backward(fresh) {
		if t := l.tip(); t != nil {
			p.epoch = max(p.epoch, t.epoch)
		}
		l.at[p.hash] = len(l.points)
		for _, s := range p.sides {
			if _, known := l.merged[s]; !known {
				l.merged[s] = len(l.points)
			}
		}
		l.points = append(l.points, p)
	}
	return nil
}

// truncate forgets the positions from n on.
func (l *line) truncate(n int) {
	if n == len(l.points) {
		return
	}
	l.points = l.points[:n]
	for _, m := range []map[plumbing.Hash]int{l.at, l.merged} {
		for h, i := range m {
			if i >= n {
				delete(m, h)
			}
		}
	}
	for s, at := range l.touched {
		l.touched[s] = at[:sort.SearchInts(at, n)]
	}
	l.scanned = min(l.scanned, n)
}

// scan completes touched up to the tip. The first call reads every services
// folder of history once; later ones what is new.
func (l *line) scan(ctx context.Context, v *view) error {
	if l.scanned == len(l.points) {
		return nil
	}
	before := map[string]plumbing.Hash{}
	var last plumbing.Hash
	if l.scanned > 0 {
		var err error
		if last, err = v.subtree(l.points[l.scanned-1].tree, "services"); err != nil {
			return err
		}
		if before, err = v.folders(last); err != nil {
			return err
		}
	}
	for ; l.scanned < len(l.points); l.scanned++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		services, err := v.subtree(l.points[l.scanned].tree, "services")
		if err != nil {
			return err
		}
		if services == last {
			continue
		}
		now, err := v.folders(services)
		if err != nil {
			return err
		}
		for name, h := range now {
			if before[name] != h {
				l.touched[name] = append(l.touched[name], l.scanned)
			}
		}
		for name := range before {
			if _, there := now[name]; !there {
				l.touched[name] = append(l.touched[name], l.scanned)
			}
		}
		last, before = services, now
	}
	return nil
}

// published finds the newest position at which a run's proposal for a service
// was committed or merged; ok is false where there is none.
func (l *line) published(run, segment string) (i int, ok bool) {
	for i := len(l.points) - 1; i >= 0; i-- {
		if p := &l.points[i]; p.run == run && p.segment == segment {
			return i, true
		}
	}
	return 0, false
}

// point reads what the line keeps of a commit. A merge takes the epoch of what
// it merged along.
func (v *view) point(c *object.Commit) (point, error) {
	t := v.who.trailers(c)
	p := point{hash: c.Hash, tree: c.TreeHash, time: c.Committer.When.UTC(), epoch: t.epoch, actor: t.actor}
	if t.ours {
		p.ours, p.run, p.segment = true, t.run, t.segment
	}
	if len(c.ParentHashes) > 1 {
		p.sides = slices.Clone(c.ParentHashes[1:])
		for _, h := range p.sides {
			side, err := v.commit(h)
			if err != nil {
				return point{}, fmt.Errorf("read a merged commit: %w", err)
			}
			t := v.who.trailers(side)
			p.epoch = max(p.epoch, t.epoch)
			if t.ours && !p.ours {
				p.run, p.segment = t.run, t.segment
			}
		}
	}
	return p, nil
}

// trailers are the facts that RLC writes at the end of a commit message.
type trailers struct {
	ours    bool // RLC is the committer and named its run
	run     string
	segment string // "" of a team's commit
	team    string // on whose branch it stands; "" for the service's own
	actor   string
	epoch   uint64            // 0 where there is none
	edited  map[string]string // quota ID → who: values that a person set, carried along
}

// The trailers' names.
const (
	runTrailer     = "RLC-Run"
	epochTrailer   = "RLC-Epoch"
	actorTrailer   = "RLC-Actor"
	serviceTrailer = "RLC-Service" // the service's path segment
	editedTrailer  = "RLC-Edited"  // "quota id" by "who", quoted as in Go
)

// trailers reads a commit's trailers: its last paragraph, when every line of it
// is one, and never its title.
func (who Person) trailers(c *object.Commit) trailers {
	t := trailers{}
	msg := strings.TrimRight(c.Message, "\n")
	cut := strings.LastIndex(msg, "\n\n")
	if cut < 0 {
		return t
	}
	for l := range strings.SplitSeq(msg[cut+2:], "\n") {
		name, value, ok := strings.Cut(l, ": ")
		if !ok || strings.ContainsAny(name, " \t") {
			return trailers{}
		}
		switch name {
		case runTrailer:
			t.run = value
		case serviceTrailer:
			t.segment = value
		case teamTrailer:
			t.team = value
		case actorTrailer:
			t.actor = value
		case epochTrailer:
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && n <= maxEpoch {
				t.epoch = n
			}
		case editedTrailer:
			quoted, _ := strconv.QuotedPrefix(value)
			id, err1 := strconv.Unquote(quoted)
			by, err2 := strconv.Unquote(strings.TrimPrefix(value[len(quoted):], " by "))
			if err1 == nil && err2 == nil {
				if t.edited == nil {
					t.edited = map[string]string{}
				}
				t.edited[id] = by
			}
		}
	}
	t.ours = t.run != "" && c.Committer.Name == who.Name && c.Committer.Email == who.Email
	return t
}
