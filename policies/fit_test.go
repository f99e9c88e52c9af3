package policies

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// fitted are changes of one service, one for each rate, new quotas of the
// bucket callers.
func fitted(capacity rlc.Capacity, rates ...rlc.Rate) (*rlc.Service, []rlc.Change) {
	svc := &rlc.Service{Name: "checkout", Capacity: &capacity, Buckets: []rlc.Bucket{{Name: "callers", Role: rlc.QuotaRole, Each: []string{"caller"}}, {Name: "whole", Role: rlc.CapRole}}}
	changes := []rlc.Change{{Service: "checkout", Bucket: "whole", New: &rlc.Limit{Rate: 1e6, Burst: 1e6}}} // a cap never counts
	for i, r := range rates {
		changes = append(changes, rlc.Change{Service: "checkout", Bucket: "callers", Key: rlc.Key{"caller": string(rune('a' + i))}, New: &rlc.Limit{Rate: r, Burst: rlc.Burst(2 * r)}, Why: "an estimate"})
	}
	return svc, changes
}

func rates(changes []rlc.Change) []rlc.Rate {
	var out []rlc.Rate
	for _, c := range changes[1:] {
		out = append(out, c.New.Rate)
	}
	return out
}

func TestWhatExceedsTheCapacityIsWaterFilled(t *testing.T) {
	// 100 + 400 + 900 = 1400 against 1000 × (1 − 0.1) = 900: 100 stays, the
	// others share 800.
	svc, changes := fitted(rlc.Capacity{Rate: 1000, Reserve: 0.1}, 100, 400, 900)
	losses := FitCapacity(svc, changes, Fit{})
	if got, want := rates(changes), []rlc.Rate{100, 400, 400}; !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
	want := []Loss{{ID: "callers/caller=c", From: rlc.Limit{Rate: 900, Burst: 1800}, To: rlc.Limit{Rate: 400, Burst: 800}}}
	if !slices.Equal(losses, want) {
		t.Errorf("losses %+v, want %+v", losses, want)
	}
	c := changes[3]
	if r := c.Reasons[0]; r.Rule != "capacity_fit" || !strings.Contains(r.Detail, "cut from 900/s, burst 1,800 to 400/s, burst 800") || c.Look == "" ||
		c.Why != "an estimate; cut to 400/s to fit the capacity" {
		t.Errorf("reason %+v, look %q, why %q", r, c.Look, c.Why)
	}
}

func TestQuotasThatDoNotPeakTogetherFit(t *testing.T) {
	svc, changes := fitted(rlc.Capacity{Rate: 1000, Reserve: 0.1}, 100, 400, 900)
	if losses := FitCapacity(svc, changes, Fit{Coincidence: 0.6}); losses != nil { // 1400 × 0.6 = 840
		t.Errorf("losses %v", losses)
	}
}

func TestContractsAndHeldQuotasKeepWhatTheyHave(t *testing.T) {
	svc, changes := fitted(rlc.Capacity{Rate: 1000}, 600, 500, 500)
	changes[2].Held, changes[2].Old = "coverage", changes[2].New
	FitCapacity(svc, changes, Fit{Contracts: map[string]rlc.Limit{"callers/caller=a": {Rate: 450, Burst: 1}}})
	// 450 + 500 are kept; 50 are left.
	if got, want := rates(changes), []rlc.Rate{450, 500, 50}; !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
}

func TestContractsThatDoNotFitRefuseTheService(t *testing.T) {
	svc, changes := fitted(rlc.Capacity{Rate: 1000}, 600, 500)
	changes[1].Old = &rlc.Limit{Rate: 300, Burst: 600}
	FitCapacity(svc, changes, Fit{Contracts: map[string]rlc.Limit{"callers/caller=a": {Rate: 600}, "callers/caller=b": {Rate: 500}}})
	for _, c := range changes {
		if c.Held != "conflict" || !c.Failed || c.Moves() {
			t.Errorf("%s: held %q, new %v", c.ID(), c.Held, c.New)
		}
	}
}

// What was promised may be asked for at any time: that callers did not peak
// together so far makes no room for contracts.
func TestContractsAreHeldAgainstTheCapacityWhateverKIs(t *testing.T) {
	for name, x := range map[string]struct {
		b    rlc.Rate // the second contract
		held string
	}{
		"1400 of 900": {800, "conflict"},
		"900 of 900":  {300, ""},
	} {
		svc, changes := fitted(rlc.Capacity{Rate: 1000, Reserve: 0.1}, 600, x.b)
		FitCapacity(svc, changes, Fit{Coincidence: 0.6, Contracts: map[string]rlc.Limit{"callers/caller=a": {Rate: 600}, "callers/caller=b": {Rate: x.b}}})
		for _, c := range changes[1:] {
			if c.Held != x.held || (x.held != "" && c.HeldWhy != "contracts of 1,400/s in all do not fit the capacity of 1,000/s, 900/s after its reserve") {
				t.Errorf("%s: held %q: %s", name, c.Held, c.HeldWhy)
			}
		}
	}
}

