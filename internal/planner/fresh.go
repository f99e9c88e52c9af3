package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

func (j *job) quotasOf(bucket string) int {
	n := 0
	for _, q := range j.current {
		if q.Bucket == bucket {
			n++
		}
	}
	return n
}

// bounded are the changes of keys without a quota. The bucket holds in force
// quotas already; where all would exceed most, the smallest keys get none and
// stay with the bucket's new_key.
func (t *target) bounded(most, inForce int) []rlc.Change {
	slices.SortFunc(t.fresh, func(a, b rlc.Change) int { return -bySize(a, b) })
	room := max(most-inForce, 0)
	for i := range t.fresh {
		c := &t.fresh[i]
		if c.New == nil {
			continue
		}
		if room--; room < 0 {
			hold(c, "quotas_max", fmt.Sprintf("the bucket has its %d generated quotas; this key and %d smaller ones stay with new_key",
				most, t.left+len(t.fresh)-i-1))
		}
	}
	return t.fresh
}

// newest is a heap of the changes of keys without a quota, the smallest first.
type newest []rlc.Change

func (n newest) Len() int           { return len(n) }
func (n newest) Less(a, b int) bool { return bySize(n[a], n[b]) < 0 }
func (n newest) Swap(a, b int)      { n[a], n[b] = n[b], n[a] }
func (n *newest) Push(c any)        { *n = append(*n, c.(rlc.Change)) }
func (n *newest) Pop() any {
	last := len(*n) - 1
	c := (*n)[last]
	*n = (*n)[:last]
	return c
}

// bySize orders changes by the rate they ask for, then by traffic, then by
// their key backwards, so that of two equal ones the first name is larger.
func bySize(a, b rlc.Change) int {
	rate := func(c rlc.Change) rlc.Rate {
		if c.New == nil {
			return -1
		}
		return c.New.Rate
	}
	return cmp.Or(cmp.Compare(rate(a), rate(b)), cmp.Compare(a.Offered, b.Offered), -strings.Compare(a.Key.String(), b.Key.String()))
}
