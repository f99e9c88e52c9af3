package predictive

import "testing"

// The maximum loses 10 on each of seven days.
func TestTheBlendYieldsWhereItLostOverAllAndOnMostDays(t *testing.T) {
	maximum := make([]verdict, 7)
	for i := range maximum {
		maximum[i].loss = 10
	}
	for name, c := range map[string]struct {
		blend  []float64
		yields bool
	}{
		"wins every day":                        {[]float64{4, 4, 4, 4, 4, 4, 4}, false},
		"wins six days, loses one by more":      {[]float64{4, 4, 4, 4, 4, 4, 200}, false},
		"wins four days, loses three by more":   {[]float64{4, 4, 4, 4, 90, 90, 90}, false},
		"loses four days and over all":          {[]float64{4, 4, 4, 17, 17, 17, 17}, true},
		"loses six days by less than it gained": {[]float64{1, 11, 11, 11, 11, 11, 11}, false},
		"loses six days and over all":           {[]float64{9, 11, 11, 11, 11, 11, 11}, true},
		"loses every day":                       {[]float64{11, 11, 11, 11, 11, 11, 11}, true},
		"is the maximum":                        {[]float64{10, 10, 10, 10, 10, 10, 10}, false},
	} {
		blend := make([]verdict, 7)
		for i, l := range c.blend {
			blend[i].loss = l
		}
		if got := yields(blend, maximum); got != c.yields {
			t.Errorf("%s: yields %v, want %v", name, got, c.yields)
		}
	}
	// Half of the days are not most of them.
	if yields([]verdict{{loss: 5}, {loss: 20}}, []verdict{{loss: 10}, {loss: 10}}) {
		t.Error("it yields where it lost one day of two")
	}
}