func TestACutKeepsThePromisedBurst(t *testing.T) {
	svc, changes := fitted(rlc.Capacity{Rate: 600}, 900, 500)
	FitCapacity(svc, changes, Fit{Contracts: map[string]rlc.Limit{"callers/caller=a": {Rate: 200, Burst: 1500}}})
	// 300 each; in proportion the bursts are 600, of which 1500 were promised.
	if a, b := *changes[1].New, *changes[2].New; a != (rlc.Limit{Rate: 300, Burst: 1500}) || b != (rlc.Limit{Rate: 300, Burst: 600}) {
		t.Errorf("%v and %v", a, b)
	}
}

func TestPromisedBurstsBeyondTheDeclaredOneAreKeptAndSaid(t *testing.T) {
	svc, changes := fitted(rlc.Capacity{Rate: 1000, Burst: 900}, 300, 300)
	FitCapacity(svc, changes, Fit{Contracts: map[string]rlc.Limit{"callers/caller=a": {Rate: 200, Burst: 500}, "callers/caller=b": {Rate: 200, Burst: 500}}})
	for _, c := range changes[1:] {
		if c.New.Burst != 500 || !strings.Contains(c.Look, "bursts of the contracts, 1,000 in all, exceed the capacity's burst of 900 and are kept") {
			t.Errorf("%s: %v, look %q", c.ID(), c.New, c.Look)
		}
	}
}

func TestBurstsFitTheDeclaredBurst(t *testing.T) {
	svc, changes := fitted(rlc.Capacity{Rate: 1000, Burst: 500}, 100, 200) // bursts 200 + 400
	FitCapacity(svc, changes, Fit{})
	if a, b := *changes[1].New, *changes[2].New; a != (rlc.Limit{Rate: 100, Burst: 200}) || b != (rlc.Limit{Rate: 200, Burst: 300}) {
		t.Errorf("%v and %v", a, b)
	}
}

func TestSharesNearTheQuotaInForceLeaveIt(t *testing.T) {
	svc, changes := fitted(rlc.Capacity{Rate: 1000}, 700, 690)
	changes[1].Old, changes[2].Old = &rlc.Limit{Rate: 495, Burst: 990}, &rlc.Limit{Rate: 490, Burst: 980}
	FitCapacity(svc, changes, Fit{})
	if got, want := rates(changes), []rlc.Rate{495, 490}; !slices.Equal(got, want) { // shares of 500
		t.Errorf("rates %v, want %v", got, want)
	}
}

func TestSharesAreMaxMinFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "quotas")
		ask, keep := make([]float64, n), make([]float64, n)
		var asked, kept float64
		for i := range ask {
			ask[i] = rapid.Float64Range(1, 1000).Draw(t, "ask")
			keep[i] = min(ask[i], rapid.Float64Range(0, 300).Draw(t, "keep"))
			asked, kept = asked+ask[i], kept+keep[i]
		}
		room := rapid.Float64Range(kept, asked).Draw(t, "room")
		out := waterFill(ask, keep, room)
		sum, level := 0.0, 0.0
		for i, v := range out {
			sum += v
			if v < keep[i]-1e-6 || v > ask[i]+1e-6 {
				t.Fatalf("share %v outside %v to %v", v, keep[i], ask[i])
			}
			if v > keep[i]+1e-6 {
				level = max(level, v)
			}
		}
		if math.Abs(sum-room) > 1e-6*room {
			t.Fatalf("shares sum to %v of %v", sum, room)
		}
		for i, v := range out { // nobody is below another who was given more than he keeps
			if v < ask[i]-1e-6 && v < level-1e-6 {
				t.Fatalf("share %v of %v below the level %v", v, ask[i], level)
			}
		}
	})
}

func TestCoincidenceIsThePeakOfTheSumOverTheSumOfPeaks(t *testing.T) {
	at := func(peak int) func(time.Time) float64 {
		return func(t time.Time) float64 {
			if t.Hour() == peak {
				return 90
			}
			return 10
		}
	}
	var k Coincidence
	if k.Ratio() != 1 {
		t.Errorf("of nothing: %v", k.Ratio())
	}
	k.Add(recorded(monday, 7, at(9)), nil)
	k.Add(recorded(monday, 7, at(15)), nil)
	near(t, "κ", rlc.Rate(k.Ratio()), 100.0/180)
}

// Ten callers peak together. Storms, each in one of them, are left out of the
// quotas, and so of what is said about how these peak together.
func TestStormsDoNotMakeCallersLookApart(t *testing.T) {
	start := monday.Add(-28 * day)
	for name, storm := range map[string]func(caller int, at time.Time) bool{
		"one caller, one night": func(caller int, at time.Time) bool {
			return caller == 0 && at.Sub(start).Truncate(time.Hour) == 10*day+hour
		},
		"every caller at noon of a day of its own": func(caller int, at time.Time) bool {
			return at.Sub(start).Truncate(time.Hour) == time.Duration(7+2*caller)*day+10*hour
		},
		"all of them in one night": func(_ int, at time.Time) bool {
			return at.Sub(start).Truncate(time.Hour) == 10*day+hour
		},
	} {
		var k Coincidence
		for caller := range 10 {
			r := run{history: recorded(monday, 28, func(at time.Time) float64 {
				if storm(caller, at) {
					return 10 * usual(at)
				}
				return usual(at)
			})}
			_, c := r.propose(t)
			if c.New.Rate != 130 {
				t.Fatalf("%s: the quota is %v", name, c.New)
			}
			k.Add(r.history, WindowsOf(c.Flags))
		}
		near(t, "κ with storms: "+name, rlc.Rate(k.Ratio()), 1)
	}
}

