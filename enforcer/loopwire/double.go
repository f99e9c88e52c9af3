package loopwire

import (
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// deadAfter is how long a stream may say nothing before a newcomer of the same
// name takes its place: three of the slowest reports.
const deadAfter = 3 * time.Second

// complainEvery is how often refusals of one kind are logged.
const complainEvery = time.Minute

// refusals counts what was refused for one reason, and logs it now and then.
type refusals struct {
	log   *slog.Logger
	count atomic.Uint64

	mu   sync.Mutex
	said time.Time
}

func (r *refusals) note(what, who string) {
	n := r.count.Add(1)
	r.mu.Lock()
	say := r.said.IsZero() || time.Since(r.said) >= complainEvery
	if say {
		r.said = time.Now()
	}
	r.mu.Unlock()
	if say {
		r.log.Warn(what, "who", who, "refused", n)
	}
}

// doubles are streams that were refused because one of the same name is open and
// heard.
type doubles struct{ refusals }

// refuse counts a refusal and returns it; who names the identity, advice says
// what to change.
func (d *doubles) refuse(who, advice string) error {
	d.note("a second stream of one name was refused: "+advice, who)
	return status.Errorf(codes.AlreadyExists, "another process is open as %s: %s", who, advice)
}

// refusal is why the tier above does not take this process in; nil where it
// does, or is away.
func (u *uplink[Up]) refusal() error {
	if text := u.refused.Load(); text != nil {
		return fmt.Errorf("refused by the tier above: %s", *text)
	}
	return nil
}

// hearRefusal keeps a refusal until a stream is taken in: somebody has to change a
// name or an address.
func (u *uplink[Up]) hearRefusal(err error) {
	s := status.Convert(err)
	if c := s.Code(); c != codes.AlreadyExists && c != codes.PermissionDenied && c != codes.FailedPrecondition {
		return
	}
	text := s.Message()
	u.refused.Store(&text)
	if u.onRefused != nil {
		u.onRefused()
	}
}

// peersKey is the trailer in which who refuses says how many nodes there are, so
// that those who stay without a word share the limits by head.
const peersKey = "rlc-loop-peers"

func (u *uplink[Up]) hearPeers(trailer metadata.MD) {
	if text := trailer.Get(peersKey); len(text) > 0 && u.onPeers != nil {
		if n, err := strconv.Atoi(text[0]); err == nil && n > 0 {
			u.onPeers(n)
		}
	}
}

// peers is how many nodes the controller knows of.
func (c *Controller) peers() (n int) {
	buckets, zones := c.State()
	for _, z := range zones {
		n += z.Members
	}
	for _, b := range buckets {
		n = max(n, b.Nodes)
	}
	return n
}

// outcasts are the nodes that an aggregator has turned away lately.
type outcasts struct {
	others atomic.Int64 // nodes that the tier above knows of

	mu    sync.Mutex
	at    map[string]time.Time
	swept time.Time
}

const (
	maxOutcasts = 100_000
	outcastFor  = time.Minute // a node tries again within some seconds
)

// add notes a node and returns how many nodes there are.
func (o *outcasts) add(node string, now time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at == nil {
		o.at = map[string]time.Time{}
	}
	if _, ok := o.at[node]; ok || len(o.at) < maxOutcasts {
		o.at[node] = now
	}
	if now.Sub(o.swept) > time.Second {
		o.swept = now
		maps.DeleteFunc(o.at, func(_ string, at time.Time) bool { return now.Sub(at) > outcastFor })
	}
	return int(o.others.Load()) + len(o.at)
}

// Ready is nil unless the controller refuses this aggregator; it then takes no
// nodes, which may go to another.
func (a *Aggregator) Ready() error { return a.above.up.refusal() }

// Ready is nil unless the parent refuses this controller.
func (c *Controller) Ready() error {
	if c.above == nil {
		return nil
	}
	return c.above.up.refusal()
}

// turnAway ends the streams of every node: without a controller's word of its
// own this aggregator would give them the zone's share a second time.
func (a *Aggregator) turnAway() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for m := range a.members {
		m.endWith(a.turnedAway())
	}
}

func (a *Aggregator) turnedAway() error {
	return status.Errorf(codes.Unavailable, "this aggregator takes no nodes: %v", a.Ready())
}
