package memory

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

// TestALiveKeyIsSmall bounds the memory of a counter with the set that holds
// it; beside it stand the names that the caller made.
func TestALiveKeyIsSmall(t *testing.T) {
	const keys = 20_000
	window := func(algorithm string) gcra.Limit {
		l, err := gcra.CompileWindow(algorithm, rlc.WindowLimit{Requests: 100, Per: rlc.PerDay})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for name, tc := range map[string]struct {
		limit gcra.Limit
		most  uint64 // bytes
	}{
		"token bucket":                    {limit(t, 1, 10), 300},
		"fixed window":                    {window(rlc.FixedWindow), 300},
		"sliding window":                  {window(rlc.SlidingWindow), 300},
		"sliding log with three requests": {window(rlc.SlidingLog), 350},
	} {
		var m Memory
		sets := make([]*Set, keys)
		names := make([]string, keys)
		for i := range names {
			names[i] = fmt.Sprint("key", i)
		}
		before := heap()
		for i, key := range names {
			sets[i] = m.Set([]gcra.Charge{{Bucket: "b", Key: key, Limit: tc.limit}})
			for at := range int64(3) {
				take(t, sets[i], second+at, 1)
			}
		}
		each := (heap() - before) / keys
		t.Logf("%s: %d bytes a key", name, each)
		if each > tc.most {
			t.Errorf("%s: %d bytes a key, at most %d", name, each, tc.most)
		}
		runtime.KeepAlive(&m)
		runtime.KeepAlive(sets)
	}
}

// heap is what is alive on it, in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
