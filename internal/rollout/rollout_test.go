package rollout_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/rollout"
)

var now = time.Date(2026, 12, 2, 6, 0, 0, 0, time.UTC)

func ready() rollout.Facts {
	one := rlc.Ratio(1)
	return rollout.Facts{Now: now, Since: now.Add(-7 * 24 * time.Hour), Quotas: 2, Coverage: &one, Joined: &one, Offered: 10, Word: "ada", Entitled: true}
}

func TestTheGateNamesWhatIsMissing(t *testing.T) {
	low := rlc.Ratio(0.9499)
	for _, c := range []struct {
		name string
		set  func(*rollout.Facts)
		want []string
	}{
		{"all there", func(*rollout.Facts) {}, nil},
		{"an hour short of seven days", func(f *rollout.Facts) { f.Since = f.Since.Add(time.Hour) }, []string{"shadow_days"}},
		{"unknown since when", func(f *rollout.Facts) { f.Since = time.Time{} }, []string{"shadow_days"}},
		{"an episode without a verdict", func(f *rollout.Facts) { f.Unjudged = 1 }, []string{"episodes"}},
		{"coverage", func(f *rollout.Facts) { f.Coverage = &low }, []string{"coverage"}},
		{"coverage unknown", func(f *rollout.Facts) { f.Coverage = nil }, []string{"coverage"}},
		{"names that do not join", func(f *rollout.Facts) { f.Joined = &low }, []string{"names_join"}},
		{"nothing counted", func(f *rollout.Facts) { f.Joined = nil }, []string{"names_join"}},
		{"nobody's word", func(f *rollout.Facts) { f.Word = "" }, []string{"owners_word"}},
		{"a stranger's word", func(f *rollout.Facts) { f.Entitled = false }, []string{"owners_word"}},
		{"no quota", func(f *rollout.Facts) { f.Quotas = 0 }, []string{"quotas"}},
	} {
		f := ready()
		c.set(&f)
		var missing []string
		checks := rollout.Gate(f, rollout.Rules{})
		for _, check := range checks {
			if !check.OK {
				missing = append(missing, check.Name)
			}
			if check.OK != (check.Fix == "") || check.Found == "" {
				t.Errorf("%s: a check without its number or fix: %+v", c.name, check)
			}
		}
		if !slices.Equal(missing, c.want) || rollout.Open(checks) != (c.want == nil) {
			t.Errorf("%s: missing %v, want %v", c.name, missing, c.want)
		}
	}
}

func begun(t *testing.T, plan ...string) rollout.Promotion {
	t.Helper()
	p, err := rollout.Begin(rollout.Promotion{Plan: plan, All: true, Fleet: []string{"a", "b"}, Expected: 0.01}, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPromotionGrowsZoneByZoneAndEnds(t *testing.T) {
	p := begun(t, "a", "b")
	var zones [][]string
	at := now
	for range 10 {
		zones = append(zones, p.Zones())
		at = at.Add(30 * time.Minute)
		act, why := rollout.Judge(p, rollout.Seen{Known: true, Offered: 1e5, Drops: 500}, at, rollout.Rules{})
		p = rollout.Advance(p, act, why, at)
		if p.Over() {
			break
		}
	}
	want := [][]string{{"a"}, {"a", "b"}, nil}
	if !reflect.DeepEqual(zones, want) || p.State != rollout.Done {
		t.Errorf("zones %v, state %s; want %v, done", zones, p.State, want)
	}
}

func TestDropsAreHeldToTheBacktest(t *testing.T) {
	p := begun(t, "a", "b")
	// One of two zones enforces: of 100,000 requests the backtest's 1 % are 500
	// drops there, and three times as many are 1,500.
	for _, c := range []struct {
		seen rollout.Seen
		at   time.Duration
		want rollout.Act
	}{
		{rollout.Seen{Known: true, Offered: 1e5, Drops: 1500}, time.Minute, rollout.Wait},
		{rollout.Seen{Known: true, Offered: 1e5, Drops: 1501}, time.Minute, rollout.Back},
		{rollout.Seen{Known: true, Offered: 1e5, Drops: 1500}, 30 * time.Minute, rollout.Grow},
		{rollout.Seen{Known: true, Offered: 10, Drops: 10}, time.Minute, rollout.Wait}, // fewer than MinDrops
		{rollout.Seen{}, 29 * time.Minute, rollout.Wait},
		{rollout.Seen{}, 30 * time.Minute, rollout.Halt},
		{rollout.Seen{Known: true}, 30 * time.Minute, rollout.Halt},
	} {
		if got, why := rollout.Judge(p, c.seen, now.Add(c.at), rollout.Rules{}); got != c.want {
			t.Errorf("%+v after %s: %s (%s), want %s", c.seen, c.at, got, why, c.want)
		}
	}
}

// Whatever is counted: nothing but a known count after a whole soak makes a
// promotion grow, it never skips a zone, and it never starts again by itself.
func TestNoVerdictNeverGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := rollout.Begin(rollout.Promotion{Plan: []string{"a", "b", "c"}, All: rapid.Bool().Draw(t, "all"), Expected: 0.01}, now)
		if err != nil {
			t.Fatal(err)
		}
		at := now
		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			at = at.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)
			s := rollout.Seen{Known: rapid.Bool().Draw(t, "known"), Offered: rapid.Float64Range(0, 1e6).Draw(t, "offered"), Drops: rapid.Float64Range(0, 1e5).Draw(t, "drops")}
			act, why := rollout.Judge(p, s, at, rollout.Rules{})
			next := rollout.Advance(p, act, why, at)
			if next.Reached > p.Reached && (!s.Known || at.Sub(p.Stage) < 30*time.Minute || next.Reached != p.Reached+1 || s.Drops > 3*s.Offered*0.01 && s.Drops >= 100) {
				t.Fatalf("grew from %+v by %+v", p, s)
			}
			if p.State != rollout.Growing && !reflect.DeepEqual(rollout.Advance(p, act, p.Why, at), p) {
				t.Fatalf("%s moved by itself: %s", p.State, act)
			}
			p = next
		}
	})
}

