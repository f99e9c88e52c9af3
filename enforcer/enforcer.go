// Package enforcer decides requests from a loaded snapshot: it finds the
// buckets of a request, charges them, answers, and counts. It runs as a
// process behind an HTTP API and can be embedded as a library.
//
// A decision never fails. What cannot be decided is admitted and counted:
// without a snapshot, for a service without a policy, for a key without a
// quota, for a bucket that panicked.
package enforcer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/gcra"
	"github.com/openrlc/rlc/enforcer/memory"
)

// Config is what an enforcer is built from. The zero value works: it keeps
// nothing over a restart.
type Config struct {
	Name   string // in acknowledgements; default: the host's name
	Zone   string // where it runs; "" for unknown
	Region string // where it runs; "" for unknown
	// StateDir is the folder for the last good snapshot, made if need be. ""
	// keeps none: after a restart everything is admitted until a snapshot comes.
	StateDir string
	// Registerer is where metrics go as well as to the handler's /metrics; nil
	// for nowhere else. Where it is also a Gatherer, /metrics shows all of it.
	Registerer prometheus.Registerer
	// PagesURL is where rlc's pages are; a refusal then links to the bucket's
	// page. "" for no link.
	PagesURL string
	// Token, where it is not "", is asked of every /v1 request as
	// "Authorization: Bearer …".
	Token   string
	Log     *slog.Logger     // nil: discarded
	Now     func() time.Time // nil: time.Now
	Counter Counter          // nil: in process
}

// Enforcer decides requests. It is safe for use by many goroutines.
type Enforcer struct {
	config   Config
	log      *slog.Logger
	now      func() time.Time
	start    time.Time // the zero of the counters' clock
	memory   *memory.Memory
	counter  Counter
	gatherer prometheus.Gatherer

	loaded     atomic.Pointer[loaded]
	noSnapshot atomic.Uint64 // requests decided without a snapshot
	noService  atomic.Uint64 // requests of services without a policy

	loading sync.Mutex // one Load at a time; it writes to the disk

	mu         sync.Mutex
	confirmed  time.Time // when the snapshot in force was last known to be the newest
	refused    string    // why the newest one was refused; "" when it is in force
	unreadable string    // why the source could not be read; "" when it was
	refusals   map[string]uint64
	counts     map[string]*counts // by service, NUL, bucket, NUL, role
}

