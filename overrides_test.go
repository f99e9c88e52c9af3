package rlc

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fits reports whether a bucket's pattern fits a value; "" is an absent one.
func fits(p Pattern, value string) bool {
	switch p.Kind {
	case Absent:
		return value == ""
	case Prefix:
		return value != "" && strings.HasPrefix(value, p.Values[0])
	case Present:
		return value != ""
	}
	return slices.Contains(p.Values, value)
}

// Over a small world of values, in which every pattern drawn fits one at least,
// an override touches a bucket exactly where a value is both's, and all of it
// where each of the bucket's values is the override's.
func TestAnOverrideTouchesABucketWhereARequestCanBeOfBoth(t *testing.T) {
	values := []string{"", "a", "b", "ax", "ay", "axx", "axy", "bx", "zz"}
	named := values[1:]
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SampledFrom([][]string{{"absent"}, {"*"}, {"a*"}, {"ax*"}, {"b*"}, {"a"}, {"zz"}, {"ax", "b"}, {"ax", "ay"}}).Draw(t, "override")
		p := rapid.SampledFrom([]Pattern{
			{Kind: Absent}, {Kind: Present}, {Prefix, []string{"a"}}, {Prefix, []string{"ax"}}, {Prefix, []string{"b"}},
			{Exact, []string{rapid.SampledFrom(named).Draw(t, "value")}}, {List, []string{"ax", "bx"}}, {List, []string{"ax", "ay"}},
		}).Draw(t, "bucket")
		some, all := false, true
		for _, v := range values {
			if fits(p, v) {
				some, all = some || covers(want, v), all && covers(want, v)
			}
		}
		o := Override{Match: map[string][]string{"caller": want}}
		if gotSome, gotAll := o.Touches(map[string]Pattern{"caller": p}, nil); gotSome != some || gotAll != all {
			t.Errorf("%q on %v: %v %v, want %v %v", want, p, gotSome, gotAll, some, all)
		}
	})
	o := Override{Match: map[string][]string{"caller": {"a"}, "procedure": {"Buy"}}}
	if some, all := o.Touches(map[string]Pattern{"caller": {Kind: Prefix, Values: []string{"a"}}}, Key{"caller": "a"}); !some || all {
		t.Errorf("of procedures nothing is known: %v %v", some, all)
	}
	if some, _ := o.Touches(nil, Key{"caller": "b"}); some {
		t.Error("another caller's quota")
	}
	for _, c := range []struct {
		service string
		match   map[string][]string
		want    bool
	}{
		{"s", nil, true}, {"*", nil, true}, {"t", nil, false}, {"s", map[string][]string{"caller": {"a*"}}, true},
		{"s", map[string][]string{"caller": {"b*"}}, false}, {"s", map[string][]string{"caller": {"absent"}}, false}, {"s", map[string][]string{"tenant": {"x", "y"}}, true},
	} {
		one, other := Override{Service: "s", Match: o.Match}, Override{Service: c.service, Match: c.match}
		if one.Meets(other) != c.want || other.Meets(one) != c.want {
			t.Errorf("%+v: %v, want %v", c, !c.want, c.want)
		}
	}
}
