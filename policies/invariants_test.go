package policies

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/historical"
)

// The invariants of reliability.md 1 over generated histories. They run few
// checks by default; promises P3 and P4 are these with -rapid.checks=100000.

const quarter = 15 * minute // the step of generated histories

// traffic draws values for the days before now: a level, a daily wave, noise,
// a shift, spikes, silent nights.
func traffic(t *rapid.T, days int) []float64 {
	level := rapid.Float64Range(0.05, 5000).Draw(t, "level")
	wave := rapid.Float64Range(0, 0.9).Draw(t, "wave")
	seed := uint64(rapid.IntRange(1, 1<<30).Draw(t, "seed"))
	shiftAt := rapid.IntRange(0, 40).Draw(t, "shift at") // days before now; beyond the window: none
	shift := rapid.Float64Range(0.1, 4).Draw(t, "shift")
	silent := rapid.Bool().Draw(t, "silent nights")
	values := make([]float64, days*96)
	for i := range values {
		seed = seed*6364136223846793005 + 1442695040888963407
		noise := float64(seed>>40) / (1 << 24)
		v := level * (1 + wave*math.Sin(2*math.Pi*float64(i)/96)) * (0.9 + 0.2*noise)
		if silent && i%96 < 30 {
			v = 0
		}
		if len(values)-i <= shiftAt*96 && shiftAt <= days {
			v *= shift
		}
		if seed>>33%997 == 0 {
			v *= 8
		}
		values[i] = v
	}
	return values
}

func summarised(values []float64, now time.Time) rlc.History {
	h := stat.Summarise(quarter, now.Add(-time.Duration(len(values))*quarter), values)
	h.Targets = true
	return h
}

// decide runs the historical policy and the guards.
func decide(h rlc.History, e Evidence) rlc.Change {
	e.History = h
	in := rlc.Input{Now: e.Now, History: h, Exclude: e.Exclude}
	if e.Current != nil {
		in.Current = &e.Current.Limit
	}
	est, err := historical.New(historical.Config{}).Propose(context.Background(), in)
	return Guard(e, est, err)
}

// highest is the highest finite value.
func highest(values []float64) float64 {
	m := 0.0
	for _, v := range values {
		if v > m && !math.IsInf(v, 0) {
			m = v
		}
	}
	return m
}

func TestInvariant1MissingDataNeverLowersAQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.IntRange(1, 28).Draw(t, "days")
		values := traffic(t, days)
		rate := rlc.Rate(20 * highest(values)) // a decrease, but for the fault
		fault := rapid.SampledFrom([]string{"none at all", "problem", "zeros", "NaN and worse", "stale", "holes", "targets", "young", "skew"}).Draw(t, "fault")
		now := monday
		var h rlc.History
		switch fault {
		case "none at all":
			h = rlc.History{Step: quarter, Until: now}
		case "problem":
			h = summarised(values, now)
			h.Problems = []rlc.HistoryProblem{{Rule: rapid.SampledFrom([]string{"no_data", "warning", "duplicate", "source_changed", "clock_skew", "failed", "budget", "attribute_not_in_history"}).Draw(t, "problem")}}
		case "zeros":
			from := len(values) - 96
			if rapid.Bool().Draw(t, "all") || days < 8 {
				from = 0
			}
			for i := from; i < len(values); i++ {
				values[i] = 0
			}
			h = summarised(values, now)
		case "NaN and worse":
			bad := rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1}).Draw(t, "bad")
			from := rapid.IntRange(0, len(values)*9/10).Draw(t, "from")
			for i := from; i < len(values); i++ {
				values[i] = bad
			}
			h = summarised(values, now)
		case "stale":
			h = summarised(values, now.Add(-time.Duration(rapid.IntRange(3, 3000).Draw(t, "steps"))*quarter))
			h.Until = now
		case "holes":
			every := rapid.IntRange(2, 16).Draw(t, "every") // at least 1/16 = 6 % is missing
			for i := 1; i < len(values); i += every {
				values[i] = math.NaN()
			}
			h = summarised(values, now)
		case "targets":
			h = summarised(values, now)
			share := rapid.Float64Range(0.07, 1).Draw(t, "share")
			for i := range h.Hours {
				if float64(i) < share*float64(len(h.Hours)) {
					h.Hours[i].Partial = h.Hours[i].Present
				}
			}
		case "young":
			h = summarised(values[:min(days, 13)*96], now)
		case "skew":
			h = summarised(values, now)
			h.Newest = now.Add(hour)
		}
		current := &rlc.Quota{Limit: rlc.Limit{Rate: max(1, stat.RoundUp(rate)), Burst: 1000}, Mode: rapid.SampledFrom([]rlc.Mode{"", rlc.Shadow}).Draw(t, "mode")}
		c := decide(h, Evidence{Now: now, Current: current, DayAgo: &current.Limit, WeekAgo: &current.Limit})
		if c.New == nil || c.New.Rate < current.Rate || c.New.Burst < current.Burst {
			t.Fatalf("%s: %v became %v\n%s", fault, current.Limit, c.New, Explain(c).Text())
		}
		if c.Held == "" {
			t.Fatalf("%s: not held\n%s", fault, Explain(c).Text())
		}
	})
}

