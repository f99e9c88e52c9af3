package sim

import (
	"testing"
	"time"
)

// tiers are fleets with more between nodes and the global limit than one
// aggregator a zone.
var tiers = []struct {
	name             string
	perZone, regions int
}{
	{"three aggregators a zone", 3, 0},
	{"two regions", 1, 2},
	{"two regions, two aggregators a zone", 2, 2},
}

func TestStepsSettleThroughMoreTiers(t *testing.T) {
	for _, tier := range tiers {
		t.Run(tier.name, func(t *testing.T) {
			each(t, func(f *figures, seed uint64, nodes int) {
				for _, step := range []struct {
					name string
					rate float64
					t5   float64
				}{{"1.5 times", 36_000, 2.5}, {"15 times", 367_000, 1.5}} {
					c, at := StepTo(seed, nodes, step.rate)
					c.PerZone, c.Regions, c.Zones, c.For = tier.perZone, tier.regions, 4, at+15*time.Second
					r := Do(c)
					f.add(step.name+": settled, s", r.Settled(at).Seconds(), 0, step.t5).tenth = true
					least, most := r.Seconds(at+3*time.Second, at+15*time.Second)
					f.add(step.name+": least second from 3 s on", least, 0.95, inf)
					f.add(step.name+": largest second from 3 s on", most, 0, 1.05)
				}
				c := One(seed, nodes, Limit, Flat(0.95*Limit), 20*time.Second)
				c.PerZone, c.Regions, c.Zones = tier.perZone, tier.regions, 4
				f.add("at 0.95 of the limit, % dropped", 100*Do(c).Dropped(10*time.Second, 20*time.Second), 0, 0.001)
			})
		})
	}
}

// One of a zone's aggregators dies at twice the limit: its nodes go over to
// another, and count once.
func TestNodesGoOverToAnotherAggregator(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		dies := phased(seed) + 3*time.Second
		c := One(seed, nodes, Limit, Flat(2*Limit), dies+15*time.Second)
		c.PerZone = 2
		c.Events = map[time.Duration]func(*Run){dies: func(r *Run) { r.KillZone(2) }}
		r := Do(c)
		least, most := r.Seconds(dies, dies+15*time.Second)
		f.add("least second", least, 0.93, inf)
		f.add("largest second", most, 0, 1.05)
	})
}

// One of a zone's aggregators is cut off with its nodes: it goes on with its
// own part.
func TestOneOfAZonesAggregatorsIsCutOff(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		cut := phased(seed) + 3*time.Second
		heal := cut + 15*time.Second
		c := One(seed, nodes, Limit, Flat(3*Limit), heal+8*time.Second)
		c.PerZone = 2
		c.Events = map[time.Duration]func(*Run){
			cut:  func(r *Run) { r.Cut(0, true) },
			heal: func(r *Run) { r.Cut(0, false) },
		}
		r := Do(c)
		least, most := r.Seconds(cut, heal+8*time.Second)
		f.add("least second", least, 0.93, inf)
		f.add("largest second", most, 0, 1.1)
	})
}

// A limit of each zone holds over the zone's aggregators together, and while
// the nodes of one go over to the other.
func TestAZonesLimitHoldsOverItsAggregators(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		dies := phased(seed) + 5*time.Second
		c := One(seed, nodes, Limit/3, Flat(2*Limit), dies+15*time.Second)
		c.PerZone, c.Zonal = 2, map[string]bool{Bucket: true}
		c.Events = map[time.Duration]func(*Run){dies: func(r *Run) { r.KillZone(2) }}
		r := Do(c)
		least, most := r.Seconds(dies-2*time.Second, dies+15*time.Second)
		f.add("least second, of one zone's limit", least, 3*0.9, inf)
		f.add("largest second, of one zone's limit", most, 0, 3*1.06)
	})
}

