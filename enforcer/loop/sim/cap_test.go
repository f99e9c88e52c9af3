package sim

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// Each caller comes through a node of its own. When all above is dead, each node
// holds itself to its part of the cap around them: among all nodes that carry the
// cap, not among those that carry one caller.
func TestACapOverCallersThatStickToTheirNodes(t *testing.T) {
	each(t, func(f *figures, seed uint64, _ int) {
		const callers, limit = 20, 4000
		dies := phased(seed)
		c := Config{Seed: seed, Nodes: callers, Limits: map[string]float64{Bucket: limit}, For: dies + 25*time.Second,
			Events: map[time.Duration]func(*Run){dies: func(r *Run) {
				r.KillController()
				for zone := range 3 {
					r.KillZone(zone)
				}
			}}}
		for i := range callers {
			caller := "caller-" + strconv.Itoa(i)
			c.Limits[caller] = 1000
			c.Streams = append(c.Streams, Stream{Rate: Flat(500), Path: []string{caller, Bucket}, Class: 1,
				Node: func(time.Duration, *rand.Rand) int { return i }})
		}
		r := Do(c)
		least, most := r.Seconds(dies-4*time.Second, dies)
		f.add("directed, offered 2.5 times the cap: least second", least, 0.9, inf)
		f.add("directed: largest second", most, 0, 1.1)
		least, most = r.Seconds(dies+12*time.Second, dies+25*time.Second)
		f.add("on local shares: least second", least, 0.8, inf)
		f.add("on local shares: largest second", most, 0, 1.05)
	})
}
