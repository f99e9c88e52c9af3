package app

import (
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promhistory"
)

func TestTheAttributeThatTellsMoreApartIsCounted(t *testing.T) {
	t.Parallel()
	flow := func(caller, procedure string, rate rlc.Rate) promhistory.Flow {
		return promhistory.Flow{Attributes: rlc.Attributes{"caller": caller, "procedure": procedure}, Rate: rate}
	}
	unknown := map[string][]string{"caller": {"unknown"}}
	for _, c := range []struct {
		name  string
		flows []promhistory.Flow
		want  string
	}{
		{"nothing is named", []promhistory.Flow{flow("", "", 1)}, ""},
		{"several callers", []promhistory.Flow{flow("a", "x", 1), flow("b", "x", 1)}, "caller"},
		{"one caller, several procedures", []promhistory.Flow{flow("a", "x", 1), flow("a", "y", 1)}, "procedure"},
		{"callers are unknown", []promhistory.Flow{flow("unknown", "x", 1), flow("unknown", "y", 9)}, "procedure"},
		{"as many of both", []promhistory.Flow{flow("a", "x", 1), flow("b", "y", 1)}, "caller"},
		{"no traffic", nil, ""},
	} {
		if got, why := explains(c.flows, unknown); got != c.want {
			t.Errorf("%s: %q (%s), want %q", c.name, got, why, c.want)
		}
	}
}
