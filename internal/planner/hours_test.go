package planner

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
)

var noon = time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC)

// forecast is an estimate whose hours ask for 40/s at night and 100/s by day.
func forecast(days int) rlc.Estimate {
	rates := make([]rlc.Rate, 24*days)
	for i := range rates {
		rates[i] = 40.004
		if h := noon.Add(time.Duration(i) * time.Hour).Hour(); h >= 8 && h < 20 {
			rates[i] = 100
		}
	}
	return rlc.Estimate{Limit: rlc.Limit{Rate: 100, Burst: 200}, Forecast: &rlc.Forecast{From: noon, Rates: rates}}
}

func decided(old *rlc.QuotaHours, rate rlc.Rate) rlc.Change {
	return rlc.Change{New: &rlc.Limit{Rate: rate, Burst: 200}, OldTimed: rlc.Timed{Hours: old}}
}

func TestHoursLieBetweenTheFloorAndTheRate(t *testing.T) {
	e := policies.Evidence{Now: noon, Guards: rlc.Guards{Floor: 50}}
	h := hourly(decided(nil, 90), e, forecast(7), nil)
	if h == nil || !h.From.Equal(noon) || len(h.Rates) != 168 || h.Rates[0] != 90 || h.Rates[12] != 50 {
		t.Fatalf("%+v", h)
	}
	e.Contract = &rlc.Contract{Limit: rlc.Limit{Rate: 60}}
	if h := hourly(decided(nil, 90), e, forecast(7), nil); h.Rates[12] != 60 {
		t.Errorf("a contract: %v, want 60", h.Rates[12])
	}
	e = policies.Evidence{Now: noon}
	if h := hourly(decided(nil, 100), e, forecast(7), nil); h.Rates[12] != 40.1 { // up to three digits
		t.Errorf("at night %v, want 40.1", h.Rates[12])
	}
}

func TestHoursTakeTheEvidenceOfADecrease(t *testing.T) {
	old := &rlc.QuotaHours{From: noon.Add(-day), Rates: []rlc.Rate{1, 2, 3}}
	thin, unproven := forecast(7), forecast(7)
	thin.Shadow, unproven.NoDecrease = true, "censored"
	for name, est := range map[string]rlc.Estimate{"shadow": thin, "no decrease": unproven, "static": {Limit: rlc.Limit{Rate: 100, Burst: 200}}} {
		if h := hourly(decided(old, 100), policies.Evidence{Now: noon}, est, nil); h != nil {
			t.Errorf("%s: %+v, want none", name, h)
		}
	}
	held := decided(old, 100)
	held.Held = "coverage"
	if h := hourly(held, policies.Evidence{Now: noon}, forecast(7), nil); h != old {
		t.Errorf("held: %+v, want those in force", h)
	}
}

func TestHoursInForceStayWhileTheyAreNearAndReachAhead(t *testing.T) {
	e := policies.Evidence{Now: noon}
	old := hourly(decided(nil, 100), e, forecast(7), nil)
	if h := hourly(decided(old, 100), e, forecast(7), nil); h != old {
		t.Error("the same forecast gives new hours")
	}
	slightly := forecast(7)
	slightly.Forecast.Rates[3] = 94
	if h := hourly(decided(old, 100), e, slightly, nil); h != old {
		t.Error("an hour within the deadband gives new hours")
	}
	more := forecast(7)
	more.Forecast.Rates[12] = 50
	if h := hourly(decided(old, 100), e, more, nil); h == old || h.Rates[12] != 50 {
		t.Error("an hour beyond the deadband leaves those in force")
	}
	e.Now = noon.Add(5*day + time.Hour) // they end in less than two days
	if h := hourly(decided(old, 100), e, forecast(7), nil); h == old {
		t.Error("hours that end soon are left in force")
	}
	e.Now = noon
	if h := hourly(decided(old, 60), e, forecast(7), nil); h == old || h.Rates[0] != 60 {
		t.Error("hours above the quota's rate are left in force")
	}
}

func TestHoursAreReplayedAgainstTheSameHoursOfTheWeek(t *testing.T) {
	// 100/s by day and 40/s at night for four weeks, one night at 70/s.
	values := make([]float64, 28*24*60)
	start := noon.Add(-28 * day)
	for i := range values {
		at := start.Add(time.Duration(i) * time.Minute)
		values[i] = 40
		if h := at.Hour(); h >= 8 && h < 20 {
			values[i] = 100
		}
		if at.Truncate(time.Hour).Equal(noon.Add(-10 * time.Hour)) {
			values[i] = 70
		}
	}
	h := stat.Summarise(time.Minute, start, values)
	limit := rlc.Limit{Rate: 100, Burst: 600}
	flat := replay(h, &limit, nil)
	hours := hourly(decided(nil, 100), policies.Evidence{Now: noon}, forecast(7), nil)
	timed := replay(h, &limit, hours)
	// That night: 3600 s × (70 − 40.1) − 600 of the burst.
	if flat.Drops != 0 || math.Abs(timed.Drops-(3600*29.9-600)) > 1e-6 || math.Abs(timed.Requests-flat.Requests) > 1e-3 {
		t.Errorf("one rate %v of %v, hours %v of %v", flat.Drops, flat.Requests, timed.Drops, timed.Requests)
	}
}

func TestHoursFollowARateThatWasCut(t *testing.T) {
	h := rlc.QuotaHours{From: noon, Rates: []rlc.Rate{100, 40, 80}}
	if got := within(h, 70); !reflect.DeepEqual(got.Rates, []rlc.Rate{70, 40, 70}) || h.Rates[0] != 100 {
		t.Errorf("%v, was %v", got.Rates, h.Rates)
	}
}

func TestHoursOfAYoungRiseAreHeldToTheHoursOfADayAgo(t *testing.T) {
	e := policies.Evidence{Now: noon}
	old := hourly(decided(nil, 100), e, forecast(7), nil) // 40.1 at night, 100 by day
	risen := forecast(7)
	risen.MaxIncrease = 0.25
	for i := range risen.Forecast.Rates {
		risen.Forecast.Rates[i] = 90
	}
	for range 3 { // as often as it runs within the day
		h := hourly(decided(old, 125), e, risen, old)
		if h == old || h.Rates[12] != 50.1 || h.Rates[0] != 90 { // 40.1 × 1.25 = 50.125, rounded down
			t.Fatalf("at night %v, at noon %v, want 50.1 and 90", h.Rates[12], h.Rates[0])
		}
	}
	risen.MaxIncrease = 0
	if h := hourly(decided(old, 125), e, risen, old); h.Rates[12] != 90 {
		t.Errorf("without a cap at night %v, want 90", h.Rates[12])
	}
}
