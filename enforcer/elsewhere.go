package enforcer

import "sync"

// elsewhere holds the snapshot in force as it is compiled for other places than
// the enforcer's own: quotas differ by zone and region. A controller answers
// for all of them. The zero value is ready for use.
type elsewhere struct {
	mu     sync.Mutex
	of     *compiled // the snapshot that places belong to
	places map[place]*compiled
}

// service finds a service of c as it is at a place; nil where there is none.
func (e *elsewhere) service(c *compiled, at place, name string) *service {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of != c {
		e.of, e.places = c, map[place]*compiled{}
	}
	there := e.places[at]
	if there == nil {
		// It is valid: it was compiled for this enforcer's own place.
		there, _ = compile(c.snapshot, at)
		e.places[at] = there
	}
	if there == nil {
		return nil
	}
	return there.services[name]
}
