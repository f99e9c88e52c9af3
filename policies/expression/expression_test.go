package expression

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

var now = time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// input is four weeks at 100/s, but for one hour at 500/s ten days ago, which
// the historical policy leaves out, and one at 80/s an hour ago.
func input() rlc.Input {
	start := now.Add(-28 * day)
	values := make([]float64, 28*24*60)
	for i := range values {
		at := start.Add(time.Duration(i) * time.Minute)
		values[i] = 100
		if at.Truncate(time.Hour).Equal(now.Add(-10 * day)) {
			values[i] = 500
		}
	}
	return rlc.Input{
		Now: now, History: stat.Summarise(time.Minute, start, values),
		Current: &rlc.Limit{Rate: 150, Burst: 300}, Capacity: &rlc.Capacity{Rate: 1000, Reserve: 0.2},
		Contract: &rlc.Contract{Limit: rlc.Limit{Rate: 70}},
	}
}

func compiled(t testing.TB, text string) *Policy {
	t.Helper()
	p, problems := New(Config{Expression: text, Planned: 25})
	if len(problems) > 0 {
		t.Fatalf("%s: %v", text, problems)
	}
	return p
}

func TestExpressionsSeeTheEvidence(t *testing.T) {
	for text, want := range map[string]rlc.Limit{
		"weekly_peak * 1.3 + planned":        {Rate: 155, Burst: 310}, // 100 × 1.3 + 25
		"peak_28d":                           {Rate: 500, Burst: 1000},
		"peak_7d":                            {Rate: 100, Burst: 200},
		"p99 + 0.0":                          {Rate: 100, Burst: 200}, // the storm is 60 of 40,320 steps: 0.15 %
		"p999":                               {Rate: 500, Burst: 1000},
		"capacity":                           {Rate: 800, Burst: 1600}, // 1000 × 0.8
		"contract":                           {Rate: 70, Burst: 140},
		"current_rate + current_burst":       {Rate: 450, Burst: 900},
		"days":                               {Rate: 28, Burst: 56},
		"42":                                 {Rate: 42, Burst: 84},
		"days > 14 ? weekly_peak : peak_28d": {Rate: 100, Burst: 200},
		"math.greatest(weekly_peak, contract * 2.0)":       {Rate: 140, Burst: 280},
		`{"rate": weekly_peak, "burst": 7}`:                {Rate: 100, Burst: 7},
		`{"rate": weekly_peak * 1.5, "burst": mean}`:       {Rate: 150, Burst: 101}, // (40,260 × 100 + 60 × 500) / 40,320 = 100.6
		"[weekly_peak, 20.0].map(x, x * 2.0)[0] + planned": {Rate: 225, Burst: 450},
	} {
		est, err := compiled(t, text).Propose(context.Background(), input())
		if err != nil || math.Abs(float64(est.Limit.Rate-want.Rate)) > 1e-9 || est.Limit.Burst != want.Burst {
			t.Errorf("%s: %v (%v), want %v", text, est.Limit, err, want)
		}
	}
}

func TestTheWayToTheNumberNamesTheValues(t *testing.T) {
	est, err := compiled(t, "weekly_peak * 1.3 + planned").Propose(context.Background(), input())
	if err != nil {
		t.Fatal(err)
	}
	if est.Why != "expression weekly_peak * 1.3 + planned with planned 25, weekly_peak 100" {
		t.Errorf("why %q", est.Why)
	}
	last := est.Steps[len(est.Steps)-2]
	want := rlc.Reason{Rule: "expression", Detail: "weekly_peak * 1.3 + planned with planned 25, weekly_peak 100", Rate: 155, Acted: true}
	if last != want || est.Steps[len(est.Steps)-3].Rule != "weekly_peak" {
		t.Errorf("steps %+v", est.Steps)
	}
	if len(est.Flags) != 1 || est.Flags[0].Peak != 500 || est.Shadow {
		t.Errorf("flags %+v, shadow %v", est.Flags, est.Shadow)
	}
}

