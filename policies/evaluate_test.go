package policies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/openrlc/rlc"
)

func TestEvaluationLearnsOnlyFromBeforeTheOrigin(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	var csv strings.Builder
	csv.WriteString("timestamp_rfc3339,rps\n")
	for i := range 5 * 7 * 24 {
		v := 10 + i%24
		if i >= 4*7*24 {
			v = 100000 // the future
		}
		if i != 30 { // a gap
			fmt.Fprintf(&csv, "%s,%d\n", start.Add(time.Duration(i)*hour).Format(time.RFC3339), v)
		}
	}
	write("csv/web.csv", csv.String())
	origin := start.Add(4 * 7 * day).Format(time.RFC3339)
	write("origins_weekly.csv", "series,step_s,train_start,origin,test_end\nweb,3600,"+start.Format(time.RFC3339)+","+origin+","+origin+"\n")

	e := Evaluation{Traces: dir, Protocol: "weekly", Policy: rlc.PolicySpec{Kind: "historical", Params: rlc.Params{"headroom": 0.2}}}
	var out bytes.Buffer
	if err := e.Write(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	// The peak is 33 at 23:00 each day, the median of 671 values 22; 33 × 1.2.
	want := "series,origin,timestamp,q50,q99\nweb," + origin + "," + origin + ",22,39.6\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}

	late := start.Add(70 * day).Format(time.RFC3339)
	write("origins_weekly.csv", "series,step_s,train_start,origin,test_end\nweb,3600,"+start.Add(42*day).Format(time.RFC3339)+","+late+","+late+"\n")
	if err := e.Write(context.Background(), &out); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "web at "+late+": ") || !strings.Contains(err.Error(), "csv/web.csv has nothing from 2026-02-16T00:00:00Z on to learn from: its rows are of 2026-01-05T00:00:00Z to 2026-02-08T23:00:00Z") {
		t.Errorf("a window without a row: %v", err)
	}
	e.Protocol = "hourly"
	if err := e.Write(context.Background(), &out); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("protocol hourly: %v", err)
	}
	e.Protocol = "weekly"
	write("csv/web.csv", "timestamp_rfc3339,rps\n2026-01-05T00:00:00Z,many\n")
	if err := e.Write(context.Background(), &out); err == nil || !strings.HasPrefix(err.Error(), "csv/web.csv:2: ") {
		t.Errorf("a broken row: %v", err)
	}
	e.Policy.Kind = "astrology"
	if err := e.Write(context.Background(), &out); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("an unknown kind: %v", err)
	}
}

func TestEvaluationWritesEveryHourOfAForecastAndWhatWouldBePublished(t *testing.T) {
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	var rows strings.Builder
	rows.WriteString("timestamp_rfc3339,rps\n")
	for i := range 4 * 7 * 24 {
		fmt.Fprintf(&rows, "%s,%d\n", start.Add(time.Duration(i)*hour).Format(time.RFC3339), 10+i%2*10)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, fstest.MapFS{
		"csv/web.csv":       {Data: []byte(rows.String())},
		"origins_daily.csv": {Data: []byte("series,step_s,train_start,origin,test_end\nweb,3600,2026-01-05T00:00:00Z,2026-02-02T00:00:00Z,2026-02-02T03:00:00Z\n")},
	}); err != nil {
		t.Fatal(err)
	}
	write := func(published bool, schedule string) []string {
		t.Helper()
		e := Evaluation{Traces: dir, Protocol: "daily", Published: published, Policy: rlc.PolicySpec{Kind: "predictive", Params: rlc.Params{"headroom": 0.5, "schedule": schedule}}}
		var out bytes.Buffer
		if err := e.Write(context.Background(), &out); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if lines[0] != "series,origin,timestamp,q50,q99" || len(lines) != 4 {
			t.Fatalf("%q, want a row for each of three hours", lines)
		}
		var limits []string
		for i, l := range lines[1:] {
			f := strings.Split(l, ",")
			if want := fmt.Sprintf("web,2026-02-02T00:00:00Z,2026-02-02T%02d:00:00Z,%d", i, 10+i%2*10); strings.Join(f[:4], ",") != want {
				t.Errorf("row %q, want %s", l, want)
			}
			v, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				t.Fatal(err)
			}
			limits = append(limits, fmt.Sprintf("%.0f", v))
		}
		return limits
	}
	for _, c := range []struct {
		published bool
		schedule  string
		want      []string
	}{
		{false, "static", []string{"10", "20", "10"}}, // the forecast
		{false, "hourly", []string{"10", "20", "10"}},
		{true, "static", []string{"30", "30", "30"}}, // 20 × 1.5
		{true, "hourly", []string{"15", "30", "15"}},
	} {
		if got := write(c.published, c.schedule); !slices.Equal(got, c.want) {
			t.Errorf("published %v, %s: %v, want %v", c.published, c.schedule, got, c.want)
		}
	}
}
