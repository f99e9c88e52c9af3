package web

import (
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

// A sentence has three digits and a word from a million on, a column every digit.
func TestANumberOfRequestsIsWrittenByOneRule(t *testing.T) {
	for _, c := range []struct {
		n             float64
		said, columns string
	}{
		{0, "0", "0"}, {0.2, "< 1", "< 1"}, {0.6, "1", "1"}, {1840, "1,840", "1,840"}, {-1840, "−1,840", "−1,840"},
		{999_999, "999,999", "999,999"}, {999_999.6, "1 million", "1,000,000"}, {7_906_790, "7.91 million", "7,906,790"},
		{9_996_000, "10 million", "9,996,000"}, {84_170_000, "84.2 million", "84,170,000"}, {193_600_000, "194 million", "193,600,000"},
		{999_600_000, "1 billion", "999,600,000"}, {1_912_345_678, "1.91 billion", "1,912,345,678"}, {2_460_000_000_000, "2,460 billion", "2,460,000,000,000"},
	} {
		if said, columns := count(c.n), digits(c.n); said != c.said || columns != c.columns {
			t.Errorf("%g is %q in a sentence and %q in a column, want %q and %q", c.n, said, columns, c.said, c.columns)
		}
	}
}

// What lies before and after a bend is compared in figures; a curve without one
// claims none.
func TestABendSaysWhatHeadroomBuysBeforeAndAfterIt(t *testing.T) {
	curve := []backtest.Point{{Headroom: 0, Rate: 100, Drops: 1000, Share: .01}, {Headroom: .1, Rate: 110, Drops: 300, Share: .003}, {Headroom: .6, Rate: 160, Drops: 50, Share: .0005}}
	// 700 in 10 % are 70 a percent, 250 in 50 % are 5: 14 times.
	want := "The bend lies at 10\u00a0%, 110 req/s: up to there a percent of headroom saves 14 times what one beyond it does."
	if f := frontier(curve, .3, .002, false); f.Knee != want || f.Bend == nil || f.Bend.X != "122.0" {
		t.Errorf("%q at %+v, want %q", f.Knee, f.Bend, want)
	}
	curve[2].Drops = 300
	if f := frontier(curve, .3, .002, false); f.Knee != "The bend lies at 10\u00a0%, 110 req/s: more headroom than that saves nothing." {
		t.Error(f.Knee)
	}
	for i, drops := range []float64{8200, 7700, 6100} { // 0.82 to 0.61 %, nearly straight
		curve[i].Drops, curve[i].Share = drops, rlc.Ratio(drops/1e6)
	}
	if f := frontier(curve, .3, .002, false); f.Knee != "" || f.Bend != nil {
		t.Errorf("a nearly straight curve bends: %q", f.Knee)
	}
}
