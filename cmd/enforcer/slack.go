package main

import (
	"runtime"
	"runtime/debug"
)

// slackSize is for how many bytes of garbage the collector lets at least pass.
const slackSize = 32 << 20

// slack is memory that nobody touches, so that it takes none of the machine's.
// The collector runs whenever the heap has doubled, and an enforcer's is small:
// it would run for every 4 MB of garbage, which is many times a second under
// load and a good part of the processor time of an answer. With slack in the
// heap it runs for every 32 MB, and that is what it costs: at most so much more
// memory. There is none where GOGC is set, or where GOMEMLIMIT leaves little
// room for it. The caller keeps what it returns until the end.
func slack(env func(string) string) (keep func()) {
	if env("GOGC") != "" || debug.SetMemoryLimit(-1) < 4*slackSize { // a negative limit changes nothing
		return func() {}
	}
	untouched := make([]byte, slackSize)
	return func() { runtime.KeepAlive(untouched) }
}
