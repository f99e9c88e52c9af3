package match

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// bucket is one bucket, compiled.
type bucket struct {
	name   string
	line   int
	cap    bool
	tests  []test // one per attribute it mentions, in matching order
	each   []int  // indices into Matcher.attrs, in matching order
	prefix string // "name/caller=" for a bucket with one each attribute
}

// test is a pattern for one attribute.
type test struct {
	attr  int // index into Matcher.attrs
	kind  rlc.PatternKind
	value string              // Exact: the value; Prefix: without the star
	set   map[string]struct{} // List
}

// compile turns a bucket's match and each into tests. An attribute of Each
// that Match does not mention is tested for presence.
func (m *Matcher) compile(b *rlc.Bucket) (bucket, *rlc.Problem) {
	c := bucket{name: b.Name, line: b.Line, cap: b.Role == rlc.CapRole}
	for a, name := range m.attrs {
		p, mentioned := b.Match[name]
		if slices.Contains(b.Each, name) {
			c.each = append(c.each, a)
			if !mentioned {
				p, mentioned = rlc.Pattern{Kind: rlc.Present}, true
			}
			if p.Kind == rlc.Absent {
				return c, problem(&c, fmt.Sprintf("bucket %q counts each %s, yet matches only requests without it", b.Name, name), "")
			}
		}
		if !mentioned {
			continue
		}
		t := test{attr: a, kind: p.Kind}
		switch p.Kind {
		case rlc.Exact, rlc.Prefix:
			if len(p.Values) != 1 || p.Values[0] == "" {
				return c, problem(&c, fmt.Sprintf("bucket %q: the pattern for %s has no value", b.Name, name), "")
			}
			t.value = p.Values[0]
		case rlc.List:
			if len(p.Values) == 0 {
				return c, problem(&c, fmt.Sprintf("bucket %q: the list for %s is empty", b.Name, name), "")
			}
			t.set = make(map[string]struct{}, len(p.Values))
			for _, v := range p.Values {
				t.set[v] = struct{}{}
			}
		}
		c.tests = append(c.tests, t)
	}
	if len(c.each) == 1 {
		c.prefix = rlc.QuotaID(b.Name, rlc.Key{m.attrs[c.each[0]]: ""})
	}
	return c, nil
}

// firstTest is b's first test of one of these kinds, or nil.
func (b *bucket) firstTest(kinds ...rlc.PatternKind) *test {
	for i := range b.tests {
		if slices.Contains(kinds, b.tests[i].kind) {
			return &b.tests[i]
		}
	}
	return nil
}

// matches reports whether every pattern of b fits. Values are those of
// Matcher.attrs; the empty string is absent.
func (b *bucket) matches(values []string) bool {
	for i := range b.tests {
		t := &b.tests[i]
		if !t.matches(values[t.attr]) {
			return false
		}
	}
	return true
}

func (t *test) matches(v string) bool {
	switch t.kind {
	case rlc.Exact:
		return v == t.value
	case rlc.Absent:
		return v == ""
	case rlc.List:
		_, ok := t.set[v]
		return ok && v != ""
	case rlc.Prefix:
		return strings.HasPrefix(v, t.value)
	}
	return v != ""
}

// each yields the values of an exact or list pattern.
func (t *test) each() iter.Seq[string] {
	if t.kind == rlc.List {
		return maps.Keys(t.set)
	}
	return func(yield func(string) bool) { yield(t.value) }
}

// compare orders buckets by specificity, the more specific first: the first
// attribute, in matching order, whose patterns differ in kind (or in the
// length of a prefix) decides. It does not look at values, so the order holds
// for every request.
func (m *Matcher) compare(a, b *bucket) int {
	for i, j := 0, 0; i < len(a.tests) || j < len(b.tests); i, j = i+1, j+1 {
		switch {
		case i == len(a.tests):
			return 1
		case j == len(b.tests):
			return -1
		}
		s, t := &a.tests[i], &b.tests[j]
		// Where they mention different attributes, the earlier attribute is
		// mentioned by one and not by the other.
		c := cmp.Or(cmp.Compare(s.attr, t.attr), cmp.Compare(s.kind, t.kind), cmp.Compare(len(t.prefix()), len(s.prefix())))
		if c != 0 {
			return c
		}
	}
	return 0
}

func (t *test) prefix() string {
	if t.kind == rlc.Prefix {
		return t.value
	}
	return ""
}

// overlap reports whether some request matches both buckets.
func overlap(a, b *bucket) bool {
	for i, j := 0, 0; i < len(a.tests) && j < len(b.tests); {
		s, t := &a.tests[i], &b.tests[j]
		switch {
		case s.attr < t.attr:
			i++
		case s.attr > t.attr:
			j++
		default:
			if !meet(s, t) {
				return false
			}
			i, j = i+1, j+1
		}
	}
	return true
}

// meet reports whether some value fits both patterns of one attribute.
func meet(s, t *test) bool {
	if s.kind > t.kind {
		s, t = t, s
	}
	switch {
	case s.kind == rlc.Absent || t.kind == rlc.Absent:
		return s.kind == t.kind
	case s.kind == rlc.Exact:
		return t.matches(s.value)
	case s.kind == rlc.List:
		if t.kind == rlc.List && len(t.set) < len(s.set) {
			s, t = t, s
		}
		for v := range s.set {
			if t.matches(v) {
				return true
			}
		}
		return false
	case s.kind == rlc.Prefix && t.kind == rlc.Prefix:
		return strings.HasPrefix(s.value, t.value) || strings.HasPrefix(t.value, s.value)
	}
	return true
}

func problem(b *bucket, message, hint string) *rlc.Problem {
	return &rlc.Problem{Line: b.line, Message: message, Hint: hint}
}
