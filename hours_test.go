package rlc

import (
	"testing"
	"time"
)

func TestAQuotaIsItsWindowsElseItsHoursElseItself(t *testing.T) {
	from := time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC)
	q := Quota{
		Limit:   Limit{Rate: 100, Burst: 250},
		Hours:   &QuotaHours{From: from, Rates: []Rate{50, 30, 0}},
		Windows: []QuotaWindow{{From: from.Add(time.Hour), Until: from.Add(90 * time.Minute), Limit: Limit{Rate: 300, Burst: 600}}},
	}
	for at, want := range map[time.Duration]Limit{
		-time.Second:      {100, 250},
		0:                 {50, 125},
		time.Hour:         {300, 600},
		90 * time.Minute:  {30, 75},
		2 * time.Hour:     {0, 0},
		3 * time.Hour:     {100, 250},
		300 * time.Minute: {100, 250},
	} {
		if got := q.At(from.Add(at)); got != want {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
}

func TestHoursOfTheWeekHoldBeforeAndAfterThem(t *testing.T) {
	from := time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC)
	week, days := &QuotaHours{From: from, Rates: make([]Rate, 168)}, &QuotaHours{From: from, Rates: make([]Rate, 48)}
	for i := range week.Rates {
		week.Rates[i] = Rate(i)
	}
	copy(days.Rates, week.Rates)
	for _, x := range []struct {
		h    *QuotaHours
		at   int // hours from the first one
		want Rate
		ok   bool
	}{
		{week, 0, 0, true}, {week, 167, 167, true}, {week, 168, 0, true}, {week, -1, 167, true}, {week, -337, 167, true},
		{days, 47, 47, true}, {days, 48, 24, true}, {days, 167, 47, true}, // the highest of that hour of the day
		{&QuotaHours{From: from, Rates: []Rate{7}}, 1, 0, false}, {nil, 0, 0, false},
	} {
		if got, ok := x.h.OfWeek(from.Add(time.Duration(x.at)*time.Hour + time.Minute)); got != x.want || ok != x.ok {
			t.Errorf("hour %d: %v, %v; want %v, %v", x.at, got, ok, x.want, x.ok)
		}
	}
}
