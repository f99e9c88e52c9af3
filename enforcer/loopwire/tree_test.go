//go:build linux

package loopwire

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openrlc/rlc/enforcer/loop"
)

// The cost of the tree is measured, not asserted, where RLC_LOOP_TREE asks for
// it: "nodes,buckets,seconds". The nodes are another process; see rawNodes.
// RLC_LOOP_TREE_PROFILE names a file for a processor profile of those seconds.
const treeVariable, nodesVariable, profileVariable = "RLC_LOOP_TREE", "RLC_LOOP_TREE_NODES", "RLC_LOOP_TREE_PROFILE"

func TestMain(m *testing.M) {
	if address := os.Getenv(nodesVariable); address != "" {
		if err := nodesMain(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type treeSize struct{ nodes, buckets, seconds int }

func treeOf(text string) (s treeSize, err error) {
	_, err = fmt.Sscanf(text, "%d,%d,%d", &s.nodes, &s.buckets, &s.seconds)
	return s, err
}

// cpu is the processor time this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuOf is the processor time that another process has used, to 10 ms
// (proc_pid_stat(5): fields 14 and 15, in hundredths of a second).
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	var user, system int64
	if f := strings.Fields(rest); len(f) > 12 {
		_, err = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

func TestTreeCost(t *testing.T) {
	size, err := treeOf(os.Getenv(treeVariable))
	if err != nil {
		return // not asked for
	}
	c, err := NewController(ControllerConfig{Limits: func(string, loop.Place) (loop.Setting, bool) {
		return loop.Setting{Rate: 9 * float64(size.nodes)}, true // 10 are offered: every bucket is over its limit
	}})
	if err != nil {
		t.Fatal(err)
	}
	lc := listen(t, "127.0.0.1:0")
	start(t, func(ctx context.Context) error { return c.Serve(ctx, lc) })
	a, err := NewAggregator(AggregatorConfig{Place: loop.Place{Zone: "z"}, Controller: lc.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	la := listen(t, "127.0.0.1:0")
	start(t, func(ctx context.Context) error { return a.Serve(ctx, la) })

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), nodesVariable+"="+la.Addr().String())
	child.Stdout, child.Stderr = os.Stderr, os.Stderr
	pipe, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { pipe.Close(); _ = child.Wait() }()
	eventually(t, "all nodes report", func() bool { return a.Stats().Nodes >= size.nodes*95/100 })
	<-time.After(6 * time.Second)
	before, theirs, was, from := cpu(t), cpuOf(t, child.Process.Pid), a.Stats(), time.Now()
	if name := os.Getenv(profileVariable); name != "" {
		file, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			t.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	<-time.After(time.Duration(size.seconds) * time.Second)
	span, s := time.Since(from), a.Stats()
	used := cpu(t) - before
	theirs = cpuOf(t, child.Process.Pid) - theirs
	reports, told := s.Reports-was.Reports, s.Told-was.Told
	fmt.Printf("nodes %d, buckets %d: %.3f cores, %.1f µs a report, %.0f reports/s, %.2f messages down a node and second, %d late, %d dropped; the nodes %.3f cores\n", size.nodes, size.buckets,
		used.Seconds()/span.Seconds(), float64(used.Microseconds())/float64(reports), float64(reports)/span.Seconds(), float64(told)/span.Seconds()/float64(size.nodes), s.Late-was.Late, s.DownDropped-was.DownDropped, theirs.Seconds()/span.Seconds())
}
