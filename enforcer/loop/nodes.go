package loop

import (
	"math"
	"slices"
	"strings"
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
	trusted          bool          // its claims are not compared
	doubts           int           // paths whose claim is not believed
	clippedAt        time.Duration // when a claim was last not believed; 0: never

	// Room for paths to come. What one report names lies side by side in memory,
	// in its order: a large fleet does not fit into the processor's caches, and
	// each report is read in that order.
	room []nodePath
	legs []leg
}

type nodePath struct {
	path    *zonePath
	heard   *string // the first bucket of the path as the node itself hands it in
	offered [Classes]uint64
	at      time.Duration // of the last report, the node's clock
	seen    time.Duration
	rate    [Classes]int64 // thousandths of requests/s, believed
	legs    []leg          // by position on the path
	live    bool           // its load counts
	claim   float64        // requests/s, as said
	believe float64        // requests/s; less than claim where it was clipped
	doubt   int64          // what of the unused limit it may have weighs so much
	broken  float64        // that weight where the claim is broken, requests/s; else 0
}

// leg is what a bucket of a path drops.
type leg struct {
	dropped uint64 // as reported
	rate    int64  // thousandths of requests/s, believed
}

// ahead is how many of a node's paths are tried before they are searched by
// name.
const ahead = 8

// expect finds a path where a node that reports in the same order each time has
// it, nil where it is somewhere else or new.
func (n *node) expect(p Path) *nodePath {
	for i := n.next; i < min(n.next+ahead, len(n.order)); i++ {
		if np := n.order[i]; np.heard == &p[0] && len(np.legs) == len(p) {
			n.next = i + 1
			return np
		}
	}
	return nil
}

// trusts reports whether a node is one of Trusted: by its name, or by the
// beginning of it that ends before a slash.
func (a *Aggregator) trusts(node string) bool {
	for _, name := range a.config.Trusted {
		if rest, ok := strings.CutPrefix(node, name); ok && name != "" && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// meet finds or makes the path that a report's list begins with, by its name;
// nil beyond the bound.
func (a *Aggregator) meet(n *node, list []PathReport, at time.Duration) (np *nodePath, first bool) {
	e := &list[0]
	zp := a.path(e.Path)
	if zp == nil {
		a.stats.Refused++
		return nil, false
	}
	np = n.paths[zp]
	if np == nil {
		first = true
		np = n.place(list)
		np.path, np.at = zp, at-min(max(e.Since, shortestSpan), longestFirst)
		zp.known++
		n.paths[zp] = np
		n.order = append(n.order, np)
	}
	np.heard = &e.Path[0]
	return np, first
}

// place makes a path where the rest of the list may follow it.
func (n *node) place(list []PathReport) *nodePath {
	if len(n.room) == 0 {
		n.room = make([]nodePath, len(list))
	}
	legs := len(list[0].Path)
	if len(n.legs) < legs {
		n.legs = make([]leg, max(legs, len(list)))
	}
	np := &n.room[0]
	np.legs = n.legs[:legs:legs]
	n.room, n.legs = n.room[1:], n.legs[legs:]
	return np
}

// believe is the part of a claim, in requests/s, that one node is believed, and
// whether it is flagged: what is not believed is more than chance.
//
// As long as the whole stays below the limit, a claim moves nobody's ratio and is
// believed. Else it is believed up to the mean of the others and 3 % of the whole,
// and never beyond twenty times that mean. A claim that is more than twenty times
// both the mean and the limit is broken, and believed 3 % of what the others are
// offered. A hundredth of the limit and ten requests a report are always believed.
// Who is alone on a path is compared with those on others below the same limit, and
// only what is broken is not believed. See docs/adr/0009.
func (a *Aggregator) believe(n *node, np *nodePath, claim, span float64) (believed float64, flag bool) {
	np.broken = 0
	if claim*span <= clipRequests {
		return claim, false
	}
	if n.trusted {
		return min(claim, maxClaim), claim > maxClaim
	}
	o := np.others()
	if o.load+claim <= clipRoom*o.limit || o.elsewhere && !o.broken(claim) {
		return claim, false
	}
	most := max(o.most(claim), clipRequests/span)
	if claim > most && o.broken(claim) {
		np.broken = clipOfLimit * o.limit
	}
	return min(claim, most), claim > most+clipChance*math.Sqrt(most/span)
}

// others are the nodes that a claim is compared with, and what they are offered.
type others struct {
	nodes      int
	load, mean float64 // requests/s; the mean is that of all but one, which may idle
	limit      float64 // of the path's first bucket that has one; 0: none is known
	elsewhere  bool    // none of them is on the path itself, but on others below that limit
}

// broken reports whether so much can only be a mistake or a lie.
func (o others) broken(claim float64) bool {
	return claim > clipMost*max(o.mean, o.limit)
}

// most is what of such a claim is believed beside the others.
func (o others) most(claim float64) float64 {
	switch all := min(maxClaim, clipMost*o.mean); {
	case o.limit == 0 && o.nodes == 0:
		return maxClaim
	case o.limit == 0: // whatever is said, nothing is dropped
		return all
	case o.nodes == 0:
		// Beyond it even the least that is kept of it would fill the limit: what
		// is around the bucket never sees more of it than that.
		return min(maxClaim, o.limit/MinKeep)
	case o.broken(claim):
		return max(min(all, clipShare*o.load), clipOfLimit*o.limit)
	default:
		return max(min(all, o.mean+clipShare*(o.load+o.mean)), clipOfLimit*o.limit)
	}
}

// others are those of the zone, or of the whole scope of the path's first bucket
// with a limit where the controller tells of more.
func (np *nodePath) others() (o others) {
	zp, own := np.path, int64(0)
	for c := range np.rate {
		o.load += float64(zp.rate[c]-np.rate[c]) / milliRequests
		own += np.rate[c]
	}
	if o.nodes = zp.live - 1; o.nodes > 0 {
		o.mean = o.load / float64(max(o.nodes-1, 1))
	}
	for _, p := range zp.chain {
		switch g := p.cell.given; {
		case g == nil || g.None:
			continue
		case p.cell.decide:
			o.limit = p.cell.limit
		default:
			o.limit = g.Limit
			if g.Nodes-1 > o.nodes {
				rest := max(g.Load-float64(own)/milliRequests, 0)
				o.nodes, o.load = g.Nodes-1, max(o.load, rest)
				o.mean = max(o.mean, rest/float64(max(o.nodes-1, 1)))
			}
		}
		if all := p.union() - 1; o.nodes == 0 && all > 0 {
			o.elsewhere = true
			o.nodes, o.load = all, max(total(p.offered)-float64(own)/milliRequests, 0)
			o.mean = o.load / float64(max(o.nodes-1, 1))
		}
		break
	}
	return o
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
	for i := range np.legs {
		np.path.drops[i] -= np.legs[i].rate
		np.legs[i].rate = 0
	}
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
