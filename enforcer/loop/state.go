package loop

import "time"

// BucketState is one bucket as the controller sees it.
type BucketState struct {
	Bucket   string
	Area     Place // what its scope leaves empty is empty
	Scope    Scope
	Limit    float64 // requests/s; meaningless where None
	None     bool
	Offered  [Classes]float64 // requests/s, after the buckets inside it
	Admitted float64
	Keep     Keep
	Nodes    int
	Zones    int
	Peak     float64 // most requests in one second of the last clock minute that is over
}

// ZoneState is one source as the controller sees it.
type ZoneState struct {
	Source
	Age     time.Duration // since its last sum
	Members int           // nodes that report to it
	Flagged []string      // nodes whose claims were not believed in the last minute
	Doubted bool          // a claim of the source itself was not believed in the last minute
	Left    float64       // part of its last sums that still counts, 1 while it speaks
}

// State lists buckets and zones, in the order they appeared.
func (c *Controller) State(now time.Duration) (buckets []BucketState, zones []ZoneState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.tier.order {
		buckets = append(buckets, BucketState{Bucket: k.bucket, Area: k.area, Scope: k.scope, Limit: k.limit, None: k.none,
			Offered: k.offered, Admitted: k.admitted, Keep: k.keep, Nodes: k.nodes, Zones: k.zones(), Peak: k.peak.last(c.config.Minute + now)})
	}
	for _, z := range c.order {
		zones = append(zones, ZoneState{z.Source, now - z.seen, z.members, z.flagged, z.clippedAt > 0 && now-z.clippedAt <= flagFor, z.left})
	}
	return buckets, zones
}

// Late is how many sums came late, twice or damaged.
func (c *Controller) Late() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}

// Clipped is how many claims of sources were not believed.
func (c *Controller) Clipped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clipped
}
