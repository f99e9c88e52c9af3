package e2e

import (
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// A demo that is killed while it writes its first history leaves unfinished
// blocks. The next start removes them; stopped in the middle, it leaves none of
// its own.
func TestADemoKilledInItsFirstStartLeavesNothingBehind(t *testing.T) {
	data := filepath.Join(t.TempDir(), "demo")
	start := func() (*exec.Cmd, <-chan error, *locked) {
		log := &locked{}
		cmd := exec.Command(filepath.Join(programs, "rlc"), "demo", "--data", data, "--listen", "127.0.0.1:0")
		cmd.Stdout, cmd.Stderr = io.Discard, log
		return cmd, begin(t, cmd), log
	}
	left := func() []string {
		found, err := filepath.Glob(filepath.Join(data, "prometheus", "backfill.tmp-*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}

	cmd, ended, log := start()
	eventually(t, "blocks are being written", func() bool { return len(left()) > 0 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	before := left()
	if len(before) == 0 {
		t.Fatalf("the first start was over before it was killed:\n%s", log)
	}

	cmd, ended, log = start()
	eventually(t, "the unfinished blocks are gone and new ones are written", func() bool {
		now := left()
		return len(now) > 0 && !slices.ContainsFunc(now, func(x string) bool { return slices.Contains(before, x) })
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v:\n%s", err, log)
		}
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Kill() // the test has failed
		t.Fatalf("does not end:\n%s", log)
	}
	if after := left(); len(after) > 0 {
		t.Errorf("left behind: %q", after)
	}
}
