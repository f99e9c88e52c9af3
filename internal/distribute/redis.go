package distribute

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/redisconn"
)

// RedisConfig is what a bus over Redis is built from.
type RedisConfig struct {
	// URL is redis://[user:password@]host[:port][/database], or rediss:// for
	// TLS. Required. It is never logged or returned in an error.
	URL string
	// PasswordFile holds the password, read anew at each connection; "" takes
	// the URL's.
	PasswordFile string
	// RootCAs judge the server's certificate; nil takes the system's.
	RootCAs *x509.CertPool
	// Prefix begins every key and channel; default "rlc:". Buses with different
	// prefixes share a Redis and know nothing of each other.
	Prefix string

	// Epoch is the leadership epoch under which this process writes, asked at
	// each write; 0 says that it does not lead. Nil makes a bus that only
	// follows: its Publish fails with rlc.ErrInvalid.
	Epoch func() uint64
	// Check reports why enforcers would refuse next; prev is what was published
	// before it, nil for nothing. Required beside Epoch.
	Check func(prev *rlc.Snapshot, next rlc.Snapshot) error
	// OnAck hears, from Run, each acknowledgement that is new; nil for nobody.
	OnAck func(rlc.Ack)
	// OnError hears, from Follow, each time that the newest snapshot could not
	// be learned; nil for nobody. The error names the server, never a secret.
	OnError func(error)

	// Poll bounds how long a lost notification goes unnoticed, and how old the
	// acknowledgements are that Run has seen; default 2 s.
	Poll time.Duration
	// Repeat is how often followers get the newest message again, so that they
	// know it still is, and how often Run sees to it that Redis still holds what
	// was published; default 10 s.
	Repeat time.Duration
	// AckTTL is how long an enforcer that fell silent is listed; default 1 min.
	// It must exceed Repeat.
	AckTTL time.Duration
	// Timeout bounds each call that carries no document; default 2 s. One that
	// does may take five times as long.
	Timeout time.Duration
	Log     *slog.Logger // nil: discarded
}

// The bounds of waiting between attempts while Redis is away: a random time
// up to a ceiling that doubles from the first to the second, so that a fleet
// does not come back in one instant.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
	// spread is how long followers take between them to fetch what one
	// notification tells all of them at once.
	spread = 250 * time.Millisecond
	// fenceTTL is how long a silent leader's epoch keeps older ones out. It is
	// far longer than Repeat, and short enough that a control plane whose
	// records were lost is not shut out for long.
	fenceTTL = 10 * time.Minute
	// maxEnforcers bounds the acknowledgements that are kept.
	maxEnforcers = 10_000
)

// Redis is the bus between processes. It is made without a connection and
// connects when it is used; it is safe for use by many goroutines.
type Redis struct {
	config RedisConfig
	conn   *redisconn.Conn
	keys   keys
	log    *slog.Logger

	mu      sync.Mutex
	wanted  outgoing // what this process published or would have, were it able to
	problem map[string]string
}

