package loop

import "time"

// What clients are told, and when. A change that is no more than chance waits for
// the repetition, so that a fleet that is at its limits hears one message in two
// seconds and not one for each bucket whose load trembles. The law reckons with
// the delay and pays back what a keep is behind by meanwhile.
const (
	// passEvery is how often they hear everything again: a fifth of a directive's
	// life, and a little less, for what comes from the controller comes at whole
	// seconds. aliveEvery is how often they hear anything at all.
	passEvery  = 1900 * time.Millisecond
	aliveEvery = 2500 * time.Millisecond

	hotWait = 250 * time.Millisecond // since the last message, for slight news of a hot bucket
)

// Apply takes the controller's directives that came at now. It returns what to
// pass on to the clients at once; an empty list needs no sending.
func (a *Aggregator) Apply(d Directives, now time.Duration) Directives {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(now)
	fresh, ok := a.above.take(d, now, a.config.MaxPaths)
	if !ok {
		return Directives{}
	}
	most := nothing
	for _, v := range fresh {
		c := a.tier.cells[cellName{v.Bucket, a.config.Place}]
		if c == nil {
			continue
		}
		a.above.obey(c)
		if w, ok := a.word(c, now); ok && !c.decide {
			most = max(most, c.news(w))
		}
	}
	if most < urgent {
		return Directives{}
	}
	return a.stamp(a.pass(false, now))
}

// Tick is to be called every AggregatorTick. It returns what to tell the
// controller and the clients, each if there is anything.
func (a *Aggregator) Tick(now time.Duration) (up Sum, sendUp bool, down Directives, sendDown bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(now)
	a.sweep(now)
	for _, zp := range a.list {
		zp.read(now)
	}
	for _, c := range a.tier.order {
		a.above.settle(c, now)
	}
	a.tier.step(now)

	// A zone that knows nothing stays silent, so that its clients do not take it
	// for a controller without limits.
	if a.above.informed {
		repeat := now-a.passed >= passEvery
		var list []Directive
		if repeat || a.due(now) {
			list = a.pass(repeat, now)
		}
		if len(list) > 0 || now-a.spoke >= aliveEvery {
			a.spoke = now
			down, sendDown = a.stamp(list), true
		}
	}
	up, sendUp = a.sum(now)
	return up, sendUp, down, sendDown
}

// due reports whether there are news that do not wait for the repetition.
func (a *Aggregator) due(now time.Duration) bool {
	since := now - a.spoke
	for _, c := range a.tier.order {
		w, ok := a.word(c, now)
		if !ok {
			continue
		}
		switch n := c.news(w); {
		case n == urgent, n == slight && w.hot && since >= hotWait:
			return true
		}
	}
	return false
}

// pass lists the news, or everything; it then counts as told. That a bucket has
// no limit is told once.
func (a *Aggregator) pass(everything bool, now time.Duration) (list []Directive) {
	for _, c := range a.tier.order {
		w, ok := a.word(c, now)
		if !ok || c.news(w) == nothing && (!everything || w.none) {
			continue
		}
		c.say(w)
		if c.decide {
			list = append(list, a.describe(c, now))
		} else {
			list = append(list, c.given.Directive)
		}
	}
	if everything && len(list) > 0 {
		a.passed = now
	}
	if len(list) > 0 {
		a.spoke = now
	}
	return list
}

// word is what there is to tell of a cell: what is decided here, or what the
// controller said, unless that is too long ago.
func (a *Aggregator) word(c *cell, now time.Duration) (w word, ok bool) {
	switch g := c.given; {
	case c.decide:
		return word{hot: c.law.Hot(now), limit: c.limit, spare: c.spare(c.parts[0])}, true
	case g == nil || now-g.at > closeAfter:
		return word{}, false
	default:
		return word{hot: g.Hot, none: g.None, limit: g.Limit, spare: g.Spare}, true
	}
}

// describe is the directive of a cell that is decided here.
func (a *Aggregator) describe(c *cell, now time.Duration) Directive {
	d := Directive{Bucket: c.bucket, Scope: Zone, Limit: c.limit, Hot: c.law.Hot(now), Keep: c.keep, Nodes: c.nodes, Load: total(c.offered), Spare: c.spare(c.parts[0])}
	if g := a.above.given[c.bucket]; g != nil {
		d.Scope = g.Scope
	}
	return d
}

