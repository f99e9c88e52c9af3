package recent

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

var now = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

func input(days int, rate func(time.Time) float64) rlc.Input {
	n := days * 24 * 4
	start := now.Add(-time.Duration(days) * day)
	values := make([]float64, n)
	for i := range values {
		values[i] = rate(start.Add(time.Duration(i) * 15 * time.Minute))
	}
	return rlc.Input{Now: now, History: stat.Summarise(15*time.Minute, start, values)}
}

// grown is 100/s until yesterday and 250/s since.
func grown(t time.Time) float64 {
	if t.Before(now.Add(-20 * hour)) {
		return 100
	}
	return 250
}

func TestTheLastDayTimesHeadroom(t *testing.T) {
	est, err := New(Config{}).Propose(context.Background(), input(28, grown))
	if err != nil {
		t.Fatal(err)
	}
	// 250 × 1.3 = 325
	if est.Limit != (rlc.Limit{Rate: 325, Burst: 650}) || est.Shadow || est.NoDecrease == "" || est.Why != "peak of 24 h 250/s × 1.30 headroom" {
		t.Errorf("limit %v, shadow %v, no decrease %q, why %q", est.Limit, est.Shadow, est.NoDecrease, est.Why)
	}
	// What is older than a day does not count: 40/s since yesterday.
	est, err = New(Config{}).Propose(context.Background(), input(28, func(at time.Time) float64 {
		if at.Before(now.Add(-26 * hour)) {
			return 1000
		}
		return 40
	}))
	if err != nil || est.Limit.Rate != 52 {
		t.Errorf("limit %v (%v), want 52", est.Limit, err)
	}
}

func TestHoursThatRetriesInflateRaiseNothing(t *testing.T) {
	mark := func(change func(*rlc.Hour)) rlc.Input {
		in := input(28, func(at time.Time) float64 {
			if at.Before(now.Add(-6*hour)) || !at.Before(now.Add(-4*hour)) {
				return 100
			}
			return 900
		})
		for i := range in.History.Hours {
			if h := &in.History.Hours[i]; h.Max == 900 {
				change(h)
			}
		}
		return in
	}
	failing := mark(func(h *rlc.Hour) { h.Unhealthy = true })
	declared := mark(func(*rlc.Hour) {})
	declared.Exclude = []rlc.Window{{From: now.Add(-6 * hour), Until: now.Add(-4 * hour), Reason: "INC-1"}}
	for rule, in := range map[string]rlc.Input{
		"unhealthy": failing, "enforced_drops": mark(func(h *rlc.Hour) { h.Drops = 0.2 }), "excluded": declared,
	} {
		est, err := New(Config{}).Propose(context.Background(), in)
		if err != nil || est.Limit.Rate != 130 {
			t.Errorf("%s: %v (%v), want 130", rule, est.Limit, err)
		}
		w := rlc.Window{From: now.Add(-6 * hour), Until: now.Add(-4 * hour)}
		if len(est.Flags) != 1 || est.Flags[0].Rule != rule || est.Flags[0].From != w.From || est.Flags[0].Until != w.Until || est.Flags[0].Peak != 900 || est.Flags[0].With != 1170 {
			t.Errorf("%s: flags %+v", rule, est.Flags)
		}
	}
	failing.Count = []rlc.Window{{From: now.Add(-6 * hour), Until: now.Add(-4 * hour)}}
	if est, err := New(Config{}).Propose(context.Background(), failing); err != nil || est.Limit.Rate != 1170 {
		t.Errorf("counted by a person: %v (%v), want 1170", est.Limit, err)
	}
}

func TestItAbstainsWithoutADayOrTraffic(t *testing.T) {
	silent := input(28, func(at time.Time) float64 {
		if at.Before(now.Add(-30 * hour)) {
			return 100
		}
		return 0
	})
	short := input(1, func(at time.Time) float64 {
		if at.Before(now.Add(-22 * hour)) {
			return math.NaN()
		}
		return 10
	})
	for want, in := range map[string]rlc.Input{"no traffic that counts": silent, "24 h needed": short} {
		if _, err := New(Config{}).Propose(context.Background(), in); !errors.Is(err, rlc.ErrAbstain) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if est, err := New(Config{}).Propose(context.Background(), input(2, grown)); err != nil || !est.Shadow {
		t.Errorf("two days: shadow %v, %v", est.Shadow, err)
	}
}

func TestMoreHeadroomIsNeverLessAndEqualInputsAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 30, 30).Draw(t, "daily")
		in := input(28, func(at time.Time) float64 { return rates[int(now.Sub(at)/day)] })
		low := rapid.Float64Range(0, 5).Draw(t, "low")
		high := low + rapid.Float64Range(0, 5).Draw(t, "more")
		a, err := New(Config{Headroom: &low}).Propose(context.Background(), in)
		again, _ := New(Config{Headroom: &low}).Propose(context.Background(), in)
		if !reflect.DeepEqual(a, again) {
			t.Fatalf("equal inputs: %+v and %+v", a, again)
		}
		if err != nil {
			return
		}
		b, err := New(Config{Headroom: &high}).Propose(context.Background(), in)
		if err != nil || b.Limit.Rate < a.Limit.Rate || b.Limit.Burst < a.Limit.Burst || a.Limit.Valid() != nil {
			t.Fatalf("headroom %v: %v, %v: %v (%v)", low, a.Limit, high, b.Limit, err)
		}
	})
}
