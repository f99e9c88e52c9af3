package gitsync_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/gitsync"
	"github.com/openrlc/rlc/quotafile"
)

// BenchmarkPublish is the time of one publish, one quota changed, in a
// repository of so many services with 20 quotas each, and the memory in use
// after it. A run that changes 1,000 services of 10,000:
//
//	go test -run - -bench Publish/10000 -benchtime 1000x ./gitsync
func BenchmarkPublish(b *testing.B) {
	for _, services := range []int{1000, 10_000} {
		b.Run(strconv.Itoa(services), func(b *testing.B) { benchmarkPublish(b, services) })
	}
}

func benchmarkPublish(b *testing.B, services int) {
	names := make([]string, services)
	for i := range names {
		names[i] = fmt.Sprintf("service-%05d", i)
	}
	w := newWorld(b, names...)
	files := rlc.Files{}
	for _, name := range names {
		var changes []rlc.Change
		for k := range 20 {
			changes = append(changes, set(name, fmt.Sprintf("caller-%02d", k), 0, 100))
		}
		files["services/"+name+"/quotas.yaml"] = quotasOf(name, changes)
	}
	if _, err := w.Edit(b.Context(), gitsync.Person{Name: "Ada"}, "all quotas", files); err != nil {
		b.Fatal(err)
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		name := names[n%len(names)]
		if p := w.publish(proposal(name, fmt.Sprintf("run-%d", n), set(name, "new", 0, 200))); p.State != rlc.Open {
			b.Fatal(p.State)
		}
		n++
	}
	b.StopTimer()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/(1<<20), "heap-MiB")
}

// BenchmarkHead is reading the head after one service changed, of 1,000.
func BenchmarkHead(b *testing.B) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("service-%04d", i)
	}
	w := newWorld(b, names...)
	n := 0
	for b.Loop() {
		b.StopTimer()
		name := names[n%len(names)]
		w.inForce(proposal(name, fmt.Sprintf("run-%d", n), set(name, fmt.Sprintf("caller-%d", n), 0, 200)))
		b.StartTimer()
		head(b, w)
		n++
	}
}

// BenchmarkFirstLook is opening a repository with 2,000 commits over 1,000
// services and asking for one service's edits: what a start costs.
func BenchmarkFirstLook(b *testing.B) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("service-%04d", i)
	}
	w := newWorld(b, names...)
	commits := make([]string, 2000)
	for n := range commits {
		commits[n] = quotafile.QuotasPath(names[n%len(names)])
	}
	w.pushEach(commits, func(n int) string {
		return string(quotasOf(names[n%len(names)], []rlc.Change{set("", "a", 0, float64(n+1))}))
	})
	for b.Loop() {
		w.Close()
		w.Repo = w.open(gitsync.Config{})
		if _, err := w.Edited(b.Context(), names[7]); err != nil {
			b.Fatal(err)
		}
	}
}

func quotasOf(service string, changes []rlc.Change) []byte {
	var quotas []rlc.Quota
	for _, c := range changes {
		quotas = append(quotas, rlc.Quota{Bucket: c.Bucket, Key: c.Key, Limit: *c.New, Why: c.Why})
	}
	return quotafile.MarshalQuotas(service, quotas)
}
