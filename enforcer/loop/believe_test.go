package loop

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// claimant is an aggregator whose other nodes report a rate each, at a limit that
// the controller has told, and a node that claims.
type claimant struct {
	agg *Aggregator
	seq uint64
	now time.Duration
	sum uint64
}

func newClaimant(others []float64, limit float64, trusted ...string) *claimant {
	c := &claimant{agg: NewAggregator(AggregatorConfig{Source: zoneZ, Trusted: trusted}), now: time.Second}
	load := 0.0
	for _, r := range others {
		load += r
	}
	for i, r := range others {
		c.agg.Report(Report{Node: fmt.Sprint("other", i), Incarnation: 1, Seq: 1, At: c.now, Paths: []PathReport{
			{Path: Path{"a"}, Since: time.Second, Offered: normalCount(uint64(r)), Dropped: []uint64{0}}}}, c.now)
	}
	if limit > 0 { // told last, so that none of the others is doubted
		c.agg.Apply(order(1, Directive{Bucket: "a", Limit: limit, Keep: keepAll, Nodes: len(others), Load: load, Share: 1}), c.now)
	}
	return c
}

// claim is what of a node's claim is believed, in requests/s, and whether it is
// flagged.
func (c *claimant) claim(node string, rate float64) (believed float64, flagged bool) {
	before := c.agg.stats.Clipped
	c.seq++
	c.now += time.Second
	c.sum += uint64(rate)
	c.agg.Report(Report{Node: node, Incarnation: 1, Seq: c.seq, At: c.now, Paths: []PathReport{
		{Path: Path{"a"}, Since: time.Second, Offered: normalCount(c.sum), Dropped: []uint64{0}}}}, c.now)
	n := c.agg.nodes[node]
	return n.order[0].believe, c.agg.stats.Clipped > before
}

func equal(n int, rate float64) (list []float64) {
	for range n {
		list = append(list, rate)
	}
	return list
}

func TestWhatOneNodeIsBelieved(t *testing.T) {
	for _, c := range []struct {
		name         string
		others       []float64
		limit, claim float64
		believed     float64
		flagged      bool
	}{
		// 3 % of what the others are offered.
		{"broken, 21 nodes", equal(20, 1000), 20_000, 1e12, 600, true},
		{"broken, 7 nodes", equal(6, 1000), 6000, 1e12, 180, true},
		{"broken, 2 nodes", equal(1, 1000), 1000, 1e12, 30, true},
		{"broken, below the limit", equal(6, 1000), 10_000, 1e12, 180, true},
		// The mean of six but the idlest, 1,200, and 3 % of 7,200.
		{"too much, 7 nodes", equal(6, 1000), 6000, 5000, 1416, true},
		{"as the others, 7 nodes", equal(6, 1000), 6000, 1000, 1000, false},
		{"somewhat more, 7 nodes", equal(6, 1000), 6000, 1415, 1415, false},
		// 1,416 and four deviations of it: 1,566.
		{"more by chance, 7 nodes", equal(6, 1000), 6000, 1560, 1416, false},
		{"within the limit", equal(6, 1000), 20_000, 12_000, 12_000, false},
		{"twenty times, many nodes", equal(1001, 10), 10_010, 10_000, 200.2, true},
		{"a hundredth of the limit", equal(600, 1), 60_000, 59_000, 600, true},
		{"ten requests", equal(6, 0), 1, 9, 9, false},
		{"alone", nil, 100, 5000, 5000, false},
		{"alone, and too much for a cap around", nil, 100, 1e9, 100_000, true},
		{"no limit known", equal(6, 1000), 0, 19_000, 19_000, false},
		{"broken, no limit known", equal(6, 1000), 0, 1e9, 24_000, true},
	} {
		believed, flagged := newClaimant(c.others, c.limit).claim("x", c.claim)
		if math.Abs(believed-c.believed) > 1e-6*c.believed || flagged != c.flagged {
			t.Errorf("%s: believed %v, flagged %v; want %v, %v", c.name, believed, flagged, c.believed, c.flagged)
		}
	}
}

// Whatever one node claims of a bucket at its limit, what is believed of it is
// bounded by the others: of a broken claim 3 % of what they are offered.
func TestOneClaimMovesTheOthersLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		others := rapid.SliceOfN(rapid.Float64Range(100, 10_000), 1, 40).Draw(t, "others")
		load := 0.0
		for i := range others {
			others[i] = math.Floor(others[i])
			load += others[i]
		}
		limit := load * rapid.Float64Range(0.05, 1).Draw(t, "limit")
		claim := math.Floor(load * math.Pow(10, rapid.Float64Range(-1, 9).Draw(t, "claim")))
		c := newClaimant(others, limit)
		mean := load / float64(max(len(others)-1, 1))
		most := mean + 0.03*(load+mean)
		if claim > 20*max(mean, limit) {
			most = 0.03 * load
		}
		for range 3 {
			if believed, _ := c.claim("x", claim); believed > max(0.01*limit, 10, most)+1 {
				t.Fatalf("%v of %v believed beside %v at a limit of %v, want %v at most", believed, claim, others, limit, most)
			}
		}
	})
}

func TestTrustedNodesAreNamedByTheBeginningOfTheirNames(t *testing.T) {
	for node, trusts := range map[string]bool{
		"big": true, "big/4711": true, "bigger/1": false, "big-1": false, "cert/big/1": false, "spiffe://mesh/a/host/1": true, "spiffe://mesh/ab/host/1": false, "x": false,
	} {
		_, flagged := newClaimant(equal(6, 1000), 6000, "big", "spiffe://mesh/a", "").claim(node, 1e6)
		if flagged == trusts {
			t.Errorf("%s is trusted: %v, want %v", node, !flagged, trusts)
		}
	}
}

// In a small fleet a claim that no rule tells from a busy node's takes one part of
// the limit in as many as there are others, a half beside one, and 3 % more. Nothing
// that a node says of itself gains more.
func TestWhatAPlausibleLieTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		others := rapid.SliceOfN(rapid.Float64Range(1000, 10_000), 1, 7).Draw(t, "others")
		load := 0.0
		for i := range others {
			others[i] = math.Floor(others[i])
			load += others[i]
		}
		c := newClaimant(others, load*rapid.Float64Range(0.5, 1).Draw(t, "limit"))
		for range 5 {
			believed, _ := c.claim("x", math.Floor(load*rapid.Float64Range(0, 30).Draw(t, "claim")))
			if took, most := believed/(load+believed), 1/math.Max(float64(len(others)), 2)+0.03; took > most {
				t.Fatalf("a claim takes %.3f of the limit from %d others, want %.3f at most", took, len(others), most)
			}
		}
	})
}
