// Package loopstate says what a controller of the drop-ratio loop knows: the
// answer of its /v1/loop.
package loopstate

import (
	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/enforcer/loop"
)

// State is what a controller knows.
type State struct {
	Buckets []Bucket `json:"buckets"`
	Zones   []Zone   `json:"zones"`
}

// Bucket is one counter as the controller sees it. Rates are requests/s.
type Bucket struct {
	Service  string   `json:"service"`
	Bucket   string   `json:"bucket"`
	Key      string   `json:"key,omitempty"`
	AsIf     bool     `json:"as_if,omitempty"` // in the world in which every bucket enforces
	Scope    string   `json:"scope"`
	Zone     string   `json:"zone,omitempty"`
	Region   string   `json:"region,omitempty"`
	Limit    *float64 `json:"limit"` // of the scope; nil: none
	Offered  float64  `json:"offered"`
	Admitted float64  `json:"admitted"`
	Ratio    float64  `json:"drop_ratio"` // of normal requests, 0 to 1
	Peak     float64  `json:"peak_rate"`  // of the last closed clock minute
	Nodes    int      `json:"nodes"`
	Zones    int      `json:"zones"`
}

// Zone is a source that the controller has heard of: a zone's only aggregator,
// one of several, or, without a zone, the controller of a region.
type Zone struct {
	Zone    string   `json:"zone"`
	Region  string   `json:"region,omitempty"`
	Name    string   `json:"aggregator,omitempty"` // where the zone has several, or a certificate names it
	Age     float64  `json:"age_seconds"`          // of its last sum
	Flagged []string `json:"flagged,omitempty"`    // nodes whose claims were not believed in the last minute, at most loop.MaxFlagged
	Doubted bool     `json:"doubted,omitempty"`    // a claim of its own was not believed in the last minute
}

// Of puts a controller's state in words.
func Of(buckets []loop.BucketState, zones []loop.ZoneState) State {
	out := State{Buckets: make([]Bucket, 0, len(buckets)), Zones: make([]Zone, 0, len(zones))}
	for _, b := range buckets {
		name := enforcer.ParseLoopName(b.Bucket)
		v := Bucket{Service: name.Service, Bucket: name.Bucket, Key: name.Key.String(), AsIf: name.AsIf,
			Scope: [...]string{rlc.ScopeGlobal, rlc.ScopeRegion, rlc.ScopeZone}[b.Scope], Zone: b.Area.Zone, Region: b.Area.Region,
			Admitted: b.Admitted, Ratio: 1 - b.Keep[loop.Normal], Peak: b.Peak, Nodes: b.Nodes, Zones: b.Zones}
		if !b.None {
			limit := b.Limit
			v.Limit = &limit
		}
		for _, o := range b.Offered {
			v.Offered += o
		}
		out.Buckets = append(out.Buckets, v)
	}
	for _, z := range zones {
		out.Zones = append(out.Zones, Zone{z.Zone, z.Region, z.Known(), z.Age.Seconds(), z.Flagged, z.Doubted})
	}
	return out
}
