package planner_test

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/promhistory"
)

// BenchmarkTwoDaysFromAPrometheus carries out a run and the one of the next day
// over the callers of one service, from a Prometheus to the stored changes: all of
// rlc but git. RLC_BENCH_PROMETHEUS is the server's URL and RLC_BENCH_SERIES the
// number of its series rate1m{service="geo",client=…} of a sample a minute; the
// blocks that BenchmarkTwoRuns of internal/promhistory leaves in
// RLC_BENCH_BLOCKS/data are such, on the day that they were made. Figures for
// either run: CPU seconds and the peak resident set of this process.
func BenchmarkTwoDaysFromAPrometheus(b *testing.B) {
	url := os.Getenv("RLC_BENCH_PROMETHEUS")
	if url == "" {
		b.Skip("RLC_BENCH_PROMETHEUS names no Prometheus")
	}
	n, err := strconv.Atoi(os.Getenv("RLC_BENCH_SERIES"))
	if err != nil {
		b.Fatal(err)
	}
	f := policy("geo", callers)
	f["services/geo/policy.yaml"] = append(f["services/geo/policy.yaml"], "profile: bench\nquotas: {max: 20000}\n"...)
	f["profiles/bench.yaml"] = []byte(`apiVersion: rlc/v1
kind: Profile
name: bench
attributes:
  caller: {metric: client, descriptor: caller}
history:
  step: 1m
  sources: ['rate1m{service="${service}"}']
`)
	first := time.Now().UTC().Truncate(day).Add(-day).Add(15*time.Hour + 40*time.Minute)
	for b.Loop() {
		w := newWorld(b, f)
		reader, err := promhistory.New(promhistory.Config{URL: url, Store: w.db, ServiceTimeout: time.Hour, QueryTimeout: 5 * time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		p, err := planner.New(w.config(func(c *planner.Config) { c.History = reader }))
		if err != nil {
			b.Fatal(err)
		}
		for i, name := range []string{"first", "next"} {
			debug.FreeOSMemory()
			_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets VmHWM
			before := cpu(b)
			w.clock = first.Add(time.Duration(i) * day)
			run, err := p.Run(b.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: name, Now: w.clock})
			if err != nil || run.Total != n || run.Held != 0 && i == 0 {
				b.Fatalf("%+v, %v", run, err)
			}
			b.ReportMetric((cpu(b) - before).Seconds(), name+"-cpu-s")
			b.ReportMetric(residentPeak(b), name+"-peak-MiB")
		}
		reader.Close()
	}
}

// residentPeak is VmHWM in MiB.
func residentPeak(b *testing.B) float64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	return 0
}
