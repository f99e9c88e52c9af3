package rlc_test

import (
	"testing"

	"github.com/openrlc/rlc"
)

func TestThingsAreCountedInTheirPlural(t *testing.T) {
	for _, c := range []struct {
		n           int
		thing, want string
	}{
		{1, "episode", "1 episode"}, {0, "episode", "0 episodes"}, {2, "policy file", "2 policy files"}, {5, "loss", "5 losses"}, {1, "loss", "1 loss"},
		{3, "policy", "3 policies"}, {2, "query", "2 queries"}, {2, "day", "2 days"}, {2, "match", "2 matches"}, {2, "y", "2 ys"},
	} {
		if got := rlc.Plural(c.n, c.thing); got != c.want {
			t.Errorf("%d %s: %q, want %q", c.n, c.thing, got, c.want)
		}
	}
}
