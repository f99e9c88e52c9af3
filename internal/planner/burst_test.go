package planner_test

import (
	"testing"
	"time"

	"github.com/openrlc/rlc"
)

// The peak of 100/s gives 130/s. Without a witness the burst is twice that; with
// one it is the highest second × 1.3, at least a second of the rate.
func TestABurstRestsOnTheHighestSecondThatWasCounted(t *testing.T) {
	storm := now.Add(-4 * day).Truncate(time.Hour)
	always := func(r rlc.Rate) func(time.Time) rlc.Rate { return func(time.Time) rlc.Rate { return r } }
	for name, c := range map[string]struct {
		seconds func(time.Time) rlc.Rate
		burst   rlc.Burst
		detail  string
	}{
		"nobody counts": {nil, 260, "burst 260: 2 × the rate; bursts below the step of 1m are not visible"},
		"bursts far above the minute": {always(400), 520,
			"burst 520: the highest second that enforcers counted, 400/s in the hour of 2026-02-18 10:00 UTC, × 1.30 as the rate is of its peak"},
		"smooth traffic": {always(110), 143,
			"burst 143: the highest second that enforcers counted, 110/s in the hour of 2026-02-18 10:00 UTC, × 1.30 as the rate is of its peak"},
		"a second below the mean": {always(50), 130,
			"burst 130: a second of the rate; the highest second that enforcers counted, 50/s in the hour of 2026-02-18 10:00 UTC, lies below"},
		"what was left out stays out": {func(t time.Time) rlc.Rate {
			if t.Equal(storm) {
				return 9000
			}
			return 200
		}, 260, "burst 260: the highest second that enforcers counted, 200/s in the hour of 2026-02-18 10:00 UTC, × 1.30 as the rate is of its peak"},
		"a week of them raises": {since(now.Add(-7*day), 400), 520,
			"burst 520: the highest second that enforcers counted, 400/s in the hour of 2026-03-11 10:00 UTC, × 1.30 as the rate is of its peak"},
		"a week of them does not lower": {since(now.Add(-7*day), 110), 260,
			"burst 143: the highest second that enforcers counted, 110/s in the hour of 2026-03-11 10:00 UTC, × 1.30 as the rate is of its peak; 260 until 14 days were counted by the second (168 of 672 hours were)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, files(policy("geo", "  - {name: all}\nexclude:\n  - {from: "+storm.Format(time.RFC3339)+", until: "+storm.Add(time.Hour).Format(time.RFC3339)+", reason: storm}\n")))
			w.history.series["geo all"] = wave(100)
			w.history.seconds = map[string]func(time.Time) rlc.Rate{"geo all": c.seconds}
			w.cron()
			got := w.all()
			if got.New == nil || got.New.Rate != 130 || got.New.Burst != c.burst {
				t.Errorf("%v, want 130/s with a burst of %d", got.New, c.burst)
			}
			for _, r := range got.Reasons {
				if r.Rule == "burst" && r.Detail != c.detail {
					t.Errorf("%s\nwant %s", r.Detail, c.detail)
				}
			}
		})
	}
}

func since(from time.Time, second rlc.Rate) func(time.Time) rlc.Rate {
	return func(t time.Time) rlc.Rate {
		if t.Before(from) {
			return 0
		}
		return second
	}
}

func TestABurstThatAPolicyDecidedStandsAndAGuessDoesNot(t *testing.T) {
	for expression, want := range map[string]rlc.Burst{`{"rate": 130, "burst": 300}`: 300, "130.0": 520} {
		w := newWorld(t, files(policy("geo", "  - name: all\n    policy: {kind: expression, expression: '"+expression+"'}\n")))
		w.history.series["geo all"] = wave(100)
		w.history.seconds = map[string]func(time.Time) rlc.Rate{"geo all": func(time.Time) rlc.Rate { return 400 }}
		w.cron()
		if got := w.all(); got.New == nil || got.New.Burst != want {
			t.Errorf("%s: %+v, want a burst of %d", expression, got.New, want)
		}
	}
}
