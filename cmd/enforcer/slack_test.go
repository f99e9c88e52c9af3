package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// Slack lets the heap grow before it is collected; who sets the collector, or
// little memory, gets none.
func TestSlackSparesCollections(t *testing.T) {
	none := func(string) string { return "" }
	collections := func(env func(string) string) (n uint32) {
		keep := slack(env)
		defer keep()
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 1 << 10 { // 64 MB of garbage
			garbage = make([]byte, 64<<10)
		}
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	with := collections(none)
	without := collections(func(key string) string { return map[string]string{"GOGC": "100"}[key] })
	if with >= without || with > 4 {
		t.Errorf("%d collections with slack, %d with GOGC set", with, without)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(32 << 20))
	if n := collections(none); n <= 2*with {
		t.Errorf("%d collections in 32 MiB, %d with slack", n, with)
	}
}

// garbage keeps what a test allocates from being optimised away.
var garbage []byte

// A process with slack holds no more memory than one without, as long as it
// makes no garbage.
func TestSlackTakesNoMemory(t *testing.T) {
	dir := t.TempDir()
	writeService(t, dir, ratioPolicy)
	resident := func() int {
		p := spawn(t, 1, "serve", "--grpc", "off", "--http", "127.0.0.1:0", "--config-dir", dir)
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		pages, err := strconv.Atoi(strings.Fields(string(text))[1])
		if err != nil {
			t.Fatal(err)
		}
		return pages * os.Getpagesize()
	}
	with := resident()
	t.Setenv("GOGC", "100")
	if without := resident(); with > without+slackSize/2 {
		t.Errorf("%d bytes with slack, %d without", with, without)
	}
}
