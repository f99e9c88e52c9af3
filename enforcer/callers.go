package enforcer

import "sync/atomic"

// CallerSource is where a request's caller was taken from.
type CallerSource uint8

// The sources of a caller.
const (
	CallerNone      CallerSource = iota // nobody said who calls
	CallerAttribute                     // the attributes of a request, set by a proxy or by whoever asks
	CallerPeer                          // the verified name in the peer's certificate
	CallerHeader                        // a header, or metadata, of a peer that is believed
	callerSources
)

var callerSourceNames = [callerSources]string{"none", "attribute", "peer", "header"}

// String is the source as the metric's label has it.
func (s CallerSource) String() string { return callerSourceNames[min(s, callerSources-1)] }

// callers counts requests by where their caller came from.
type callers [callerSources]atomic.Uint64

// Identified counts a request by where the adapter that asks took its caller
// from. Every adapter calls it once a request, beside Decide.
func (e *Enforcer) Identified(s CallerSource) { e.callers[min(s, callerSources-1)].Add(1) }

// FromPeer is the source of a caller in a middleware, whose peer has this
// verified name: "" for none.
func FromPeer(caller, verified string) CallerSource {
	switch caller {
	case "":
		return CallerNone
	case verified:
		return CallerPeer
	}
	return CallerHeader
}

// FromAttributes is the source of a request that came with its attributes.
func FromAttributes(r Request) CallerSource {
	if r.Caller == "" && r.Attributes["caller"] == "" {
		return CallerNone
	}
	return CallerAttribute
}