func TestTextsDifferByLinesWithThreeAround(t *testing.T) {
	before := "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n"
	after := "a\nB\nc\nd\ne\nf\ng\nh\ni\nk\nl\n"
	want := []rollout.Line{
		{Kind: " ", Text: "a"}, {Kind: "-", Text: "b"}, {Kind: "+", Text: "B"}, {Kind: " ", Text: "c"}, {Kind: " ", Text: "d"}, {Kind: " ", Text: "e"}, {Kind: "@"},
		{Kind: " ", Text: "g"}, {Kind: " ", Text: "h"}, {Kind: " ", Text: "i"}, {Kind: "-", Text: "j"}, {Kind: " ", Text: "k"}, {Kind: "+", Text: "l"},
	}
	if got := rollout.Text(before, after); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := rollout.Text(before, before); got != nil {
		t.Errorf("a text differs from itself: %v", got)
	}
	if got := rollout.Text("", "a\n"); !slices.Equal(got, []rollout.Line{{Kind: "+", Text: "a"}}) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestTheLinesOfADifferenceMakeBothTexts(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n"}), 0, 4).Draw(t, "lines"), "")
	})
	rapid.Check(t, func(t *rapid.T) { // so short that no line is left out
		before, after := text.Draw(t, "before"), text.Draw(t, "after")
		was, is, stay := "", "", 0
		for _, l := range rollout.Text(before, after) {
			if l.Kind != "+" {
				was += l.Text + "\n"
			}
			if l.Kind != "-" {
				is += l.Text + "\n"
			}
			if l.Kind == " " {
				stay++
			}
		}
		if before != after && (was != before || is != after) {
			t.Fatalf("%q to %q: %q to %q, %d stay", before, after, was, is, stay)
		}
	})
}

