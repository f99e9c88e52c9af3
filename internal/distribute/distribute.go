// Package distribute delivers snapshots to enforcers and gathers their
// acknowledgements. Hub does so within one process, Redis between processes, both
// behind the same methods: Publish, Follow and Acks.
//
// Deliveries may come late, twice or out of order. Versions decide: each
// document of a message has its own, a newer one replaces an older one, and
// nothing else changes anything.
package distribute

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

// Message is what goes to enforcers. Its documents are independent: each may
// be nil, and each is ordered by its own version.
type Message struct {
	Snapshot  *rlc.Snapshot
	Overrides *Overrides
}

// Overrides are the emergency limits in force. They travel as a document of
// their own, so that they need no merged commit; their content is the
// enforcer's to read.
type Overrides struct {
	Version rlc.Version     `json:"version"`
	Content json.RawMessage `json:"content"`
}

// Merge enters m into the newest documents known, and reports whether any of
// them changed. It never puts an older document in a newer one's place.
func (newest *Message) Merge(m Message) bool {
	changed := false
	if s := m.Snapshot; s != nil && (newest.Snapshot == nil || s.Version.Compare(newest.Snapshot.Version) > 0) {
		newest.Snapshot, changed = s, true
	}
	if o := m.Overrides; o != nil && (newest.Overrides == nil || o.Version.Compare(newest.Overrides.Version) > 0) {
		newest.Overrides, changed = o, true
	}
	return changed
}

// Config is what a hub is built from.
type Config struct {
	// Check reports why enforcers would refuse next; prev is what was
	// published before it, nil for nothing. Required: what enforcers would
	// refuse is not sent.
	Check func(prev *rlc.Snapshot, next rlc.Snapshot) error
	// OnAck hears each acknowledgement; nil for nobody. It must not block, and
	// may be called by several goroutines.
	OnAck func(rlc.Ack)
	// Repeat is how often followers get the newest message again, so that they
	// know it still is; default 10 s.
	Repeat time.Duration
	Log    *slog.Logger // nil: discarded
}

// Hub is the bus within one process. It is safe for use by many goroutines.
type Hub struct {
	config Config

	mu      sync.Mutex
	newest  Message
	changed chan struct{} // closed at each change of newest
	acks    map[string]rlc.Ack
}

// New makes a hub with nothing published.
func New(c Config) (*Hub, error) {
	if c.Check == nil {
		return nil, fmt.Errorf("%w: distribute needs a check of snapshots", rlc.ErrInvalid)
	}
	if c.Repeat <= 0 {
		c.Repeat = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{config: c, changed: make(chan struct{}), acks: map[string]rlc.Ack{}}, nil
}

// Publish sends m to every follower, now and later. A document that is already
// published is not sent again. One that is older than the published one fails
// with rlc.ErrConflict, and a snapshot that enforcers would refuse fails with
// Check's error; then nothing of m is sent.
func (h *Hub) Publish(ctx context.Context, m Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, have := m.Snapshot, h.newest.Snapshot; s != nil {
		if have != nil {
			switch c := s.Version.Compare(have.Version); {
			case c < 0, c == 0 && !maps.EqualFunc(s.Files, have.Files, slices.Equal):
				return fmt.Errorf("%w: snapshot %s does not follow %s, which is published", rlc.ErrConflict, s.Version, have.Version)
			case c == 0:
				m.Snapshot = nil
			}
		}
		if m.Snapshot != nil {
			if err := h.config.Check(have, *s); err != nil {
				return err
			}
		}
	}
	if o, have := m.Overrides, h.newest.Overrides; o != nil && have != nil {
		if c := o.Version.Compare(have.Version); c < 0 || c == 0 && string(o.Content) != string(have.Content) {
			return fmt.Errorf("%w: overrides %s do not follow %s, which are published", rlc.ErrConflict, o.Version, have.Version)
		}
	}
	if h.newest.Merge(m) {
		close(h.changed)
		h.changed = make(chan struct{})
	}
	return nil
}

// Follow gives apply the newest message, at once where there is one, at each
// change, and again every Config.Repeat, until ctx ends; then it returns nil.
// Messages in between may be left out. What apply returns is the follower's
// acknowledgement; one without a name stays unsaid. Apply is called by one
// goroutine at a time.
func (h *Hub) Follow(ctx context.Context, apply func(Message) rlc.Ack) error {
	tick := time.NewTicker(h.config.Repeat)
	defer tick.Stop()
	for {
		h.mu.Lock()
		m, changed := h.newest, h.changed
		h.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if m != (Message{}) {
			h.acknowledge(apply(m))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// acknowledge keeps each enforcer's last word. A version that went down is
// reported, and kept as said.
func (h *Hub) acknowledge(a rlc.Ack) {
	if a.Enforcer == "" {
		return
	}
	h.mu.Lock()
	last := h.acks[a.Enforcer]
	h.acks[a.Enforcer] = a
	h.mu.Unlock()
	report(h.config.Log, last, a)
	if h.config.OnAck != nil {
		h.config.OnAck(a)
	}
}

// report logs what is wrong about an enforcer's word after its last one.
func report(log *slog.Logger, last, a rlc.Ack) {
	if a.Version.Compare(last.Version) < 0 {
		log.Error("enforcer went back to an older snapshot", "enforcer", a.Enforcer, "version", a.Version, "before", last.Version)
	}
	if a.Refused != "" && a.Refused != last.Refused {
		log.Error("enforcer refused a snapshot", "enforcer", a.Enforcer, "version", a.Version, "refused", a.Refused)
	}
}

// Newest is what is published. Its documents are shared and not to be changed.
func (h *Hub) Newest() Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest
}

// Acks is the last word of each enforcer, sorted by name.
func (h *Hub) Acks(ctx context.Context) ([]rlc.Ack, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]rlc.Ack, 0, len(h.acks))
	for _, name := range slices.Sorted(maps.Keys(h.acks)) {
		out = append(out, h.acks[name])
	}
	return out, nil
}
