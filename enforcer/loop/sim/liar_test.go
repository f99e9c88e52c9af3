package sim

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// A node that claims absurd numbers is flagged in the smallest fleets, too, and
// moves what the others keep by 5 % at most, below the limit and above it.
func TestALiarInASmallFleet(t *testing.T) {
	each(t, func(f *figures, seed uint64, _ int) {
		for _, fleet := range []struct{ nodes, zones int }{{21, 3}, {10, 1}, {4, 3}, {2, 1}} {
			name := strconv.Itoa(fleet.nodes) + " nodes in " + strconv.Itoa(fleet.zones) + " zones: "
			others := func(load, claim float64) (kept float64, clipped uint64) {
				const limit = 8000
				c := One(seed, fleet.nodes, limit, Flat(load*limit), 20*time.Second)
				c.Zones, c.Liar = fleet.zones, claim
				c.Streams[0].Node = func(_ time.Duration, r *rand.Rand) int { return 1 + r.IntN(fleet.nodes-1) }
				c.Streams = append(c.Streams, Stream{Rate: Flat(15), Node: First(1), Class: 1})
				c.Events = map[time.Duration]func(*Run){19 * time.Second: func(r *Run) { clipped = r.Clipped(0) }}
				r := Do(c)
				return total(r.Of[0], 8*time.Second, 20*time.Second) / total(r.Tries[0], 8*time.Second, 20*time.Second), clipped
			}
			kept, clipped := others(0.9, 1e15)
			f.add(name+"% dropped of the others at 0.9", 100*(1-kept), 0, 0.05)
			f.add(name+"claims flagged", float64(clipped), 1, inf)
			honest, _ := others(2, 0)
			kept, _ = others(2, 1e6)
			f.add(name+"the others keep at twice the limit, of what they kept", kept/honest, 0.95, 1.01)
		}
	})
}
