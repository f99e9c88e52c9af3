// Package expression lets a team write its own formula in CEL over the same
// evidence that the historical policy works with. docs/policies/expression.md
// lists the variables.
package expression

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/historical"
)

// The bounds of an expression. Cost is CEL's own unit, about one for each
// operation: maxCost is checked against the estimate when the expression is
// compiled and against what was spent when it is evaluated.
const (
	maxLength = 2000 // characters
	maxDepth  = 50
	maxCost   = 10000
)

// Config says what to evaluate.
type Config struct {
	Expression string  // CEL; a number (the rate), or a map with rate and burst
	Planned    float64 // requests per second of planned growth: the variable planned
}

// Policy evaluates an expression. It is safe for concurrent use.
type Policy struct {
	text    string
	planned float64
	program cel.Program
	used    []string // variables that the expression names, sorted
}

// New compiles an expression, or tells every fault of it with its line and
// column within the expression.
func New(c Config) (*Policy, []rlc.Problem) {
	text := strings.TrimSpace(c.Expression)
	if text == "" {
		return nil, []rlc.Problem{{Message: "expression is blank", Hint: `as in "weekly_peak * 1.3 + planned"`}}
	}
	env, err := environment()
	if err != nil {
		return nil, []rlc.Problem{{Message: "expressions are not available: " + err.Error()}}
	}
	tree, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, problems(issues)
	}
	if p := checkType(tree.OutputType()); p != nil {
		return nil, []rlc.Problem{*p}
	}
	spent, err := env.EstimateCost(tree, unsized{})
	if err != nil || spent.Max > maxCost {
		return nil, []rlc.Problem{{Message: fmt.Sprintf("the expression may cost more than %d operations", maxCost), Hint: "loops within loops are what costs"}}
	}
	program, err := env.Program(tree, cel.CostLimit(maxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, []rlc.Problem{{Message: "expression: " + err.Error()}}
	}
	p := &Policy{text: text, planned: c.Planned, program: program}
	names := map[string]bool{}
	for _, r := range tree.NativeRep().ReferenceMap() {
		if _, ok := meanings[r.Name]; ok {
			names[r.Name] = true
		}
	}
	p.used = slices.Sorted(maps.Keys(names))
	return p, nil
}

func environment() (*cel.Env, error) {
	options := []cel.EnvOption{
		ext.Math(), cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxLength), cel.ParserRecursionLimit(maxDepth),
	}
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		options = append(options, cel.Variable(name, cel.DoubleType))
	}
	return cel.NewEnv(options...)
}

// unsized knows nothing of sizes: every variable is a number.
type unsized struct{}

func (unsized) EstimateSize(cost.AstNode) *cost.SizeEstimate { return nil }
func (unsized) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// problems tells CEL's findings, each with its place in the expression.
func problems(issues *cel.Issues) []rlc.Problem {
	var out []rlc.Problem
	for _, e := range issues.Errors() {
		first, _, _ := strings.Cut(e.Message, "\n")
		p := rlc.Problem{Message: fmt.Sprintf("expression %d:%d: %s", max(e.Location.Line(), 1), max(e.Location.Column()+1, 1), first)}
		switch {
		case strings.Contains(first, "no matching overload") && strings.Contains(first, "int"):
			p.Hint = "whole numbers and decimals do not mix: write 2.0 instead of 2"
		case strings.Contains(first, "undeclared reference"):
			p.Hint = "known: " + strings.Join(slices.Sorted(maps.Keys(meanings)), ", ")
		}
		out = append(out, p)
	}
	return out
}

// checkType refuses what can be no limit before any traffic is seen.
func checkType(t *cel.Type) *rlc.Problem {
	switch t.Kind() {
	case types.DoubleKind, types.IntKind, types.UintKind, types.DynKind, types.MapKind:
		return nil
	}
	return &rlc.Problem{Message: fmt.Sprintf("the expression is a %s, not a number", t), Hint: "a number is the rate; {\"rate\": …, \"burst\": …} gives both"}
}

