package policies

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// monday is the now of most tests: a Monday, at two in the morning, as cron
// fires.
var monday = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)

const (
	minute = time.Minute
	hour   = time.Hour
	day    = 24 * time.Hour
)

// usual is a caller's ordinary traffic: 100/s in office hours, 40/s around
// them, 60 % of it on weekends. Its weekly peak is exactly 100/s.
func usual(t time.Time) float64 {
	v := 40.0
	if h := t.Hour(); h >= 9 && h < 17 {
		v = 100
	}
	if d := t.Weekday(); d == time.Saturday || d == time.Sunday {
		v *= 0.6
	}
	return v
}

// nan is a missing sample.
var nan = math.NaN()

// recorded is what history knows at now of traffic that began days ago. The
// targets are known and complete, as a decrease needs.
func recorded(now time.Time, days float64, traffic func(time.Time) float64) rlc.History {
	n := int(days * float64(day/minute))
	start := now.Add(-time.Duration(n) * minute)
	values := make([]float64, n)
	for i := range values {
		values[i] = traffic(start.Add(time.Duration(i) * minute))
	}
	h := stat.Summarise(minute, start, values)
	h.Targets = true
	return h
}

// marking changes the hours of a history that lie in [from, until).
func marking(h rlc.History, from, until time.Time, change func(*rlc.Hour)) rlc.History {
	for i := range h.Hours {
		if x := &h.Hours[i]; !x.Start.Before(from) && x.Start.Before(until) {
			change(x)
		}
	}
	return h
}

// quota is one in force.
func quota(rate rlc.Rate) *rlc.Quota {
	return &rlc.Quota{Bucket: "callers", Key: rlc.Key{"caller": "search"}, Limit: rlc.Limit{Rate: rate, Burst: rlc.Burst(math.Ceil(2 * float64(rate)))}, Why: "as before"}
}

// run is a run over one caller.
type run struct {
	policy  rlc.Policy // historical with headroom 0.3 by default
	now     time.Time
	history rlc.History
	current *rlc.Quota
	input   func(*rlc.Input)
	guards  func(*Evidence)
}

// propose asks the policy and guards its answer.
func (r run) propose(t testing.TB) (rlc.Estimate, rlc.Change) {
	t.Helper()
	if r.policy == nil {
		p, err := Builtin().New(rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"headroom": 0.3}})
		if err != nil {
			t.Fatal(err)
		}
		r.policy = p
	}
	if r.now.IsZero() {
		r.now = monday
	}
	in := rlc.Input{Service: "checkout", Bucket: "callers", Now: r.now, History: r.history}
	e := Evidence{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": "search"}, Now: r.now, History: r.history, Current: r.current}
	if r.current != nil {
		in.Current = &r.current.Limit
		e.DayAgo, e.WeekAgo = &r.current.Limit, &r.current.Limit
	}
	if r.input != nil {
		r.input(&in)
		e.Exclude = in.Exclude
	}
	if r.guards != nil {
		r.guards(&e)
	}
	est, err := r.policy.Propose(context.Background(), in)
	return est, Guard(e, est, err)
}

// acted lists the rules that acted, in order.
func acted(c rlc.Change) []string {
	var rules []string
	for _, r := range c.Reasons {
		if r.Acted {
			rules = append(rules, r.Rule)
		}
	}
	return rules
}

func near(t testing.TB, what string, got, want rlc.Rate) {
	t.Helper()
	if math.Abs(float64(got-want)) > 1e-9*math.Max(1, float64(want)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantLimit(t testing.TB, c rlc.Change, rate rlc.Rate, burst rlc.Burst) {
	t.Helper()
	if c.New == nil || *c.New != (rlc.Limit{Rate: rate, Burst: burst}) {
		t.Errorf("new limit %+v, want %v burst %d\n%s", c.New, rate, burst, Explain(c).Text())
	}
}

func wantHeld(t testing.TB, c rlc.Change, rule, why string) {
	t.Helper()
	if c.Held != rule || c.HeldWhy != why {
		t.Errorf("held by %q: %q, want %q: %q", c.Held, c.HeldWhy, rule, why)
	}
	switch {
	case c.Old == nil && c.New != nil:
		t.Errorf("a held quota came to be: %v", c.New)
	case c.Old != nil && (c.New == nil || *c.New != *c.Old || c.NewMode != c.OldMode):
		t.Errorf("a held quota moved from %v to %v", c.Old, c.New)
	}
}
