// Package gcratest holds the vectors: tables of requests with the right
// answers, for every algorithm that counts, run by every implementation.
package gcratest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

//go:embed vectors.json
var file []byte

// Spec is a limit as people write it: a rate and a burst, or a window.
type Spec struct {
	Algorithm string           `json:"algorithm"` // "" is the token bucket
	Limit     *rlc.Limit       `json:"limit"`
	Window    *rlc.WindowLimit `json:"window"`
}

// Compile makes it ready for arithmetic.
func (s Spec) Compile() (gcra.Limit, error) {
	switch {
	case s.Window != nil:
		return gcra.CompileWindow(s.Algorithm, *s.Window)
	case s.Limit != nil:
		return gcra.CompileAs(s.Algorithm, *s.Limit)
	}
	return gcra.Limit{}, fmt.Errorf("%w: neither limit nor window", rlc.ErrInvalid)
}

// Vector is a sequence of requests to one counter, each with its right answer.
type Vector struct {
	Name string `json:"name"`
	Spec
	Steps []Step `json:"steps"`
}

// Step is one request, or, where Settle is not 0, the settling of an earlier
// one, which has no answer.
type Step struct {
	At   int64 `json:"at"`   // microseconds; never negative
	Cost int64 `json:"cost"` // 0 is a peek
	Spec       // the limit from here on; as before where it is empty

	Settle  int64 `json:"settle"`  // tokens more, or fewer
	Charged int64 `json:"charged"` // when those that are settled were charged

	OK        bool  `json:"ok"`        //
	Remaining int64 `json:"remaining"` // whole tokens left
	Wait      int64 `json:"wait"`      // microseconds, exact; -1: forever
}

// Verdict is the step's right answer.
func (s Step) Verdict() gcra.Verdict {
	v := gcra.Verdict{OK: s.OK, Remaining: s.Remaining, Wait: time.Duration(s.Wait) * time.Microsecond}
	if s.Wait < 0 {
		v.Wait = gcra.Forever
	}
	return v
}

// Limits is the limit in force at each step, ready for arithmetic.
func (v Vector) Limits() ([]gcra.Limit, error) {
	all := make([]gcra.Limit, len(v.Steps))
	spec := v.Spec
	for i, s := range v.Steps {
		if s.Limit != nil || s.Window != nil {
			spec.Limit, spec.Window = s.Limit, s.Window
		}
		var err error
		if all[i], err = spec.Compile(); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return all, nil
}

// Stream is traffic of evenly spread requests of cost 1, given as counts a
// step: what a replay of history sees. An implementation that takes single
// requests admits Admitted ± 1 in each step; one that replays rates drops
// Counts − Admitted exactly. A count below 0 is a gap: a step without a sample.
type Stream struct {
	Name string `json:"name"`
	Spec
	Step     int64   `json:"step_seconds"`
	Counts   []int64 `json:"counts"`
	Admitted []int64 `json:"admitted"` // 0 for a gap
}

// Load reads the vectors. It fails only if the embedded file is broken.
func Load() (vectors []Vector, streams []Stream, err error) {
	var all struct {
		Vectors []Vector `json:"vectors"`
		Streams []Stream `json:"streams"`
	}
	err = json.Unmarshal(file, &all)
	return all.Vectors, all.Streams, err
}
