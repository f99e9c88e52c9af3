package planner_test

import (
	"context"
	"fmt"
	"runtime"
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
	peak uint64
}

func (m *month) Service(_ context.Context, req rlc.HistoryRequest, yield func(rlc.Series) error) error {
	for i := range m.n {
		h := m.base
		h.Hours, h.Tail = append([]rlc.Hour(nil), h.Hours...), append([]rlc.Sample(nil), h.Tail...)
		if err := yield(rlc.Series{Bucket: "callers", Key: rlc.Key{"caller": fmt.Sprintf("c%05d", i)}, History: h}); err != nil {
			return err
		}
		if i%50 == 0 {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			m.peak = max(m.peak, s.HeapAlloc)
		}
	}
	return nil
}

// One run over 1,000 series × 28 days at one minute: its time, and the largest
// heap of the whole process.
func BenchmarkRunOver1000Series(b *testing.B) {
	values := make([]float64, 28*1440)
	for i := range values {
		values[i] = wave(100)(now.Add(-28*day+time.Duration(i)*minute)) + float64(i*7919%97)/3
	}
	m := &month{n: 1000, base: stat.Summarise(minute, now.Add(-28*day), values)}
	for b.Loop() {
		w := newWorld(b, policy("shop", callers))
		p, err := planner.New(w.config(func(c *planner.Config) { c.History = m }))
		if err != nil {
			b.Fatal(err)
		}
		run, err := p.Run(b.Context(), planner.Ask{Trigger: rlc.ByCron, Slot: "s", Now: now})
		if err != nil || run.Changed != m.n {
			b.Fatalf("%+v, %v", run, err)
		}
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		m.peak = max(m.peak, s.HeapAlloc)
	}
	b.ReportMetric(float64(m.peak)/(1<<20), "peak-MiB")
}
