package loop

import (
	"math"
	"time"
)

// tier is the buckets and loads that one aggregator or controller computes
// with. It steps bottom-up, so that an outer bucket sees what the inner ones
// leave in the very same step.
type tier struct {
	cells map[cellName]*cell
	order []*cell // as made; a step must not depend on a map's order
	flows []*flow
	depth int // levels in use
}

type cellName struct {
	bucket string
	area   Place
}

// cell is a bucket in one area.
type cell struct {
	cellName
	limit  float64
	scope  Scope
	none   bool   // no limit
	decide bool   // by law; otherwise keep is given
	above  bool   // by the parent of a region's controller
	below  bool   // by the source
	given  *given // what the tier above said last; nil: nothing
	law    Law
	keep   Keep
	level  int // above those of every bucket inside it
	parts  []*part

	// Of the last step.
	offered  [Classes]float64
	admitted float64
	doubted  float64
	nodes    int
	peak     peak

	// What the owner said last.
	sent     Keep
	sentWord word
	everSent bool
}

// repeatEvery is how often every directive is said again, all together, so
// that a fleet at rest gets one message a second.
const repeatEvery = time.Second

// part is what one source adds to a cell.
type part struct {
	cell     *cell
	of       Place
	share    float64 // of what the cell admits, as was last told
	claim    float64 // of the limit that a silent source was told, what still counts of it; 0: it speaks
	flows    int
	offered  [Classes]float64
	admitted float64
	doubted  float64
	nodes    int  // of the path that most of its nodes carry
	across   int  // of all of its paths, those on several counted several times
	members  *int // all nodes of the source; nil or 0: not known

	// A controller's: what the source claims on the paths whose first limit this is,
	// requests/s, and which part of it is believed, 1 for all; 0: not judged yet.
	said, trusted float64
}

// union bounds the nodes that carry the bucket on any path: as many as there are,
// or as all of its paths have together. Where that is too many, each holds itself to
// less when it is alone, and together they stay within the limit.
func (p *part) union() int {
	if p.members != nil && *p.members > 0 {
		return max(p.nodes, min(p.across, *p.members))
	}
	return p.across
}

// flow is one source's load on one path.
type flow struct {
	path    Path
	chain   []*part
	nodes   int
	offered [Classes]float64
	dropped []float64 // by position on the path
	doubted float64
	counted counted       // as was last told; a controller's
	busy    time.Duration // when it last was offered anything; a controller's
	gone    bool          // no longer part of the tier

	// A controller's: what its source said; above is what of it is believed.
	said        [Classes]float64
	saidDropped []float64
	saidDoubted float64

	through [Classes]float64 // what is left of offered while a step climbs
	next    int
	below   float64 // measured: admitted by the buckets passed so far
}

// maxLevel bounds the levels, in case paths name buckets in opposite orders.
const maxLevel = MaxPath

// cellAt finds or makes a cell. A new one keeps all.
func (t *tier) cellAt(n cellName) *cell {
	c := t.cells[n]
	if c == nil {
		if t.cells == nil {
			t.cells = map[cellName]*cell{}
		}
		c = &cell{cellName: n, keep: keepAll}
		t.cells[n] = c
		t.order = append(t.order, c)
	}
	return c
}

// add puts a flow with a complete chain in.
func (t *tier) add(f *flow) {
	t.flows = append(t.flows, f)
	known := false // a bucket of other flows moves up
	for i, p := range f.chain {
		p.flows++
		if c := p.cell; i > 0 && c.level <= f.chain[i-1].cell.level && f.chain[i-1].cell.level < maxLevel {
			known = known || p.flows > 1 || len(c.parts) > 1
			c.level = f.chain[i-1].cell.level + 1
		}
		t.depth = max(t.depth, p.cell.level+1)
	}
	if known {
		t.lift()
	}
}

// keepFlows drops the flows that keep does not want, and cells without flows.
func (t *tier) keepFlows(keep func(*flow) bool) {
	kept := t.flows[:0]
	for _, f := range t.flows {
		if keep(f) {
			kept = append(kept, f)
			continue
		}
		f.gone = true
		for _, p := range f.chain {
			p.flows--
		}
	}
	clear(t.flows[len(kept):])
	t.flows = kept
	cells := t.order[:0]
	for _, c := range t.order {
		parts := c.parts[:0]
		for _, p := range c.parts {
			if p.flows > 0 {
				parts = append(parts, p)
			}
		}
		clear(c.parts[len(parts):])
		if c.parts = parts; len(parts) == 0 {
			delete(t.cells, c.cellName)
			continue
		}
		cells = append(cells, c)
	}
	clear(t.order[len(cells):])
	t.order = cells
}

// lift raises levels until every bucket stands above those inside it.
func (t *tier) lift() {
	for lifted := true; lifted; {
		lifted = false
		for _, f := range t.flows {
			for i := 1; i < len(f.chain); i++ {
				in, out := f.chain[i-1].cell, f.chain[i].cell
				if out.level <= in.level && in.level < maxLevel {
					out.level = in.level + 1
					lifted = true
				}
			}
		}
	}
	for _, c := range t.order {
		t.depth = max(t.depth, c.level+1)
	}
}