func TestInvariant2ADecreaseHasItsEvidence(t *testing.T) {
	decreases := 0
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.IntRange(10, 28).Draw(t, "days")
		values := traffic(t, days)
		missing := rapid.Float64Range(0, 0.1).Draw(t, "missing")
		n := int(missing * float64(len(values)))
		from := rapid.IntRange(4, len(values)-1).Draw(t, "from") // the first hour tells when the series was born
		for i := from; i < min(from+n, len(values)-1); i++ {
			values[i] = math.NaN()
		}
		h := summarised(values, monday)
		partial := rapid.IntRange(0, len(h.Hours)/10).Draw(t, "partial hours")
		for i := range partial {
			h.Hours[i].Partial = h.Hours[i].Present
		}
		old := rapid.IntRange(0, 4).Draw(t, "steps old")
		h.Newest = monday.Add(-time.Duration(old) * quarter)
		current := &rlc.Quota{Limit: rlc.Limit{Rate: max(1, stat.RoundUp(rlc.Rate(5*highest(values)))), Burst: 1000}}
		c := decide(h, Evidence{Now: monday, Current: current, DayAgo: &current.Limit, WeekAgo: &current.Limit})
		if c.New.Rate >= current.Rate {
			return
		}
		decreases++
		present, seen := 0, 0
		for i, x := range h.Hours {
			seen += x.Present
			if i >= partial {
				present += x.Present
			}
		}
		switch {
		case float64(present) < 0.95*float64(len(values)):
			t.Fatalf("decrease at %d of %d steps", present, len(values))
		case float64(present) < 0.95*float64(seen):
			t.Fatalf("decrease with full targets at %d of %d steps", present, seen)
		case old > 2:
			t.Fatalf("decrease with a sample %d steps old", old)
		case float64(present)/96 < 13.95:
			t.Fatalf("decrease on %.2f days", float64(present)/96)
		case c.Estimate.Rate > c.New.Rate:
			t.Fatalf("lowered to %v, below the estimate of %v", c.New.Rate, c.Estimate.Rate)
		}
	})
	if !t.Failed() && decreases == 0 {
		t.Error("no history led to a decrease: the property says nothing")
	}
}

// ledger is what was in force when.
type ledger []struct {
	at    time.Time
	limit rlc.Limit
}

// before is what was in force at t, the first one for earlier times.
func (l ledger) before(t time.Time) *rlc.Limit {
	out := l[0].limit
	for _, e := range l {
		if !e.at.After(t) {
			out = e.limit
		}
	}
	return &out
}

