package promhistory

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

func TestARateIsKeptToSevenDigitsAndNeverMadeMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(0, 1e12).Draw(t, "rate")
		got := cut(v)
		if float64(float32(got)) != got && v > 1e-30 {
			t.Fatalf("%v is no float32", got)
		}
		// What has fewer digits than seven itself, below 1e-307, may lose them.
		if got > v || v-got > 1.2e-7*v+(1<<29)*math.SmallestNonzeroFloat64 {
			t.Fatalf("%v became %v", v, got)
		}
		if n := float64(rapid.IntRange(0, 1<<24).Draw(t, "whole")); cut(n) != n {
			t.Fatalf("%v became %v", n, cut(n))
		}
		// A limit at the peak, or a third above it, is the same number.
		v = float64(rapid.IntRange(1, 999).Draw(t, "digits")) * math.Pow10(rapid.IntRange(-6, 6).Draw(t, "scale"))
		for _, factor := range []rlc.Rate{1, 1.3} {
			if a, b := stat.RoundUp(rlc.Rate(v)*factor), stat.RoundUp(rlc.Rate(cut(v))*factor); a != b {
				t.Fatalf("%v × %v is rounded up to %v, after it was kept to %v", v, factor, a, b)
			}
		}
	})
	if !math.IsNaN(cut(math.NaN())) || cut(unknown) != unknown {
		t.Error("a step that is missing or not known became another")
	}
}

// What was stored with all digits is read on as it is, and goes on in seven.
func TestDaysThatWereStoredWithAllDigitsStand(t *testing.T) {
	w := newWorld(t, nil)
	f := wave(100)
	w.fill(rates(now.Add(-9*day).Truncate(day), now, f, "client", "a"))
	s, p := service(callers()), profile()
	w.read(s, p, now.Add(-3*day))
	stored, err := w.reader.cfg.Store.SeriesNamed(t.Context(), "geo", "callers", rlc.Key{"caller": "a"})
	if err != nil || len(stored) != 1 {
		t.Fatal(stored, err)
	}
	old := now.Add(-6 * day).Truncate(day)
	values := make([]float64, 24*60)
	for i := range values {
		values[i] = f(old.Add(time.Duration(i) * time.Minute))
	}
	whole := stat.SketchDay(stored[0].ID, old, time.Minute, values, 0)
	whole.Sealed = old.Add(day)
	if err := w.store.SaveDays(t.Context(), []rlc.SeriesDay{whole}); err != nil {
		t.Fatal(err)
	}
	all, seven := 0, 0
	for _, h := range w.read(s, p, now)["callers/caller=a"].Hours {
		switch {
		case !h.Start.Before(old) && h.Start.Before(old.Add(day)):
			if want := whole.Hours[h.Start.Sub(old)/time.Hour]; h != want {
				t.Errorf("hour %+v, want %+v", h, want)
			}
			all++
		case h.Start.After(now.Add(-3 * day)):
			if float64(h.Mean) != cut(float64(h.Mean)) {
				t.Errorf("hour %s has the mean %v, which is no float32", h.Start, h.Mean)
			}
			seven++
		}
	}
	if all != 24 || seven < 2*24 {
		t.Errorf("%d hours of the old day, %d new ones", all, seven)
	}
}
