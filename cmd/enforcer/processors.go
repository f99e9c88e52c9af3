package main

import (
	"context"
	"runtime"
	"syscall"
	"time"
)

// An aggregator hears thousands of small messages a second, each of which wakes
// a few goroutines in turn. With several processors at hand the runtime wakes
// another one for each of them, which finds nothing to do: a fifth of the
// processor time. So the program keeps to one as long as one is enough.
const (
	lookEvery   = 100 * time.Millisecond
	oneIsFull   = 0.7 // of a processor: from here on all of them work
	oneIsEnough = 0.4 // below it for calmFor one is enough again
	calmFor     = 5 * time.Second
)

// processors decides how many work.
type processors struct {
	all  bool
	calm time.Duration // since when less than oneIsEnough is used
}

// look takes how much of a processor was used in the last span, and reports
// whether all are to work.
func (p *processors) look(used float64, span time.Duration) (all bool) {
	switch {
	case used >= oneIsFull:
		p.all, p.calm = true, 0
	case used >= oneIsEnough:
		p.calm = 0
	default:
		if p.calm += span; p.calm >= calmFor {
			p.all = false
		}
	}
	return p.all
}

// keepToOne keeps the program to one processor while that is enough, until ctx
// ends. It does nothing where GOMAXPROCS is set.
func keepToOne(ctx context.Context, env func(string) string) {
	most := runtime.GOMAXPROCS(0)
	if env("GOMAXPROCS") != "" || most == 1 {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	p := processors{all: true} // a start is no time to save
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	was, at := processorTime(), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, used := time.Now(), processorTime()
		span, before := now.Sub(at), p.all
		switch all := p.look((used-was).Seconds()/span.Seconds(), span); {
		case all && !before:
			runtime.GOMAXPROCS(most)
		case !all && before:
			runtime.GOMAXPROCS(1)
		}
		was, at = used, now
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
