// Package score measures forecasts of request rates against recorded traces.
//
// A folder of traces holds csv/NAME.csv (timestamp_rfc3339,rps: each row is the
// mean rate over the step that starts at its timestamp) and the splits
// origins_weekly.csv and origins_daily.csv
// (series,step_s,train_start,origin,test_end). A forecaster learns from
// [train_start, origin) and forecasts [origin, test_end).
package score

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/openrlc/rlc"
)

// Trace is a series on the grid that starts at its first row; a gap is NaN.
type Trace struct {
	Name   string
	Start  time.Time
	Step   time.Duration
	Values []float64
}

// Index is the first slot that starts at or after at, between 0 and the number
// of values.
func (t Trace) Index(at time.Time) int {
	i := int(math.Ceil(float64(at.Sub(t.Start)) / float64(t.Step)))
	return min(max(i, 0), len(t.Values))
}

// Time is when slot i starts.
func (t Trace) Time(i int) time.Time { return t.Start.Add(time.Duration(i) * t.Step) }

// maxSteps bounds a trace: nearly five years of minutes.
const maxSteps = 2_500_000

// ReadTrace reads csv/NAME.csv. Each row goes to slot round((t − t0) / step); of
// rows with one timestamp the first counts, of rows in one slot the last. Where
// most rows would be lost so, or a row lies beyond maxSteps slots, step is not
// the trace's, and that is an error.
func ReadTrace(dir fs.FS, name string, step time.Duration) (Trace, error) {
	t := Trace{Name: name, Step: step}
	file := "csv/" + name + ".csv"
	type row struct {
		line int
		at   time.Time
		rate float64
	}
	var rows []row
	err := eachRow(dir, file, []string{"timestamp_rfc3339", "rps"}, func(line int, f []string) error {
		at, err := time.Parse(time.RFC3339, f[0])
		if err != nil {
			return err
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return err
		}
		if v < 0 || math.IsInf(v, 0) {
			return fmt.Errorf("%w: rps %s is no rate", rlc.ErrInvalid, f[1])
		}
		rows = append(rows, row{line, at.UTC(), v})
		return nil
	})
	if err != nil {
		return t, err
	}
	if len(rows) == 0 {
		return t, fmt.Errorf("%w: series %s has no row", rlc.ErrInvalid, name)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.at.Compare(b.at) })
	rows = slices.CompactFunc(rows, func(a, b row) bool { return a.at.Equal(b.at) })
	t.Start = rows[0].at
	last := rows[len(rows)-1]
	if last.at.Sub(t.Start)/step >= maxSteps {
		return t, fmt.Errorf("%s:%d: %w: %s is more than %d steps of %s after the first row", file, last.line, rlc.ErrInvalid, last.at.Format(time.RFC3339), maxSteps, rlc.DurationText(step))
	}
	t.Values = make([]float64, int(last.at.Sub(t.Start)/step)+1)
	for i := range t.Values {
		t.Values[i] = math.NaN()
	}
	lost, at := 0, -1
	for _, r := range rows {
		i := int(math.RoundToEven(float64(r.at.Sub(t.Start)) / float64(step)))
		if i == at {
			if lost++; 2*lost > len(rows) {
				return t, fmt.Errorf("%s:%d: %w: most rows lie less than a step of %s apart", file, r.line, rlc.ErrInvalid, rlc.DurationText(step))
			}
		}
		if at = i; i < len(t.Values) {
			t.Values[i] = r.rate
		}
	}
	return t, nil
}

// Split is one origin of a protocol.
type Split struct {
	Series string
	Step   time.Duration
	From   time.Time // what lies before it is not learnt from
	Origin time.Time // the forecast's now
	Until  time.Time // end of what is scored
}

// ReadSplits reads a protocol's splits, ordered by series and origin.
func ReadSplits(dir fs.FS, protocol string) ([]Split, error) {
	if protocol != "weekly" && protocol != "daily" {
		return nil, fmt.Errorf("%w: protocol %q: want weekly or daily", rlc.ErrInvalid, protocol)
	}
	var out []Split
	header := []string{"series", "step_s", "train_start", "origin", "test_end"}
	err := eachRow(dir, "origins_"+protocol+".csv", header, func(_ int, f []string) error {
		step, err := strconv.Atoi(f[1])
		from, err1 := time.Parse(time.RFC3339, f[2])
		origin, err2 := time.Parse(time.RFC3339, f[3])
		until, err3 := time.Parse(time.RFC3339, f[4])
		if err := errors.Join(err, err1, err2, err3); err != nil {
			return err
		}
		if step <= 0 {
			return fmt.Errorf("%w: step %d", rlc.ErrInvalid, step)
		}
		if !fs.ValidPath("csv/" + f[0] + ".csv") {
			return fmt.Errorf("%w: series %q", rlc.ErrInvalid, f[0])
		}
		out = append(out, Split{Series: f[0], Step: time.Duration(step) * time.Second, From: from.UTC(), Origin: origin.UTC(), Until: until.UTC()})
		return nil
	})
	slices.SortStableFunc(out, func(a, b Split) int {
		return cmp.Or(cmp.Compare(a.Series, b.Series), a.Origin.Compare(b.Origin))
	})
	return out, err
}

// Level is a forecast that holds from At until the next one.
type Level struct {
	At  time.Time
	Q50 float64 // point forecast of a step's rate
	Q99 float64 // the limit
}

// Forecasts are the levels of each origin, ascending.
type Forecasts map[Origin][]Level

// Origin names one split.
type Origin struct {
	Series string
	At     time.Time // UTC
}

// ReadForecasts reads series,origin,timestamp,q50,q99.
func ReadForecasts(dir fs.FS, name string) (Forecasts, error) {
	all := Forecasts{}
	err := eachRow(dir, name, []string{"series", "origin", "timestamp", "q50", "q99"}, func(_ int, f []string) error {
		origin, err := time.Parse(time.RFC3339, f[1])
		at, err1 := time.Parse(time.RFC3339, f[2])
		q50, err2 := strconv.ParseFloat(f[3], 64)
		q99, err3 := strconv.ParseFloat(f[4], 64)
		if err := errors.Join(err, err1, err2, err3); err != nil {
			return err
		}
		o := Origin{f[0], origin.UTC()}
		all[o] = append(all[o], Level{at.UTC(), q50, q99})
		return nil
	})
	for _, levels := range all {
		slices.SortStableFunc(levels, func(a, b Level) int { return a.At.Compare(b.At) })
	}
	return all, err
}

// eachRow reads a CSV file with exactly the header given; an error names file
// and line.
func eachRow(dir fs.FS, name string, header []string, row func(line int, fields []string) error) error {
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
			err = row(line, slices.Clone(fields))
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, line, err)
		}
	}
}
