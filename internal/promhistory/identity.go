package promhistory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"github.com/openrlc/rlc"
)

// identity makes the ids of a service's stored series. An id is a hash of all
// that decides which samples belong to a series: the source list and the step,
// how labels become attributes, the bucket and key, and the match set: the
// bucket's own patterns (the key's values in place of its each) with those of
// every quota bucket that could take label sets away from it. Moving a label
// set from one bucket to another changes the ids of both, and of no key that it
// does not concern; a changed id is read anew.
type identity struct {
	service *rlc.Service
	source  string // hash of what the profile contributes
	rules   []map[string]rlc.Pattern
}

// newIdentity takes the label of which replicas count once; "" for none.
func newIdentity(s *rlc.Service, p *rlc.Profile, replica string) *identity {
	i := &identity{service: s, source: digest("source", p.Sources, p.Step, p.Attributes, s.Unknown, p.Refused)}
	if replica != "" {
		i.source = digest("replica", replica, i.source)
	}
	for n := range s.Buckets {
		i.rules = append(i.rules, patterns(&s.Buckets[n]))
	}
	return i
}

// patterns is a bucket's match with what its each implies.
func patterns(b *rlc.Bucket) map[string]rlc.Pattern {
	m := maps.Clone(b.Match)
	if m == nil {
		m = map[string]rlc.Pattern{}
	}
	for _, a := range b.Each {
		if _, ok := m[a]; !ok {
			m[a] = rlc.Pattern{Kind: rlc.Present}
		}
	}
	return m
}

// of is the id of a bucket's key. The nil key of a bucket with each stands for
// the bucket as a whole.
func (i *identity) of(bucket int, key rlc.Key) rlc.SeriesID {
	b := &i.service.Buckets[bucket]
	own := i.rules[bucket]
	if len(key) > 0 {
		own = maps.Clone(own)
		for a, v := range key {
			own[a] = rlc.Pattern{Kind: rlc.Exact, Values: []string{v}}
		}
	}
	var rivals []string
	if b.Role != rlc.CapRole {
		for n := range i.service.Buckets {
			if n != bucket && i.service.Buckets[n].Role != rlc.CapRole && overlap(own, i.rules[n]) {
				rivals = append(rivals, digest(canonical(i.rules[n])))
			}
		}
		slices.Sort(rivals)
	}
	return rlc.SeriesID(digest("series", i.source, i.service.Name, b.Name, string(b.Role), key.String(), canonical(own), rivals))
}

// canonical orders the values of lists, whose order means nothing.
func canonical(m map[string]rlc.Pattern) map[string]rlc.Pattern {
	out := make(map[string]rlc.Pattern, len(m))
	for a, p := range m {
		p.Values = slices.Sorted(slices.Values(p.Values))
		out[a] = p
	}
	return out
}

// digest hashes values by their JSON, in which the keys of maps are sorted.
func digest(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		b, _ := json.Marshal(p) // strings, numbers, slices and maps of them
		h.Write(b)
		h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// overlap reports whether one request could match both.
func overlap(a, b map[string]rlc.Pattern) bool {
	for name, p := range a {
		if q, ok := b[name]; ok && !meet(p, q) {
			return false
		}
	}
	return true
}

func meet(p, q rlc.Pattern) bool {
	if p.Kind == rlc.Absent || q.Kind == rlc.Absent {
		return p.Kind == q.Kind
	}
	listed := func(p rlc.Pattern) bool { return p.Kind == rlc.Exact || p.Kind == rlc.List }
	if listed(q) {
		p, q = q, p
	}
	if listed(p) {
		return slices.ContainsFunc(p.Values, func(v string) bool { return fits(q, v) })
	}
	if p.Kind == rlc.Prefix && q.Kind == rlc.Prefix {
		return strings.HasPrefix(p.Values[0], q.Values[0]) || strings.HasPrefix(q.Values[0], p.Values[0])
	}
	return true
}

func fits(p rlc.Pattern, v string) bool {
	switch p.Kind {
	case rlc.Exact, rlc.List:
		return slices.Contains(p.Values, v)
	case rlc.Prefix:
		return strings.HasPrefix(v, p.Values[0])
	}
	return v != ""
}

// attributes is a label set in the service's words. A composite attribute of
// which no label is there is absent.
func attributes(p *rlc.Profile, m model.Metric) rlc.Attributes {
	out := make(rlc.Attributes, len(p.Attributes))
	for name, source := range p.Attributes {
		var parts []string
		there := false
		for _, l := range source.Metric {
			v := string(m[model.LabelName(l)])
			parts = append(parts, v)
			there = there || v != ""
		}
		if there {
			out[name] = strings.Join(parts, source.Join)
		}
	}
	return out
}

// maxValue bounds the bytes of a key's value.
const maxValue = 1024

// storable reports whether a key can be written down everywhere a quota is:
// UTF-8 without NUL, of bounded length.
func storable(k rlc.Key) bool {
	for _, v := range k {
		if len(v) > maxValue || !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return false
		}
	}
	return true
}

// labelsOf names the metric labels behind attributes, for people.
func labelsOf(p *rlc.Profile, attrs []string) string {
	var all []string
	for _, a := range attrs {
		all = append(all, p.Attributes[a].Metric...)
	}
	return cmp.Or(strings.Join(all, ", "), strings.Join(attrs, ", "))
}
