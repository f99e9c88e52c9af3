// Package enforcer decides requests from a loaded snapshot: it finds the
// buckets of a request, charges them, answers, and counts. It runs as a
// process behind an HTTP API and can be embedded as a library.
//
// A decision never fails. What cannot be decided is admitted and counted:
// without a snapshot, for a service without a policy, for a key without a
// quota, for a bucket that panicked.
package enforcer

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
	"github.com/openrlc/rlc/enforcer/memory"
)

// Config is what an enforcer is built from. The zero value works: it keeps
// nothing over a restart.
type Config struct {
	Name   string // in acknowledgements; default: the host's name
	Zone   string // where it runs; "" for unknown
	Region string // where it runs; "" for unknown
	// StateDir is the folder for the last good snapshot and overrides, made if
	// need be, and held by one enforcer at a time. "" keeps none: after a restart
	// everything is admitted until a snapshot comes.
	StateDir string
	// KillFile is the file that throws kill switches while it exists; default
	// "kill" in StateDir.
	KillFile string
	// HashKey hashes the values that a policy calls sensitive. Give all
	// enforcers of a fleet the same one, at least 16 bytes, so that their
	// metrics and shared counters name a value alike. Default: one of its own,
	// kept in StateDir.
	HashKey []byte
	// Peers is how many enforcers share the limits, until SetPeers is told
	// otherwise; zero takes what was counted before the last stop.
	Peers Peers
	// MaxKeys bounds the live counters of the process, over all buckets, and
	// what else is remembered of keys; default 1,000,000. Beyond it a new key
	// is treated as on_full says.
	MaxKeys int
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
	Counter Counter          // the shared store; nil: every counter is in process
	// Loop tells what to drop of drop_ratio buckets; whoever gives it joins it to
	// an aggregator. Nil, and until it has said anything of a bucket: they are
	// token buckets.
	Loop *loop.Client
}

// Enforcer decides requests. It is safe for use by many goroutines.
type Enforcer struct {
	config   Config
	log      *slog.Logger
	now      func() time.Time
	clock    clock
	memory   *memory.Memory
	local    Counter       // in memory
	counter  Counter       // nil: there is no shared store
	deadline time.Duration // of a decision that waits for it; 0: none is known
	hashKey  []byte
	gatherer prometheus.Gatherer
	lock     *os.File // nil without a state folder

	loaded     atomic.Pointer[loaded]
	noSnapshot atomic.Uint64 // requests decided without a snapshot
	noService  atomic.Uint64 // requests of services without a policy
	callers    callers
	peers      atomic.Pointer[Peers]
	flight     flights
	meters     meters
	elsewhere  elsewhere

	loading sync.Mutex // one document at a time; it is written to the disk
	ticks   int        // of Run

	mu             sync.Mutex
	confirmed      time.Time // when the snapshot in force was last known to be the newest
	refused        string    // why the newest one was refused; "" when it is in force
	unreadable     string    // why the source could not be read; "" when it was
	refusals       map[string]uint64
	counts         map[string]*counts // by service, NUL, bucket, NUL, role
	switches       map[Switch]thrown
	killUnreadable string              // why the kill file, which is there, cannot be read; "" where it can
	traffic        map[string]*traffic // by service

	overlay          overlay
	overrideCounts   map[string]*counts // by id
	overrideRefusals map[string]uint64
	overridesRefused string // why the newest ones were; "" when they are in force
	overridesLost    string // why they would not outlive a restart; "" when they would
}