// New makes an enforcer and loads its last good snapshot. A damaged or
// refused one is logged and counted, and the enforcer starts without.
func New(c Config) (*Enforcer, error) {
	e := &Enforcer{
		config:   c,
		log:      c.Log,
		now:      c.Now,
		memory:   &memory.Memory{},
		counter:  c.Counter,
		refusals: map[string]uint64{},
		counts:   map[string]*counts{},
	}
	if e.config.Name == "" {
		e.config.Name, _ = os.Hostname()
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.counter == nil {
		e.counter = InProcess(e.memory)
	}
	e.start = e.now()

	own := prometheus.NewRegistry()
	e.gatherer = own
	if err := own.Register(collector{e}); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if c.Registerer != nil {
		if err := c.Registerer.Register(collector{e}); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		if g, ok := c.Registerer.(prometheus.Gatherer); ok {
			e.gatherer = g
		}
	}
	e.restore()
	return e, nil
}

// restore puts the last good snapshot in force, if there is one.
func (e *Enforcer) restore() {
	if e.config.StateDir == "" {
		return
	}
	g, err := loadLastGood(e.config.StateDir)
	var l *loaded
	if err == nil {
		l, err = compile(g.Snapshot)
	}
	switch {
	case errors.Is(err, rlc.ErrNotFound):
		e.log.Info("no last good snapshot", "state", e.config.StateDir)
	case err != nil:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.refusals[refusedStore]++
		e.refused = err.Error()
		e.log.Error("last good snapshot refused", "state", e.config.StateDir, "error", err)
	default:
		e.adopt(l, g.Saved)
		e.log.Info("last good snapshot in force", "version", g.Snapshot.Version, "services", len(l.services))
	}
}

// Load validates s whole, keeps it as last good and puts it in force; or it
// refuses it, changes nothing and says why. It refuses what is not valid
// (rlc.ErrInvalid), and what is older than the snapshot in force or lacks much
// of it (rlc.ErrRefused). The snapshot in force is confirmed, not refused. The
// files belong to the enforcer from here on.
func (e *Enforcer) Load(s rlc.Snapshot) error {
	e.loading.Lock()
	defer e.loading.Unlock()
	err := e.load(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unreadable = ""
	if err == nil {
		e.refused = ""
		return nil
	}
	reason := refusedInvalid
	if r := (*refusal)(nil); errors.As(err, &r) {
		reason = r.reason
	}
	e.refusals[reason]++
	if reason == refusedOlder {
		// A late or repeated delivery: it says nothing about the newest.
		e.log.Debug("snapshot ignored", "version", s.Version, "error", err)
		return err
	}
	e.refused = err.Error()
	e.log.Error("snapshot refused", "version", s.Version, "reason", reason, "error", err)
	return err
}

func (e *Enforcer) load(s rlc.Snapshot) error {
	prev := e.loaded.Load()
	if prev != nil {
		if s.Version == prev.snapshot.Version && Digest(s.Files) == prev.digest {
			e.Confirm()
			return nil
		}
		if err := newer(prev.snapshot.Version, s.Version); err != nil {
			return err
		}
	}
	next, err := compile(s)
	if err != nil {
		return err
	}
	if prev != nil {
		if err := shrunken(prev, next); err != nil {
			return err
		}
	}
	now := e.now()
	if e.config.StateDir != "" {
		if err := saveLastGood(e.config.StateDir, lastGood{Saved: now.UTC(), Snapshot: s}); err != nil {
			return refuse(refusedStore, "keep snapshot %s as last good: %w", s.Version, err)
		}
	}
	e.adopt(next, now)
	e.log.Info("snapshot in force", "version", s.Version, "commit", s.Commit, "services", len(next.services))
	return nil
}

// adopt joins a snapshot with what its buckets have counted so far, and puts
// it in force.
func (e *Enforcer) adopt(l *loaded, confirmed time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := map[string]*counts{}
	spaces := map[string]bool{}
	join := func(s *service, b *bucket) {
		space := s.Name + "\x00" + b.Name
		id := space + "\x00" + string(b.Role) // what a cap counted says nothing of a quota bucket
		c := e.counts[id]
		if c == nil {
			c = &counts{service: s.Name, bucket: b.Name, role: b.Role, table: table{rest: series{labels: labels{Other, Other}}}}
		}
		c.off.Store(false)
		c.table.resize(s.MaxSeries)
		b.counts = c
		kept[id] = c
		spaces[space], spaces[asIfPrefix+space] = true, true
	}
	for _, s := range l.services {
		for i := range s.buckets {
			join(s, &s.buckets[i])
		}
		join(s, &s.unmatched)
		s.initialise()
	}
	e.counts = kept
	e.confirmed = confirmed
	l.routes.init()
	e.loaded.Store(l)
	e.memory.Keep(func(space string) bool { return spaces[space] })
}

// Confirm says that the snapshot in force is still the newest.
func (e *Enforcer) Confirm() {
	e.mu.Lock()
	e.confirmed, e.unreadable, e.refused = e.now(), "", ""
	e.mu.Unlock()
}

// Unreadable says that the source of snapshots could not be read. It stands
// until the next Confirm or Load.
func (e *Enforcer) Unreadable(err error) {
	e.mu.Lock()
	e.unreadable = err.Error()
	e.refusals[refusedUnreadable]++
	e.mu.Unlock()
}

// initialise makes the series of known quotas, those with the highest rates
// first, so that their counters stand at 0 before the first request.
func (s *service) initialise() {
	for i := range s.buckets {
		b := &s.buckets[i]
		if b.Role == rlc.CapRole {
			continue
		}
		for _, live := range s.byRate(b) {
			for _, l := range b.known(live.Key, s.MaxSeries) {
				b.counts.table.get(l)
			}
		}
	}
}

// Version is that of the snapshot in force; zero for none.
func (e *Enforcer) Version() rlc.Version {
	if l := e.loaded.Load(); l != nil {
		return l.snapshot.Version
	}
	return rlc.Version{}
}

// Snapshot is the one in force, nil for none. It is shared and not to be
// changed.
func (e *Enforcer) Snapshot() *rlc.Snapshot {
	if l := e.loaded.Load(); l != nil {
		return &l.snapshot
	}
	return nil
}

// Commit is the snapshot's in force; "" for none.
func (e *Enforcer) Commit() string {
	if l := e.loaded.Load(); l != nil {
		return l.snapshot.Commit
	}
	return ""
}

// Ack is the enforcer's word on the newest snapshot it was given.
func (e *Enforcer) Ack() rlc.Ack {
	e.mu.Lock()
	defer e.mu.Unlock()
	return rlc.Ack{Enforcer: e.config.Name, Zone: e.config.Zone, Version: e.Version(), At: e.now().UTC(), Refused: e.refused}
}

// Describe lists every limit in force of a service, or of all where service is
// "", sorted by service.
func (e *Enforcer) Describe(service string) []Live {
	l := e.loaded.Load()
	if l == nil {
		return nil
	}
	return l.describe(service)
}

// Ready reports why the enforcer should not be given traffic; nil for no
// reason. Notes are what people should know nevertheless.
func (e *Enforcer) Ready() (reasons, notes []string) {
	l := e.loaded.Load()
	if l == nil {
		reasons = append(reasons, "no snapshot yet: every request is admitted")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refused != "" {
		notes = append(notes, "the newest snapshot was refused: "+e.refused)
	}
	if e.unreadable != "" {
		notes = append(notes, "the source of snapshots cannot be read: "+e.unreadable)
	}
	if l != nil {
		for _, name := range l.names() {
			s := l.services[name]
			for i := range s.buckets {
				if s.buckets[i].counts.off.Load() {
					notes = append(notes, fmt.Sprintf("bucket %s/%s is turned off after a panic", name, s.buckets[i].Name))
				}
			}
		}
	}
	return reasons, notes
}

// Run does the housekeeping until ctx ends: it takes idle counters away, and
// gives busy callers a series of their own. It returns nil.
func (e *Enforcer) Run(ctx context.Context) error {
	sweep := time.NewTicker(10 * time.Second)
	defer sweep.Stop()
	rank := time.NewTicker(time.Minute)
	defer rank.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			e.sweep()
		case <-rank.C:
			e.rank()
		}
	}
}

func (e *Enforcer) sweep() { e.memory.Sweep(e.now().Sub(e.start).Microseconds()) }

// rank gives the busiest label sets a series of their own.
func (e *Enforcer) rank() {
	l := e.loaded.Load()
	if l == nil {
		return
	}
	busy := l.routes.busy()
	changed := false
	for _, s := range l.services {
		for i := range s.buckets {
			c := s.buckets[i].counts
			changed = c.table.rank(busy[c]) || changed
		}
		changed = s.unmatched.counts.table.rank(busy[s.unmatched.counts]) || changed
	}
	if changed {
		l.routes.clear() // they hold the series that lost their place
	}
}

// panicked answers a request whose decision panicked: it turns the guilty
// bucket off until the next snapshot, and admits.
func (e *Enforcer) panicked(l *loaded, s *service, t *route, r Request, cause any) Decision {
	d := Decision{Outcome: Admit, Bucket: Unmatched, Version: l.snapshot.Version}
	off := []*counts{s.unmatched.counts}
	if t != nil {
		d.Bucket, d.Key = t.quota.Name, t.key
		off = e.guilty(t)
		for _, c := range off {
			if c.off.CompareAndSwap(false, true) {
				e.log.Error("bucket turned off: its decision panicked", "service", c.service, "bucket", c.bucket,
					"cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			}
		}
		l.routes.clear()
	} else if s.panicked.CompareAndSwap(false, true) {
		e.log.Error("requests admitted: matching them panicked", "service", s.Name, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
	}
	if r.Peek {
		return d
	}
	for _, c := range off {
		c.fallbacks[byPanic].Add(1)
	}
	second := e.now().Unix()
	if t != nil && t.series != nil {
		t.series.count(Admit, second)
	} else {
		s.unmatched.counts.table.rest.count(Admit, second)
	}
	return d
}

// guilty finds the buckets whose counters panic when looked at alone; where
// none does, all of the route's are.
func (e *Enforcer) guilty(t *route) []*counts {
	var out, all []*counts
	try := func(p *part, prefix string) {
		defer func() {
			if recover() != nil {
				out = append(out, p.bucket.counts)
			}
		}()
		all = append(all, p.bucket.counts)
		c := p.charge
		c.Bucket = prefix + c.Bucket
		_, _ = e.counter.Set([]gcra.Charge{c}).Take(context.Background(), e.now().Sub(e.start).Microseconds(), 0)
	}
	for i := range t.live.parts {
		try(&t.live.parts[i], "")
	}
	for i := range t.asIf.parts {
		try(&t.asIf.parts[i], asIfPrefix)
	}
	if len(out) == 0 {
		return all
	}
	return out
}
