// Package gcratest holds the token vectors: tables of requests with the right
// answers, run by every implementation of a token bucket.
package gcratest

import (
	_ "embed"
	"encoding/json"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
)

//go:embed vectors.json
var file []byte

// Vector is a sequence of requests to one bucket, each with its right answer.
type Vector struct {
	Name  string    `json:"name"`
	Limit rlc.Limit `json:"limit"`
	Steps []Step    `json:"steps"`
}

// Step is one request.
type Step struct {
	At        int64      `json:"at"`        // microseconds; never negative
	Cost      int64      `json:"cost"`      // 0 is a peek
	Limit     *rlc.Limit `json:"limit"`     // the limit from here on; nil: as before
	OK        bool       `json:"ok"`        //
	Remaining int64      `json:"remaining"` // whole tokens left
	Wait      int64      `json:"wait"`      // microseconds, exact; -1: forever
}

// Verdict is the step's right answer.
func (s Step) Verdict() gcra.Verdict {
	v := gcra.Verdict{OK: s.OK, Remaining: s.Remaining, Wait: time.Duration(s.Wait) * time.Microsecond}
	if s.Wait < 0 {
		v.Wait = gcra.Forever
	}
	return v
}

// Stream is traffic of evenly spread requests of cost 1, given as counts a
// step: what a replay of history sees. An implementation that takes single
// requests admits Admitted ± 1 in each step; one that replays rates drops
// Counts − Admitted exactly. A count below 0 is a gap: a step without a sample.
type Stream struct {
	Name     string    `json:"name"`
	Limit    rlc.Limit `json:"limit"`
	Step     int64     `json:"step_seconds"`
	Counts   []int64   `json:"counts"`
	Admitted []int64   `json:"admitted"` // 0 for a gap
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
