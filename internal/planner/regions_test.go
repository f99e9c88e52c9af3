package planner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies"
)

// regional is a service in two regions, 80 to 20, whose bucket counts by region.
func regional(t *testing.T, head string) *world { return regionalBy(t, head, "", "") }

// regionalBy is regional with more said of the bucket, and lines left out of the
// profile that hold a text, "" for none.
func regionalBy(t *testing.T, head, bucket, without string) *world {
	f := service("geo", head+"profile: regions\n", "  - {name: all, scope: region"+bucket+"}\n")
	f["profiles/regions.yaml"] = []byte(`apiVersion: rlc/v1
kind: Profile
name: regions
attributes:
  caller: {metric: caller, descriptor: caller}
  region: {metric: region, descriptor: region}
history:
  step: 1m
  sources: ['sum by (caller, region) (rate(requests_total{service="${service}"}[1m]))']
`)
	if without != "" {
		var lines []byte
		for line := range strings.Lines(string(f["profiles/regions.yaml"])) {
			if !strings.Contains(line, without) {
				lines = append(lines, line...)
			}
		}
		f["profiles/regions.yaml"] = lines
	}
	w := newWorld(t, f)
	w.history.series["geo all"] = wave(1000)
	w.history.series["geo all region=eu"] = wave(800)
	w.history.series["geo all region=us"] = wave(200)
	return w
}

const evacuation = "failover: [{lose: eu, to: {us: 1.0}}, {lose: us, to: {eu: 1.0}}]\n"

// of is the newest change of a region's own quota, "" for the one over all.
func (w *world) of(region string) rlc.Change {
	w.t.Helper()
	return w.change("geo", rlc.Quota{Bucket: "all", Region: region}.Place(), nil)
}

// Scenario 13.
func TestARegionalQuotaBearsTheDeclaredFailover(t *testing.T) {
	w := regional(t, evacuation)
	w.cron()
	for _, region := range []string{"", "eu", "us"} {
		c := w.of(region)
		if c.New == nil || c.New.Rate != 1300 || c.Region != region { // (800 + 200) × 1.3
			t.Errorf("%q: %+v in %q, want 1300\n%s", region, c.New, c.Region, policies.Explain(c).Text())
		}
	}
	us := w.of("us")
	if us.ID() != "all@us" || us.Why != "weekly peak 200/s × 1.30 headroom + 100 % of the 1,040/s of eu when it is lost" {
		t.Errorf("%s: %q", us.ID(), us.Why)
	}
	w.accept("geo")

	// eu is evacuated for a day and a half: us bears all, the sum is unchanged.
	at := now.Add(2 * day)
	w.history.series["geo all region=eu"] = times(wave(800), 0, at, at.Add(36*time.Hour))
	w.history.series["geo all region=us"] = times(wave(200), 5, at, at.Add(36*time.Hour))
	for _, later := range []time.Duration{6 * time.Hour, 30 * time.Hour, 5 * day} {
		w.clock = at.Add(later)
		run := w.cron()
		if run.Changed != 0 || run.Result != rlc.ResultOK {
			t.Errorf("after %s: %+v", later, run)
		}
		for _, region := range []string{"", "eu", "us"} {
			if c := w.of(region); c.Moves() || c.New.Rate != 1300 {
				t.Errorf("after %s: %s %+v\n%s", later, c.ID(), c.New, policies.Explain(c).Text())
			}
		}
	}
}

// A bucket that counts by region has one quota that each region may use where its
// share cannot be told, and its change says why.
func TestWhereARegionsShareIsNotKnownEachMayUseTheWhole(t *testing.T) {
	for name, c := range map[string]struct {
		head, bucket, without string
		rates                 map[string]rlc.Rate // by the change's key
		why                   string
	}{
		"no failover": {
			rates: map[string]rlc.Rate{"": 1300}, // 1000 × 1.3
			why:   "no failover is declared",
		},
		"the metrics know no regions": {
			head: evacuation, without: "  region:",
			rates: map[string]rlc.Rate{"": 1300},
			why:   "the metrics of profile regions do not tell the region",
		},
		"a key for each region": {
			head: evacuation, bucket: ", each: [region]",
			rates: map[string]rlc.Rate{"eu": 1040, "us": 260}, // 800 × 1.3 and 200 × 1.3
			why:   "its keys name the region already",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := regionalBy(t, c.head, c.bucket, c.without)
			run := w.cron()
			if run.Total != len(c.rates) {
				t.Errorf("%d changes, want %d", run.Total, len(c.rates))
			}
			for region, rate := range c.rates {
				var key rlc.Key
				if region != "" {
					key = rlc.Key{"region": region}
				}
				got := w.change("geo", "all", key)
				text := policies.Explain(got).Text()
				if got.New == nil || got.New.Rate != rate || got.Region != "" || !strings.Contains(text, c.why+": each region may use the whole quota") {
					t.Errorf("%q: %+v in %q, want %v because %s\n%s", region, got.New, got.Region, rate, c.why, text)
				}
			}
		})
	}
}

func TestARegionalQuotaIsNeverAboveTheWhole(t *testing.T) {
	w := regional(t, evacuation+"capacity: {rate: 650}\n")
	w.cron()
	for _, region := range []string{"", "eu", "us"} {
		if c := w.of(region); c.New == nil || c.New.Rate != 650 {
			t.Errorf("%s: %+v", c.ID(), c.New)
		}
	}
}

func TestALostRegionOfWhichNothingIsKnownLowersNoOther(t *testing.T) {
	w := regional(t, evacuation)
	w.cron()
	w.accept("geo")
	delete(w.history.series, "geo all region=eu")
	w.history.series["geo all region=us"] = wave(200)
	w.clock = now.Add(day + time.Hour)
	w.cron()
	if c := w.of("us"); c.Moves() || c.Held != "no_decrease" || !strings.Contains(c.HeldWhy, "what eu would send on a failover is not known") {
		t.Errorf("%+v, held %q: %q", c.New, c.Held, c.HeldWhy)
	}
}
