package policies

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Evaluation walks a policy forward over recorded traces: at every origin of
// the protocol it learns from what lies between the split's start and the
// origin, and writes the bare estimate, without guards, rounding or floor.
type Evaluation struct {
	Traces   string         // folder with csv/NAME.csv and origins_<protocol>.csv
	Policy   rlc.PolicySpec // kind and parameters
	Protocol string         // weekly or daily
	Progress func(done, total int, series string)
	// Progress is called before each origin; nil for nobody.
}

// Write writes the forecasts as series,origin,timestamp,q50,q99. A static
// quota is one row for each origin: q99 is the quota, q50 the median of what
// it learnt from. It reads csv/NAME.csv (timestamp_rfc3339,rps) and the splits
// (series,step_s,train_start,origin,test_end).
func (e Evaluation) Write(ctx context.Context, out io.Writer) error {
	if e.Protocol != "weekly" && e.Protocol != "daily" {
		return fmt.Errorf("%w: protocol %q: want weekly or daily", rlc.ErrInvalid, e.Protocol)
	}
	policy, err := Builtin().New(e.Policy)
	if err != nil {
		return fmt.Errorf("policy %s: %w", e.Policy.Kind, err)
	}
	dir := os.DirFS(e.Traces)
	splits, err := readOrigins(dir, "origins_"+e.Protocol+".csv")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "series,origin,timestamp,q50,q99")
	var t trace
	for i, s := range splits {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.Progress != nil {
			e.Progress(i, len(splits), s.series)
		}
		if t.name != s.series {
			if t, err = readTrace(dir, s.series, s.step); err != nil {
				return err
			}
		}
		q50, q99, err := forecast(ctx, policy, t, s)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", s.series, s.origin.Format(time.RFC3339), err)
		}
		at := s.origin.Format(time.RFC3339)
		fmt.Fprintf(w, "%s,%s,%s,%s,%s\n", s.series, at, at, number(q50), number(q99))
	}
	return w.Flush()
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', 9, 64) }

func forecast(ctx context.Context, policy rlc.Policy, t trace, s split) (q50, q99 float64, err error) {
	first, last := t.index(s.from), t.index(s.origin)
	if first >= last {
		return 0, 0, fmt.Errorf("%w: nothing to learn from", rlc.ErrInvalid)
	}
	learn := t.values[first:last]
	h := stat.Summarise(t.step, t.start.Add(time.Duration(first)*t.step), learn)
	est, err := policy.Propose(ctx, rlc.Input{Now: s.origin, History: h})
	if err != nil {
		return 0, 0, err
	}
	var present []float64
	for _, v := range learn {
		if !math.IsNaN(v) {
			present = append(present, v)
		}
	}
	return stat.Median(present), float64(est.Limit.Rate), nil
}

// split is one origin of the protocol.
type split struct {
	series       string
	step         time.Duration
	from, origin time.Time
}

func readOrigins(dir fs.FS, name string) ([]split, error) {
	var out []split
	err := eachRow(dir, name, []string{"series", "step_s", "train_start", "origin", "test_end"}, func(f []string) error {
		step, err := strconv.Atoi(f[1])
		from, err1 := time.Parse(time.RFC3339, f[2])
		origin, err2 := time.Parse(time.RFC3339, f[3])
		if err := errors.Join(err, err1, err2); err != nil {
			return err
		}
		if step <= 0 {
			return fmt.Errorf("%w: step %d", rlc.ErrInvalid, step)
		}
		if !fs.ValidPath("csv/" + f[0] + ".csv") {
			return fmt.Errorf("%w: series %q", rlc.ErrInvalid, f[0])
		}
		out = append(out, split{series: f[0], step: time.Duration(step) * time.Second, from: from.UTC(), origin: origin.UTC()})
		return nil
	})
	slices.SortStableFunc(out, func(a, b split) int {
		if a.series != b.series {
			if a.series < b.series {
				return -1
			}
			return 1
		}
		return a.origin.Compare(b.origin)
	})
	return out, err
}

// trace is a series on its grid; a gap is NaN.
type trace struct {
	name   string
	start  time.Time
	step   time.Duration
	values []float64
}

// index is the first slot that starts at or after at.
func (t trace) index(at time.Time) int {
	i := int(math.Ceil(float64(at.Sub(t.start)) / float64(t.step)))
	return min(max(i, 0), len(t.values))
}

// readTrace puts rows on the grid that starts at the first row: each goes to
// slot round((t − t0) / step), and a later row wins its slot.
func readTrace(dir fs.FS, name string, step time.Duration) (trace, error) {
	t := trace{name: name, step: step}
	type row struct {
		at   time.Time
		rate float64
	}
	var rows []row
	err := eachRow(dir, "csv/"+name+".csv", []string{"timestamp_rfc3339", "rps"}, func(f []string) error {
		at, err := time.Parse(time.RFC3339, f[0])
		if err != nil {
			return err
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return err
		}
		rows = append(rows, row{at.UTC(), v})
		return nil
	})
	if err != nil || len(rows) == 0 {
		return t, errors.Join(err, emptyError(name, len(rows)))
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	t.start = rows[0].at
	t.values = make([]float64, int(rows[len(rows)-1].at.Sub(t.start)/step)+1)
	for i := range t.values {
		t.values[i] = math.NaN()
	}
	for _, r := range rows {
		if i := int(math.RoundToEven(float64(r.at.Sub(t.start)) / float64(step))); i < len(t.values) {
			t.values[i] = r.rate
		}
	}
	return t, nil
}

func emptyError(name string, rows int) error {
	if rows > 0 {
		return nil
	}
	return fmt.Errorf("%w: series %s has no row", rlc.ErrInvalid, name)
}

// eachRow reads a CSV file with exactly the header given; an error names file
// and line.
func eachRow(dir fs.FS, name string, header []string, row func([]string) error) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r := csv.NewReader(bufio.NewReader(f))
	r.FieldsPerRecord, r.ReuseRecord = len(header), true
	for line := 1; ; line++ {
		fields, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err == nil && line == 1 {
			if !slices.Equal(fields, header) {
				return fmt.Errorf("%s:1: %w: header %v: want %v", name, rlc.ErrInvalid, fields, header)
			}
			continue
		}
		if err == nil {
			err = row(fields)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, line, err)
		}
	}
}
