package backtest_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/backtest"
)

func TestReadCSVLaysTheLinesOnTheirGrid(t *testing.T) {
	step, start, values, err := backtest.ReadCSV(strings.NewReader(
		"timestamp_rfc3339,rps\r\n2026-03-02T01:00:00+01:00,1.5\r\n2026-03-02T00:01:00Z,0\r\n2026-03-02T00:02:00Z,2e3\r\n\r\n2026-03-02T00:05:00Z,4\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if step != time.Minute || start != monday {
		t.Errorf("step %s from %s, want 1m0s from %s", step, start, monday)
	}
	want := []float64{1.5, 0, 2000, gap, gap, 4}
	if len(values) != len(want) {
		t.Fatalf("got %v, want %v", values, want)
	}
	for i := range want {
		if values[i] != want[i] && !(math.IsNaN(values[i]) && math.IsNaN(want[i])) {
			t.Errorf("step %d is %g, want %g", i, values[i], want[i])
		}
	}
}

func TestReadCSVNamesTheLineAndTheFix(t *testing.T) {
	const head = "timestamp_rfc3339,rps\n2026-03-02T00:00:00Z,1\n2026-03-02T00:01:00Z,1\n"
	tests := map[string]struct{ in, want string }{
		"nothing":           {"", "line 1: the header is \"\"; write timestamp_rfc3339,rps"},
		"wrong header":      {"time,value\n", "line 1: the header is \"time,value\"; write timestamp_rfc3339,rps"},
		"one line":          {"timestamp_rfc3339,rps\n2026-03-02T00:00:00Z,1\n", "1 line of data; at least two are needed to know the step"},
		"three fields":      {head + "2026-03-02T00:02:00Z,1,2\n", "line 4: 3 fields; write two"},
		"unix time":         {head + "1772409600,1\n", "line 4: \"1772409600\" is no time; write it as"},
		"blank":             {head + "2026-03-02T00:02:00Z,\n", "line 4: rps is blank; leave the line out"},
		"a word":            {head + "2026-03-02T00:02:00Z,many\n", "line 4: rps \"many\" is no number"},
		"NaN":               {head + "2026-03-02T00:02:00Z,NaN\n", "line 4: rps is NaN; leave the line out"},
		"infinite":          {head + "2026-03-02T00:02:00Z,+Inf\n", "line 4: rps is +Inf; leave the line out"},
		"too big for float": {head + "2026-03-02T00:02:00Z,1e999\n", "line 4: rps \"1e999\" is no number"},
		"negative":          {head + "2026-03-02T00:02:00Z,-0.5\n", "line 4: rps -0.5 is negative"},
		"absurd":            {head + "2026-03-02T00:02:00Z,1e12\n", "line 4: rps 1e12 is above 100,000,000,000; check its unit"},
		"unsorted":          {head + "2026-03-01T00:02:00Z,1\n", "line 4: 2026-03-01T00:02:00Z comes before the line above it; sort"},
		"duplicate":         {head + "2026-03-02T01:01:00+01:00,1\n", "line 4: 2026-03-02T00:01:00Z is already on line 3; keep one"},
		"off the grid":      {head + "2026-03-02T00:02:00Z,1\n2026-03-02T00:02:30Z,1\n", "line 5: 2026-03-02T00:02:30Z is 30s after the line before it, which is no multiple of the step 1m; resample"},
		"years apart":       {head + "2126-03-02T00:00:00Z,1\n", "more than 10000000; split the series"},
		"before 1970":       {"timestamp_rfc3339,rps\n0001-01-01T00:00:00Z,1\n", "line 2: 0001-01-01T00:00:00Z is outside of the years 1970 to 2199"},
		"after 2199":        {head + "9999-12-31T00:00:00Z,1\n", "line 4: 9999-12-31T00:00:00Z is outside of the years 1970 to 2199"},
		"open quote":        {head + "\"2026-03-02T00:02:00Z,1\n", "line 4: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := backtest.ReadCSV(strings.NewReader(tt.in))
			if !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
