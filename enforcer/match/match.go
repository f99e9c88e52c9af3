// Package match finds the buckets of a request or of a metric's label set. It
// is the one matcher: the enforcer charges by it, and history is partitioned
// by it, so that a quota is computed from exactly the traffic it will limit.
//
// Buckets are compared attribute by attribute, in the order caller, procedure,
// then by name: an exact value before a list, a list before a prefix, a longer
// prefix before a shorter, any prefix before "*", and "*" before an attribute
// that is not mentioned. The first attribute that differs decides. A request
// is charged to the most specific quota bucket that matches, and to every cap
// that does. An attribute without a value, or with one that the profile lists
// as unknown, is absent: only the word absent and a bucket that does not
// mention the attribute match it.
package match

import (
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// Matcher is a service's buckets, compiled. It is immutable and safe for use
// by many goroutines.
type Matcher struct {
	buckets []bucket
	attrs   []string   // every attribute that a bucket mentions, in matching order
	unknown [][]string // per attribute: values that count as absent
	quotas  index      // ranks are specificity, most specific first
	caps    index      // ranks are file order
}

// Hit is a bucket that a request is charged to.
type Hit struct {
	Bucket int     // index in the service's Buckets
	Key    rlc.Key // the values that Each counts by; nil for a bucket without Each
	ID     string  // rlc.QuotaID of the bucket's name and Key
}

// Result is where a request belongs.
type Result struct {
	Quota Hit   // Quota.Bucket is -1 where no quota bucket matches
	Caps  []Hit // every cap that matches, in file order; nil for none
}

// Compile prepares a service's buckets, or says why they cannot be told apart:
// two quota buckets of the same specificity that a single request could match.
// Problems carry the line of the later bucket and no file. The matcher is nil
// when there are problems.
func Compile(s *rlc.Service) (*Matcher, []rlc.Problem) {
	m := &Matcher{attrs: attributes(s)}
	for _, name := range m.attrs {
		m.unknown = append(m.unknown, slices.Clone(s.Unknown[name]))
	}
	var problems []rlc.Problem
	for i := range s.Buckets {
		b, problem := m.compile(&s.Buckets[i])
		if problem != nil {
			problems = append(problems, *problem)
		}
		m.buckets = append(m.buckets, b)
	}
	if len(problems) == 0 {
		problems = m.ties()
	}
	if len(problems) > 0 {
		return nil, problems
	}

	var quotas, caps []int
	for i := range m.buckets {
		if m.buckets[i].cap {
			caps = append(caps, i)
		} else {
			quotas = append(quotas, i)
		}
	}
	slices.SortStableFunc(quotas, func(a, b int) int { return m.compare(&m.buckets[a], &m.buckets[b]) })
	m.quotas = m.index(quotas)
	m.caps = m.index(caps)
	return m, nil
}

// Match finds the buckets of a request, or of a label set translated to
// attributes. Attributes that no bucket mentions play no part.
func (m *Matcher) Match(attrs rlc.Attributes) Result {
	var few [8]string // the values of m.attrs; on the stack for up to eight
	values := few[:0]
	for i, name := range m.attrs {
		v := attrs[name]
		if v != "" && slices.Contains(m.unknown[i], v) {
			v = ""
		}
		values = append(values, v)
	}

	r := Result{Quota: Hit{Bucket: -1}}
	if b := m.first(values); b >= 0 {
		r.Quota = m.hit(b, values)
	}
	if len(m.caps.order) > 0 {
		r.Caps = m.all(values)
	}
	return r
}

// Uses names the attributes that decide what belongs to the bucket with this
// index, in matching order: its own and, for a quota bucket, those of every
// more specific quota bucket that can take a request away from it. Where
// history carries them all, the bucket's history is exact. It costs a walk
// over the buckets: call it once per bucket, not per request.
func (m *Matcher) Uses(i int) []string {
	b := &m.buckets[i]
	used := make([]bool, len(m.attrs))
	mention := func(b *bucket) {
		for _, t := range b.tests {
			used[t.attr] = true
		}
	}
	mention(b)
	if !b.cap {
		for j := range m.buckets {
			o := &m.buckets[j]
			if j != i && !o.cap && m.compare(o, b) < 0 && overlap(o, b) {
				mention(o)
			}
		}
	}
	var names []string
	for a, name := range m.attrs {
		if used[a] {
			names = append(names, name)
		}
	}
	return names
}

// first is the most specific quota bucket that matches, or -1.
func (m *Matcher) first(values []string) int {
	x, best := &m.quotas, len(m.quotas.order)
	try := func(ranks []int) {
		for _, rank := range ranks {
			if rank >= best {
				return
			}
			if m.buckets[x.order[rank]].matches(values) {
				best = rank
				return
			}
		}
	}
	x.candidates(values, try)
	if best == len(x.order) {
		return -1
	}
	return x.order[best]
}

// all lists every cap that matches, in file order.
func (m *Matcher) all(values []string) []Hit {
	x := &m.caps
	var few [16]int
	ranks := few[:0]
	collect := func(candidates []int) {
		for _, rank := range candidates {
			if m.buckets[x.order[rank]].matches(values) {
				ranks = append(ranks, rank)
			}
		}
	}
	x.candidates(values, collect)
	if len(ranks) == 0 {
		return nil
	}
	slices.Sort(ranks)
	hits := make([]Hit, len(ranks))
	for i, rank := range ranks {
		hits[i] = m.hit(x.order[rank], values)
	}
	return hits
}

// hit names the counter of a matching bucket.
func (m *Matcher) hit(i int, values []string) Hit {
	b := &m.buckets[i]
	if len(b.each) == 0 {
		return Hit{Bucket: i, ID: b.name}
	}
	key := make(rlc.Key, len(b.each))
	plain := true
	for _, a := range b.each {
		key[m.attrs[a]] = values[a]
		plain = plain && !strings.ContainsAny(values[a], `\,=`)
	}
	if len(b.each) == 1 && plain {
		return Hit{Bucket: i, Key: key, ID: b.prefix + values[b.each[0]]}
	}
	return Hit{Bucket: i, Key: key, ID: rlc.QuotaID(b.name, key)}
}

// index narrows the buckets that a request has to be compared with. A bucket
// stands under each value of its first attribute with an exact or list
// pattern, else under its first prefix, else in rest. Its size is linear in
// the patterns.
type index struct {
	order []int // rank to bucket
	by    []byAttribute
	rest  []int // ascending ranks
}

// byAttribute holds the buckets that stand under a value or prefix of one
// attribute.
type byAttribute struct {
	values   map[string][]int // value to ascending ranks
	prefixes map[string][]int // prefix to ascending ranks
	lengths  []int            // those of the prefixes, distinct
}

func (m *Matcher) index(order []int) index {
	x := index{order: order, by: make([]byAttribute, len(m.attrs))}
	for rank, i := range order {
		b := &m.buckets[i]
		if t := b.firstTest(rlc.Exact, rlc.List); t != nil {
			by := &x.by[t.attr]
			if by.values == nil {
				by.values = map[string][]int{}
			}
			for v := range t.each() {
				by.values[v] = append(by.values[v], rank)
			}
			continue
		}
		if t := b.firstTest(rlc.Prefix); t != nil {
			by := &x.by[t.attr]
			if by.prefixes == nil {
				by.prefixes = map[string][]int{}
			}
			by.prefixes[t.value] = append(by.prefixes[t.value], rank)
			if !slices.Contains(by.lengths, len(t.value)) {
				by.lengths = append(by.lengths, len(t.value))
			}
			continue
		}
		x.rest = append(x.rest, rank)
	}
	return x
}

// candidates calls f with lists of ascending ranks that together hold every
// bucket that can match, each once.
func (x *index) candidates(values []string, f func(ranks []int)) {
	for a := range x.by {
		by, v := &x.by[a], values[a]
		if v == "" {
			continue
		}
		if by.values != nil {
			f(by.values[v])
		}
		for _, n := range by.lengths {
			if n <= len(v) {
				f(by.prefixes[v[:n]])
			}
		}
	}
	f(x.rest)
}

// attributes lists what the service's buckets mention, in matching order.
func attributes(s *rlc.Service) []string {
	var names []string
	for i := range s.Buckets {
		for name := range s.Buckets[i].Match {
			names = append(names, name)
		}
		names = append(names, s.Buckets[i].Each...)
	}
	slices.SortFunc(names, rlc.CompareAttributes)
	return slices.Compact(names)
}
