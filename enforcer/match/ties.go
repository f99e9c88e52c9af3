package match

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/openrlc/rlc"
)

// ties reports the quota buckets that are as specific as an earlier one and
// share a request with it, one problem per later bucket.
//
// Only buckets with the same patterns but for the contents of their lists can
// tie, so buckets are grouped by that first. Within a group two buckets tie
// when their lists intersect at every attribute: computed with one bit set per
// bucket and attribute, at a cost of patterns × group / 64.
func (m *Matcher) ties() []rlc.Problem {
	groups := map[string][]int{}
	var order []string
	for i := range m.buckets {
		b := &m.buckets[i]
		if b.cap {
			continue
		}
		s := b.shape()
		if groups[s] == nil {
			order = append(order, s)
		}
		groups[s] = append(groups[s], i)
	}
	var problems []rlc.Problem
	for _, s := range order {
		if group := groups[s]; len(group) > 1 {
			problems = append(problems, m.tiesWithin(group)...)
		}
	}
	return problems
}

// shape renders everything of b's patterns but the contents of lists.
func (b *bucket) shape() string {
	var s strings.Builder
	for i := range b.tests {
		t := &b.tests[i]
		s.WriteString(strconv.Itoa(t.attr))
		s.WriteByte(':')
		s.WriteString(strconv.Itoa(int(t.kind)))
		s.WriteString(strconv.Quote(t.value))
	}
	return s.String()
}

func (m *Matcher) tiesWithin(group []int) []rlc.Problem {
	words := (len(group) + 63) / 64
	shared := make([][]uint64, len(group)) // per bucket: those that meet it at every attribute so far
	for g := range shared {
		shared[g] = make([]uint64, words)
		for w := range shared[g] {
			shared[g][w] = ^uint64(0)
		}
	}
	for at, t := range m.buckets[group[0]].tests {
		if t.kind != rlc.List {
			continue // the same for the whole group
		}
		holders := map[string][]uint64{} // value to the buckets that list it
		for g, i := range group {
			for v := range m.buckets[i].tests[at].set {
				if holders[v] == nil {
					holders[v] = make([]uint64, words)
				}
				holders[v][g/64] |= 1 << (g % 64)
			}
		}
		for g, i := range group {
			meets := make([]uint64, words)
			for v := range m.buckets[i].tests[at].set {
				for w, bits := range holders[v] {
					meets[w] |= bits
				}
			}
			for w := range meets {
				shared[g][w] &= meets[w]
			}
		}
	}

	var problems []rlc.Problem
	for g, i := range group {
		for h := range group[:g] {
			if shared[g][h/64]&(1<<(h%64)) == 0 {
				continue
			}
			later, earlier := &m.buckets[i], &m.buckets[group[h]]
			problems = append(problems, *problem(later,
				fmt.Sprintf("bucket %q ties with bucket %q (line %d): both match the same requests with the same specificity", later.name, earlier.name, earlier.line),
				"make one match more specific, or give one role: cap"))
			break
		}
	}
	return problems
}
