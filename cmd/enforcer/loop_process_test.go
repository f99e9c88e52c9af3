package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tierProcess is a running command of the loop.
type tierProcess struct {
	cmd  *exec.Cmd
	addr map[string]string // by scheme of the URL
	done chan struct{}
	log  *output
}

// spawn starts a command and waits until it has said so many addresses.
func spawn(t *testing.T, addresses int, args ...string) *tierProcess {
	t.Helper()
	p := &tierProcess{cmd: command(t, nil, args...), addr: map[string]string{}, done: make(chan struct{}), log: &output{}}
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewReader(out); len(p.addr) < addresses; {
		line, err := in.ReadString('\n')
		url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening: ")
		if err != nil || !ok {
			t.Fatalf("%v said %q, %v\n%s", args, line, err, p.log)
		}
		scheme, addr, _ := strings.Cut(url, "://")
		p.addr[scheme] = addr
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends it as a failing machine does.
func (p *tierProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *tierProcess) says(t *testing.T, metric string) bool {
	t.Helper()
	return strings.Contains(get(t, "http://"+p.addr["http"]+"/metrics"), "\n"+metric+"\n")
}

// loopFleet is one enforcer in each of three zones, with their callers.
type loopFleet struct {
	t        *testing.T
	load     atomic.Int64 // requests/s at each enforcer
	admitted atomic.Int64
	callers  sync.WaitGroup
}

// call keeps an enforcer busy until ctx ends.
func (f *loopFleet) call(ctx context.Context, url string) {
	f.callers.Go(func() {
		c := &http.Client{Timeout: 2 * time.Second}
		defer c.CloseIdleConnections()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		last, owed := time.Now(), 0.0
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				owed = min(owed+now.Sub(last).Seconds()*float64(f.load.Load()), 200)
				last = now
			}
			for ; owed >= 1 && ctx.Err() == nil; owed-- {
				res, err := c.Post(url+"/v1/check", "application/json", strings.NewReader(`{"service":"s","attributes":{"caller":"web"}}`))
				if err != nil {
					break // it was killed
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode == http.StatusOK {
					f.admitted.Add(1)
				}
			}
		}
	})
}

// held waits until what is admitted in three seconds lies between two parts of
// the limit, twice running: once may be a moment on the way from too much to too
// little. Three seconds of 120/s have a deviation of 5 %.
func (f *loopFleet) held(what string, least, most float64) {
	f.t.Helper()
	seen, good := "", 0
	for range 16 {
		from, a := time.Now(), f.admitted.Load()
		<-time.After(3 * time.Second)
		rate := float64(f.admitted.Load()-a) / time.Since(from).Seconds() / processLimit
		seen += fmt.Sprintf(" %.2f", rate)
		if rate < least || rate > most {
			good = 0
		} else if good++; good == 2 {
			return
		}
	}
	f.t.Fatalf("%s: admitted%s of the limit, want %.2f to %.2f", what, seen, least, most)
}

const processLimit = 120

// Every tier as a process, killed in turn, with a load of three and six times
// the limit.
func TestEachTierIsKilledInTurn(t *testing.T) {
	dir := t.TempDir()
	writePolicy(t, dir, processLimit)
	controllerArgs := []string{"controller", "--http", "off", "--zones", "z0,z1,z2", "--config-dir", dir, "--state", t.TempDir(), "--grpc"}
	controller := spawn(t, 1, append(controllerArgs, "127.0.0.1:0")...)
	at := controller.addr["grpc"]
	zoneArgs := func(zone int, address string) []string {
		return []string{"aggregator", "--http", "127.0.0.1:0", "--zone", fmt.Sprint("z", zone), "--controller", at, "--grpc", address}
	}
	f := &loopFleet{t: t}
	f.load.Store(processLimit)
	ctx, stop := context.WithCancel(t.Context())
	defer f.callers.Wait()
	defer stop()
	var zones, servers []*tierProcess
	for z := range 3 {
		zones = append(zones, spawn(t, 2, zoneArgs(z, "127.0.0.1:0")...))
		s := spawn(t, 1, "serve", "--grpc", "off", "--http", "127.0.0.1:0", "--zone", fmt.Sprint("z", z), "--name", fmt.Sprint("e", z), "--aggregator", zones[z].addr["grpc"])
		servers = append(servers, s)
		within(t, "a snapshot over the loop", func() bool { return strings.Contains(get(t, "http://"+s.addr["http"]+"/v1/config"), "0.1") })
		f.call(ctx, "http://"+s.addr["http"])
	}
	f.held("three times the limit", 0.8, 1.2)

	controller.kill()
	for _, z := range zones {
		within(t, "the zone closes the loop", func() bool { return z.says(t, "rlc_loop_closed 1") })
	}
	f.load.Store(2 * processLimit)
	f.held("the controller killed, six times the limit", 0.8, 1.2)
	spawn(t, 1, append(controllerArgs, at)...)
	for _, z := range zones {
		within(t, "the zone hears it", func() bool { return z.says(t, "rlc_loop_closed 0") })
	}
	f.held("the controller back", 0.8, 1.2)

	zones[1].kill()
	f.held("an aggregator killed", 0.6, 1.2)
	zones[1] = spawn(t, 2, zoneArgs(1, zones[1].addr["grpc"])...)
	within(t, "its enforcer joins again", func() bool { return zones[1].says(t, "rlc_loop_nodes 1") })
	f.held("the aggregator back", 0.8, 1.2)

	servers[2].kill()
	within(t, "its load is gone", func() bool { return zones[2].says(t, "rlc_loop_nodes 0") })
	f.held("an enforcer killed: the others may have it all", 0.8, 1.2)
}