func TestTheGlobalControllerDies(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		dies := Before
		step, back := dies+6*time.Second, dies+16*time.Second
		c := One(seed, nodes, Limit, Jump(Base, 5*Limit, step), back+10*time.Second)
		c.Regions, c.Zones = 2, 4
		c.Events = map[time.Duration]func(*Run){dies: (*Run).KillController, back: (*Run).StartController}
		r := Do(c)
		f.add("admitted while dead, from 3 s after the step", Rate(r.Admitted, step+3*time.Second, back)/Limit, 0.95, 1.05)
		least, most := r.Seconds(step+3*time.Second, back+10*time.Second)
		f.add("least second", least, 0.9, inf)
		f.add("largest second", most, 0, 1.1)
	})
}

// A region's controller dies, the load rises meanwhile, and a new one that
// knows nothing takes over: its zones hold the region's share throughout.
func TestARegionsControllerDies(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		dies := Before
		step, back := dies+6*time.Second, dies+16*time.Second
		c := One(seed, nodes, Limit, Jump(1.5*Limit, 5*Limit, step), back+12*time.Second)
		c.Regions, c.Zones = 2, 4
		c.Events = map[time.Duration]func(*Run){
			dies: func(r *Run) { r.KillRegion(0) },
			back: func(r *Run) { r.StartRegion(0) },
		}
		r := Do(c)
		least, most := r.Seconds(step+3*time.Second, back+12*time.Second)
		f.add("least second", least, 0.9, inf)
		f.add("largest second", most, 0, 1.1)
	})
}

// A zone is cut off below its limit, and only then the load rises everywhere.
func TestALoadThatRisesWhileAZoneIsCutOff(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		cut := phased(seed)
		step := cut + 6*time.Second
		for _, before := range []float64{0.3, 0.9, 1.5} {
			c := One(seed, nodes, Limit, Jump(before*Limit, 5*Limit, step), step+12*time.Second)
			c.Events = map[time.Duration]func(*Run){cut: func(r *Run) { r.Cut(0, true) }}
			_, most := Do(c).Seconds(step+3*time.Second, step+12*time.Second)
			f.add("largest second from 3 s on", most, 0, 1.2)
		}
	})
}

func TestARegionIsCutOff(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		cut := phased(seed) + 3*time.Second
		heal := cut + 15*time.Second
		c := One(seed, nodes, Limit, Flat(3*Limit), heal+8*time.Second)
		c.Regions, c.Zones = 2, 4
		c.Events = map[time.Duration]func(*Run){
			cut:  func(r *Run) { r.CutRegion(0, true) },
			heal: func(r *Run) { r.CutRegion(0, false) },
		}
		r := Do(c)
		least, most := r.Seconds(cut, heal+8*time.Second)
		f.add("least second", least, 0.93, inf)
		f.add("largest second", most, 0, 1.2)
	})
}

// A region's own quota inside a global cap: the cap sees what the regions'
// quotas leave, and spares the innocent.
func TestARegionsQuotaInsideAGlobalCap(t *testing.T) {
	each(t, func(f *figures, seed uint64, nodes int) {
		at := phased(seed)
		for _, scope := range []string{"region", "zone"} {
			own := map[string]bool{"greedy": true}
			c := Config{Seed: seed, Nodes: nodes, For: at + 15*time.Second, Regions: 2, Zones: 4,
				Limits: map[string]float64{"greedy": 4000, "calm": 10_000, Bucket: Limit},
				Streams: []Stream{
					{Rate: Jump(6000, 80_000, at), Path: []string{"greedy", Bucket}, Class: 1},
					{Rate: Flat(9000), Path: []string{"calm", Bucket}, Class: 1},
				}}
			if scope == "region" {
				c.Regional = own
			} else {
				c.Zonal, c.Limits["greedy"] = own, 2000
			}
			r := Do(c)
			f.add(scope+": % of the innocent dropped", 100*(1-total(r.Of[1], at, at+15*time.Second)/total(r.Tries[1], at, at+15*time.Second)), 0, 0.5)
			f.add(scope+": greedy gets, of its quotas", Rate(r.Of[0], at+3*time.Second, at+15*time.Second)/8000, 0.95, 1.05)
		}
	})
}
