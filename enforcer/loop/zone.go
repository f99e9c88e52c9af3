package loop

import "time"

// passEvery is how often clients hear again what has not changed: a fifth of a
// directive's life.
const passEvery = 2 * time.Second

// Apply takes the controller's directives that came at now. It returns what to
// pass on to the clients; an empty list needs no sending.
func (a *Aggregator) Apply(d Directives, now time.Duration) Directives {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(now)
	fresh, ok := a.above.take(d, now, a.config.MaxPaths)
	if !ok {
		return Directives{}
	}
	repeat := now-a.passed >= passEvery
	if repeat && len(d.List) > 0 {
		a.passed = now
	}
	var pass []Directive
	for _, v := range fresh {
		c := a.tier.cells[cellName{v.Bucket, a.config.Place}]
		if c == nil {
			continue
		}
		a.above.obey(c)
		if !c.decide && (c.due(v.Hot, repeat) || v.None) {
			pass = append(pass, v)
		}
	}
	if len(pass) == 0 {
		return Directives{}
	}
	return a.stamp(pass, now)
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

	repeat := now-a.repeated >= repeatEvery
	if repeat {
		a.repeated = now
	}
	var list []Directive
	for _, c := range a.tier.order {
		if c.decide && c.due(c.law.Hot(now), repeat) {
			list = append(list, a.describe(c, now))
		}
	}
	// A zone that knows nothing stays silent, so that its clients do not take it
	// for a controller without limits.
	if a.above.informed && (len(list) > 0 || now-a.spoke >= time.Second) {
		down, sendDown = a.stamp(list, now), true
	}
	up, sendUp = a.sum(now)
	return up, sendUp, down, sendDown
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

func (a *Aggregator) stamp(list []Directive, now time.Duration) Directives {
	a.seq++
	a.spoke = now
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
		if np.believe >= np.claim {
			continue
		}
		for i := range d.List {
			v := &d.List[i]
			if v.Bucket != np.path.path[0] || v.None {
				continue
			}
			if !copied {
				d.List = append([]Directive(nil), d.List...)
				v, copied = &d.List[i], true
			}
			spare := 0.0
			if all := a.tier.cells[cellName{v.Bucket, a.config.Place}].parts[0].doubted * milliRequests; all > 0 {
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

// sum is what the controller is told: the paths that moved, and each of the
// others every 250 ms.
func (a *Aggregator) sum(now time.Duration) (s Sum, send bool) {
	if now-a.start < sumQuiet {
		return Sum{}, false
	}
	for _, zp := range a.list {
		if !zp.telling.due(total(zp.offered)+zp.doubted, now) {
			continue
		}
		s.Paths = append(s.Paths, PathSum{Path: zp.path, Nodes: zp.nodes, Offered: zp.offered, Dropped: append([]float64(nil), zp.dropped...), Doubted: zp.doubted})
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
