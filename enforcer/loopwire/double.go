package loopwire

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// deadAfter is how long a stream may say nothing before a newcomer of the same
// name takes its place: three of the slowest reports.
const deadAfter = 3 * time.Second

// complainEvery is how often refusals of one kind are logged.
const complainEvery = time.Minute

// doubles counts streams that were refused because one of the same name is
// open and heard, and logs them now and then.
type doubles struct {
	log   *slog.Logger
	count atomic.Uint64

	mu   sync.Mutex
	said time.Time
}

// refuse counts a refusal and returns it; who names the identity, advice says
// what to change.
func (d *doubles) refuse(who, advice string) error {
	n := d.count.Add(1)
	d.mu.Lock()
	say := d.said.IsZero() || time.Since(d.said) >= complainEvery
	if say {
		d.said = time.Now()
	}
	d.mu.Unlock()
	if say {
		d.log.Warn("a second stream of one name was refused: "+advice, "who", who, "refused", n)
	}
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

// hearRefusal keeps a refusal until a stream is taken in.
func (u *uplink[Up]) hearRefusal(err error) {
	s := status.Convert(err)
	if s.Code() != codes.AlreadyExists {
		return
	}
	text := s.Message()
	u.refused.Store(&text)
	if u.onRefused != nil {
		u.onRefused()
	}
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
