package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/internal/fault"
	"github.com/openrlc/rlc/internal/redisconn"
	"github.com/openrlc/rlc/quotafile"
)

// bus carries snapshots to enforcers and brings back what they have in force:
// within this process, or over Redis.
type bus interface {
	Publish(context.Context, distribute.Message) error
	Follow(context.Context, func(distribute.Message) rlc.Ack) error
	Acks(context.Context) ([]rlc.Ack, error)
}

// openEnforcers builds the bus and the enforcer of this process. With Redis
// that one is a witness only: it judges and keeps what is published, as the
// enforcers elsewhere do, and has no say in what is live.
func (a *App) openEnforcers() (err error) {
	a.Enforcer, err = enforcer.New(enforcer.Config{Name: "embedded", StateDir: filepath.Join(a.Config.Data, "enforcer"), Registerer: a.Registry, Loop: a.loop.client, Log: a.log})
	if err != nil {
		return fmt.Errorf("embedded enforcer: %w", err)
	}
	hear := func(rlc.Ack) {
		select {
		case a.heard <- struct{}{}:
		default: // listen is to look already
		}
	}
	if !a.overRedis() {
		a.bus, err = distribute.New(distribute.Config{Log: a.log, Check: enforcer.Check, OnAck: hear})
		return err
	}
	c := distribute.RedisConfig{
		PasswordFile: a.Config.Redis.PasswordFile, Prefix: a.Config.Redis.Prefix,
		Check: enforcer.Check, OnAck: hear, Epoch: a.mine, Poll: a.Config.Poll, Log: a.log,
	}
	if c.URL, err = a.Config.Redis.URL.Read(); err != nil {
		return fmt.Errorf("redis.url: %w", err)
	}
	if c.RootCAs, err = redisconn.Authorities(a.Config.Redis.CAFile); err != nil {
		return fmt.Errorf("redis.ca_file: %w", err)
	}
	r, err := distribute.NewRedis(c)
	if err != nil {
		return fmt.Errorf("redis.url: %w", err)
	}
	a.bus = r
	// While the records are away nobody can lead, and overrides must go out.
	c.Epoch, c.OnAck = a.lastEpoch, nil
	if a.emergency.glass, err = distribute.NewRedis(c); err != nil {
		return fmt.Errorf("redis.url: %w", err)
	}
	return nil
}

// mine is the epoch that this replica leads under; 0 where it does not lead.
func (a *App) mine() uint64 {
	if !a.leads.Load() {
		return 0
	}
	return a.epoch.Load()
}

// overRedis reports whether enforcers are in other processes.
func (a *App) overRedis() bool { return a.Config.Redis.URL.IsSet() }

// deliver feeds this process's enforcer from the bus until ctx ends, and keeps
// the bus holding what was published.
func (a *App) deliver(ctx context.Context) error {
	if r, ok := a.bus.(*distribute.Redis); ok {
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		defer func() { <-done }()
	}
	return a.bus.Follow(ctx, func(m distribute.Message) rlc.Ack {
		if m.Snapshot != nil {
			if err := a.Enforcer.Load(*m.Snapshot); err != nil {
				a.log.Warn("snapshot refused", "version", m.Snapshot.Version, "err", err)
			}
		}
		if o := m.Overrides; o != nil {
			if err := a.Enforcer.LoadOverrides(o.Version, o.Content); err != nil {
				a.log.Warn("overrides refused", "version", o.Version, "err", err)
			}
		}
		ack := a.Enforcer.Ack()
		if a.overRedis() {
			ack.Enforcer = "" // a witness
		}
		return ack
	})
}

// listen keeps what enforcers have in force until ctx ends.
func (a *App) listen(ctx context.Context) error {
	for {
		a.hear(ctx)
		if !a.waitFor(ctx, a.heard) {
			return nil
		}
	}
}

// hear asks the bus for every enforcer's last word: live is what all of them
// have in force.
func (a *App) hear(ctx context.Context) {
	acks, err := a.bus.Acks(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		a.status.set("bus", "bad", "Redis does not answer: nothing new reaches the enforcers, which decide on what they have.", err.Error())
		return
	}
	a.status.clear("bus")
	a.truths.hear(acks)
	if len(acks) == 0 {
		return
	}
	var refusing []string
	least, why := acks[0].Version, ""
	for _, k := range acks {
		if k.Version.Compare(least) < 0 {
			least = k.Version
		}
		if k.Refused != "" {
			refusing, why = append(refusing, k.Enforcer), k.Refused
		}
	}
	if len(refusing) > 0 {
		names := strings.Join(refusing[:min(len(refusing), 5)], ", ")
		if more := len(refusing) - 5; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		a.status.set("refused", "bad", fmt.Sprintf("%d of %d enforcers refused the newest snapshot and keep the one before: %s.", len(refusing), len(acks), names), why)
	} else {
		a.status.clear("refused")
	}
	if least == (rlc.Version{}) || a.truths.acknowledged(least) {
		return
	}
	// Distributed before this process began, or by another replica.
	files, err := a.atVersion(ctx, least)
	if err != nil {
		if !errors.Is(err, rlc.ErrNotFound) {
			a.log.Warn("read what enforcers have in force", "version", least, "err", err)
		}
		return
	}
	a.truths.distributing(least, quotafile.Parse(files, a.policies.Check))
	a.truths.acknowledged(least)
}

// atVersion is the content of a snapshot: as this process's enforcer has it, or
// as the base branch had it.
func (a *App) atVersion(ctx context.Context, v rlc.Version) (rlc.Files, error) {
	if s := a.Enforcer.Snapshot(); s != nil && s.Version == v {
		return s.Files, nil
	}
	return a.Repo.Version(ctx, v)
}

// Acks is the last word of each enforcer, by name.
func (a *App) Acks() []rlc.Ack {
	a.truths.mu.Lock()
	defer a.truths.mu.Unlock()
	return slices.Clone(a.truths.acks)
}

// send publishes a snapshot and says what came of it on every page. What the
// bus keeps for later is no error.
func (a *App) send(ctx context.Context, s rlc.Snapshot) error {
	fault.Hit("before-distribute")
	err := a.bus.Publish(ctx, distribute.Message{Snapshot: &s})
	if err == nil {
		fault.Hit("after-distribute")
	}
	switch {
	case err == nil:
		a.status.clear("undistributed")
	case errors.Is(err, rlc.ErrFenced): // a standby's: the leader sends it
	case errors.Is(err, rlc.ErrRefused), errors.Is(err, rlc.ErrInvalid), errors.Is(err, rlc.ErrConflict):
		a.status.set("undistributed", "bad", fmt.Sprintf("Snapshot %s was not distributed: enforcers keep the last good quotas.", s.Version), err.Error())
	case ctx.Err() != nil:
		return err
	default:
		a.log.Warn("snapshot waits for the bus", "version", s.Version, "err", err)
	}
	return nil
}
