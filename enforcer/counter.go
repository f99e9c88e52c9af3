package enforcer

import (
	"context"
	"time"

	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/memory"
)

// Counter keeps the counters of buckets, in process or in a shared store. Every
// implementation passes the suite of package countertest.
type Counter interface {
	// Set prepares charging these counters together. There are at most
	// gcra.MaxCharges, each of another bucket; they belong to the set.
	Set(charges []gcra.Charge) Set
}

// Set is a group of counters that a request is charged to: all or none. It is
// safe for use by many goroutines.
type Set interface {
	// Take asks every counter for cost tokens and charges all when all admit,
	// in one atomic step. A cost below 0 is a peek at that cost above 0, and 0
	// one at 1: it leaves no trace. Now is in
	// microseconds on the enforcer's clock; a shared store goes by its own.
	// An error means that the store did not answer and nothing is known: the
	// enforcer then decides as the buckets' on_failure says. An error that
	// implements Reasoned says of which kind it is. A store that can be waited
	// for has a deadline of its own (Waiting), and returns at once when ctx ends.
	Take(ctx context.Context, now, cost int64) (gcra.Tally, error)
}

// Settler is a Set whose charges can be corrected once they are made: given
// back where a counter elsewhere refused the same request, or settled where
// its cost is known only afterwards. Every Set should be one; of one that is
// not, a charge stays as it was made.
type Settler interface {
	Set
	// Settle charges every counter of the set with by tokens more than a Take
	// at at did, or gives back where by is negative, as gcra.Limit.Settle has
	// it: where the request counted, however late this comes. It asks nobody: a counter may be left with less than nothing, and
	// later requests wait for it, but it never has more tokens than its limit
	// holds. At most as much as that Take charged is given back, and once.
	Settle(ctx context.Context, at, by int64) error
}

// Selective is a Counter that serves some kinds of limit only; the others stay
// in process.
type Selective interface {
	Counter
	Serves(gcra.Kind) bool
}

// Waiting is a Counter that is waited for: Deadline is how long at most one Take
// or Settle takes by itself. A decision that needs several of them waits no
// longer for all together.
type Waiting interface {
	Counter
	Deadline() time.Duration
}

// Reasoned is an error of a store that says of which kind it is, one of
// Reasons. Every other error counts as "other".
type Reasoned interface {
	error
	Reason() string
}

// Reasons are the kinds of failure of a shared store, as the metric of
// fallbacks names them.
func Reasons() []string {
	return []string{"timeout", "refused", "breaker_open", "readonly", "oom", "loading", "busy", "noreplicas", "masterdown", "clusterdown", "noscript", "other"}
}

// InProcess is a Counter in m. A nil m gets a memory of its own.
func InProcess(m *memory.Memory) Counter {
	if m == nil {
		m = &memory.Memory{}
	}
	return inProcess{m}
}

type inProcess struct{ memory *memory.Memory }

func (p inProcess) Set(charges []gcra.Charge) Set { return p.memory.Set(charges) }
