package backtest

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// The header of the CSV that ReadCSV reads, and how much of it: ten million
// steps are 115 days of seconds. Its years are those in which somebody measured.
const (
	csvHeader = "timestamp_rfc3339,rps"
	maxSteps  = 10_000_000
	firstYear = 1970
	lastYear  = 2199
)

// ReadCSV reads a series of rates: a header timestamp_rfc3339,rps, then one
// line per step, ascending. The step is the commonest distance of two lines;
// every distance is a multiple of it, and steps without a line are NaN in
// values. values[i] is the rate of the step that starts at start + i·step.
//
// An error wraps rlc.ErrInvalid and names the line and what to do about it.
func ReadCSV(r io.Reader) (step time.Duration, start time.Time, values []float64, err error) {
	rows, err := readRows(r)
	if err != nil {
		return 0, time.Time{}, nil, err
	}
	if len(rows) < 2 {
		return 0, time.Time{}, nil, fmt.Errorf("%w: %s of data; at least two are needed to know the step", rlc.ErrInvalid, rlc.Plural(len(rows), "line"))
	}
	step = commonStep(rows)
	for i, row := range rows[1:] {
		if d := row.at.Sub(rows[i].at); d%step != 0 {
			return 0, time.Time{}, nil, badLine(row.line, "%s is %s after the line before it, which is no multiple of the step %s; resample the series to a regular grid", row.at.Format(time.RFC3339Nano), rlc.DurationText(d), rlc.DurationText(step))
		}
	}
	start = rows[0].at
	n := rows[len(rows)-1].at.Sub(start)/step + 1
	if n > maxSteps {
		return 0, time.Time{}, nil, fmt.Errorf("%w: %d steps of %s between the first and the last line, more than %d; split the series", rlc.ErrInvalid, n, rlc.DurationText(step), maxSteps)
	}
	values = slices.Repeat([]float64{math.NaN()}, int(n))
	for _, row := range rows {
		values[row.at.Sub(start)/step] = row.rps
	}
	return step, start, values, nil
}

type csvRow struct {
	line int
	at   time.Time
	rps  float64
}

func readRows(r io.Reader) ([]csvRow, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, csvError(err)
	}
	if got := strings.TrimPrefix(strings.Join(header, ","), "\ufeff"); got != csvHeader {
		return nil, badLine(1, "the header is %q; write %s", clip(got), csvHeader)
	}
	var rows []csvRow
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, csvError(err)
		}
		line, _ := in.FieldPos(0)
		row, err := parseRow(line, fields)
		if err != nil {
			return nil, err
		}
		if n := len(rows); n > 0 {
			switch last := rows[n-1]; {
			case row.at.Equal(last.at):
				return nil, badLine(line, "%s is already on line %d; keep one of them", row.at.Format(time.RFC3339Nano), last.line)
			case row.at.Before(last.at):
				return nil, badLine(line, "%s comes before the line above it; sort the lines by time", row.at.Format(time.RFC3339Nano))
			}
		}
		if len(rows) == maxSteps {
			return nil, badLine(line, "more than %d lines; split the series", maxSteps)
		}
		rows = append(rows, row)
	}
}

func parseRow(line int, fields []string) (csvRow, error) {
	if len(fields) != 2 {
		return csvRow{}, badLine(line, "%d fields; write two: %s", len(fields), csvHeader)
	}
	at, err := time.Parse(time.RFC3339, fields[0])
	if err != nil {
		return csvRow{}, badLine(line, "%q is no time; write it as 2026-01-02T15:04:05Z", clip(fields[0]))
	}
	if at.Year() < firstYear || at.Year() > lastYear {
		return csvRow{}, badLine(line, "%s is outside of the years %d to %d; check how the times were written", clip(fields[0]), firstYear, lastYear)
	}
	if strings.TrimSpace(fields[1]) == "" {
		return csvRow{}, badLine(line, "rps is blank; leave the line out where there is no sample, write 0 where there was no traffic")
	}
	rps, err := strconv.ParseFloat(fields[1], 64)
	switch {
	case err != nil:
		return csvRow{}, badLine(line, "rps %q is no number; write requests per second, like 12.5", clip(fields[1]))
	case math.IsNaN(rps) || math.IsInf(rps, 0):
		return csvRow{}, badLine(line, "rps is %s; leave the line out where there is no sample", fields[1])
	case rps < 0:
		return csvRow{}, badLine(line, "rps %s is negative; a rate is 0 or more", fields[1])
	case rps > rlc.MaxRate:
		return csvRow{}, badLine(line, "rps %s is above %s; check its unit", fields[1], rlc.Number(rlc.MaxRate))
	}
	return csvRow{line, at.UTC(), rps}, nil
}

// commonStep is the commonest distance of two neighbouring rows, the smaller of
// two that are as common.
func commonStep(rows []csvRow) time.Duration {
	count := map[time.Duration]int{}
	var step time.Duration
	for i, row := range rows[1:] {
		d := row.at.Sub(rows[i].at)
		count[d]++
		if n := count[d]; n > count[step] || n == count[step] && d < step {
			step = d
		}
	}
	return step
}

func badLine(line int, format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %s", rlc.ErrInvalid, line, fmt.Sprintf(format, args...))
}

func csvError(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return badLine(p.Line, "%v; write two plain fields: %s", p.Err, csvHeader)
	}
	return fmt.Errorf("read csv: %w", err)
}

// clip keeps a person's input short enough for an error.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