// New makes an enforcer and loads its last good snapshot and overrides. A
// damaged or refused document is logged and counted, and the enforcer starts
// without. It fails where another enforcer holds the state folder.
func New(c Config) (*Enforcer, error) {
	if c.HashKey != nil && len(c.HashKey) < 16 {
		return nil, fmt.Errorf("%w: the hash key has %d bytes; at least 16", rlc.ErrInvalid, len(c.HashKey))
	}
	if c.MaxKeys <= 0 {
		c.MaxKeys = 1_000_000
	}
	e := &Enforcer{
		config:  c,
		log:     c.Log,
		now:     c.Now,
		memory:  &memory.Memory{Max: c.MaxKeys},
		counter: c.Counter,
		hashKey: c.HashKey,

		refusals:         map[string]uint64{},
		counts:           map[string]*counts{},
		switches:         map[Switch]thrown{},
		traffic:          map[string]*traffic{},
		overrideRefusals: map[string]uint64{},
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
	e.local = InProcess(e.memory)
	if w, ok := c.Counter.(Waiting); ok {
		e.deadline = w.Deadline()
	}
	e.meters.max, e.flight.most = c.MaxKeys, int64(c.MaxKeys)
	e.flight.init()
	e.peers.Store(&c.Peers)
	if err := e.openState(); err != nil {
		return nil, err
	}
	if err := e.register(c.Registerer); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.restore()
	e.lookAtKillFile()
	return e, nil
}

// openState takes the state folder.
func (e *Enforcer) openState() (err error) {
	dir := e.config.StateDir
	if dir != "" {
		if e.lock, err = lockState(dir); err != nil {
			return err
		}
	}
	if e.hashKey == nil {
		if e.hashKey, err = stateKey(dir); err != nil {
			return errors.Join(fmt.Errorf("key for sensitive values: %w", err), e.Close())
		}
	}
	return nil
}

// register shows the metrics.
func (e *Enforcer) register(also prometheus.Registerer) error {
	own := prometheus.NewRegistry()
	e.gatherer = own
	if err := own.Register(collector{e}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if also == nil {
		return nil
	}
	if err := also.Register(collector{e}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if g, ok := also.(prometheus.Gatherer); ok {
		e.gatherer = g
	}
	return nil
}

// Close lets go of the state folder. The enforcer may decide on, but is given
// no more documents. Run does the same at its end.
func (e *Enforcer) Close() error {
	e.loading.Lock()
	defer e.loading.Unlock()
	if e.lock == nil {
		return nil
	}
	err := e.lock.Close()
	e.lock = nil
	return err
}

// place is where the enforcer runs.
func (e *Enforcer) place() place { return place{e.config.Zone, e.config.Region} }

// restore puts the last good documents in force, if there are any.
func (e *Enforcer) restore() {
	dir := e.config.StateDir
	if dir == "" {
		return
	}
	e.restoreUsual()
	e.restorePeers()
	if err := e.restoreOverrides(); err != nil && !errors.Is(err, rlc.ErrNotFound) {
		e.overrideRefusals[refusedStore]++
		e.overridesRefused = err.Error()
		e.log.Error("last good overrides refused", "state", dir, "error", err)
	}
	var g lastGood
	err := loadState(dir, lastGoodName, lastGoodMagic, &g)
	var c *compiled
	if err == nil {
		c, err = compile(g.Snapshot, e.place())
	}
	switch {
	case errors.Is(err, rlc.ErrNotFound):
		e.log.Info("no last good snapshot", "state", dir)
	case err != nil:
		e.refusals[refusedStore]++
		e.refused = err.Error()
		e.log.Error("last good snapshot refused", "state", dir, "error", err)
	default:
		e.adopt(c, g.Saved)
		e.log.Info("last good snapshot in force", "version", g.Snapshot.Version, "services", len(c.services))
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
	if e.Switched(StopDistribution) {
		return refuse(refusedStopped, "%w: distribution is stopped here by the kill switch; snapshot %s would be next", rlc.ErrRefused, s.Version)
	}
	next, err := compile(s, e.place())
	if err != nil {
		return err
	}
	if prev != nil {
		if err := shrunken(prev.compiled, next); err != nil {
			return err
		}
	}
	now := e.now()
	if e.config.StateDir != "" {
		if err := saveState(e.config.StateDir, lastGoodName, lastGoodMagic, lastGood{Saved: now.UTC(), Snapshot: s}); err != nil {
			return refuse(refusedStore, "keep snapshot %s as last good: %w", s.Version, err)
		}
	}
	e.adopt(next, now)
	origin := "commit"
	if strings.HasPrefix(s.Commit, ContentHash) {
		origin = "content"
	}
	e.log.Info("snapshot in force", "version", s.Version, origin, s.Commit, "services", len(next.services))
	return nil
}

// adopt joins a snapshot with what its buckets have counted so far, and puts
// it in force.
func (e *Enforcer) adopt(c *compiled, confirmed time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := map[string]*counts{}
	spaces := map[string]bool{}
	join := func(s *service, b *bucket) {
		id := s.Name + "\x00" + b.Name + "\x00" + string(b.Role) // what a cap counted says nothing of a quota bucket
		n := e.counts[id]
		if n == nil {
			n = newCounts(s.Name, b.Name, b.Role)
		}
		n.off.Store(false)
		n.table.resize(s.MaxSeries)
		b.counts = n
		kept[id] = n
		spaces[b.space], spaces[b.asIf] = true, true
	}
	traffics := map[string]*traffic{}
	for _, s := range c.services {
		for i := range s.buckets {
			join(s, &s.buckets[i])
		}
		join(s, &s.unmatched)
		if s.traffic = e.traffic[s.Name]; s.traffic == nil {
			s.traffic = &traffic{}
		}
		traffics[s.Name] = s.traffic
	}
	e.counts, e.traffic = kept, traffics
	e.confirmed = confirmed
	l := e.assemble(c, e.now())
	for _, s := range l.services {
		l.initialise(s.service)
	}
	e.putInForce(l)
	e.memory.Keep(func(space string) bool {
		return spaces[space] || strings.HasPrefix(strings.TrimPrefix(space, asIfPrefix), overrideSpace)
	})
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
func (l *loaded) initialise(s *service) {
	for i := range s.buckets {
		b := &s.buckets[i]
		if b.Role == rlc.CapRole {
			continue
		}
		for _, live := range l.byRate(s, b) {
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

// ContentHash begins what stands for the commit of a snapshot that was read from a
// folder, of which no commit is known: a hash of its files.
const ContentHash = "sha256:"

// Commit is the snapshot's in force; "" for none.
func (e *Enforcer) Commit() string {
	if l := e.loaded.Load(); l != nil {
		return l.snapshot.Commit
	}
	return ""
}

// Ack is the enforcer's word on the newest documents it was given.
func (e *Enforcer) Ack() rlc.Ack {
	e.mu.Lock()
	defer e.mu.Unlock()
	return rlc.Ack{
		Enforcer: e.config.Name, Zone: e.config.Zone, At: e.now().UTC(),
		Version: e.Version(), Refused: e.refused,
		Overrides: e.overlay.version, OverridesRefused: e.overridesRefused,
	}
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
	if note := e.loopNote(); note != "" {
		notes = append(notes, note)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refused != "" {
		notes = append(notes, "the newest snapshot was refused: "+e.refused)
	}
	if e.unreadable != "" {
		notes = append(notes, "the source of snapshots cannot be read: "+e.unreadable)
	}
	if e.killUnreadable != "" {
		notes = append(notes, "the kill file cannot be read, so it throws no switch and lets go of none: "+e.killUnreadable)
	}
	for _, s := range Switches() {
		if e.switches[s].on() {
			notes = append(notes, fmt.Sprintf("the kill switch %s is on", s))
		}
	}
	notes = append(notes, e.overrideNotes()...)
	if l != nil {
		for _, name := range l.names() {
			s := l.services[name]
			if s.traffic.tripped {
				notes = append(notes, fmt.Sprintf("the identity breaker of %s acts: many requests lack a caller, bucket or quota that usually have one; only caps enforce on them", name))
			}
			for i := range s.buckets {
				if s.buckets[i].counts.off.Load() {
					notes = append(notes, fmt.Sprintf("bucket %s/%s is turned off after a panic", name, s.buckets[i].Name))
				}
			}
		}
	}
	return reasons, notes
}
