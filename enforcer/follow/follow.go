// Package follow keeps an enforcer's snapshot the newest: that of a folder, or
// that of the bus.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
	"github.com/openrlc/rlc/internal/distribute"
	"github.com/openrlc/rlc/internal/redisconn"
)

// Config names the source: Dir or Redis, exactly one.
type Config struct {
	// Dir is a folder with a checkout of the config repository. It is read
	// every second, and believed once it has stayed the same for 0.2 s. No
	// override and no switch of the server comes by a folder.
	Dir string
	// RemovedBy answers for a folder that lacks much of what is in force; ""
	// refuses it.
	RemovedBy string
	// Redis is the URL of the bus that rlc publishes on: redis:// or rediss://.
	Redis string
	// PasswordFile holds the bus's password, read anew at each connection; "" for
	// what the URL says.
	PasswordFile string
	Prefix       string       // of the bus's keys, as rlc has it; "rlc:" by default
	CAFile       string       // PEM of the authorities of rediss://; "" for the system's
	Log          *slog.Logger // nil: discarded
}

// Source is where snapshots come from.
type Source struct {
	config   Config
	enforcer *enforcer.Enforcer
	folder   *folder
	bus      *distribute.Redis
}

// New makes a source for e. It touches nothing yet: folder and bus may be away.
// The error wraps rlc.ErrInvalid.
func New(c Config, e *enforcer.Enforcer) (*Source, error) {
	if (c.Dir == "") == (c.Redis == "") {
		return nil, fmt.Errorf("%w: snapshots come from a folder or from a bus, and from one of them", rlc.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{config: c, enforcer: e}
	if c.Dir != "" {
		s.folder = newFolder(c.Dir, c.RemovedBy, e, c.Log)
		return s, nil
	}
	roots, err := redisconn.Authorities(c.CAFile)
	if err != nil {
		return nil, err
	}
	s.bus, err = distribute.NewRedis(distribute.RedisConfig{URL: c.Redis, PasswordFile: c.PasswordFile, Prefix: c.Prefix, RootCAs: roots, OnError: e.Unreadable, Log: c.Log})
	return s, err
}

// Run feeds the enforcer until ctx ends; it returns nil. While the source is
// away or holds what is refused, the enforcer keeps what it has. It is called
// once.
func (s *Source) Run(ctx context.Context) error {
	if s.folder != nil {
		return s.folder.follow(ctx)
	}
	defer s.bus.Close()
	counting := make(chan struct{})
	go func() {
		defer close(counting)
		s.countPeers(ctx)
	}()
	defer func() { <-counting }()
	return s.bus.Follow(ctx, func(m distribute.Message) rlc.Ack {
		// A refusal is logged, counted and acknowledged by the enforcer.
		if m.Snapshot != nil {
			_ = s.enforcer.Load(*m.Snapshot)
		}
		if m.Overrides != nil {
			_ = s.enforcer.LoadOverrides(m.Overrides.Version, m.Overrides.Content)
		}
		return s.enforcer.Ack()
	})
}

// Pass says on the bus what an enforcer acknowledges that is not on it itself, and
// is to be said again within half a minute. A folder has nobody to tell.
func (s *Source) Pass(ctx context.Context, a rlc.Ack) error {
	if s.bus == nil {
		return nil
	}
	return s.bus.Pass(ctx, a)
}

// countEvery is how often the enforcers on the bus are counted.
const countEvery = 10 * time.Second

// countPeers tells the enforcer until ctx ends with how many others it shares
// its limits, for the time when the shared store is away. While the bus is
// away, the last number stands.
func (s *Source) countPeers(ctx context.Context) {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		if acks, err := s.bus.Acks(ctx); err == nil {
			s.enforcer.SetPeers(peers(acks, s.enforcer.Ack().Zone))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// peers counts the enforcers that acknowledge, in a zone and in all. An
// acknowledgement names no region: a limit of the region is taken for shared
// by all, which errs on the side of a smaller share.
func peers(acks []rlc.Ack, zone string) enforcer.Peers {
	p := enforcer.Peers{Region: len(acks), Global: len(acks)}
	for _, a := range acks {
		if a.Zone == zone {
			p.Zone++
		}
	}
	return p
}

// Running is an enforcer that follows a source.
type Running struct {
	*enforcer.Enforcer
	cancel context.CancelFunc
	group  errgroup.Group
}

// Start makes an enforcer that follows c until Close, for a service that
// embeds one. A folder that can be used is in force when Start returns. One
// that cannot, or a bus that is away, is no error: the enforcer decides by its
// last good snapshot, or admits everything and says at Ready that it does.
func Start(c Config, config enforcer.Config) (*Running, error) {
	e, err := enforcer.New(config)
	if err != nil {
		return nil, err
	}
	s, err := New(c, e)
	if err != nil {
		e.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Running{Enforcer: e, cancel: cancel}
	if s.folder != nil {
		s.folder.poll(ctx)
	}
	r.group.Go(func() error { return e.Run(ctx) })
	r.group.Go(func() error { return s.Run(ctx) })
	return r, nil
}

// Close stops following and lets go of the state folder; the enforcer goes on
// deciding by what it has.
func (r *Running) Close() error {
	r.cancel()
	return errors.Join(r.group.Wait(), r.Enforcer.Close())
}
