package enforcer

// Tick is one second of Run.
func (e *Enforcer) Tick() { e.tick() }

// Counters is how many counters are live, and how many were taken away.
func (e *Enforcer) Counters() (live int, evicted uint64) { return e.memory.Live(), e.memory.Evicted() }