// What is left out of one series stands for what it usually did at that hour:
// the others' sum must not look smaller than it is.
func TestAnHourLeftOutStandsForItsUsual(t *testing.T) {
	flat := func(time.Time) float64 { return 100 }
	once := []rlc.Window{{From: monday.Add(-2 * day), Until: monday}}
	var k Coincidence
	k.Add(recorded(monday, 7, flat), once)
	k.Add(recorded(monday, 7, func(at time.Time) float64 {
		if at.After(once[0].From) {
			return 300
		}
		return 100
	}), nil)
	near(t, "κ", rlc.Rate(k.Ratio()), 1)
}

func TestTheBreakerComparesSeriesPresentInBoth(t *testing.T) {
	rate := func(v float64) *rlc.Rate { r := rlc.Rate(v); return &r }
	series := func(last *rlc.Rate, usual ...*rlc.Rate) FleetSeries {
		s := FleetSeries{Before: 60, After: 60, LastHour: last}
		copy(s.Usual[:], usual)
		return s
	}
	cases := map[string]struct {
		fleet []FleetSeries
		trips bool
	}{
		"nothing known":                    {nil, false},
		"69 % of the median":               {[]FleetSeries{series(rate(69), rate(100), rate(100), rate(1000))}, true},
		"70 % of the median":               {[]FleetSeries{series(rate(70), rate(100), rate(100), rate(1000))}, false},
		"one known week says nothing":      {[]FleetSeries{series(rate(1), rate(100))}, false},
		"a series that is new or gone now": {[]FleetSeries{series(rate(100), rate(100), rate(100)), series(nil, rate(900), rate(900)), series(rate(5))}, false},
		"one of two series lost its data":  {[]FleetSeries{{Before: 60}, {Before: 60, After: 60}}, false},
		"two of twenty lost half":          {append(slices.Repeat([]FleetSeries{{Before: 60, After: 60}}, 18), slices.Repeat([]FleetSeries{{Before: 60, After: 29}}, 2)...), false},
		"three of twenty lost half":        {append(slices.Repeat([]FleetSeries{{Before: 60, After: 60}}, 17), slices.Repeat([]FleetSeries{{Before: 60, After: 29}}, 3)...), true},
	}
	for name, c := range cases {
		if why := FleetBreaker(c.fleet); (why != "") != c.trips {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestVitalSignsCompareSpansOfEqualLength(t *testing.T) {
	h := stat.Summarise(minute, monday.Add(-2*day), slices.Repeat([]float64{3}, 2*24*60))
	s := SeriesOf(h, monday.Add(-3*hour-10*minute), monday)
	if s.Before != 180 || s.After != 180 || s.LastHour == nil || *s.LastHour != 3 || s.Usual != [3]*rlc.Rate{} {
		t.Errorf("%+v", s)
	}
	if s := SeriesOf(h, time.Time{}, monday); s.Before != 1440 || s.After != 1440 {
		t.Errorf("first run: %+v", s)
	}
}

func TestTiersAreFilledOneAfterTheOther(t *testing.T) {
	// a is critical, c is batch. Everybody keeps the floor of 1.
	for name, x := range map[string]struct {
		room rlc.Rate
		want []rlc.Rate
	}{
		"the batch gives first":         {1000, []rlc.Rate{300, 400, 300}}, // 1000 − 300 − 400
		"then the ordinary":             {500, []rlc.Rate{300, 199, 1}},    // the batch keeps its floor
		"the critical one gives last":   {200, []rlc.Rate{198, 1, 1}},
		"floors stand where none fits":  {2, []rlc.Rate{1, 1, 1}},
		"nothing is cut where all fits": {1600, []rlc.Rate{300, 400, 900}},
	} {
		svc, changes := fitted(rlc.Capacity{Rate: x.room}, 300, 400, 900)
		svc.Bucket("callers").Tier = rlc.Tier{Critical: []string{"a"}, Batch: []string{"c*"}}
		FitCapacity(svc, changes, Fit{})
		if got := rates(changes); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

func TestTheCallerOfAQuotaIsItsKeyOrTheBucketsOnlyCaller(t *testing.T) {
	one := &rlc.Bucket{Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Exact, Values: []string{"acme"}}}}
	many := &rlc.Bucket{Match: map[string]rlc.Pattern{"caller": {Kind: rlc.Prefix, Values: []string{"ac"}}}}
	if a, b, c := CallerOf(one, nil), CallerOf(many, nil), CallerOf(many, rlc.Key{"caller": "acorn"}); a != "acme" || b != "" || c != "acorn" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}