func TestInvariant3NoQuotaGoesBeyondTheStepHoweverManyRuns(t *testing.T) {
	moved := false
	rapid.Check(t, func(t *rapid.T) {
		values := traffic(t, 40)
		start := rlc.Rate(rapid.Float64Range(1, 20000).Draw(t, "start"))
		current := &rlc.Quota{Limit: rlc.Limit{Rate: stat.RoundUp(start), Burst: rlc.Burst(rapid.IntRange(1, 50000).Draw(t, "burst"))}}
		first := monday.Add(-12 * day)
		force := ledger{{first, current.Limit}}
		var recent []rlc.Limit
		now := first
		for range rapid.IntRange(2, 12).Draw(t, "runs") {
			now = now.Add(time.Duration(rapid.IntRange(1, 26).Draw(t, "hours later")) * hour)
			end := 28*96 + int(now.Sub(first)/quarter)
			if end > len(values) {
				break
			}
			e := Evidence{Now: now, Current: current, DayAgo: force.before(now.Add(-day)), WeekAgo: force.before(now.Add(-7 * day)), Recent: recent}
			c := decide(summarised(values[end-28*96:end], now), e)
			// Bounds hold for what moves: a rate or a burst that stands may
			// have moved against another day's.
			check := func(what string, was, stood, is, up, down float64) {
				if is != stood && (is > was*up*(1+1e-9) && is > math.Ceil(was*up) && is > 1 || is < was*down*(1-1e-9)) {
					t.Fatalf("%s moved from %v to %v\n%s", what, was, is, Explain(c).Text())
				}
			}
			check("rate of a day", float64(e.DayAgo.Rate), float64(current.Rate), float64(c.New.Rate), 2, 0.9)
			check("rate of a week", float64(e.WeekAgo.Rate), float64(current.Rate), float64(c.New.Rate), 2.5, 0.7)
			check("burst of a day", float64(e.DayAgo.Burst), float64(current.Burst), float64(c.New.Burst), 2, 0.9)
			check("burst of a week", float64(e.WeekAgo.Burst), float64(current.Burst), float64(c.New.Burst), 2.5, 0.7)
			moved = moved || c.New.Rate != current.Rate
			current = &rlc.Quota{Limit: *c.New, Mode: c.NewMode, Why: c.Why}
			force = append(force, struct {
				at    time.Time
				limit rlc.Limit
			}{now, *c.New})
			if c.Estimate != nil {
				recent = append(recent, *c.Estimate)
			}
		}
	})
	if !t.Failed() && !moved {
		t.Error("no quota ever moved: the property says nothing")
	}
}

func TestInvariant4ALargeLoweringWaitsForAPerson(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var changes []rlc.Change
		lowered, total := map[string]int{}, map[string]int{}
		var before, after float64
		for i := range rapid.IntRange(1, 60).Draw(t, "quotas") {
			service := fmt.Sprint("s", rapid.IntRange(0, 4).Draw(t, "service"))
			old := rlc.Rate(rapid.IntRange(1, 1000).Draw(t, "old"))
			to := old * rlc.Rate(rapid.SampledFrom([]float64{0.9, 1, 1, 1, 1, 1.5}).Draw(t, "factor"))
			changes = append(changes, rlc.Change{Service: service, Bucket: fmt.Sprint(i), Old: &rlc.Limit{Rate: old, Burst: 1}, New: &rlc.Limit{Rate: to, Burst: 1}})
			total[service]++
			if to < old {
				lowered[service]++
			}
			before, after = before+float64(old), after+float64(to)
		}
		var gate BlastGate
		for _, c := range changes {
			gate.Add(c)
		}
		fleet := before-after > 0.05*before*(1+1e-9)
		gate.Mark(changes)
		for _, c := range changes {
			want := c.New.Rate < c.Old.Rate && (fleet || 5*lowered[c.Service] > total[c.Service])
			if got := c.Look != ""; got != want {
				t.Fatalf("%s of %s: %d of %d lowered, fleet %v to %v: asks for a person %v, want %v", c.Bucket, c.Service, lowered[c.Service], total[c.Service], before, after, got, want)
			}
		}
	})
}

func TestInvariant5EveryQuotaIsFiniteAndAboveItsFloor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := traffic(t, rapid.IntRange(1, 28).Draw(t, "days"))
		for range rapid.IntRange(0, 5).Draw(t, "absurd") {
			values[rapid.IntRange(0, len(values)-1).Draw(t, "at")] = rapid.SampledFrom([]float64{0, 1e12, 1e300, math.NaN(), math.Inf(1), -7}).Draw(t, "value")
		}
		floor := rapid.SampledFrom([]rlc.Rate{0, 0.2, 1, 5, 1000}).Draw(t, "floor")
		e := Evidence{Now: monday, Guards: rlc.Guards{Floor: floor}}
		if rapid.Bool().Draw(t, "in force") {
			e.Current = quota(rlc.Rate(rapid.Float64Range(max(1, float64(floor)), 1e5).Draw(t, "current")))
		}
		c := decide(summarised(values, monday), e)
		if c.New == nil {
			if c.Held == "" || e.Current != nil {
				t.Fatalf("no quota and no reason: %+v", c)
			}
			return
		}
		if err := c.New.Valid(); err != nil || c.New.Rate < max(1, floor) {
			t.Fatalf("new %v: %v, floor %v", c.New, err, floor)
		}
	})
}

func TestInvariant6EnforcedDropsNeverLowerAQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := traffic(t, 28)
		// A person once set a limit that cuts into the traffic of most days.
		limit := stat.RoundUp(rlc.Rate(max(1, stat.Median(values)*rapid.Float64Range(0.3, 1).Draw(t, "limit"))))
		backing := rapid.Float64Range(1.02, 3).Draw(t, "offered at most") // of the limit: refused clients back off
		current, now := &rlc.Quota{Limit: rlc.Limit{Rate: limit, Burst: 1 + rlc.Burst(2*limit)}}, monday
		for range 6 {
			h := summarised(values, now)
			dropping := 0
			for i := range h.Hours {
				if x := &h.Hours[i]; x.Max > current.Rate {
					x.Max = min(x.Max, current.Rate*rlc.Rate(backing))
					x.Drops = rlc.Ratio(0.011 + float64(1-current.Rate/x.Max)/2)
					dropping++
				}
			}
			c := decide(h, Evidence{Now: now, Current: current, DayAgo: &current.Limit, WeekAgo: &current.Limit})
			if c.New.Rate < current.Rate && dropping > 3*24 {
				t.Fatalf("%v became %v with %d hours of enforced drops\n%s", current.Rate, c.New.Rate, dropping, Explain(c).Text())
			}
			current, now = &rlc.Quota{Limit: *c.New, Why: c.Why}, now.Add(7*day)
		}
	})
}

func TestInvariant7AbsenceIsNotDeletion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gone := rapid.IntRange(5, 28*96).Draw(t, "steps without a sample")
		values := traffic(t, 28)
		for i := len(values) - gone; i < len(values); i++ {
			values[i] = math.NaN()
		}
		current := quota(rlc.Rate(rapid.Float64Range(1, 1e5).Draw(t, "current")))
		c := decide(summarised(values, monday), Evidence{Now: monday, Current: current})
		if c.Held != "no_data" || c.New == nil || *c.New != current.Limit || c.Moves() {
			t.Fatalf("a key without data since %d steps: held %q, new %v", gone, c.Held, c.New)
		}
	})
}

func TestInvariant32WhatEnforcementCausedRaisesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := traffic(t, 28)
		h := summarised(values, monday)
		current := quota(stat.RoundUp(rlc.Rate(max(1, 1.3*1.15*highest(values)))))
		e := Evidence{Now: monday, Current: current, DayAgo: &current.Limit, WeekAgo: &current.Limit}
		from := rapid.IntRange(0, len(h.Hours)-20).Draw(t, "from")
		inflate := rlc.Rate(rapid.Float64Range(1, 50).Draw(t, "retries"))
		for i := from; i < from+rapid.IntRange(1, 20).Draw(t, "hours"); i++ {
			h.Hours[i].Max = max(h.Hours[i].Max, current.Rate) * inflate
			if rapid.Bool().Draw(t, "failing") {
				h.Hours[i].Unhealthy = true
			} else {
				h.Hours[i].Drops = 0.05
			}
		}
		if c := decide(h, e); c.New.Rate > current.Rate {
			t.Fatalf("retries raised %v to %v\n%s", current.Rate, c.New.Rate, Explain(c).Text())
		}
	})
}

func TestRunsWithTheSameInputAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := summarised(traffic(t, 28), monday)
		e := Evidence{Now: monday, Current: quota(100)}
		if a, b := fmt.Sprintf("%+v", Explain(decide(h, e))), fmt.Sprintf("%+v", Explain(decide(h, e))); a != b {
			t.Fatalf("two answers:\n%s\n%s", a, b)
		}
	})
}
