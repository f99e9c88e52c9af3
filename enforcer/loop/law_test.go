package loop

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// normal is a load in the class that requests have by default.
func normal(rate float64) [Classes]float64 { return [Classes]float64{Normal: rate} }

// hold steps a law under a constant load, with what it keeps admitted, until it
// has paid back what it owed.
func hold(l *Law, from, until time.Duration, in Load) (k Keep) {
	k = keepAll
	for now := from; now < until; now += tick {
		in.Admitted = 0
		for c := range in.Offered {
			in.Admitted += sane(in.Offered[c]) * k[c]
		}
		k = l.Step(now, in)
	}
	return k
}

func TestLawTable(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Load
		want Keep
	}{
		{"no load", Load{Limit: 1000}, Keep{1, 1, 1}},
		{"no load, no limit", Load{}, Keep{MinKeep, MinKeep, MinKeep}},
		{"below the limit", Load{Limit: 1000, Offered: normal(900)}, Keep{1, 1, 1}},
		{"limit zero", Load{Offered: normal(900)}, Keep{MinKeep, MinKeep, MinKeep}},
		{"twice the limit", Load{Limit: 1000, Offered: normal(2000)}, Keep{1, 0.5, MinKeep}},
		{"so far above that all would be dropped", Load{Limit: 0.4, Offered: normal(1e9)}, Keep{MinKeep, MinKeep, MinKeep}},
		{"critical first", Load{Limit: 1000, Offered: [Classes]float64{400, 1200, 500}}, Keep{1, 0.5, MinKeep}}, // (1000−400)/1200
		{"critical alone is too much", Load{Limit: 1000, Offered: [Classes]float64{2000, 300, 0}}, Keep{0.5, MinKeep, MinKeep}},
		{"batch gets the rest", Load{Limit: 1000, Offered: [Classes]float64{400, 500, 400}}, Keep{1, 1, 0.25}}, // (1000−900)/400
		{"not a number", Load{Limit: 1000, Offered: normal(math.NaN())}, Keep{1, 1, 1}},
		{"negative", Load{Limit: 1000, Offered: normal(-5)}, Keep{1, 1, 1}},
		{"infinite", Load{Limit: 1000, Offered: normal(math.Inf(1))}, Keep{1, MinKeep, MinKeep}},
		{"a limit that is not a number", Load{Limit: math.NaN(), Offered: normal(10)}, Keep{MinKeep, MinKeep, MinKeep}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l Law
			got := hold(&l, 0, time.Minute, c.in)
			for class := range got {
				// 2 %: what noise may use, sqrt(L)-sized, is paid back by then, but
				// for loads at MinKeep.
				if math.Abs(got[class]-c.want[class]) > 0.02 {
					t.Fatalf("kept %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestLawFollowsAStepAtOnce(t *testing.T) {
	var l Law
	hold(&l, 0, 20*time.Second, Load{Limit: 1000, Offered: normal(900)})
	if l.Hot(20 * time.Second) {
		t.Error("hot under a steady load")
	}
	k := l.Step(20*time.Second, Load{Limit: 1000, Offered: normal(15_000), Admitted: 900})
	// C = 4·sqrt(1000) = 126.5 tokens over τ = 2 s: (1000 + 63.2)/15000.
	want := (1000 + 4*math.Sqrt(1000)/2) / 15_000
	if math.Abs(k[Normal]-want) > 1e-3 || !l.Hot(20*time.Second) {
		t.Errorf("kept %v (hot %v), want %.4f at the first step", k, l.Hot(20*time.Second), want)
	}
}

// What noise may use is bounded both ways: a long quiet time does not save up
// more than C, a surge does not owe more.
func TestLawOwesAndSavesNoMoreThanNoise(t *testing.T) {
	most := 4 * math.Sqrt(1000)
	var l Law
	hold(&l, 0, time.Hour, Load{Limit: 1000, Offered: normal(10)})
	if l.tokens != most {
		t.Errorf("%v tokens after a quiet hour, want %v", l.tokens, most)
	}
	for now := time.Hour; now < time.Hour+2*time.Second; now += tick {
		l.Step(now, Load{Limit: 1000, Offered: normal(15_000), Admitted: 15_000})
	}
	if l.tokens != -most {
		t.Errorf("%v tokens after a surge, want %v", l.tokens, -most)
	}
}

func TestLawAfterARestartGivesNothingAway(t *testing.T) {
	var l Law
	l.Restart(0)
	if k := l.Step(0, Load{Limit: 1000, Offered: normal(2000), Admitted: 1000}); k[Normal] != 0.5 {
		t.Errorf("kept %v, want exactly 0.5", k)
	}
}

func TestLawNoticesWaves(t *testing.T) {
	var l Law
	for now := time.Duration(0); now < 10*time.Second; now += tick {
		load := 0.0
		if now/(500*time.Millisecond)%2 == 0 {
			load = 3000
		}
		l.Step(now, Load{Limit: 1000, Offered: normal(load), Admitted: load / 1.5})
	}
	if l.choppyUntil < 10*time.Second || math.Abs(l.ô-1500) > 100 {
		t.Errorf("estimate %v (choppy until %v), want the mean of 1500", l.ô, l.choppyUntil)
	}
	l.Step(10*time.Second, Load{Limit: 1000, Offered: normal(9000)})
	if l.ô != 9000 {
		t.Errorf("estimate %v after leaving the band upwards, want 9000", l.ô)
	}
}

func TestLawStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Law
		value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e5), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.Inf(-1), 1e15, 1 << 63}))
		now := time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(-1e9, 1e10).Draw(t, "dt"))
			in := Load{Limit: value.Draw(t, "limit"), Admitted: value.Draw(t, "admitted")}
			for c := range in.Offered {
				in.Offered[c] = value.Draw(t, "offered")
			}
			k := l.Step(now, in)
			for c := range k {
				if !(k[c] >= MinKeep && k[c] <= 1) {
					t.Fatalf("kept %v", k)
				}
				if c > 0 && k[c] > k[c-1] {
					t.Fatalf("a lower class keeps more: %v", k)
				}
			}
			if math.IsNaN(l.ô) || math.IsNaN(l.tokens) || l.ô < 0 {
				t.Fatalf("estimate %v, tokens %v", l.ô, l.tokens)
			}
		}
	})
}

func TestANewBucketMayUseWhatNoiseMay(t *testing.T) {
	var l Law
	l.Step(0, Load{Limit: 1000, Offered: normal(1000), Admitted: 1000})
	if most := 4 * math.Sqrt(1000); l.tokens != most {
		t.Errorf("%v tokens, want %v", l.tokens, most)
	}
}
