package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies"
	"github.com/openrlc/rlc/quotafile"
)

// A Sunday evening; other weekdays and the first minute of a day are tried
// where they matter.
var testNow = time.Date(2026, 11, 29, 22, 47, 21, 0, time.UTC)

func find(t *testing.T, all []TrafficSeries, service, caller, procedure string) *TrafficSeries {
	t.Helper()
	for i := range all {
		if s := &all[i]; s.Service == service && s.Caller == caller && s.Procedure == procedure {
			return s
		}
	}
	t.Fatalf("no series %s/%s/%s", service, caller, procedure)
	return nil
}

func TestTheDemoIsAFleet(t *testing.T) {
	all := Series(testNow)
	callers := map[string]map[string]bool{}
	seen := map[string]bool{}
	for _, s := range all {
		id := s.Service + "/" + s.Caller + "/" + s.Procedure
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		if callers[s.Service] == nil {
			callers[s.Service] = map[string]bool{}
		}
		callers[s.Service][s.Caller] = true
	}
	if len(callers) < 6 || len(all) < 30 {
		t.Errorf("%d series of %d services, want at least 30 of 6", len(all), len(callers))
	}
	for service, c := range callers {
		if len(c) < 3 {
			t.Errorf("%s has %d callers, want several", service, len(c))
		}
	}
}

func TestRatesAreFiniteAndSteadyFromFiveWeeksAgoToNextWeek(t *testing.T) {
	for _, now := range []time.Time{testNow, time.Date(2027, 1, 4, 0, 0, 0, 0, time.UTC), time.Date(2026, 6, 18, 12, 0, 30, 0, time.UTC)} {
		again := Series(now)
		for i, s := range Series(now) {
			minutes, missing := 0, 0
			for m := now.Truncate(time.Minute).Add(-5 * week); m.Before(now.Add(week)); m = m.Add(7 * time.Minute) {
				minutes++
				r := s.Rate(m)
				switch {
				case math.IsNaN(r):
					missing++
				case math.IsInf(r, 0) || r < 0:
					t.Fatalf("%s/%s/%s at %s: rate %g", s.Service, s.Caller, s.Procedure, m, r)
				}
				if o := again[i].Rate(m.Add(59 * time.Second)); o != r && !(math.IsNaN(o) && math.IsNaN(r)) {
					t.Fatalf("%s/%s/%s at %s: %g and then %g in the same minute", s.Service, s.Caller, s.Procedure, m, r, o)
				}
			}
			// Recordings have holes of a few steps; events make larger ones.
			if s.line.event != newCaller && s.line.event != lostData && float64(missing) > 0.005*float64(minutes) {
				t.Errorf("%s/%s/%s: %d of %d minutes are missing", s.Service, s.Caller, s.Procedure, missing, minutes)
			}
		}
	}
}

// stepMean is the mean over the recorded step that starts at m.
func stepMean(s *TrafficSeries, m time.Time) float64 {
	n := int(s.trace.step / time.Minute)
	sum := 0.0
	for i := range n {
		sum += s.plain(m.Add(time.Duration(i) * time.Minute))
	}
	return sum / float64(n)
}

// Weekday and hour of the recording still fit, nothing is invented within the
// weeks that are shown, and filling a step in keeps its mean.
func TestALongTraceIsMovedByWholeWeeks(t *testing.T) {
	for _, s := range Series(testNow) {
		tr := s.trace
		if tr.days[0] != nil {
			continue
		}
		from, until := testNow.Truncate(day).Add(-history), testNow.Truncate(day).Add(week)
		fits := func(moved time.Duration) bool {
			for m := from; m.Before(until); m = m.Add(tr.step) {
				i := int(m.Add(-moved).Sub(tr.start) / tr.step)
				if i < 0 || i >= len(tr.rates) {
					return false
				}
				want, got := s.line.base+s.line.scale*tr.rates[i], stepMean(&s, m)
				if math.IsNaN(want) != math.IsNaN(got) || math.Abs(want-got) > 1e-9*(1+want) {
					return false
				}
			}
			return true
		}
		moved := testNow.Sub(tr.start).Truncate(week)
		for moved > 0 && !fits(moved) {
			moved -= week
		}
		if moved <= 0 {
			t.Errorf("%s/%s/%s is its trace moved by no number of weeks", s.Service, s.Caller, s.Procedure)
		}
	}
}

