package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/redis"
)

// A run in which Redis goes away: a phase each.
const (
	awayCallers = 64
	awayPhase   = 5 * time.Second
)

// answered is when a request was sent, since the run began, and what its answer
// took.
type answered struct{ at, took time.Duration }

// away measures how long decisions take, by the wall clock, while the Redis that
// they are charged to stops answering without a word: its process is held, so
// that connections stand and nothing comes back. Requests come at a steady
// rate, whether or not the ones before them were answered.
func away(perSecond int) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		fmt.Println("no redis-server: nothing is measured")
		return
	}
	addr := free()
	server := launch(program, addr)
	defer end(server)
	admin := connect(addr)
	defer admin.Close()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := redis.New(redis.Config{URL: "redis://" + addr, Strict: true})
	must(err)
	metrics := prometheus.NewRegistry()
	e, err := enforcer.New(enforcer.Config{Name: "bench", Counter: c, Peers: enforcer.Peers{Global: 1}, Registerer: metrics})
	must(err)
	var running sync.WaitGroup
	running.Go(func() { must(c.Run(ctx)) })
	running.Go(func() { must(e.Run(ctx)) })
	defer running.Wait()
	defer cancel()
	must(e.Load(rlc.Snapshot{Version: rlc.Version{Epoch: 1, Number: 1}, Files: rlc.Files{
		"services/s/policy.yaml": []byte("apiVersion: rlc/v1\nkind: ServicePolicy\nservice: s\nbuckets:\n  - {name: callers, each: [caller], mode: enforce, on_failure: local, limit: {rate: 1000000, burst: 1000000}}\n"),
	}}))
	for i := range awayCallers {
		e.Decide(enforcer.Request{Service: "s", Caller: strconv.Itoa(i)})
	}

	fmt.Printf("Redis away: %d requests/s of %d callers, each charged to Redis; load average %s\n\n", perSecond, awayCallers, load())
	began := time.Now()
	all := make([][]answered, awayCallers)
	var callers sync.WaitGroup
	for i := range all {
		callers.Go(func() { all[i] = ask(e, i, perSecond, began) })
	}
	phases := []struct {
		name        string
		from, until time.Duration
	}{
		{"Redis answers", 0, awayPhase},
		{"the first second without", awayPhase, awayPhase + time.Second},
		{"after that", awayPhase + time.Second, 2 * awayPhase},
		{"the first second with it again", 2 * awayPhase, 2*awayPhase + time.Second},
		{"after that", 2*awayPhase + time.Second, 3 * awayPhase},
	}
	fell := []float64{fallbacks(metrics)}
	for _, p := range phases {
		switch p.from {
		case awayPhase:
			must(server.Process.Signal(syscall.SIGSTOP))
		case 2 * awayPhase:
			must(server.Process.Signal(syscall.SIGCONT))
		}
		<-time.After(time.Until(began.Add(p.until)))
		fell = append(fell, fallbacks(metrics))
	}
	callers.Wait()

	fmt.Printf("%-34s %10s %14s %10s %10s %10s\n", "", "answered", "without Redis", "p50 ms", "p99 ms", "longest ms")
	for i, p := range phases {
		var took []time.Duration
		for _, one := range all {
			for _, a := range one {
				if a.at >= p.from && a.at < p.until {
					took = append(took, a.took)
				}
			}
		}
		if slices.Sort(took); len(took) == 0 {
			continue
		}
		ms := func(share float64) float64 {
			return took[min(int(share*float64(len(took))), len(took)-1)].Seconds() * 1000
		}
		fmt.Printf("%-34s %10d %14.0f %10.3f %10.3f %10.3f\n", p.name, len(took), fell[i+1]-fell[i], ms(0.5), ms(0.99), ms(1))
	}
	fmt.Printf("\nload average %s\n", load())
}

// ask sends one caller's requests in its turn and times their answers.
func ask(e *enforcer.Enforcer, caller, perSecond int, began time.Time) (out []answered) {
	name, gap := strconv.Itoa(caller), time.Second*awayCallers/time.Duration(perSecond)
	for due := time.Duration(caller) * gap / awayCallers; due < 3*awayPhase; due += gap {
		if wait := time.Until(began.Add(due)); wait > 0 {
			<-time.After(wait)
		}
		sent := time.Now()
		if d := e.Decide(enforcer.Request{Service: "s", Caller: name}); d.Outcome != enforcer.Admit {
			fmt.Fprintf(os.Stderr, "bench: caller %d: %s by %s\n", caller, d.Outcome, d.Bucket)
		}
		out = append(out, answered{sent.Sub(began), time.Since(sent)})
	}
	return out
}

// fallbacks is how many requests were decided without Redis so far.
func fallbacks(from prometheus.Gatherer) (n float64) {
	families, err := from.Gather()
	must(err)
	for _, f := range families {
		if f.GetName() == "rlc_enforcer_fallbacks_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
