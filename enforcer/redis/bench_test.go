package redis

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// cpu is what a server has used, in microseconds.
func cpu(b *testing.B, server *redistest.Server) float64 {
	b.Helper()
	info := server.Do("INFO", "cpu")[0]
	sum := 0.0
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, err := strconv.ParseFloat(field(info, name), 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += n * 1e6
	}
	return sum
}

// own is the processor time of this process, in microseconds.
func own(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
}

// decide runs b.N decisions on 64 goroutines and reports what they cost Redis
// and this process.
func decide(b *testing.B, server *redistest.Server, sets []*Set) {
	b.Helper()
	for _, s := range sets {
		if _, err := s.Take(b.Context(), time.Now().UnixMicro(), 1); err != nil {
			b.Fatal(err)
		}
	}
	before, mine := cpu(b, server), own(b)
	b.ReportAllocs()
	b.SetParallelism(32) // times GOMAXPROCS
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := sets[i%len(sets)].Take(b.Context(), time.Now().UnixMicro(), 1); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric((cpu(b, server)-before)/float64(b.N), "redis-µs/op")
	b.ReportMetric((own(b)-mine)/float64(b.N), "own-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// What Redis pays for the least that could be asked of it, in the same pass.
func BenchmarkFloor(b *testing.B) {
	server := redistest.Start(b)
	c := counter(b, server.URL(), Config{Strict: true})
	client, err := c.conn.Client(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, command := range []string{"INCR k", "EVAL return(1) 0"} {
		b.Run(command, func(b *testing.B) {
			words := strings.Fields(command)
			before, mine := cpu(b, server), own(b)
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := client.Do(b.Context(), client.B().Arbitrary(words...).Build()).Error(); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			b.ReportMetric((cpu(b, server)-before)/float64(b.N), "redis-µs/op")
			b.ReportMetric((own(b)-mine)/float64(b.N), "own-µs/op")
		})
	}
}

func BenchmarkDecision(b *testing.B) {
	server := redistest.Start(b)
	for _, c := range []struct {
		name   string
		limit  gcra.Limit
		config Config
		keys   int
	}{
		{"strict", compile(b, 1e9, 1e9), Config{Strict: true}, 1000},
		{"strict refused", compile(b, 1e-5, 1), Config{Strict: true}, 1000},
		{"strict fixed window", window(b, rlc.FixedWindow, true), Config{Strict: true}, 1000},
		{"strict sliding log", window(b, rlc.SlidingLog, false), Config{Strict: true}, 1000},
		{"leased", compile(b, 1e9, 1e9), Config{LeaseTTL: time.Hour}, 1},
		{"leased, refused", compile(b, 10, 1), Config{}, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := counter(b, server.URL(), c.config)
			var sets []*Set
			for i := range c.keys {
				sets = append(sets, r.Set([]gcra.Charge{{Bucket: "b", Key: fmt.Sprint(i), Limit: c.limit}}).(*Set))
			}
			decide(b, server, sets)
		})
	}
}

// A lease of exactly 100 tokens, over and over: what Redis pays for each.
func BenchmarkLeaseOfAHundred(b *testing.B) {
	server := redistest.Start(b)
	c := counter(b, server.URL(), Config{})
	var parts [64]part
	for i := range parts {
		c.prepare(&parts[i], gcra.Charge{Bucket: "b", Key: strings.Repeat("k", i+1), Limit: compile(b, 1e9, 1e9)})
	}
	before := cpu(b, server)
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := c.ask(b.Context(), patience, []query{parts[i%len(parts)].leaseQuery(c, 0, 100, 0, 1)}, false); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric((cpu(b, server)-before)/float64(b.N)/100, "redis-µs/decision")
}