func TestRevisionsDifferByQuotaModeAndWrittenLimit(t *testing.T) {
	l := func(r rlc.Rate) *rlc.Limit { return &rlc.Limit{Rate: r, Burst: 10} }
	q := func(caller string, rate rlc.Rate) rlc.Quota {
		return rlc.Quota{Bucket: "callers", Key: rlc.Key{"caller": caller}, Limit: rlc.Limit{Rate: rate, Burst: 10}, Why: "x"}
	}
	before := rollout.Content{Service: &rlc.Service{Buckets: []rlc.Bucket{{Name: "callers", Mode: rlc.Enforce, Rollout: []string{"a"}}, {Name: "w", Mode: rlc.Shadow, Limit: l(20)}, {Name: "same", Limit: l(7)}, {Name: "slots", InFlight: &rlc.InFlight{Max: 20, Timeout: time.Minute}}}}, Quotas: []rlc.Quota{q("web", 10), q("gone", 5), q("same", 1)}}
	after := rollout.Content{Service: &rlc.Service{Buckets: []rlc.Bucket{{Name: "callers", Mode: rlc.Enforce, Rollout: []string{"a", "b"}}, {Name: "w", Mode: rlc.Shadow, Limit: l(50)}, {Name: "same", Limit: l(7)}, {Name: "day", Window: &rlc.WindowLimit{Requests: 1000, Per: rlc.PerDay, Calendar: true, Location: "Europe/Paris"}}}}, Quotas: []rlc.Quota{q("same", 1), q("web", 20), q("new", 3)}}
	after.Quotas[0].Why = "another reason"
	want := []rollout.Difference{
		{Quota: "callers", What: "mode", OldMode: "enforce in a", NewMode: "enforce in a, b"},
		{Quota: "day", What: "written", NewText: "1,000 per day, from 00:00 Europe/Paris"},
		{Quota: "slots", What: "written", OldText: "20 at once, forgotten after 1m"},
		{Quota: "w", What: "written", Old: l(20), New: l(50)},
		{Quota: "callers/caller=gone", What: "limit", Old: l(5)},
		{Quota: "callers/caller=new", What: "limit", New: l(3)},
		{Quota: "callers/caller=web", What: "limit", Old: l(10), New: l(20)},
	}
	if got := rollout.Diff(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := rollout.Diff(after, after); got != nil {
		t.Errorf("a revision differs from itself: %+v", got)
	}
	if got := rollout.Hardens(before, after); !slices.Equal(got, []string{"callers"}) {
		t.Errorf("hardens %v", got)
	}
	if got := rollout.Hardens(after, before); got != nil {
		t.Errorf("fewer zones harden %v", got)
	}
}

// A quota whose rate stays and whose hours or windows do not is another quota.
func TestRevisionsDifferByHoursAndWindows(t *testing.T) {
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	q := func(caller string, hours *rlc.QuotaHours, windows ...rlc.QuotaWindow) rlc.Quota {
		return rlc.Quota{Bucket: "callers", Key: rlc.Key{"caller": caller}, Limit: rlc.Limit{Rate: 100, Burst: 200}, Hours: hours, Windows: windows}
	}
	week := func(night rlc.Rate, nights int) *rlc.QuotaHours {
		h := &rlc.QuotaHours{From: at, Rates: slices.Repeat([]rlc.Rate{100}, 168)}
		for i := range nights {
			h.Rates[i] = night
		}
		return h
	}
	sale := rlc.QuotaWindow{From: at.Add(6 * time.Hour), Until: at.Add(30 * time.Hour), Limit: rlc.Limit{Rate: 400, Burst: 800}}
	before := rollout.Content{Quotas: []rlc.Quota{q("a", week(40, 6)), q("b", nil), q("c", week(40, 6)), q("d", nil, sale), q("e", week(40, 6))}}
	later := week(40, 6)
	later.From = at.AddDate(0, 0, 7)
	after := rollout.Content{Quotas: []rlc.Quota{q("a", week(40, 8)), q("b", week(40, 6)), q("c", week(40, 6)), q("d", nil), q("e", later)}}
	limit := &rlc.Limit{Rate: 100, Burst: 200}
	want := []rollout.Difference{
		{Quota: "callers/caller=a", What: "limit", Old: limit, New: limit, OldText: "40 to 100/s by the hour", NewText: "40 to 100/s by the hour, 2 of 168 hours are other ones"},
		{Quota: "callers/caller=b", What: "limit", Old: limit, New: limit, NewText: "40 to 100/s by the hour"},
		{Quota: "callers/caller=d", What: "limit", Old: limit, New: limit, OldText: "400/s, burst 800, from 2026-11-30 06:00 UTC to 2026-12-01 06:00 UTC"},
		{Quota: "callers/caller=e", What: "limit", Old: limit, New: limit, OldText: "40 to 100/s by the hour", NewText: "40 to 100/s by the hour, from 2026-12-07 00:00 UTC"},
	}
	if got := rollout.Diff(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestAPinHoldsWithinItsBand(t *testing.T) {
	p := rollout.Pin{Limit: rlc.Limit{Rate: 100, Burst: 200}, Band: 0.2}
	for rate, want := range map[rlc.Rate]bool{100: true, 120: true, 80: true, 121: false, 79: false} {
		if got := p.Holds(rlc.Limit{Rate: rate, Burst: 200}); got != want {
			t.Errorf("%g/s: %t, want %t", rate, got, want)
		}
	}
}
