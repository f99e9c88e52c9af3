package promhistory

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/promserver"
	"github.com/openrlc/rlc/internal/store"
)

// serverEnv makes the test binary serve metrics instead of testing: the
// server's memory must not count as the reader's.
const serverEnv = "RLC_BENCH_METRICS_SERVER" // series,days,folder

func serveBench(arg string) error {
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
		all = append(all, rates(now.Add(-time.Duration(days)*day), now.Add(day), func(t time.Time) float64 {
			return level * (2 + math.Sin(float64(t.Unix()%86400)/86400*2*math.Pi) + 0.2*noise.NormFloat64())
		}, "client", fmt.Sprint("caller-", i)))
	}
	began := time.Now()
	if err := s.Backfill(context.Background(), all, nil); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr(), time.Since(began).Seconds())
	return http.Serve(l, s.Handler())
}

// BenchmarkTwoRuns reads 28 days of 1,000 series at one minute from a server in
// a process of its own, and a second time an hour later. Figures: seconds of
// wall and CPU, and the peak resident set of this process above what it had
// before (VmHWM), for either run.
func BenchmarkTwoRuns(b *testing.B) {
	n, _ := strconv.Atoi(os.Getenv("RLC_BENCH_SERIES"))
	if n == 0 {
		n = 1000
	}
	dir := b.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d,30,%s", serverEnv, n, filepath.Join(dir, "prometheus")))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	addr, filled, _ := strings.Cut(strings.TrimSpace(line), " ")
	b.Logf("backfill of %d series × 31 days: %s s", n, filled)

	s := service(callers())
	s.MaxQuotas = 20_000
	for b.Loop() {
		db, err := store.Open(b.Context(), "sqlite:"+filepath.Join(b.TempDir(), "rlc.db"))
		if err != nil {
			b.Fatal(err)
		}
		r, err := New(Config{URL: "http://" + addr, Store: db, ServiceTimeout: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		for run, at := range []time.Time{now, now.Add(time.Hour)} {
			runtime.GC()
			_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets VmHWM
			base, began, cpu := memory("VmRSS"), time.Now(), cpuSeconds()
			got := 0
			err := r.Service(b.Context(), rlc.HistoryRequest{Service: s, Profile: profile(), Lookback: 28 * day, Now: at}, func(x rlc.Series) error {
				if len(x.History.Hours) < 28*24-1 || len(x.History.Problems) > 0 {
					return fmt.Errorf("%v: %d hours, %v", x.Key, len(x.History.Hours), x.History.Problems)
				}
				got++
				return nil
			})
			if err != nil || got != n {
				b.Fatal(got, err)
			}
			name := []string{"first", "second"}[run]
			b.ReportMetric(time.Since(began).Seconds(), name+"-s")
			b.ReportMetric(cpuSeconds()-cpu, name+"-cpu-s")
			b.ReportMetric(memory("VmHWM"), name+"-peak-MiB")
			b.ReportMetric(memory("VmHWM")-base, name+"-grown-MiB")
		}
		r.Close()
		db.Close()
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
