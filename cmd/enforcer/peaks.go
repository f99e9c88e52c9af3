package main

import (
	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loopstate"
)

// loopPeaks are the highest seconds of the whole fleet by the labels of the
// enforcers' series: service, bucket, caller, procedure. They are the sum over the
// areas that a bucket counts for itself, and of its two worlds, which count the
// same requests, the higher one. Without seriesOf there are none.
func loopPeaks(buckets []loopstate.Bucket, seriesOf func(enforcer.LoopName) (caller, procedure string, ok bool)) map[[4]string]float64 {
	if seriesOf == nil {
		return nil
	}
	worlds := [2]map[[4]string]float64{{}, {}}
	for _, b := range buckets {
		key, err := rlc.ParseKey(b.Key)
		if err != nil {
			continue
		}
		caller, procedure, ok := seriesOf(enforcer.LoopName{Service: b.Service, Bucket: b.Bucket, Key: key})
		if !ok {
			continue
		}
		world := worlds[0]
		if b.AsIf {
			world = worlds[1]
		}
		world[[4]string{b.Service, b.Bucket, caller, procedure}] += b.Peak
	}
	for labels, peak := range worlds[1] {
		worlds[0][labels] = max(worlds[0][labels], peak)
	}
	return worlds[0]
}
