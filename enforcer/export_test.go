package enforcer

// Tick is one second of Run.
func (e *Enforcer) Tick() { e.tick() }