// Needs asks for four weeks.
func (p *Policy) Needs() rlc.Needs { return rlc.Needs{Lookback: historical.DefaultWindow} }

// Propose evaluates the expression over the hours that the historical policy
// counts, and abstains where that one does and where the result is no possible
// rate. What the historical policy says of the evidence (thin, young, clipped,
// distorted) holds for the result too.
func (p *Policy) Propose(ctx context.Context, in rlc.Input) (rlc.Estimate, error) {
	est, err := historical.Evidence(ctx, in)
	if err != nil {
		return est, err
	}
	values := p.values(in, est)
	out, _, err := p.program.ContextEval(ctx, values)
	if err != nil {
		return est, fmt.Errorf("%w: the expression failed: %w", rlc.ErrAbstain, err)
	}
	limit, err := limitOf(out)
	if err != nil {
		return est, fmt.Errorf("%w: %w", rlc.ErrAbstain, err)
	}
	if limit.Burst == 0 {
		est.BurstUnseen = true
		limit.Burst = historical.Burst(limit.Rate, est.Peak.Rate, in.History.Step)
	}
	est.Limit = limit
	p.explain(&est, values)
	return est, nil
}

// explain adds the last part of the way to the number.
func (p *Policy) explain(est *rlc.Estimate, values map[string]any) {
	var with []string
	for _, name := range p.used {
		with = append(with, fmt.Sprintf("%s %s", name, number(values[name].(float64))))
	}
	est.Why = "expression " + p.text
	detail := p.text
	if len(with) > 0 {
		est.Why += " with " + strings.Join(with, ", ")
		detail += " with " + strings.Join(with, ", ")
	}
	est.Why = strings.Join(strings.Fields(est.Why), " ") // one line
	est.Steps = append(est.Steps,
		rlc.Reason{Rule: "expression", Detail: detail, Rate: est.Limit.Rate, Acted: true},
		rlc.Reason{Rule: "burst", Detail: "burst " + rlc.Number(est.Limit.Burst), Rate: est.Limit.Rate})
}

// limitOf reads a result: a number, or a map with rate and, if it likes, burst.
func limitOf(v ref.Val) (rlc.Limit, error) {
	if r, ok := numeric(v); ok {
		return possible(r, 0)
	}
	m, ok := v.(traits.Mapper)
	if !ok {
		return rlc.Limit{}, fmt.Errorf("the result is a %s, not a number", v.Type().TypeName())
	}
	var rate, burst float64
	rated := false
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		f, isNumber := numeric(m.Get(key))
		switch name, _ := key.Value().(string); {
		case name != "rate" && name != "burst":
			return rlc.Limit{}, fmt.Errorf("the result has a key %q; rate and burst are known", key.Value())
		case !isNumber:
			return rlc.Limit{}, fmt.Errorf("the result's %s is not a number", name)
		case name == "rate":
			rate, rated = f, true
		case math.IsNaN(f) || f < 1:
			return rlc.Limit{}, fmt.Errorf("the result's burst is %s, below 1", number(f))
		default:
			burst = f
		}
	}
	if !rated {
		return rlc.Limit{}, fmt.Errorf("the result has no rate")
	}
	return possible(rate, burst)
}

// possible refuses what no limit can be. A rate of 0 would admit nothing: only
// a person writes that.
func possible(rate, burst float64) (rlc.Limit, error) {
	for _, f := range []float64{rate, burst} {
		if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 || f > rlc.MaxRate {
			return rlc.Limit{}, fmt.Errorf("the result %s is not a possible limit", number(f))
		}
	}
	if rate == 0 {
		return rlc.Limit{}, fmt.Errorf("the result is 0, which would admit nothing")
	}
	return rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(math.Ceil(burst))}, nil
}

func numeric(v ref.Val) (float64, bool) {
	switch v := v.(type) {
	case types.Double:
		return float64(v), true
	case types.Int:
		return float64(v), true
	case types.Uint:
		return float64(v), true
	}
	return 0, false
}

func number(f float64) string { return strings.TrimSuffix(stat.RateText(rlc.Rate(f)), "/s") }
