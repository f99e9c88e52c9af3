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
