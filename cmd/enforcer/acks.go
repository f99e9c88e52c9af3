package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/openrlc/rlc"
)

// ackTable remembers what each enforcer behind the loop said last.
type ackTable struct {
	mu sync.Mutex
	of map[string]*heardAck
}

type heardAck struct {
	rlc.Ack
	at     time.Time // when it was heard
	passed time.Time // when it was passed on; zero: not since it changed
}

const (
	maxAcknowledged = 100_000          // enforcers that are remembered
	ackHolds        = time.Minute      // without a word; a data plane says one each ackEvery
	passAgain       = 20 * time.Second // a third of what the bus holds one for
	passLook        = 200 * time.Millisecond
)

func newAckTable() *ackTable { return &ackTable{of: map[string]*heardAck{}} }

// hear takes an acknowledgement as JSON; what is none is ignored.
func (a *ackTable) hear(data []byte) {
	var ack rlc.Ack
	if json.Unmarshal(data, &ack) != nil || ack.Enforcer == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.of[ack.Enforcer]
	switch {
	case h == nil && len(a.of) >= maxAcknowledged:
		return
	case h == nil:
		h = &heardAck{}
		a.of[ack.Enforcer] = h
	case h.Ack != ack:
		h.passed = time.Time{}
	}
	h.Ack, h.at = ack, time.Now()
}

// versions counts the enforcers by the snapshot that they acknowledge, of those
// that were heard lately.
func (a *ackTable) versions(now time.Time) map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]int{}
	for name, h := range a.of {
		if now.Sub(h.at) > ackHolds {
			delete(a.of, name)
			continue
		}
		out[h.Version.String()]++
	}
	return out
}

// due lists what is to be passed on at now: what has changed, and what stands
// since passAgain. It then counts as passed on.
func (a *ackTable) due(now time.Time) (list []rlc.Ack) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.of {
		if now.Sub(h.at) <= passAgain && now.Sub(h.passed) >= passAgain {
			h.passed = now
			list = append(list, h.Ack)
		}
	}
	return list
}

// again makes an acknowledgement due that could not be passed on.
func (a *ackTable) again(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.of[name]; h != nil {
		h.passed = time.Time{}
	}
}

// pass passes acknowledgements on until ctx ends: rlc then knows of enforcers
// that have no way to its bus. While the bus is away they wait.
func (a *ackTable) pass(ctx context.Context, to func(context.Context, rlc.Ack) error, log *slog.Logger) error {
	tick := time.NewTicker(passLook)
	defer tick.Stop()
	failing := false
	for {
		var err error
		for _, ack := range a.due(time.Now()) {
			// After one failure the rest waits for the next look.
			if err == nil {
				err = to(ctx, ack)
			}
			if err != nil {
				a.again(ack.Enforcer)
			}
		}
		if err != nil && !failing && ctx.Err() == nil {
			log.Warn("acknowledgements from the loop do not reach the bus", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
