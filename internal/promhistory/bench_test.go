package promhistory

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/internal/store"
)

// serverEnv makes the test binary fill a folder with blocks instead of testing:
// that memory must not count as the reader's.
const serverEnv = "RLC_BENCH_METRICS_SERVER" // series,days,folder

func fillBench(arg string) error {
	var n, days int
	var dir string
	if _, err := fmt.Sscanf(arg, "%d,%d,%s", &n, &days, &dir); err != nil {
		return err
	}
	s, err := promserver.Open(promserver.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer s.Close()
	var all []promserver.LabelledSeries
	for i := range n {
		noise := rand.New(rand.NewPCG(uint64(i), 1))
		level := 10 * math.Pow(10, 2*noise.Float64())
		all = append(all, rates(now.Add(-time.Duration(days)*day), now.Add(2*day), func(t time.Time) float64 {
			return level * (2 + math.Sin(float64(t.Unix()%86400)/86400*2*math.Pi) + 0.2*noise.NormFloat64())
		}, "client", fmt.Sprint("caller-", i)))
	}
	return s.Backfill(context.Background(), all, nil)
}

// BenchmarkTwoRuns reads 28 days of 1,000 series at one minute from Debian's
// Prometheus, and a second time a day later, by remote read and by range queries
// in one pass (RLC_BENCH_SERIES and RLC_BENCH_WAYS ask for others). Figures for
// either run: seconds of wall and CPU, peak resident set of this process
// (VmHWM), requests, samples, and bytes of records a series. RLC_BENCH_BLOCKS
// names a folder that keeps the server's blocks from one pass to the next.
func BenchmarkTwoRuns(b *testing.B) {
	n, _ := strconv.Atoi(os.Getenv("RLC_BENCH_SERIES"))
	if n == 0 {
		n = 1000
	}
	url := prometheus(b, benchBlocks(b, n), "global: {}\n")

	s := service(callers())
	s.MaxQuotas = 20_000
	for b.Loop() {
		for _, way := range strings.Fields(cmp.Or(os.Getenv("RLC_BENCH_WAYS"), "remote range")) {
			benchTwoRuns(b, url, s, n, way)
		}
	}
}

// benchBlocks is a Prometheus' folder with 30 days of n series, written by
// another process.
func benchBlocks(b *testing.B, n int) string {
	dir := os.Getenv("RLC_BENCH_BLOCKS")
	if dir == "" {
		dir = b.TempDir()
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(data); err == nil {
		return data
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,30,%s", serverEnv, n, filepath.Join(dir, "filled")))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	// A block's folder is named by 26 letters and digits.
	filled, err := filepath.Glob(filepath.Join(dir, "filled", strings.Repeat("?", 26)))
	if err != nil || len(filled) == 0 {
		b.Fatal("no blocks", err)
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		b.Fatal(err)
	}
	for _, block := range filled {
		if err := os.Rename(block, filepath.Join(data, filepath.Base(block))); err != nil {
			b.Fatal(err)
		}
	}
	return data
}

func benchTwoRuns(b *testing.B, url string, s *rlc.Service, n int, way string) {
	records := filepath.Join(b.TempDir(), "rlc.db")
	db, err := store.Open(b.Context(), "sqlite:"+records)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	r, err := New(Config{URL: url, Store: db, ServiceTimeout: time.Hour, QueryTimeout: 5 * time.Minute, RangeOnly: way == "range"})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for run, at := range []time.Time{now, now.Add(day)} {
		debug.FreeOSMemory()
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets VmHWM
		began, cpu := time.Now(), cpuSeconds()
		requests, samples := r.Cost()
		got := 0
		name := way + []string{"-first", "-second"}[run]
		// go tool pprof -tagfocus run=remote-second tells the runs apart.
		ctx := pprof.WithLabels(b.Context(), pprof.Labels("run", name))
		pprof.SetGoroutineLabels(ctx)
		err := r.Service(ctx, rlc.HistoryRequest{Service: s, Profile: profile(), Lookback: 28 * day, Now: at}, func(x rlc.Series) error {
			if len(x.History.Hours) < 28*24-1 || len(x.History.Problems) > 0 {
				return fmt.Errorf("%v: %d hours, %v", x.Key, len(x.History.Hours), x.History.Problems)
			}
			got++
			return nil
		})
		if err != nil || got != n {
			b.Fatal(got, err)
		}
		b.ReportMetric(time.Since(began).Seconds(), name+"-s")
		b.ReportMetric(cpuSeconds()-cpu, name+"-cpu-s")
		b.ReportMetric(memory("VmHWM"), name+"-peak-MiB")
		sent, read := r.Cost()
		b.ReportMetric(float64(sent-requests), name+"-requests")
		b.ReportMetric(float64(read-samples), name+"-samples")
	}
	if info, err := os.Stat(records); err == nil {
		b.ReportMetric(float64(info.Size())/float64(n), way+"-records-B/series")
	}
}

// memory is a line of /proc/self/status in MiB.
func memory(name string) float64 {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	return math.NaN()
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
