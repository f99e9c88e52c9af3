//go:build !fault

package fault_test

import (
	"testing"

	"github.com/openrlc/rlc/internal/fault"
)

// An ordinary build must not be killable from its environment.
func TestAnOrdinaryBuildIgnoresTheEnvironment(t *testing.T) {
	t.Setenv("RLC_FAULT", "here")
	fault.Hit("here")
	if fault.Armed {
		t.Fatal("an ordinary build says that it is armed")
	}
}
