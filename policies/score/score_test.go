package score

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/openrlc/rlc"
)

// The scores in testdata/want_*.csv are those of the traces' own script
// (score.py --methods static_max_x1.2 --forecast given=forecast.csv --per-series)
// for the two traces beside them, which have gaps, rows off the grid and a
// timestamp twice.
func TestScoresAreThoseOfTheTracesScript(t *testing.T) {
	dir := os.DirFS("testdata")
	forecasts, err := ReadForecasts(dir, "forecast.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"weekly", "daily"} {
		t.Run(protocol, func(t *testing.T) {
			methods, err := Score(dir, protocol, "given", forecasts)
			if err != nil {
				t.Fatal(err)
			}
			want := wanted(t, "testdata/want_"+protocol+".csv")
			names := map[string]string{Baseline: "static_max_x1.2", "given": "given"}
			n := 0
			for _, m := range methods {
				for _, r := range m.Rows {
					n++
					got := []float64{r.Pinball, r.HourPinball, r.DayPinball, r.Cover, r.HourCover, r.DayCover, r.Over, r.DayOver, r.Alloc, r.Drop, r.MASE, float64(r.Steps), float64(r.Origins)}
					w := want[r.Series+" "+names[m.Name]]
					if len(w) != len(got) {
						t.Fatalf("%s %s: the script knows %d columns", r.Series, m.Name, len(w))
					}
					for i := range got {
						if math.Abs(got[i]-w[i]) > 1.1e-6*max(1, w[i]) { // it rounds to six digits
							t.Errorf("%s %s column %d: %v, want %v", r.Series, m.Name, i, got[i], w[i])
						}
					}
				}
			}
			if n != len(want) {
				t.Errorf("%d rows, the script has %d", n, len(want))
			}
		})
	}
}

func wanted(t *testing.T, file string) map[string][]float64 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]float64{}
	for _, r := range rows[1:] {
		for _, f := range r[2:] {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			want[r[0]+" "+r[1]] = append(want[r[0]+" "+r[1]], v)
		}
	}
	return want
}

func TestTablesHoldTheAveragesOfTheTracesScript(t *testing.T) {
	dir := os.DirFS("testdata")
	forecasts, err := ReadForecasts(dir, "forecast.csv")
	if err != nil {
		t.Fatal(err)
	}
	methods, err := Score(dir, "weekly", "given", forecasts)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteTables(&out, "weekly", methods); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### weekly: 2 series, 2 origins\n",
		// The script's lines for the method and its baseline.
		"| given | 0.0319 | 0.465 | 0.0324 | 0.0958 | 0.9438 | 0.9446 | 0.917 | 2.61 | 1.29 | 1.98 | 0.02206 | 3.372 | 0.0261 |\n",
		"| max × 1.2 | 0.0716 | 1.000 | 0.0684 | 0.0313 | 1.0000 | 1.0000 | 1.000 | 10.51 | 4.19 | 7.84 | 0.00000 | 3.331 | 0.0000 |\n",
		// Without hourly only fine is left: 0.036036 / 0.094121 = 0.383.
		"| hourly | 0.0360 | 0.383 |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestAForecastThatIsMissingOrNotFiniteIsAnError(t *testing.T) {
	csv := "timestamp_rfc3339,rps\n"
	for h := range 48 {
		csv += fmt.Sprintf("2026-01-%02dT%02d:00:00Z,%d\n", 5+h/24, h%24, h)
	}
	splits := "series,step_s,train_start,origin,test_end\nweb,3600,2026-01-05T00:00:00Z,2026-01-06T00:00:00Z,2026-01-07T00:00:00Z\n"
	for text, want := range map[string]error{
		"": rlc.ErrNotFound,
		"web,2026-01-06T00:00:00Z,2026-01-06T00:00:00Z,20,50\n":  nil,
		"web,2026-01-06T00:00:00Z,2026-01-06T00:00:00Z,20,NaN\n": rlc.ErrInvalid,
		"web,2026-01-06T00:00:00Z,2026-01-06T01:00:00Z,20,50\n":  rlc.ErrInvalid, // nothing for the first hour
	} {
		dir := fstest.MapFS{
			"csv/web.csv":        {Data: []byte(csv)},
			"origins_weekly.csv": {Data: []byte(splits)},
			"f.csv":              {Data: []byte("series,origin,timestamp,q50,q99\n" + text)},
		}
		forecasts, err := ReadForecasts(dir, "f.csv")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Score(dir, "weekly", "f", forecasts); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func TestFilesThatAreNotAsDescribedAreNamedWithTheirLine(t *testing.T) {
	dir := fstest.MapFS{
		"csv/a.csv":          {Data: []byte("timestamp_rfc3339,rps\n2026-01-05T00:00:00Z,many\n")},
		"csv/b.csv":          {Data: []byte("time,rate\n")},
		"csv/c.csv":          {Data: []byte("timestamp_rfc3339,rps\n")},
		"csv/negative.csv":   {Data: []byte("timestamp_rfc3339,rps\n2026-01-05T00:00:00Z,1\n2026-01-05T01:00:00Z,-1\n")},
		"csv/minutes.csv":    {Data: []byte("timestamp_rfc3339,rps\n2026-01-05T00:00:00Z,1\n2026-01-05T00:01:00Z,1\n2026-01-05T00:02:00Z,1\n2026-01-05T00:03:00Z,1\n")},
		"csv/far.csv":        {Data: []byte("timestamp_rfc3339,rps\n9026-01-05T00:00:00Z,1\n2026-01-05T00:01:00Z,1\n")},
		"origins_weekly.csv": {Data: []byte("series,step_s,train_start,origin,test_end\n../x,60,2026-01-05T00:00:00Z,2026-01-06T00:00:00Z,2026-01-07T00:00:00Z\n")},
	}
	for name, want := range map[string]string{"a": "csv/a.csv:2: ", "b": "csv/b.csv:1: ", "c": "", "negative": "csv/negative.csv:3: ", "minutes": "csv/minutes.csv:5: ", "far": "csv/far.csv:2: "} {
		if _, err := ReadTrace(dir, name, 3600e9); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadSplits(dir, "weekly"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("a series outside the folder: %v", err)
	}
	if _, err := ReadSplits(dir, "hourly"); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("protocol hourly: %v", err)
	}
}