func TestAShortTraceIsTiledByDaysOfTheSameWeekday(t *testing.T) {
	for _, s := range Series(testNow) {
		tr := s.trace
		if tr.days[0] == nil {
			continue
		}
		perDay := int(day / tr.step)
		for m := testNow.Truncate(day).Add(-history); m.Before(testNow.Add(week)); m = m.Add(day) {
			fits := 0
			for i := 0; i+perDay <= len(tr.rates); i += perDay { // these traces begin at midnight
				if tr.start.Add(time.Duration(i)*tr.step).Weekday() != m.Weekday() {
					continue
				}
				same := true
				for j := 0; j < perDay && same; j++ {
					want, got := s.line.base+s.line.scale*tr.rates[i+j], stepMean(&s, m.Add(time.Duration(j)*tr.step))
					if tr.step == time.Minute {
						same = math.Abs(want-got) <= s.line.noise*want+1e-9
					} else {
						same = math.IsNaN(want) == math.IsNaN(got) && !(math.Abs(want-got) > 1e-9*(1+want))
					}
				}
				if same {
					fits++
				}
			}
			if fits == 0 {
				t.Fatalf("%s/%s/%s on %s is no recorded %s", s.Service, s.Caller, s.Procedure, m.Format(time.DateOnly), m.Weekday())
			}
		}
	}
}

func TestNoiseIsSeededAndCancelsInPairs(t *testing.T) {
	sum, square := 0.0, 0.0
	for m := int64(0); m < 20000; m += 2 {
		a, b := noise(7, m), noise(7, m+1)
		if a != -b || a < -1 || a > 1 {
			t.Fatalf("pair %d: %g and %g", m, a, b)
		}
		sum += a
		square += a * a
	}
	if mean, variance := sum/1e4, square/1e4; math.Abs(mean) > 0.02 || math.Abs(variance-1.0/3) > 0.02 {
		t.Errorf("mean %g and variance %g, want about 0 and 1/3: even over [−1, 1)", mean, variance)
	}
	if noise(7, 0) == noise(8, 0) {
		t.Error("two series have the same noise")
	}
}

func TestEventsHappenWhenTheySay(t *testing.T) {
	all := Series(testNow)
	midnight := testNow.Truncate(day)

	courier := find(t, all, "orders", "courier-app", "Update")
	first := testNow.Truncate(time.Hour).Add(-48 * time.Hour)
	if !math.IsNaN(courier.Rate(first.Add(-time.Minute))) || !(courier.Rate(first) > 0) {
		t.Error("the new caller does not begin two days ago")
	}

	warehouse := find(t, all, "orders", "warehouse", "Update")
	from := midnight.Add(-6*day + 6*time.Hour)
	lost := 0
	for m := testNow.Truncate(time.Minute).Add(-history); m.Before(testNow); m = m.Add(time.Minute) {
		if math.IsNaN(warehouse.Rate(m)) {
			lost++
		}
	}
	if lost != 36*60 || !math.IsNaN(warehouse.Rate(from)) || math.IsNaN(warehouse.Rate(from.Add(-time.Minute))) || math.IsNaN(warehouse.Rate(from.Add(36*time.Hour))) {
		t.Errorf("%d minutes lost, want the 36 hours from %s", lost, from)
	}

	shift := find(t, all, "search", "recommend", "Query")
	at := midnight.Add(-3 * day)
	if a, b := shift.Rate(at.Add(-time.Minute)), shift.plain(at.Add(-time.Minute)); a != b {
		t.Errorf("before the shift %g, want %g", a, b)
	}
	for _, m := range []time.Time{at, testNow, testNow.Add(3 * day)} {
		if a, b := shift.Rate(m), 2.5*shift.plain(m.Truncate(time.Minute)); a != b {
			t.Errorf("after the shift, at %s: %g, want %g", m, a, b)
		}
	}

	front := find(t, all, "orders", "web-frontend", "List")
	var storm []time.Time
	for m := midnight.Add(-history); m.Before(testNow.Add(week)); m = m.Add(time.Minute) {
		switch front.Rate(m) / front.plain(m) {
		case 1:
		case 3:
			storm = append(storm, m)
		default:
			t.Fatalf("at %s the rate is %g times the plain one", m, front.Rate(m)/front.plain(m))
		}
	}
	if len(storm) != 40 || storm[39].Sub(storm[0]) != 39*time.Minute || !storm[0].Truncate(day).Equal(midnight.Add(-9*day)) {
		t.Errorf("a storm of %d minutes, want 40 in a row nine days ago", len(storm))
	}
}

