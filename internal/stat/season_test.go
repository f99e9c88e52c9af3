package stat

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
)

func TestMedian(t *testing.T) {
	for want, v := range map[float64][]float64{0: nil, 2: {3, 1, 2}, 2.5: {4, 1, 3, 2}, 7: {7}} {
		if got := Median(v); got != want {
			t.Errorf("of %v: %v, want %v", v, got, want)
		}
	}
}

func TestRoundingKeepsThreeDigits(t *testing.T) {
	for _, c := range []struct{ in, up, down rlc.Rate }{
		{419.9, 420, 419}, {61.29, 61.3, 61.2}, {1839.5, 1840, 1830}, {100, 100, 100}, {0.1 + 0.2, 0.3, 0.3},
		{0.00012345, 0.000124, 0.000123}, {999.5, 1000, 999}, {122.6, 123, 122}, {55.17, 55.2, 55.1}, {0, 0, 0}, {1.1 * 100, 110, 110},
	} {
		if up, down := RoundUp(c.in), RoundDown(c.in); up != c.up || down != c.down {
			t.Errorf("%v: up %v, down %v; want %v, %v", c.in, up, down, c.up, c.down)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rlc.Rate(rapid.Float64Range(1e-9, rlc.MaxRate).Draw(t, "rate"))
		up, down := RoundUp(v), RoundDown(v)
		if float64(up) < float64(v)*(1-1e-9) || float64(down) > float64(v)*(1+1e-9) || up > v*1.0101 || down < v/1.0101 || down <= 0 {
			t.Fatalf("%v: up %v, down %v", v, up, down)
		}
		if RoundUp(up) != up || RoundDown(down) != down {
			t.Fatalf("%v: rounding twice moves %v or %v", v, up, down)
		}
	})
}

func TestRateText(t *testing.T) {
	for in, want := range map[rlc.Rate]string{323: "323/s", 322.6: "323/s", 61.29: "61.3/s", 33: "33/s", 0.0833333: "0.0833/s", 1415: "1,415/s", 0: "0/s", 1e9: "1,000,000,000/s"} {
		if got := RateText(in); got != want {
			t.Errorf("%v: %q, want %q", float64(in), got, want)
		}
	}
}

func TestCoverCountsFromTheFirstSampleAndPerTarget(t *testing.T) {
	from := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	values := flat(20*24*4, 10)
	for i := range 5 * 24 * 4 { // the series is born five days in
		values[i] = math.NaN()
	}
	h := Summarise(15*time.Minute, from, values)
	if c := Cover(h, nil, nil); c.Share != 1 || c.Targets != 1 || c.Days != 15 {
		t.Errorf("young: %+v", c)
	}
	for i := range h.Hours[:90] { // 90 of 360 hours without a quarter of the targets
		h.Hours[i].Partial = h.Hours[i].Present
	}
	if c := Cover(h, nil, nil); c.Share != 1 || c.Targets != 1 {
		t.Errorf("targets are counted though the history knows none: %+v", c)
	}
	h.Targets = true
	if c := Cover(h, nil, nil); c.Share != 0.75 || c.Targets != 0.75 || c.Days != 15*0.75 {
		t.Errorf("partial: %+v", c)
	}
	lost := []rlc.Window{{From: h.Hours[0].Start, Until: h.Hours[90].Start}}
	if c := Cover(h, nil, lost); c.Share != 1 || c.Days != 15*0.75 {
		t.Errorf("an excluded window is neither expected nor present: %+v", c)
	}
	h.Hours = append(h.Hours[:200:200], h.Hours[236:]...) // a gap of 36 of 360 hours
	h.Targets = false
	if c := Cover(h, nil, nil); c.Share != 0.9 {
		t.Errorf("gap: %+v", c)
	}
	if c := Cover(rlc.History{}, nil, nil); c.Share != 0 || c.Days != 0 {
		t.Errorf("nothing: %+v", c)
	}
}

func TestASlotIsTheHourThatAClockOnTheWallShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Australia/Lord_Howe"}).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(-1e9, 4e9).Draw(t, "at"), 0).UTC().Truncate(time.Hour)
		var hours []rlc.Hour
		for i := range rapid.SampledFrom([]int{0, 30, 28 * 24}).Draw(t, "hours") {
			hours = append(hours, rlc.Hour{Start: at.Add(time.Duration(i) * time.Hour), Max: 1, Present: 60, Expected: 60})
		}
		s := NewSeason(hours, loc)
		for range 50 {
			x := at.Add(time.Duration(rapid.IntRange(-5000, 5000).Draw(t, "distance")) * 30 * time.Minute)
			wall := x.In(loc)
			want := wall.Hour()
			if s.Weekly() {
				want += 24 * int(wall.Weekday())
			}
			if got := s.Slot(x); got != want {
				t.Fatalf("slot %d of %s, want %d", got, wall, want)
			}
		}
	})
}
