package enforcer

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

// Pages say which override decides by rlc.Override.Matches; enforcers let it
// decide by the matcher. The two must never differ.
func TestPagesAndEnforcersAgreeOnWhatAnOverrideMatches(t *testing.T) {
	values := []string{"a", "ab", "abc", "b", "absent", ""}
	patterns := []string{"absent", "*", "a*", "ab*", "a", "abc", "b"}
	rapid.Check(t, func(t *rapid.T) {
		told := rlc.Override{Match: map[string][]string{}}
		applied := Override{ID: "1", Service: "s", Action: BlockAction, Match: map[string]Pattern{}}
		attrs := rlc.Attributes{}
		for _, name := range []string{"caller", "procedure"} {
			if v := rapid.SampledFrom(values).Draw(t, name); v != "" {
				attrs[name] = v
			}
			want := []string{rapid.SampledFrom(patterns).Draw(t, name+" pattern")}
			if rapid.Bool().Draw(t, name+" list") {
				want = []string{"a", "abc"}
			}
			if rapid.Bool().Draw(t, name+" named") {
				told.Match[name], applied.Match[name] = want, Pattern(want)
			}
		}
		if len(applied.Match) == 0 {
			return
		}
		m, err := applied.matcher()
		if err != nil {
			t.Fatal(err)
		}
		o := override{match: m}
		if got, want := told.Matches(attrs), o.matches(attrs); got != want {
			t.Fatalf("%v of %v: pages say %v, enforcers %v", told.Match, attrs, got, want)
		}
	})
}