// perMinute is what a bucket of a caller sees: the sum of its series.
func perMinute(all []TrafficSeries, from, until time.Time, service, caller string) []float64 {
	var values []float64
	for m := from; m.Before(until); m = m.Add(time.Minute) {
		sum, any := 0.0, false
		for i := range all {
			if s := &all[i]; s.Service == service && s.Caller == caller {
				if r := s.Rate(m); !math.IsNaN(r) {
					sum, any = sum+r, true
				}
			}
		}
		if !any {
			sum = math.NaN()
		}
		values = append(values, sum)
	}
	return values
}

// The history shows what it was made for: the default policy leaves the storm
// out, accepts the shift, keeps the new caller in shadow.
func TestThePolicyFindsTheEvents(t *testing.T) {
	all := Series(testNow)
	now := testNow.Truncate(time.Minute)
	estimate := func(service, caller string) (rlc.Estimate, float64) {
		values := perMinute(all, now.Add(-history), now, service, caller)
		p, err := policies.Builtin().New(rlc.PolicySpec{Kind: "historical"})
		if err != nil {
			t.Fatal(err)
		}
		est, err := p.Propose(context.Background(), rlc.Input{Service: service, Bucket: "callers", Key: rlc.Key{"caller": caller}, Now: now, History: stat.Summarise(time.Minute, now.Add(-history), values)})
		if err != nil {
			t.Fatalf("%s/%s: %v", service, caller, err)
		}
		peak := 0.0
		for _, v := range values {
			if v > peak {
				peak = v
			}
		}
		return est, peak
	}
	est, peak := estimate("orders", "web-frontend")
	if float64(est.Limit.Rate) > 0.7*peak || !slices.ContainsFunc(est.Flags, func(f rlc.Flag) bool { return f.Rule == "spike" }) {
		t.Errorf("storm: limit %g beside a peak of %g, flags %+v; want the storm left out and shown", est.Limit.Rate, peak, est.Flags)
	}
	est, peak = estimate("search", "recommend")
	if float64(est.Limit.Rate) < 1.2*peak {
		t.Errorf("shift: limit %g beside a peak of %g, want the shift accepted", est.Limit.Rate, peak)
	}
	if est, _ = estimate("orders", "courier-app"); !est.Shadow || est.ValidDays > 3 {
		t.Errorf("new caller: shadow %v after %.1f days, want it in shadow", est.Shadow, est.ValidDays)
	}
	if est, _ = estimate("orders", "warehouse"); est.Coverage >= 0.95 || est.Coverage < 0.5 {
		t.Errorf("lost data: coverage %g, want it too low for a decrease", est.Coverage)
	}
}

// At any hour the storm is more than the quota's rate, and empties its burst
// within a minute: virtual drops move at once.
func TestTheStormIsAboveItsQuotaAtAnyHour(t *testing.T) {
	all := Series(testNow)
	storm := Storm()
	past := perMinute(all, testNow.Truncate(time.Minute).Add(-history), testNow, storm.Service, storm.Caller)
	limit := 1.3 * 1.15 * slices.Max(past) // headroom and the most growth
	live := perMinute(all, testNow.Truncate(time.Minute), testNow.Add(week), storm.Service, storm.Caller)
	if least := storm.Factor * slices.Min(live); (least-limit)*60 < 2*limit {
		t.Errorf("the storm offers %g/s at least, a quota of %g/s with twice that as burst takes more than a minute to show it", least, limit)
	}
}

func parseFiles(t *testing.T, files rlc.Files) *quotafile.Config {
	t.Helper()
	c := quotafile.Parse(files, policies.Builtin().Check)
	for _, p := range c.Problems {
		t.Errorf("problem: %s", p)
	}
	return c
}

func TestTheConfigRepositoryIsValidAndCoversTheTraffic(t *testing.T) {
	c := parseFiles(t, ConfigFiles())
	var have, want []string
	enforcing := 0
	kinds := map[string]bool{}
	for _, s := range c.Services {
		have = append(have, s.Name)
		for _, b := range s.Buckets {
			if b.Mode == rlc.Enforce {
				enforcing++
			}
			if b.Policy != nil {
				kinds[b.Policy.Kind] = true
			}
		}
	}
	for _, s := range services {
		want = append(want, s.name)
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("services %q in files, %q in traffic", have, want)
	}
	if enforcing > 1 || !kinds["historical"] || !kinds["contractual"] || !kinds["capacity"] {
		t.Errorf("%d buckets enforce and kinds are %v; want at most one, and every kind", enforcing, kinds)
	}
	if len(c.Contracts) != 1 {
		t.Errorf("%d contracts, want one", len(c.Contracts))
	}
}

