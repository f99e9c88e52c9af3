package enforcer

import (
	"context"
	"fmt"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
)

// snapshotOf is a snapshot of one service "s"; body are its policy's lines.
func snapshotOf(number uint64, body string) rlc.Snapshot {
	return rlc.Snapshot{Version: rlc.Version{Number: number}, Files: rlc.Files{
		"services/s/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nowners: [team]\nservice: s\n" + body),
	}}
}

func loadedFor(t testing.TB, body string) (*Enforcer, *loaded) {
	t.Helper()
	e, err := New(Config{Name: "e1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(snapshotOf(1, body)); err != nil {
		t.Fatal(err)
	}
	return e, e.loaded.Load()
}

func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"enforce", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 1000000, burst: 1000000}}\n"},
		{"enforce with a cap", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], limit: {rate: 1000000, burst: 1000000}}\n  - {name: all, role: cap, limit: {rate: 1000000000, burst: 1000000}}\n"},
		{"drop ratio", "defaults: {mode: enforce}\nbuckets:\n  - {name: callers, each: [caller], algorithm: drop_ratio, limit: {rate: 1000000000, burst: 1000000000}}\n"},
		{"no quota yet", "buckets:\n  - {name: callers, each: [caller]}\n"},
	} {
		for _, keys := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("%s/keys=%d", c.name, keys), func(b *testing.B) {
				ratios := loop.NewClient(loop.ClientConfig{Node: "n"})
				e, err := New(Config{Name: "e1", Loop: ratios})
				if err != nil {
					b.Fatal(err)
				}
				if err := e.Load(snapshotOf(1, c.body)); err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error)
				go func() { ended <- e.Run(ctx) }()
				defer func() {
					cancel()
					<-ended
				}()
				requests := make([]Request, keys)
				for i := range requests {
					requests[i] = Request{Service: "s", Caller: fmt.Sprint("caller-", i)}
				}
				for _, r := range requests {
					e.Decide(r)
				}
				direct(ratios, keys)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					e.Decide(requests[i])
					if i++; i == keys {
						i = 0
					}
				}
			})
		}
	}
}

// direct admits what every caller of BenchmarkDecide offers.
func direct(c *loop.Client, keys int) {
	d := loop.Directives{Epoch: 1, Seq: 1}
	for i := range keys {
		d.List = append(d.List, loop.Directive{Bucket: fmt.Sprintf("s\x00callers\x00callers/caller=caller-%d", i), Keep: loop.Keep{1, 1, 1}, Limit: 1e9})
	}
	c.Apply(d, 0)
}
