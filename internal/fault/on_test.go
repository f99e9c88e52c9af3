//go:build fault

package fault_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/openrlc/rlc/internal/fault"
)

func TestHitKillsOnlyAtTheArmedPoint(t *testing.T) {
	if os.Getenv("RLC_FAULT") != "" {
		defer os.Exit(3) // a kill runs no deferred function
		fault.Hit("other")
		fault.Hit("here")
		return
	}
	run := func(name string) syscall.WaitStatus {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHitKillsOnlyAtTheArmedPoint$")
		cmd.Env = append(os.Environ(), "RLC_FAULT="+name)
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) {
			t.Fatalf("RLC_FAULT=%s: %v, want an exit", name, err)
		}
		return exit.Sys().(syscall.WaitStatus)
	}
	if s := run("here"); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Errorf("armed: %v, want killed by SIGKILL", s)
	}
	if s := run("elsewhere"); s.ExitStatus() != 3 {
		t.Errorf("armed elsewhere: %v, want to run to its end", s)
	}
}
