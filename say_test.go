package rlc_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/openrlc/rlc"
)

func TestWhatAnErrorSaysDoesNotRepeatItsValue(t *testing.T) {
	for want, err := range map[string]error{
		"a limit needs a rate":             fmt.Errorf("%w: %w: a limit needs a rate", rlc.ErrInvalid, rlc.ErrInvalid),
		"a.csv: line 2: no number":         fmt.Errorf("a.csv: %w: line 2: %w: no number", rlc.ErrInvalid, rlc.ErrInvalid),
		"accept 7: it was edited":          fmt.Errorf("accept 7: %w: it was edited", rlc.ErrConflict),
		"✖ days in shadow":                 fmt.Errorf("%w: ✖ days in shadow", rlc.ErrRefused),
		"no service \"a\"":                 fmt.Errorf("%w: no service %q", rlc.ErrNotFound, "a"),
		"invalid configuration: 1 problem": fmt.Errorf("%w configuration: 1 problem", rlc.ErrInvalid),
		"read config: not found":           fmt.Errorf("read config: %w", rlc.ErrNotFound),
		"the token is invalid":             errors.New("the token is invalid"),
	} {
		if got := rlc.Say(err); got != want {
			t.Errorf("%q says %q, want %q", err, got, want)
		}
	}
}
