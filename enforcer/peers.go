package enforcer

import (
	"errors"

	"github.com/openrlc/rlc"
)

// The file of the state folder that holds how many enforcers there were.
const (
	peersName  = "peers"
	peersMagic = "rlc-peers 1 "
)

// SetPeers says how many enforcers there are now. A number that changes is kept
// in the state folder, for a start while nobody counts them. Zero says nothing.
func (e *Enforcer) SetPeers(p Peers) {
	if p == (Peers{}) || *e.peers.Swap(&p) == p {
		return
	}
	e.loading.Lock()
	defer e.loading.Unlock()
	if e.lock == nil {
		return // there is no state folder, or it is another's now
	}
	if err := saveState(e.config.StateDir, peersName, peersMagic, p); err != nil {
		e.log.Warn("number of enforcers not kept", "state", e.config.StateDir, "error", err)
	}
}

// restorePeers takes the number that was counted last, where none is
// configured. Counting goes on from there.
func (e *Enforcer) restorePeers() {
	if e.config.Peers != (Peers{}) {
		return
	}
	var p Peers
	switch err := loadState(e.config.StateDir, peersName, peersMagic, &p); {
	case err == nil:
		e.peers.Store(&p)
	case !errors.Is(err, rlc.ErrNotFound):
		e.log.Warn("number of enforcers not restored", "state", e.config.StateDir, "error", err)
	}
}
