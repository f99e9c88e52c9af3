package enforcer

import (
	"context"

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
	// in one atomic step. A cost of 0 is a peek and leaves no trace. Now is in
	// microseconds on the enforcer's clock; a shared store goes by its own.
	// An error means that the store did not answer and nothing is known: the
	// enforcer then decides as the buckets' on_failure says.
	Take(ctx context.Context, now, cost int64) (gcra.Tally, error)
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