// NewRedis checks c and makes a bus. It does not connect: Redis may be away.
func NewRedis(c RedisConfig) (*Redis, error) {
	if c.Prefix == "" {
		c.Prefix = "rlc:"
	}
	k, err := newKeys(c.Prefix)
	if err != nil {
		return nil, err
	}
	if c.Epoch != nil && c.Check == nil {
		return nil, fmt.Errorf("%w: distribute needs a check of snapshots", rlc.ErrInvalid)
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&c.Poll, 2 * time.Second}, {&c.Repeat, 10 * time.Second}, {&c.AckTTL, time.Minute}, {&c.Timeout, 2 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	if c.AckTTL <= c.Repeat {
		return nil, fmt.Errorf("%w: acknowledgements must live longer than %s, after which they are renewed; got %s", rlc.ErrInvalid, rlc.DurationText(c.Repeat), rlc.DurationText(c.AckTTL))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	conn, err := redisconn.New(redisconn.Config{
		URL: c.URL, PasswordFile: c.PasswordFile, RootCAs: c.RootCAs,
		// A call ends by its own deadline; the longest ends a connection that no
		// longer answers.
		DialTimeout: c.Timeout, Silence: bulk * c.Timeout, Tune: tune,
	})
	if err != nil {
		return nil, err
	}
	return &Redis{config: c, conn: conn, keys: k, log: c.Log.With("redis", conn.Addr()), problem: map[string]string{}}, nil
}

// Close ends every connection. What is under way fails.
func (r *Redis) Close() { r.conn.Close() }

// Publish sends m to every follower, now and later. A document that is already
// published is not sent again. One that is older than the published one fails
// with rlc.ErrConflict, and a snapshot that enforcers would refuse with Check's
// error; then nothing of m is sent. A process that does not lead, or no longer,
// gets rlc.ErrFenced. Where that is so, and where Redis is away, m is kept and
// Run sends it as soon as it can; the caller may try again as well.
func (r *Redis) Publish(ctx context.Context, m Message) error {
	if r.config.Epoch == nil {
		return fmt.Errorf("%w: this bus follows and does not publish", rlc.ErrInvalid)
	}
	docs, err := encode(m)
	if err != nil {
		return err
	}
	if s, before := m.Snapshot, r.desired().Snapshot; s != nil && before != nil && s.Version.Compare(before.Version) < 0 {
		return fmt.Errorf("%w: snapshot %s does not follow %s, which is to be published", rlc.ErrConflict, s.Version, before.Version)
	}
	err = r.deliver(ctx, outgoing{m, docs})
	if away := (*awayError)(nil); err == nil || errors.Is(err, rlc.ErrFenced) || errors.As(err, &away) {
		r.mu.Lock()
		r.wanted.merge(outgoing{m, docs})
		r.mu.Unlock()
	}
	return err
}

// outgoing is a message and its documents as Redis holds them.
type outgoing struct {
	Message
	docs [documents]*document
}

func (o *outgoing) merge(m outgoing) {
	for i, d := range m.docs {
		if d != nil && (o.docs[i] == nil || d.version.Compare(o.docs[i].version) > 0) {
			o.docs[i] = d
		}
	}
	o.Merge(m.Message)
}

func (r *Redis) desired() outgoing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted
}

// deliver brings Redis to hold m, or says why not.
func (r *Redis) deliver(ctx context.Context, m outgoing) error {
	writer := r.config.Epoch()
	if writer == 0 {
		return fmt.Errorf("%w: this process does not lead and does not publish", rlc.ErrFenced)
	}
	next := m.docs
	have, err := r.heads(ctx)
	if err != nil {
		return err
	}
	if have.fence > writer {
		return fmt.Errorf("%w: epoch %d, and %d leads", rlc.ErrFenced, writer, have.fence)
	}
	for i := range next {
		if next[i] == nil || have.docs[i] == nil {
			continue
		}
		newer, err := next[i].follows(*have.docs[i])
		if err != nil {
			return err
		}
		if !newer {
			next[i] = nil
		}
	}
	if next[snapshotDoc] != nil {
		if err := r.check(ctx, have, *m.Snapshot); err != nil {
			return err
		}
	}
	return r.write(ctx, writer, next)
}

// check asks whether enforcers would take next after what is published, which
// is what Redis holds or, where it has lost that, what this process published.
func (r *Redis) check(ctx context.Context, have heads, next rlc.Snapshot) error {
	prev := r.desired().Snapshot
	if h := have.docs[snapshotDoc]; h != nil && (prev == nil || h.version.Compare(prev.Version) > 0) {
		var held Message
		err := r.fetch(ctx, snapshotDoc, &held)
		if away := (*awayError)(nil); errors.As(err, &away) {
			return err
		} else if err == nil {
			prev = held.Snapshot
		} else {
			r.say("published", err) // beyond comparing with; enforcers compare for themselves
		}
	}
	if prev != nil && prev.Version.Compare(next.Version) >= 0 {
		prev = nil // Redis lost it, and it is published again
	}
	return r.config.Check(prev, next)
}

// Run keeps Redis holding what this process has published, while it leads, and
// gives OnAck each acknowledgement that is new. It returns nil when ctx ends.
func (r *Redis) Run(ctx context.Context) error {
	heard := map[string]rlc.Ack{}
	var repeated time.Time
	for {
		if acks, err := r.Acks(ctx); ctx.Err() == nil {
			r.say("acknowledgements", err)
			r.tell(heard, acks)
		}
		if now := time.Now(); now.Sub(repeated) >= r.config.Repeat {
			r.repeat(ctx)
			repeated = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(jitter(r.config.Poll)):
		}
	}
}

// repeat publishes again what is to be in force, so that a Redis that lost it
// holds it again.
func (r *Redis) repeat(ctx context.Context) {
	if r.config.Epoch == nil || r.config.Epoch() == 0 {
		return
	}
	err := r.deliver(ctx, r.desired())
	if ctx.Err() == nil {
		r.say("publish", err)
	}
}

// tell gives OnAck those of acks that differ from what was heard before.
func (r *Redis) tell(heard map[string]rlc.Ack, acks []rlc.Ack) {
	for _, a := range acks {
		last := heard[a.Enforcer]
		if a.At.Equal(last.At) {
			continue
		}
		heard[a.Enforcer] = a
		report(r.log, last, a)
		if r.config.OnAck != nil {
			r.config.OnAck(a)
		}
	}
	if len(heard) > 2*maxEnforcers {
		clear(heard) // names come from outside
	}
}

// Follow gives apply the newest message, at once where there is one, at each
// change, and again every Config.Repeat while Redis holds it, until ctx ends;
// then it returns nil. Messages in between may be left out. What apply returns
// is the follower's acknowledgement; one without a name stays unsaid. Apply is
// called by one goroutine at a time. While Redis is away, empty, or holds something older or damaged, apply
// is not called: what is in force stays.
func (r *Redis) Follow(ctx context.Context, apply func(Message) rlc.Ack) error {
	ctx, cancel := context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	var listening sync.WaitGroup
	listening.Go(func() { r.listen(ctx, wake) })
	defer listening.Wait()
	defer cancel()

	f := subscriber{bus: r, apply: apply}
	for failures := 0; ; {
		wait := jitter(r.config.Poll)
		err := f.poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.say("follow", err)
		if away := (*awayError)(nil); errors.As(err, &away) {
			wait = backoff(failures)
			failures++
		} else {
			failures = 0
		}
		if err != nil && r.config.OnError != nil {
			r.config.OnError(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wake:
			timer.Reset(min(wait, rand.N(spread)))
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		timer.Stop()
	}
}

// Pass says what an enforcer acknowledges that does not reach Redis itself. It is
// to be said again within Config.AckTTL.
func (r *Redis) Pass(ctx context.Context, a rlc.Ack) error { return r.acknowledge(ctx, a) }

// listen wakes the follower at each notification, and whenever it has
// subscribed anew, since it may have missed one. Polling stands behind it.
func (r *Redis) listen(ctx context.Context, wake chan<- struct{}) {
	signal := func() {
		select {
		case wake <- struct{}{}:
		default: // it is already to look
		}
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		client, err := r.conn.Client(ctx)
		if err == nil {
			var subscribed atomic.Bool
			hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { subscribed.Store(true); signal() })
			_ = client.Receive(hooked, client.B().Subscribe().Channel(r.keys.channel).Build(), func(rueidis.PubSubMessage) { signal() })
			if subscribed.Load() {
				failures = 0
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff(failures)):
		}
	}
}

// subscriber is the state of one Follow.
type subscriber struct {
	bus     *Redis
	apply   func(Message) rlc.Ack
	newest  Message
	applied time.Time // when apply was last called
	ack     *rlc.Ack  // what it said; nil before the first
}

// poll learns what Redis holds and applies what is new or due. The error says
// why the newest message is not known.
func (f *subscriber) poll(ctx context.Context) error {
	have, err := f.bus.heads(ctx)
	if err != nil {
		return err
	}
	errs, changed := []error(nil), false
	for i, h := range have.docs {
		if h == nil || h.version.Compare(f.newest.version(i)) <= 0 && f.newest.has(i) {
			continue
		}
		var m Message
		if err := f.bus.fetch(ctx, i, &m); err != nil {
			errs = append(errs, err)
			continue
		}
		changed = f.newest.Merge(m) || changed
	}
	if err := f.confirmed(have); err != nil {
		errs = append(errs, err)
	}
	if now := time.Now(); changed || len(errs) == 0 && now.Sub(f.applied) >= f.bus.config.Repeat {
		a := f.apply(f.newest)
		if f.applied = now; a.Enforcer != "" {
			f.ack = &a
			f.bus.say("acknowledge", f.bus.acknowledge(ctx, a))
		}
	} else if f.ack != nil && len(errs) > 0 {
		f.bus.say("acknowledge", f.bus.acknowledge(ctx, *f.ack)) // it lives, and Redis may have forgotten it
	}
	return errors.Join(errs...)
}

// confirmed says why Redis does not vouch for the newest documents known.
func (f *subscriber) confirmed(have heads) error {
	switch h := have.docs[snapshotDoc]; {
	case h == nil && have.docs[overridesDoc] == nil:
		return fmt.Errorf("redis at %s: snapshot: %w: none is published yet", f.bus.conn.Addr(), rlc.ErrNotFound)
	case f.newest.Snapshot != nil && h == nil:
		return fmt.Errorf("redis at %s: snapshot %s: %w: it was lost and waits to be published again", f.bus.conn.Addr(), f.newest.Snapshot.Version, rlc.ErrNotFound)
	case f.newest.Snapshot != nil && h.version.Compare(f.newest.Snapshot.Version) < 0:
		return fmt.Errorf("redis at %s: %w: it holds snapshot %s, older than %s which it held before", f.bus.conn.Addr(), rlc.ErrRefused, h.version, f.newest.Snapshot.Version)
	}
	return nil
}

// say logs what is wrong with a part once, and once that it is well again. The
// text of an error names it; nil is well.
func (r *Redis) say(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	before := r.problem[part]
	r.problem[part] = text
	r.mu.Unlock()
	switch {
	case text != "" && text != before:
		r.log.Warn("snapshot bus", "part", part, "error", text)
	case text == "" && before != "":
		r.log.Info("snapshot bus works again", "part", part)
	}
}

// jitter is a random time from half of d to d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// backoff is how long to wait after a failure that so many came before: a
// random time up to the ceiling, at least a tenth of the first one.
func backoff(before int) time.Duration {
	ceiling := backoffMost
	if before < 6 {
		ceiling = min(backoffFirst<<before, backoffMost)
	}
	return backoffFirst/10 + rand.N(ceiling)
}

// Acks is the last word of each enforcer heard of within AckTTL, sorted by
// name, its time by Redis's clock.
func (r *Redis) Acks(ctx context.Context) ([]rlc.Ack, error) {
	byName := map[string]rlc.Ack{}
	values, err := r.ackValues(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		a, err := decodeAck(v)
		if err != nil {
			r.say("acknowledgement", err) // somebody else's doing: the others count
			continue
		}
		byName[a.Enforcer] = a
	}
	out := make([]rlc.Ack, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out, nil
}

// awayError says that Redis could not be reached or did not do its work. The
// library's own error ends here: only its text goes on.
type awayError struct {
	addr string
	text string
}

func (e *awayError) Error() string { return fmt.Sprintf("redis at %s: %s", e.addr, e.text) }

// away translates an error of the library. A context that ended stays one.
func (r *Redis) away(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	text := err.Error()
	if redisconn.Timeout(err) {
		text = "no answer in time"
	}
	return &awayError{addr: r.conn.Addr(), text: text}
}
