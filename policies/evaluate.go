package policies

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
	"github.com/openrlc/rlc/policies/score"
)

// Evaluation walks a policy forward over recorded traces: at every origin of
// the protocol it learns from what lies between the split's start and the
// origin, and writes the bare estimate, without guards, rounding or floor.
type Evaluation struct {
	Traces    string         // a folder as package score describes it
	Policy    rlc.PolicySpec // kind and parameters
	Protocol  string         // weekly or daily
	Published bool           // write the limits that would be in force, not the forecast behind them
	Progress  func(done, total int, series string)
	// Progress is called before each origin; nil for nobody.
}

// Write writes the forecasts as series,origin,timestamp,q50,q99, which hold from
// their timestamp to the next. A policy that forecasts hours writes a row for
// each; Published turns q99 into what it would publish, headroom and all. Any
// other policy is one row for each origin: q99 is the quota, q50 the median of
// what it learnt from.
func (e Evaluation) Write(ctx context.Context, out io.Writer) error {
	policy, err := Builtin().New(e.Policy)
	if err != nil {
		return fmt.Errorf("policy %s: %w", e.Policy.Kind, err)
	}
	dir := os.DirFS(e.Traces)
	splits, err := score.ReadSplits(dir, e.Protocol)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "series,origin,timestamp,q50,q99")
	var t score.Trace
	for i, s := range splits {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.Progress != nil {
			e.Progress(i, len(splits), s.Series)
		}
		if t.Name != s.Series {
			if t, err = score.ReadTrace(dir, s.Series, s.Step); err != nil {
				return err
			}
		}
		levels, err := e.forecast(ctx, policy, t, s)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", s.Series, s.Origin.Format(time.RFC3339), err)
		}
		for _, l := range levels {
			fmt.Fprintf(w, "%s,%s,%s,%s,%s\n", s.Series, s.Origin.Format(time.RFC3339), l.At.Format(time.RFC3339), number(l.Q50), number(l.Q99))
		}
	}
	return w.Flush()
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', 9, 64) }

func (e Evaluation) forecast(ctx context.Context, policy rlc.Policy, t score.Trace, s score.Split) ([]score.Level, error) {
	first, last := t.Index(s.From), t.Index(s.Origin)
	learn := t.Values[first:last]
	if !slices.ContainsFunc(learn, func(v float64) bool { return !math.IsNaN(v) }) {
		return nil, fmt.Errorf("%w: csv/%s.csv has nothing from %s on to learn from: its rows are of %s to %s", rlc.ErrInvalid, t.Name,
			s.From.Format(time.RFC3339), t.Start.Format(time.RFC3339), t.Time(len(t.Values)-1).Format(time.RFC3339))
	}
	h := stat.Summarise(t.Step, t.Time(first), learn)
	est, err := policy.Propose(ctx, rlc.Input{Now: s.Origin, History: h})
	if err != nil {
		return nil, err
	}
	f := est.Forecast
	if f == nil {
		var present []float64
		for _, v := range learn {
			if !math.IsNaN(v) {
				present = append(present, v)
			}
		}
		return []score.Level{{At: s.Origin, Q50: stat.Median(present), Q99: float64(est.Limit.Rate)}}, nil
	}
	limits := f.Q99
	if e.Published {
		limits = f.Rates
	}
	var levels []score.Level
	for i, q50 := range f.Q50 {
		l := score.Level{At: f.From.Add(time.Duration(i) * time.Hour), Q50: float64(q50), Q99: float64(est.Limit.Rate)}
		if limits != nil {
			l.Q99 = float64(limits[i])
		}
		if i == 0 {
			l.At = s.Origin
		}
		if l.At.Before(s.Until) {
			levels = append(levels, l)
		}
	}
	return levels, nil
}
