package planner

import (
	"reflect"
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

func TestHoursFollowARateThatWasCut(t *testing.T) {
	h := rlc.QuotaHours{From: time.Date(2026, 3, 18, 12, 0, 0, 0, time.UTC), Rates: []rlc.Rate{100, 40, 80}}
	if got := within(h, 70); !reflect.DeepEqual(got.Rates, []rlc.Rate{70, 40, 70}) || h.Rates[0] != 100 {
		t.Errorf("%v, was %v", got.Rates, h.Rates)
	}
}

func TestARegionsHoursHoldWhatAFailoverSends(t *testing.T) {
	own := &rlc.Forecast{Rates: []rlc.Rate{260, 80}}
	est := rlc.Estimate{Limit: rlc.Limit{Rate: 260, Burst: 520}, Forecast: own}
	failOver(&est, "us", map[string]rlc.Rate{"us": 260, "eu": 1040}, &rlc.Change{}, []rlc.Failover{{Lose: "eu", To: map[string]float64{"us": 1}}})
	if want := []rlc.Rate{1300, 1120}; est.Limit.Rate != 1300 || !reflect.DeepEqual(est.Forecast.Rates, want) {
		t.Errorf("limit %v, hours %v, want %v", est.Limit.Rate, est.Forecast.Rates, want)
	}
	if own.Rates[0] != 260 {
		t.Error("the policy's own forecast was changed")
	}
}