func TestFaultsAreToldWithTheirPlaceBeforeAnyTraffic(t *testing.T) {
	deep := strings.Repeat("[1,2,3,4,5,6,7,8,9,10].map(a, ", 5) + "1" + strings.Repeat(")", 5) + ".size()"
	for text, want := range map[string]struct{ message, hint string }{
		"":                                {"expression is blank", "weekly_peak"},
		"weekly_peek * 1.3":               {"expression 1:1: undeclared reference to 'weekly_peek'", "known: capacity, contract,"},
		"weekly_peak\n  * (1.3":           {"expression 2:9: Syntax error", ""},
		"weekly_peak * 2":                 {"expression 1:13: found no matching overload", "write 2.0 instead of 2"},
		`"100"`:                           {"the expression is a string, not a number", "rate"},
		"weekly_peak > 3.0":               {"the expression is a bool, not a number", "rate"},
		deep:                              {"the expression may cost more than 10000 operations", "loops"},
		strings.Repeat("1 + ", 600) + "1": {"expression 1:1: expression code point size exceeds limit", ""},
		strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200): {"recursion", ""},
	} {
		_, problems := New(Config{Expression: text})
		if len(problems) == 0 || !strings.Contains(problems[0].Message, want.message) || !strings.Contains(problems[0].Hint, want.hint) {
			t.Errorf("%.40q: %v, want %q; %q", text, problems, want.message, want.hint)
		}
	}
	if _, problems := New(Config{Expression: "a + b"}); len(problems) != 2 {
		t.Errorf("%v, want both faults", problems)
	}
}

func TestAResultThatIsNoLimitAbstains(t *testing.T) {
	for text, want := range map[string]string{
		"weekly_peak / 0.0":       "the result +Inf is not a possible limit",
		"0.0 / 0.0":               "the result NaN is not a possible limit",
		"weekly_peak - 500.0":     "the result −400 is not a possible limit",
		"0":                       "would admit nothing",
		"1e300":                   "not a possible limit",
		`{"burst": 5}`:            "the result has no rate",
		`{"rate": 5, "burst": 0}`: "burst is 0, below 1",
		`{"rate": 5, "burts": 1}`: `the result has a key "burts"`,
		`{"rate": "x"}`:           "the result's rate is not a number",
		"1 / int(planned - 25.0)": "the expression failed: division by zero",
		`{"rate": dyn(weekly_peak)}.rate > 0.0 ? dyn("x") : dyn(1.0)`: "the result is a string, not a number",
	} {
		est, err := compiled(t, text).Propose(context.Background(), input())
		if !errors.Is(err, rlc.ErrAbstain) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v (%v), want %q", text, est.Limit, err, want)
		}
	}
	in := input()
	in.History.Hours = in.History.Hours[len(in.History.Hours)-12:]
	if _, err := compiled(t, "100.0").Propose(context.Background(), in); !errors.Is(err, rlc.ErrAbstain) {
		t.Errorf("half a day of history: %v", err)
	}
}

func TestWhatIsSaidOfTheEvidenceHoldsForTheResult(t *testing.T) {
	in := input()
	for i := range in.History.Hours {
		if h := &in.History.Hours[i]; h.Start.After(now.Add(-3 * day)) {
			h.Drops = 0.3
		}
	}
	in.Current = &rlc.Limit{Rate: 120, Burst: 240}
	for i := range in.History.Hours {
		if in.History.Hours[i].Drops == 0 {
			in.History.Hours[i].Max = 50
		}
	}
	est, err := compiled(t, "weekly_peak").Propose(context.Background(), in)
	if err != nil || est.Limit.Rate != 50 || est.NoDecrease == "" {
		t.Errorf("%v, no decrease %q (%v); want 50 without the right to fall", est.Limit, est.NoDecrease, err)
	}
	in = input()
	in.History.Hours = in.History.Hours[len(in.History.Hours)-5*24:]
	if est, err := compiled(t, "weekly_peak").Propose(context.Background(), in); err != nil || !est.Shadow || est.NoDecrease == "" {
		t.Errorf("five days: shadow %v, no decrease %q (%v)", est.Shadow, est.NoDecrease, err)
	}
}

// Whatever somebody writes, it compiles or is refused with a place, and gives a
// possible limit or abstains, the same each time.
func TestAnyTextIsSafe(t *testing.T) {
	words := []string{"weekly_peak", "p99", "planned", "1", "2.5", "+", "-", "*", "/", "(", ")", "?", ":", ">", "[", "]", ",", "{", "}", `"rate"`, ".map(x, x)", "math.greatest", "true", "days"}
	in := input()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 9).Draw(t, "words"), " ")
		p, problems := New(Config{Expression: text})
		if len(problems) > 0 {
			return
		}
		est, err := p.Propose(context.Background(), in)
		again, _ := p.Propose(context.Background(), in)
		if !reflect.DeepEqual(est, again) {
			t.Fatalf("%s: %+v and %+v", text, est, again)
		}
		if err == nil && (est.Limit.Valid() != nil || est.Limit.Rate <= 0) || err != nil && !errors.Is(err, rlc.ErrAbstain) {
			t.Fatalf("%s: %v, %v", text, est.Limit, err)
		}
	})
}

func TestEveryVariableIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/policies/expression.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, meaning := range Variables() {
		if !strings.Contains(string(page), fmt.Sprintf("| `%s` | %s |", name, meaning)) {
			t.Errorf("the page does not say what %s is: %q", name, meaning)
		}
	}
}