func TestTheEditChangesOnePolicyAndStaysValid(t *testing.T) {
	service, message, edit := Edit()
	if service == "" || message == "" || len(edit) != 1 {
		t.Fatalf("edit of %q, %q, %d files", service, message, len(edit))
	}
	files := ConfigFiles()
	before := parseFiles(t, files)
	for path, data := range edit {
		if path != quotafile.PolicyPath(service) || string(files[path]) == string(data) {
			t.Errorf("the edit of %s writes %s", service, path)
		}
		files[path] = data
	}
	after := parseFiles(t, files)
	old, edited := before.Service(service).Bucket("callers").Policy, after.Service(service).Bucket("callers").Policy
	if old.Params["headroom"] != 0.3 || edited.Params["headroom"] != 0.6 {
		t.Errorf("headroom %v and then %v, want 0.3 and 0.6", old.Params["headroom"], edited.Params["headroom"])
	}
}

// The MIT license asks for its notice; people who look at the data ask what was
// changed.
func TestTracesAreSmallAndAttributed(t *testing.T) {
	entries, err := os.ReadDir("traces")
	if err != nil {
		t.Fatal(err)
	}
	attribution, err := os.ReadFile("traces/ATTRIBUTION.md")
	if err != nil {
		t.Fatal(err)
	}
	license, err := os.ReadFile("traces/LICENSE")
	if err != nil || !strings.Contains(string(license), "Microsoft Corporation") || !strings.Contains(string(license), "Numenta Inc.") {
		t.Errorf("the license names its holders? %v", err)
	}
	var size int64
	used := map[string]bool{}
	for _, s := range services {
		for _, l := range s.lines {
			used[l.trace] = true
			if l.noise < 0 || l.noise > 0.4 {
				t.Errorf("%s/%s/%s: noise %g, want at most 0.4, which keeps rates above 0", s.name, l.caller, l.procedure, l.noise)
			}
			scale := fmt.Sprintf("× %g", l.scale)
			if l.base != 0 {
				scale += fmt.Sprintf(" + %g/s", l.base)
			}
			row := fmt.Sprintf("| %s | %s / %s | %s | %s | ± %g %% |", s.name, l.caller, l.procedure, l.trace, scale, 100*l.noise)
			if !strings.Contains(string(attribution), row) {
				t.Errorf("ATTRIBUTION.md lacks the line\n%s", row)
			}
		}
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
		name, isTrace := strings.CutSuffix(e.Name(), ".csv.gz")
		if isTrace && !used[name] {
			t.Errorf("%s is bundled and not used", e.Name())
		}
		if strings.Contains(e.Name(), "nasa") {
			t.Errorf("%s must not be redistributed", e.Name())
		}
	}
	if size > 1<<20 {
		t.Errorf("%d bytes of traces, want at most 1 MiB", size)
	}
}

func TestADamagedTraceIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"empty":          "",
		"a bad time":     "timestamp_rfc3339,rps\nyesterday,1\n",
		"a bad rate":     "timestamp_rfc3339,rps\n2026-01-01T00:00:00Z,many\n",
		"one row":        "timestamp_rfc3339,rps\n2026-01-01T00:00:00Z,1\n",
		"a strange step": "timestamp_rfc3339,rps\n2026-01-01T00:00:00Z,1\n2026-01-01T00:00:07Z,1\n",
		"one day":        "timestamp_rfc3339,rps\n2026-01-01T00:00:00Z,1\n2026-01-01T12:00:00Z,1\n",
	} {
		if _, err := parseTrace(strings.NewReader(text)); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	if _, err := readTrace("none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such trace: %v", err)
	}
}

func BenchmarkSeries(b *testing.B) {
	for b.Loop() {
		Series(testNow)
	}
}

func BenchmarkRate(b *testing.B) {
	all := Series(testNow)
	for b.Loop() {
		for i := range all {
			all[i].Rate(testNow)
		}
	}
}