// inForce lists the directives of these buckets.
func (a *Aggregator) inForce(buckets []string, now time.Duration) (list []Directive) {
	for _, name := range buckets {
		g := a.above.given[name]
		c := a.tier.cells[cellName{name, a.config.Place}]
		switch {
		case g == nil || g.None || c == nil:
		case c.decide:
			list = append(list, a.describe(c, now))
		default:
			list = append(list, g.Directive)
		}
	}
	return list
}

func (a *Aggregator) stamp(list []Directive) Directives {
	a.seq++
	return Directives{Epoch: a.config.Epoch, Seq: a.seq, List: list}
}

// For is d as this node is to hear it. A node whose claim is not believed is
// let through what is believed and what nobody else uses, so that it harms
// itself and not the others, and the limit holds even if it spoke the truth.
// The list is copied where it has to differ.
func (a *Aggregator) For(name string, d Directives) Directives {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.nodes[name]; n != nil {
		return a.scale(n, d)
	}
	return d
}

func (a *Aggregator) scale(n *node, d Directives) Directives {
	copied := false
	for _, np := range n.order {
		limited := np.path.limited()
		if np.believe >= np.claim || limited == nil {
			continue
		}
		for i := range d.List {
			v := &d.List[i]
			if v.Bucket != limited.cell.bucket || v.None {
				continue
			}
			if !copied {
				d.List = append([]Directive(nil), d.List...)
				v, copied = &d.List[i], true
			}
			spare := 0.0
			if all := limited.doubted * milliRequests; all > 0 {
				spare = v.Spare * min(float64(np.doubt)/all, 1)
			}
			for c := range v.Keep {
				v.Keep[c] = min(max((v.Keep[c]*np.believe+spare)/np.claim, MinKeep), 1)
			}
		}
	}
	return d
}

// read brings the integer sums into the flow.
func (zp *zonePath) read(now time.Duration) {
	zp.nodes = zp.live
	for c := range zp.rate {
		zp.offered[c] = float64(zp.rate[c]) / milliRequests
	}
	zp.doubted = float64(zp.doubt) / milliRequests
	for i := range zp.drops {
		zp.dropped[i] = float64(zp.drops[i]) / milliRequests
	}
	zp.telling.see(total(zp.offered), now)
}

// few nodes on a path are those whose reports are told one by one.
const few = 8

// sum is what the controller is told: the paths that moved, and each of the
// others every 250 ms.
func (a *Aggregator) sum(now time.Duration) (s Sum, send bool) {
	if now-a.start < sumQuiet {
		return Sum{}, false
	}
	for _, zp := range a.list {
		// Of few nodes each report is told as it comes: many even out when they are
		// entered somewhat late, two would count as a peak.
		fresh := zp.live <= few && zp.counted != zp.said
		if !zp.telling.due(total(zp.offered)+zp.doubted, now) && !fresh {
			continue
		}
		zp.said = zp.counted
		s.Paths = append(s.Paths, PathSum{Path: zp.path, Nodes: zp.nodes, Offered: zp.offered, Dropped: append([]float64(nil), zp.dropped...), Doubted: zp.doubted,
			Counted: zp.counted.requests, Spans: zp.counted.spans})
	}
	if len(s.Paths) == 0 && now-a.summed < sumEvery {
		return Sum{}, false
	}
	for _, c := range a.tier.order {
		if a.above.asked(c.bucket) {
			s.Keeps = append(s.Keeps, BucketKeep{c.bucket, c.keep})
		}
	}
	a.summed = now
	s.Members, s.Taken, s.Flagged = a.live, a.taking(), a.stats.ClippedNodes
	return a.numbered(s), true
}

func (a *Aggregator) numbered(s Sum) Sum {
	a.sums++
	s.Source, s.Epoch, s.Seq = a.config.Source, a.config.Epoch, a.sums
	return s
}

// Leave is what to tell the controller before a stop on purpose: the zone's
// share is free at once.
func (a *Aggregator) Leave() Sum {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.numbered(Sum{Leaving: true})
}
