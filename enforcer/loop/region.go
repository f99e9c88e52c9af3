package loop

import (
	"slices"
	"time"
)

// upward is a region's controller as its parent knows it: a source. A nil
// upward has no parent.
type upward struct {
	above
	paths  map[string]*upPath
	list   []*upPath
	sums   uint64
	summed time.Duration
}

// upPath is one path's load in the region.
type upPath struct {
	key     string
	path    Path
	flows   []*flow
	counted counted
	telling telling
}

func newUpward() *upward {
	return &upward{above: above{given: map[string]*given{}}, paths: map[string]*upPath{}}
}

// maxGiven bounds the buckets that a region's controller remembers the parent's
// word on.
const maxGiven = 1_000_000

// add makes a source's flow part of what is told.
func (u *upward) add(key string, f *flow) {
	if u == nil {
		return
	}
	p := u.paths[key]
	if p == nil {
		p = &upPath{key: key, path: f.path}
		u.paths[key] = p
		u.list = append(u.list, p)
	}
	p.flows = append(p.flows, f)
}

// count counts what a source's flow has counted.
func (u *upward) count(key string, fresh counted) {
	if u == nil {
		return
	}
	if p := u.paths[key]; p != nil {
		p.counted.requests += fresh.requests
		p.counted.spans += fresh.spans
	}
}

// settle decides who decides each global bucket.
func (u *upward) settle(cells []*cell, now time.Duration) {
	if u == nil {
		return
	}
	for _, k := range cells {
		if k.above {
			u.above.settle(k, now)
		}
	}
}

// forget drops what the parent no longer speaks of.
func (u *upward) forget(now time.Duration) {
	if u == nil || u.silent(now) {
		return
	}
	for bucket, g := range u.given {
		if now-g.at > forgetAfter {
			delete(u.given, bucket)
		}
	}
}

// knows reports whether the parent has said anything of a cell.
func (u *upward) knows(k *cell) bool { return u.given[k.bucket] != nil }

// Apply takes the parent's directives that came at now. The next Tick passes
// them on.
func (c *Controller) Apply(d Directives, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.upward == nil {
		return
	}
	fresh, _ := c.upward.take(d, now, maxGiven)
	for _, v := range fresh {
		if k := c.tier.cells[cellName{bucket: v.Bucket}]; k != nil && k.above {
			c.upward.obey(k)
		}
	}
}

// Up is to be called every ControllerTick, after Tick. It returns what to tell
// the parent, if there is anything. A region that stops says nothing: its zones
// go on using its share.
func (c *Controller) Up(now time.Duration) (s Sum, send bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.upward
	if u == nil || !c.started || !c.surveyed(now) {
		return Sum{}, false
	}
	u.list = slices.DeleteFunc(u.list, func(p *upPath) bool {
		sum, gone := p.sum(c, now)
		if gone {
			delete(u.paths, p.key)
		} else if p.telling.due(total(sum.Offered)+sum.Doubted, now) {
			s.Paths = append(s.Paths, sum)
		}
		return gone
	})
	if len(s.Paths) == 0 && now-u.summed < sumEvery {
		return Sum{}, false
	}
	s.Keeps = c.keeps()
	for _, z := range c.order {
		s.Members += z.members
		s.Flagged = append(s.Flagged, z.flagged[:min(len(z.flagged), MaxFlagged-len(s.Flagged))]...)
	}
	u.summed = now
	u.sums++
	s.Source, s.Epoch, s.Seq = Source{Place: Place{Region: c.config.Region}}, c.config.Epoch, u.sums
	return s, true
}

// sum adds the sources' loads up. A path that no source has any more is gone
// once its zero was told.
func (p *upPath) sum(c *Controller, now time.Duration) (s PathSum, gone bool) {
	s = PathSum{Path: p.path, Dropped: make([]float64, len(p.path)), Counted: p.counted.requests, Spans: p.counted.spans}
	p.flows = slices.DeleteFunc(p.flows, func(f *flow) bool { return f.gone })
	for _, f := range p.flows {
		s.Nodes += f.nodes
		s.Doubted += f.doubted
		for i := range f.offered {
			s.Offered[i] += f.offered[i]
		}
		for i := range f.dropped {
			s.Dropped[i] += f.dropped[i]
		}
	}
	p.telling.see(total(s.Offered), now)
	return s, len(p.flows) == 0 && now-p.telling.zeroAt > zeroSumsFor
}

// keeps is what the region decides by itself, for the buckets that the parent
// asks about: of a bucket that each zone decides, the mean over the load.
func (c *Controller) keeps() (list []BucketKeep) {
	type mean struct{ kept, of Keep }
	means, names := map[string]*mean{}, []string{}
	for _, k := range c.tier.order {
		if k.none || k.above || !c.upward.asked(k.bucket) {
			continue
		}
		m := means[k.bucket]
		if m == nil {
			m = &mean{}
			means[k.bucket] = m
			names = append(names, k.bucket)
		}
		for i := range m.of {
			m.kept[i] += k.keep[i] * k.offered[i]
			m.of[i] += k.offered[i]
		}
	}
	for _, name := range names {
		m, keep := means[name], keepAll
		for i := range keep {
			if m.of[i] > 0 {
				keep[i] = m.kept[i] / m.of[i]
			}
		}
		list = append(list, BucketKeep{name, keep})
	}
	return list
}