// step computes what every cell is offered, and what those keep that are
// decided here.
func (t *tier) step(now time.Duration) {
	for _, c := range t.order {
		for _, p := range c.parts {
			p.offered, p.admitted, p.doubted, p.nodes, p.across = [Classes]float64{}, 0, 0, 0, 0
		}
	}
	for _, f := range t.flows {
		f.through, f.next, f.below = f.offered, 0, total(f.offered)
	}
	for level := range t.depth {
		for _, f := range t.flows {
			f.climb(level)
		}
		for _, c := range t.order {
			if c.level == level {
				c.step(now)
			}
		}
	}
}

// climb brings the flow to its buckets of a level.
func (f *flow) climb(level int) {
	for f.next < len(f.chain) && f.chain[f.next].cell.level <= level {
		if f.next > 0 {
			k := &f.chain[f.next-1].cell.keep
			for c := range f.through {
				f.through[c] *= k[c]
			}
		}
		p := f.chain[f.next]
		f.below = max(f.below-f.dropped[f.next], 0)
		for c := range f.through {
			p.offered[c] += f.through[c]
		}
		p.admitted += f.below
		if f.doubted > 0 && p == f.limited() {
			p.doubted += f.doubted
		}
		p.nodes = max(p.nodes, f.nodes)
		p.across += f.nodes
		f.next++
	}
}

func (c *cell) step(now time.Duration) {
	c.offered, c.admitted, c.doubted, c.nodes = [Classes]float64{}, 0, 0, 0
	live := Load{Limit: c.limit}
	for _, p := range c.parts {
		for i := range p.offered {
			c.offered[i] += p.offered[i]
		}
		c.admitted += p.admitted
		c.doubted += p.doubted
		c.nodes += p.union()
		if p.claim > 0 {
			live.Limit -= p.claimed(c.limit)
			continue
		}
		for i := range p.offered {
			live.Offered[i] += p.offered[i]
		}
		live.Admitted += p.admitted
	}
	if c.decide {
		c.keep = c.law.Step(now, live)
	}
}

// leastClaim is the part of a silent source's share that stays its own however
// little it last used. What it may use beyond that is a fifth of its share, so
// that the total stays within 1.2 times the limit whatever rises where.
const leastClaim = 0.8

// claimed is the part of a limit that a silent source uses: it holds itself to
// its last share, and its load is taken to be what it was.
func (p *part) claimed(limit float64) float64 {
	most := p.claim * p.share * limit
	return max(min(total(p.offered), most), leastClaim*most)
}

// word is what is said of a cell beside what it keeps.
type word struct {
	hot, none    bool
	limit, spare float64 // requests/s
}

// news is how much of it has not been said.
type news uint8

const (
	nothing news = iota
	slight       // a keep moved by more than 1 %, or no longer hot
	urgent       // by more than chance moves it, or hot
)

// The change of a keep that is urgent, as a part of itself: three deviations of
// one second of the limit, within these bounds. The change of a spare, as a part
// of the limit, is urgent from the lower one on.
const (
	urgentFrom = 0.05
	urgentMost = 0.5
)

// news compares with what was said.
func (c *cell) news(w word) news {
	if !c.everSent || w.hot && !c.sentWord.hot || w.none != c.sentWord.none || math.Abs(w.spare-c.sentWord.spare) > urgentFrom*w.limit {
		return urgent
	}
	n := nothing
	if w.hot != c.sentWord.hot {
		n = slight
	}
	for i := range c.keep {
		switch by := math.Abs(c.keep[i] - c.sent[i]); {
		case by <= 0.01*c.sent[i]:
		case by > min(max(3/math.Sqrt(max(w.limit, 1)), urgentFrom), urgentMost)*c.sent[i]:
			return urgent
		default:
			n = slight
		}
	}
	return n
}

// say notes that what is kept now is said.
func (c *cell) say(w word) { c.sent, c.sentWord, c.everSent = c.keep, w, true }

// due reports whether the cell's keep is to be said to the tier below: there is
// any news, or everything is repeated. It then counts as said.
func (c *cell) due(hot, repeat bool) bool {
	w := word{hot: hot, none: c.none, limit: c.limit}
	for _, p := range c.parts {
		w.spare += c.spare(p)
	}
	if !repeat && c.news(w) == nothing {
		return false
	}
	c.say(w)
	return true
}

// zones is how many zones take part.
func (c *cell) zones() int {
	seen := map[Place]bool{}
	for _, p := range c.parts {
		seen[p.of] = true
	}
	return len(seen)
}

// spare is the part of the unused limit that goes to a part's doubted claims.
func (c *cell) spare(p *part) float64 {
	if c.doubted <= 0 {
		return 0
	}
	return max(0, c.limit-total(c.offered)) * p.doubted / c.doubted
}
