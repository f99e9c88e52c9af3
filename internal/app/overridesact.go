package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// act records one act in an emergency with its audit row, or keeps it for
// later, and brings it to the enforcers. What the act is, and its audit row's
// object and detail, decide says; no other act of this process comes between.
func (a *App) act(ctx context.Context, actor, action string, decide func() (act, error)) error {
	x, err := a.take(ctx, actor, action, decide)
	if err != nil {
		return err
	}
	a.log.Warn("emergency", "act", action, "actor", actor, "object", x.Audit.Object, "detail", x.Audit.Detail)
	if err := a.sendOverrides(ctx); err != nil {
		a.log.Warn("overrides wait for the bus", "err", err) // they are sent as soon as it answers
	}
	return nil
}

// take is act without the enforcers.
func (a *App) take(ctx context.Context, actor, action string, decide func() (act, error)) (act, error) {
	e := &a.emergency
	e.acting.Lock()
	defer e.acting.Unlock()
	id, err := randomHex(12)
	if err != nil {
		return act{}, err
	}
	x, err := decide()
	if err != nil {
		return x, err
	}
	x.Audit.ID, x.Audit.At, x.Audit.Actor, x.Audit.Action = id, time.Now().UTC().Truncate(time.Microsecond), actor, action
	if err := x.check(); err != nil {
		return x, err
	}
	e.mu.Lock()
	away := e.away || len(e.journal.acts) > 0 // what was kept is recorded first
	e.mu.Unlock()
	if !away {
		err = a.record(ctx, x)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changes++
	switch {
	case away || unreachable(err):
		e.away = true
		if e.journal.add(x); e.journal.failed != nil {
			a.log.Error("emergency journal: an act is in force and not written down", "act", action, "object", x.Audit.Object, "err", e.journal.failed)
		}
		return x, nil
	case err != nil:
		return x, err
	}
	e.learn(x)
	return x, nil
}

// learn takes up what an act that is recorded says. The caller holds the lock.
func (e *emergency) learn(x act) {
	if x.Override != nil {
		e.known[x.Override.ID] = *x.Override
	} else {
		e.switches[x.Switch.Name] = *x.Switch
	}
}

// record writes one act into the records.
func (a *App) record(ctx context.Context, x act) error {
	ctx, cancel := context.WithTimeout(ctx, recordsPatience)
	defer cancel()
	if x.Override != nil {
		return a.Records.SetOverride(ctx, *x.Override, x.Audit)
	}
	text, err := json.Marshal(x.Switch)
	if err != nil {
		return err
	}
	return a.Records.SetAudited(ctx, switchKey+x.Switch.Name, string(text), x.Audit)
}

// recordLate writes an act of the journal into the records, each once. It
// reports whether the act is what holds now: an override that somebody ended
// meanwhile stays ended, and the audit row says so.
func (a *App) recordLate(ctx context.Context, x act) (holds bool, err error) {
	err = a.record(ctx, x)
	if errors.Is(err, rlc.ErrInvalid) {
		x = x.cleaned()
		err = a.record(ctx, x)
	}
	if !errors.Is(err, rlc.ErrConflict) {
		return true, err
	}
	x.Audit.Detail += " (without effect: it was ended before this was recorded)"
	ctx, cancel := context.WithTimeout(ctx, recordsPatience)
	defer cancel()
	if err = a.Records.AddAudit(ctx, x.Audit); errors.Is(err, rlc.ErrConflict) {
		return false, nil // it is recorded already
	}
	if err == nil {
		a.log.Warn("an act of the emergency has no effect: its override was ended before it was recorded", "act", x.Audit.Action, "actor", x.Audit.Actor, "object", x.Audit.Object)
	}
	return false, err
}

// replay records what the journal kept while the records were away, in its
// order. An act that they refuse stays in force and in the journal, and with it
// what came later for the same override or switch.
func (a *App) replay(ctx context.Context) {
	e := &a.emergency
	refused := map[string]error{}
	for i := 0; ctx.Err() == nil; {
		e.mu.Lock()
		if i >= len(e.journal.acts) {
			e.refused = refused
			e.journal.write()
			e.mu.Unlock()
			return
		}
		x := e.journal.acts[i]
		e.mu.Unlock()
		if refused[x.Audit.Object] != nil {
			i++
			continue
		}
		holds, err := a.recordLate(ctx, x)
		if unreachable(err) || ctx.Err() != nil {
			e.mu.Lock()
			e.journal.write()
			e.mu.Unlock()
			return
		}
		if err != nil {
			refused[x.Audit.Object] = err
			a.log.Error("an act of the emergency is in force and cannot be recorded", "act", x.Audit.Action, "actor", x.Audit.Actor, "object", x.Audit.Object, "err", err)
			i++
			continue
		}
		e.mu.Lock()
		e.changes++
		if holds {
			e.learn(x)
		}
		if err := e.journal.done(i); err != nil {
			a.log.Error("emergency journal", "err", err)
		}
		e.mu.Unlock()
	}
}

// OverridesTrouble is what people must know beside an act in an emergency, as
// clauses: that it is not written down, that enforcers refuse it; "" for
// nothing.
func (a *App) OverridesTrouble() string {
	var all []string
	if n, _ := a.unwritten(); n > 0 {
		all = append(all, "it is in force and not written down: neither the records nor the disk took it, and a restart of rlc would forget it")
	}
	if n, why := a.refusals(); n > 0 {
		all = append(all, fmt.Sprintf("the overrides were refused by %s: %s", rlc.Plural(n, "enforcer"), why))
	}
	return strings.Join(all, "; ")
}

// unwritten is how many acts are in memory only, and why.
func (a *App) unwritten() (int, error) {
	a.emergency.mu.Lock()
	defer a.emergency.mu.Unlock()
	return a.emergency.journal.unwritten, a.emergency.journal.failed
}

// refusals is how many enforcers refuse the newest overrides, and what one of
// them says.
func (a *App) refusals() (n int, why string) {
	for _, ack := range a.Acks() {
		if ack.OverridesRefused != "" {
			n, why = n+1, ack.OverridesRefused
		}
	}
	return n, why
}

func unreachable(err error) bool {
	return errors.Is(err, rlc.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
