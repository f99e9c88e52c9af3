package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// Slack lets the heap grow before it is collected, without taking memory; who
// sets the collector gets none.
func TestSlackSparesCollectionsAndTakesNoMemory(t *testing.T) {
	none := func(string) string { return "" }
	before := resident(t)
	keep := slack(none) // in a heap that has not been as large before, as at a start
	if grown := resident(t) - before; grown > slackSize/2 {
		t.Errorf("slack takes %d bytes", grown)
	}
	keep()

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
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	if n := collections(none); n < without {
		t.Errorf("%d collections in 64 MiB, %d without slack", n, without)
	}
}

// garbage keeps what a test allocates from being optimised away.
var garbage []byte

// resident is the memory of this process that is in the machine's.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
