package loop

import (
	"math"
	"slices"
	"time"
)

// node is a client as the aggregator knows it.
type node struct {
	name             string
	from             Origin
	incarnation, seq uint64
	offset           time.Duration // least of arrival − At, aged
	arrived          time.Duration
	paths            map[*zonePath]*nodePath
	order            []*nodePath   // as first reported
	next             int           // where in order the next path of a report is expected
	check            time.Duration // until then none of its paths is to be taken away
	doubts           int           // paths whose claim is not believed
	clippedAt        time.Duration // when a claim was last not believed; 0: never
}

type nodePath struct {
	path    *zonePath
	heard   Path // as the node itself hands it in
	offered [Classes]uint64
	dropped []uint64
	at      time.Duration // of the last report, the node's clock
	seen    time.Duration
	live    bool           // its load counts
	rate    [Classes]int64 // thousandths of requests/s, believed
	drops   []int64
	claim   float64 // requests/s, as said
	believe float64 // requests/s; less than claim where it was clipped
	doubt   int64   // the difference
}

// ahead is how many of a node's paths are tried before they are searched by
// name.
const ahead = 8

// expect finds a path where a node that reports in the same order each time has
// it, nil where it is somewhere else or new.
func (n *node) expect(p Path) *nodePath {
	for i := n.next; i < min(n.next+ahead, len(n.order)); i++ {
		if np := n.order[i]; len(np.heard) == len(p) && &np.heard[0] == &p[0] {
			n.next = i + 1
			return np
		}
	}
	return nil
}

// meet finds or makes a node's path by its name; nil beyond the bound.
func (a *Aggregator) meet(n *node, e *PathReport, at time.Duration) (np *nodePath, first bool) {
	zp := a.path(e.Path)
	if zp == nil {
		a.stats.Refused++
		return nil, false
	}
	np = n.paths[zp]
	if np == nil {
		first = true
		np = &nodePath{path: zp, dropped: make([]uint64, len(e.Path)), drops: make([]int64, len(e.Path)),
			at: at - min(max(e.Since, shortestSpan), longestFirst)}
		zp.known++
		n.paths[zp] = np
		n.order = append(n.order, np)
	}
	np.heard = e.Path
	return np, first
}

// believe is the part of a claim, in requests/s, that one node is believed: at
// most twenty times the mean of the others, but in a fleet below 400 nodes no
// more than 5 % of the whole, and four times the mean in any. A hundredth of the
// limit and ten requests are always believed. Fewer than eight nodes cannot be
// compared.
func (a *Aggregator) believe(n *node, np *nodePath, claim, span float64) float64 {
	others := np.path.live - 1
	if claim*span <= clipRequests {
		return claim
	}
	if others+1 < clipFrom || slices.Contains(a.config.Trusted, n.name) {
		return min(claim, maxClaim)
	}
	whole := int64(0)
	for c := range np.rate {
		whole += np.path.rate[c] - np.rate[c]
	}
	mean := float64(whole) / milliRequests / float64(others)
	if claim <= clipLeast*mean {
		return min(claim, maxClaim)
	}
	fleet, limit := others+1, 0.0
	if g := a.above.given[np.path.path[0]]; g != nil {
		fleet, limit = max(fleet, g.Nodes), g.Limit
	}
	times := min(max(clipShare*float64(fleet), clipLeast), clipMost)
	return min(claim, max(times*mean, clipOfLimit*limit, clipRequests/span), maxClaim)
}

// doubt notes what a node claims and what of it is believed.
func (a *Aggregator) doubt(n *node, np *nodePath, claim, believe float64) {
	if np.believe < np.claim {
		n.doubts--
	}
	np.claim, np.believe = claim, believe
	if believe < claim {
		n.doubts++
		a.doubted[n.name] = struct{}{}
	} else if n.doubts == 0 && len(a.doubted) > 0 {
		delete(a.doubted, n.name)
	}
}

// Doubted lists the nodes for which For changes anything.
func (a *Aggregator) Doubted() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.doubted {
		names = append(names, name)
	}
	return names
}

// Gone removes a node whose stream of that incarnation has closed.
func (a *Aggregator) Gone(name string, incarnation uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[name]; n != nil && n.incarnation == incarnation {
		a.remove(n)
	}
}

func (a *Aggregator) remove(n *node) {
	for _, np := range n.order {
		a.silence(n, np)
		np.path.known--
	}
	a.untake(n)
	delete(a.nodes, n.name)
	a.order = slices.DeleteFunc(a.order, func(o *node) bool { return o == n })
}

// silence takes a path's load away. Its counts stay, for the next report goes on
// from them.
func (a *Aggregator) silence(n *node, np *nodePath) {
	for c := range np.rate {
		np.path.rate[c] -= np.rate[c]
	}
	for i := range np.drops {
		np.path.drops[i] -= np.drops[i]
	}
	clear(np.drops)
	np.setDoubt(0)
	np.rate = [Classes]int64{}
	a.doubt(n, np, 0, 0)
	if np.live {
		np.live = false
		np.path.live--
	}
}

func (np *nodePath) setDoubt(v int64) {
	np.path.doubt += v - np.doubt
	np.doubt = v
}

// sweep takes the load of what is silent away, and what was silent for long.
func (a *Aggregator) sweep(now time.Duration) {
	if now-a.swept < sweepEvery {
		return
	}
	a.swept = now
	a.stats.ClippedNodes = nil
	a.live = 0
	for _, n := range a.order {
		if now-n.arrived <= nodeSilent {
			a.live++
		}
		if n.clippedAt > 0 && now-n.clippedAt <= flagFor && len(a.stats.ClippedNodes) < MaxFlagged {
			a.stats.ClippedNodes = append(a.stats.ClippedNodes, n.name)
		}
		if now > n.check {
			a.sweepPaths(n, now)
		}
		if len(n.order) == 0 && now-n.arrived > forgetAfter {
			a.untake(n)
			delete(a.nodes, n.name)
		}
	}
	a.order = slices.DeleteFunc(a.order, func(n *node) bool { return a.nodes[n.name] != n })
	a.forget(now)
}

// sweepPaths sweeps one node and notes when to look again: a node that reports
// all it has is not looked through on each sweep.
func (a *Aggregator) sweepPaths(n *node, now time.Duration) {
	n.check = math.MaxInt64
	n.order = slices.DeleteFunc(n.order, func(np *nodePath) bool {
		if np.live && now-np.seen > nodeSilent {
			a.silence(n, np)
		}
		if now-np.seen > forgetAfter {
			np.path.known--
			delete(n.paths, np.path)
			return true
		}
		due := np.seen + forgetAfter
		if np.live {
			due = np.seen + nodeSilent
		}
		n.check = min(n.check, due)
		return false
	})
}
