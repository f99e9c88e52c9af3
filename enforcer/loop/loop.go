// Package loop is drop-ratio control: a limit that a fleet shares without a
// shared counter. Clients count what they are offered and drop a share of it at
// random; an aggregator sums one zone; a controller compares the sums with the
// limit and sends back, per bucket, the share to keep.
//
// The package has no clock, no goroutine and no network. Time is an argument:
// a time.Duration on the owner's monotonic clock, whose zero is the owner's
// choice. No two parties compare their clocks. Package loopwire carries the
// messages over gRPC; package loop/sim runs whole fleets on virtual time.
//
// The law is Law; its doc comment holds the derivation.
package loop

import (
	"math"
	"strings"
	"time"
)

// Class is a request's priority inside a bucket. Classes are filled from the
// top: where a limit does not suffice, Critical is kept before Normal, Normal
// before Batch.
type Class uint8

// The classes. A class out of range counts as Normal.
const (
	Critical Class = iota
	Normal
	Batch
	Classes = 3
)

// MinKeep is the share of a limited load that the loop never drops by itself,
// so that it always sees whether the load has gone.
const MinKeep = 0.001

// TTL is how long a directive holds. A client that hears nothing for longer
// falls back to its share of the limit.
const TTL = 10 * time.Second

// Scope is the area that one counter covers: each zone by itself, each region,
// or everything.
type Scope uint8

// The scopes.
const (
	Global Scope = iota
	Region
	Zone
)

// Place is where a client or an aggregator runs.
type Place struct{ Zone, Region string }

// Path is the buckets that a kind of request is charged to, bottom-up: its
// quota bucket, then the caps around it. A request survives with the product of
// what they keep, and an outer bucket is compared with the load that the inner
// ones leave, never with the raw load. Names are opaque and not to contain
// U+001F.
type Path []string

const pathSeparator = "\x1f"

// Join is the path as one string.
func (p Path) Join() string { return strings.Join(p, pathSeparator) }

// MaxPath is the most buckets on a path.
const MaxPath = 64

// Report is what a client counted since its stream to the aggregator opened.
// Counts are cumulative, so a lost report costs nothing once the next arrives,
// and a doubled one changes nothing.
type Report struct {
	Node        string
	From        Origin        // where the node reported before; zero for nowhere
	Incarnation uint64        // grows with each stream that the node opens
	Seq         uint64        // from 1 within the incarnation
	At          time.Duration // on the node's own clock
	Paths       []PathReport
}

// PathReport is one path's part of a report. Paths that stay at zero are left
// out.
type PathReport struct {
	Path    Path
	Since   time.Duration // since the report before, or since counting began
	Offered [Classes]uint64
	Dropped []uint64 // by position on the path
}

// Sum is what a source knows of its nodes.
type Sum struct {
	Source
	Epoch, Seq uint64
	Leaving    bool     // the source stops on purpose: its share is free at once
	Members    int      // nodes that report to it; 0: not known
	Taken      []Taken  // nodes that came over from others
	Flagged    []string // nodes that claim more than is believed, at most MaxFlagged
	Paths      []PathSum
	Keeps      []BucketKeep // what the source itself decided for its own buckets
}

// PathSum is one path's load in a zone, in requests/s. Paths that stay at zero
// or have moved by less than 1 % for a moment are left out.
type PathSum struct {
	Path    Path
	Nodes   int
	Offered [Classes]float64
	Dropped []float64 // by position on the path
	Doubted float64   // claimed beyond what is plausible, and not part of Offered
	// Counted is how many requests of those that are believed were counted since
	// the source began, Spans the same with each times the seconds that its report
	// covers.
	Counted, Spans float64
}

// BucketKeep is the share of each class that a bucket keeps.
type BucketKeep struct {
	Bucket string
	Keep   Keep
}

// Keep is the share of each class that is let through, between 0 and 1.
type Keep [Classes]float64

// keepAll drops nothing.
var keepAll = Keep{1, 1, 1}

// Directives are what a controller tells an aggregator, and an aggregator its
// clients. An empty list says that the speaker is alive. Within a stamp's
// lifetime a lower (Epoch, Seq) is ignored.
type Directives struct {
	Epoch, Seq uint64
	List       []Directive
}

// Directive is the word on one bucket. It holds for TTL.
type Directive struct {
	Bucket string
	Scope  Scope
	Limit  float64 // requests/s of the scope
	None   bool    // the bucket has no limit any more: forget it
	Decide bool    // to a source: a bucket of its own scope, decide it yourself
	Hot    bool    // report every 250 ms
	Keep   Keep
	Nodes  int     // that carry the bucket, in the scope
	Load   float64 // offered to the bucket in the scope, requests/s
	Share  float64 // to a source: its part of what is admitted
	Spare  float64 // to a source: unused limit for its doubted claims, requests/s
}

// after reports whether stamp a is later than b.
func after(aEpoch, aSeq, bEpoch, bSeq uint64) bool {
	return aEpoch > bEpoch || aEpoch == bEpoch && aSeq > bSeq
}

// maxLoad bounds a load that is believed, in requests/s: more than ten times
// what rlc.MaxRate lets a limit be.
const maxLoad = 1e12

// sane is x as a load: NaN and what is negative are 0, the rest is bounded.
func sane(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return math.Min(x, maxLoad)
}

// saneKeep is k with every share inside MinKeep to 1; NaN keeps all.
func saneKeep(k Keep) Keep {
	for c := range k {
		if !(k[c] <= 1) {
			k[c] = 1
		}
		k[c] = max(k[c], MinKeep)
	}
	return k
}

func total(perClass [Classes]float64) (sum float64) {
	for _, v := range perClass {
		sum += v
	}
	return sum
}

// moved reports whether b differs from a by more than 1 % of a.
func moved(a, b float64) bool { return math.Abs(b-a) > 0.01*math.Abs(a) }
