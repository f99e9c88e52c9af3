package main

import (
	"errors"
	"testing"

	"github.com/openrlc/rlc"
)

// The exit code of a run says how it ended, whatever the output's form. A degraded
// run has done what it could.
func TestARunsExitCodeSaysHowItEnded(t *testing.T) {
	for result, want := range map[rlc.Result][2]int{ // without and with --strict
		rlc.ResultOK: {exitOK, exitOK}, rlc.ResultDegraded: {exitOK, exitRefused},
		rlc.ResultRefused: {exitRefused, exitRefused}, rlc.ResultFailed: {exitError, exitError},
	} {
		for i, strict := range []bool{false, true} {
			r := runAnswer{Result: string(result)}
			got, e := exitOK, exit{}
			if err := r.verdict(strict); errors.As(err, &e) {
				got = e.code
			}
			if got != want[i] {
				t.Errorf("%s, strict %v: %d, want %d", result, strict, got, want[i])
			}
		}
	}
}
