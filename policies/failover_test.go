package policies

import (
	"slices"
	"testing"

	"github.com/openrlc/rlc"
)

func TestARegionsQuotaIsTheWorstOfTheDeclaredFailovers(t *testing.T) {
	own := map[string]rlc.Rate{"eu": 800, "us": 200, "ap": 100}
	failovers := []rlc.Failover{{Lose: "eu", To: map[string]float64{"us": 0.75, "ap": 0.25}}, {Lose: "us", To: map[string]float64{"eu": 1}}, {Lose: "sa", To: map[string]float64{"ap": 1}}}
	for region, want := range map[string]struct {
		rate    rlc.Rate
		why     string
		unknown []string
	}{
		// With N/(N−1) us would get 300, and 500 of the 800 evacuated would drop.
		"us": {800, "75 % of the 800/s of eu when it is lost", nil},
		"eu": {1000, "100 % of the 200/s of us when it is lost", nil},
		"ap": {300, "25 % of the 800/s of eu when it is lost", []string{"sa"}},
	} {
		rate, why, unknown := Regional(region, own, failovers)
		if rate != want.rate || why != want.why || !slices.Equal(unknown, want.unknown) {
			t.Errorf("%s: %v, %q, %v; want %+v", region, rate, why, unknown, want)
		}
	}
	if rate, why, _ := Regional("us", own, nil); rate != 200 || why != "" {
		t.Errorf("undeclared: %v, %q", rate, why)
	}
}
