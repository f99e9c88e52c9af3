package predictive

import (
	"slices"
	"testing"

	"github.com/openrlc/rlc"
)

// An event tomorrow from 10:30 to 12:30 touches the hours of 10, 11 and 12.
func TestAnEventMultipliesTheForecastOfItsHoursAndNotTheLimit(t *testing.T) {
	in := input(28, 60e9, office)
	plain := propose(t, Config{Hourly: true}, in)
	in.Events = []rlc.Event{
		{Name: "sale", From: now.Add(32*hour + hour/2), Until: now.Add(34*hour + hour/2), Multiply: 3},
		{Name: "last year's", From: now.Add(-300 * 24 * hour), Until: now.Add(-299 * 24 * hour), Multiply: 5},
	}
	got := propose(t, Config{Hourly: true}, in)
	for i := range plain.Forecast.Q99 {
		by := rlc.Rate(1)
		if i >= 32 && i <= 34 {
			by = 3
		}
		if got.Forecast.Q99[i] != by*plain.Forecast.Q99[i] || got.Forecast.Q50[i] != by*plain.Forecast.Q50[i] {
			t.Errorf("hour %d: %v and %v, want %v times %v and %v", i, got.Forecast.Q50[i], got.Forecast.Q99[i], by, plain.Forecast.Q50[i], plain.Forecast.Q99[i])
		}
	}
	if got.Limit != plain.Limit || !slices.Equal(got.Forecast.Rates, plain.Forecast.Rates) {
		t.Errorf("the limit moved from %v to %v", plain.Limit, got.Limit)
	}
	told := 0
	for _, r := range got.Steps {
		if r.Rule == "event" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d steps tell of an event, want the one to come", told)
	}
}
