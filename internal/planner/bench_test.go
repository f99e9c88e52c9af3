package planner_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/planner"
	"github.com/openrlc/rlc/internal/stat"
)

// month yields n callers of one service with four weeks at one minute each,
// summarised one at a time as they would come out of the records, and notes the
// largest heap on the way.
type month struct {
	n    int
	base rlc.History
	mu   sync.Mutex
	peak uint64
}

func (m *month) note(heap uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peak = max(m.peak, heap)
}

func (m *month) Service(_ context.Context, req rlc.HistoryRequest, yield func(rlc.Series) error) error {
	h := m.base
	var hours []rlc.Hour
	var tail []rlc.Sample
	for i := range m.n {
		hours, tail = append(hours[:0], m.base.Hours...), append(tail[:0], m.base.Tail...)
		h.Hours, h.Tail = hours, tail
		if err := yield(rlc.Series{Bucket: "callers", Key: rlc.Key{"caller": fmt.Sprintf("c%05d", i)}, History: h}); err != nil {
			return err
		}
		if i%50 == 0 {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			m.note(s.HeapAlloc)
		}
	}
	return nil
}

// One run over 10,000 keys × 28 days at one minute, in five services, from the
// sketches to the stored changes with their backtests: its CPU time, and the
// largest heap of the whole process. The bar is 60 s and 1 GiB; what reading
// costs is measured where it is read.
func BenchmarkRunOver10000Keys(b *testing.B) {
	values := make([]float64, 28*1440)
	for i := range values {
		values[i] = wave(100)(now.Add(-28*day+time.Duration(i)*minute)) + float64(i*7919%97)/3
	}
	const services = 5
	m := &month{n: 10_000 / services, base: stat.Summarise(minute, now.Add(-28*day), values)}
	var all []rlc.Files
	for i := range services {
		all = append(all, policy(fmt.Sprintf("shop%d", i), callers))
	}
	var spent time.Duration
	for b.Loop() {
		w := newWorld(b, files(all...))
		p, err := planner.New(w.config(func(c *planner.Config) { c.History = m }))
		if err != nil {
			b.Fatal(err)
		}
		before := cpu(b)
		run, err := p.Run(b.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now})
		if err != nil || run.Changed != services*m.n {
			b.Fatalf("%+v, %v", run, err)
		}
		spent += cpu(b) - before
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		m.note(s.HeapAlloc)
	}
	b.ReportMetric(spent.Seconds()/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(m.peak)/(1<<20), "peak-MiB")
}

// cpu is what the process has used so far.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
