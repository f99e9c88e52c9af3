package loop

import (
	"slices"
	"strings"
	"time"
)

// Source is who sends sums to a controller: an aggregator, with a name where
// its zone has several, or the controller of a region, whose Zone is "".
type Source struct {
	Place
	Name string
	// Peer is the name that its certificate gives it, "" without one: two sources
	// of one name and two certificates are two, and none speaks for the other.
	Peer string
}

// Known is the name that it is known by in its place: with its certificate's
// before its own, like a node's.
func (s Source) Known() string {
	if s.Peer == "" || s.Name == "" {
		return s.Peer + s.Name
	}
	return s.Peer + "/" + s.Name
}

// Origin is an aggregator in one of its lives, as a node remembers it that has
// gone to another.
type Origin struct {
	Name  string
	Epoch uint64
}

// Taken is how many of the nodes that report to one aggregator reported to
// another of the same zone before. While that other is silent its last sums
// count without them, so that nobody is counted twice.
type Taken struct {
	From  Origin
	Nodes int
}

// maxTaken bounds the origins that one sum names.
const maxTaken = 64

// take notes where a node came from.
func (a *Aggregator) take(n *node) {
	if n.from != (Origin{}) && n.from.Name != a.config.Name && (a.taken[n.from] > 0 || len(a.taken) < maxTaken) {
		a.taken[n.from]++
		return
	}
	n.from = Origin{}
}

// untake forgets it with the node.
func (a *Aggregator) untake(n *node) {
	if n.from == (Origin{}) {
		return
	}
	if a.taken[n.from]--; a.taken[n.from] <= 0 {
		delete(a.taken, n.from)
	}
}

// taking lists what was taken, in one order.
func (a *Aggregator) taking() (list []Taken) {
	for from, n := range a.taken {
		list = append(list, Taken{from, n})
	}
	slices.SortFunc(list, func(x, y Taken) int {
		if d := strings.Compare(x.From.Name, y.From.Name); d != 0 {
			return d
		}
		if x.From.Epoch < y.From.Epoch {
			return -1
		}
		return 1
	})
	return list
}

// hand takes what has gone over to z out of the last sums of the others of its
// zone. One that still speaks says so itself: for it only what came over since
// its last word counts.
func (c *Controller) hand(z *zone, taken []Taken) {
	z.taken = taken
	for _, t := range taken {
		for _, o := range c.order {
			if o == z || o.Place != z.Place || t.From != (Origin{o.Name, o.epoch}) || o.members == 0 {
				continue
			}
			gone := c.takenFrom(o) - o.takenBefore
			o.shrink(1 - min(float64(gone)/float64(o.members), 1))
		}
	}
}

// takenFrom is how many of a source's nodes are with others now.
func (c *Controller) takenFrom(o *zone) (n int) {
	for _, z := range c.order {
		if z == o || z.Place != o.Place {
			continue
		}
		for _, t := range z.taken {
			if t.From == (Origin{o.Name, o.epoch}) {
				n += max(t.Nodes, 0)
			}
		}
	}
	return n
}

// shrink leaves a part of what the source last said; it never grows again
// before the source speaks.
func (z *zone) shrink(left float64) {
	if left >= z.left {
		return
	}
	by := left / z.left
	z.left = left
	for _, f := range z.flows {
		f.scale(by)
	}
}

// scale leaves a part of a flow.
func (f *flow) scale(by float64) {
	f.nodes = int(float64(f.nodes)*by + 0.5)
	f.saidDoubted, f.doubted = f.saidDoubted*by, f.doubted*by
	for c := range f.said {
		f.said[c], f.offered[c] = f.said[c]*by, f.offered[c]*by
	}
	for i := range f.saidDropped {
		f.saidDropped[i], f.dropped[i] = f.saidDropped[i]*by, f.dropped[i]*by
	}
}

// several reports whether a zone has more than one aggregator, so that none of
// them knows all of it.
func (c *Controller) several(at Place) bool {
	n := 0
	for _, z := range c.order {
		if z.Place == at {
			n++
		}
	}
	return n > 1
}

// claims sets what the sources that are silent hold of the limits.
func (c *Controller) claims(now time.Duration) {
	for _, z := range c.order {
		claim := 0.0
		if now-z.seen > closeAfter {
			claim = z.left
		}
		if claim == z.claim {
			continue
		}
		z.claim = claim
		for _, p := range z.parts {
			p.claim = claim
		}
	}
}
