package loop

import "time"

// A source is doubted as one node is: by others.broken and others.most, with the
// other sources of a bucket for the other nodes. What is only much is believed, for
// sources differ in size as nodes do not; what is absurd is not.

// limited is the part of the first bucket on a flow's path that has a limit, as far
// as is known; nil for none.
func (f *flow) limited() *part {
	for _, p := range f.chain {
		if g := p.cell.given; !p.cell.none && (g == nil || !g.None) {
			return p
		}
	}
	return nil
}

// believe judges what a source has said of each of its buckets, all paths of a
// bucket together.
func (c *Controller) believe(z *zone, now time.Duration) {
	for _, p := range z.parts {
		p.said = 0
	}
	for _, f := range z.flows {
		if p := f.limited(); p != nil {
			p.said += total(f.said)
		}
	}
	for _, p := range z.parts {
		before := p.trusted
		p.trusted = p.judge()
		if p.trusted < 1 {
			c.clipped++
			z.clippedAt = now
		}
		if before > 0 && moved(before, p.trusted) {
			p.cell.everSent = false // what it is to keep has changed, whatever the others are
		}
	}
	for _, f := range z.flows {
		f.believe()
	}
}

// judge is the part of what was said that is believed, 1 for all of it.
func (p *part) judge() float64 {
	o := others{limit: p.cell.limit}
	for _, q := range p.cell.parts {
		if load := q.said * q.trusted; q != p && load > 0 {
			o.nodes++
			o.load += load
		}
	}
	o.mean = o.load / float64(max(o.nodes-1, 1))
	if o.load+p.said <= clipRoom*o.limit || !o.broken(p.said) {
		return 1
	}
	return min(o.most(p.said)/p.said, 1)
}

// trust is the part of what a flow's source says that is believed.
func (f *flow) trust() float64 {
	if p := f.limited(); p != nil && p.trusted > 0 {
		return p.trusted
	}
	return 1
}

// believe enters the believed part of what was said into what counts. Unused limit
// may go to the rest, for which it weighs as much as one broken claim of a node.
func (f *flow) believe() {
	p, part := f.limited(), f.trust()
	f.doubted = f.saidDoubted
	if part < 1 {
		f.doubted += clipOfLimit * p.cell.limit * total(f.said) / p.said
	}
	for i := range f.said {
		f.offered[i] = f.said[i] * part
	}
	for i := range f.saidDropped {
		f.dropped[i] = f.saidDropped[i] * part
	}
}

// scale is d as a source is to hear it of which not all is believed, as
// Aggregator.For is for a node.
func (p *part) scale(d *Directive) {
	if p.trusted == 0 || p.trusted == 1 || d.None {
		return
	}
	// Of the unused limit its nodes get what their own doubted claims weigh.
	own := clipOfLimit * p.cell.limit
	spare := d.Spare
	if p.doubted > 0 {
		spare = d.Spare * min(own/p.doubted, 1)
	}
	d.Spare -= spare
	for i := range d.Keep {
		d.Keep[i] = min(max(d.Keep[i]*p.trusted+spare/p.said, MinKeep), 1)
	}
}
