package loopwire

import (
	"encoding/json"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// identify makes a member's names begin with the one of its certificate, so that
// nobody speaks for another's node.
func (m *member) identify(peer string) {
	if m.peer = peer; peer != "" {
		m.node = peer + "/" + m.node
	}
}

// signed is a member's acknowledgement under a name that its certificate allows:
// its certificate's, or one that begins with it. What is none becomes nil.
func (m *member) signed(ack []byte) []byte {
	if m.peer == "" {
		return ack
	}
	var a rlc.Ack
	if json.Unmarshal(ack, &a) != nil {
		return nil
	}
	if a.Enforcer == m.peer || strings.HasPrefix(a.Enforcer, m.peer+"/") {
		return ack
	}
	a.Enforcer = m.peer + "/" + a.Enforcer
	out, err := json.Marshal(a)
	if err != nil {
		return nil
	}
	return out
}

// foreign refuses a node that says it runs somewhere else: it would be held to the
// limits of this zone, and counted in it. One that does not say is taken in.
func (a *Aggregator) foreign(h *pb.NodeHello) error {
	if (h.Zone == "" || h.Zone == a.config.Zone) && (h.Region == "" || h.Region == a.config.Region) {
		return nil
	}
	a.foreigners.Add(1)
	return status.Errorf(codes.FailedPrecondition, "an enforcer of zone %q, region %q joins the aggregator of zone %q, region %q: change its --aggregator, or the --zone and --region of one of the two",
		h.Zone, h.Region, a.config.Zone, a.config.Region)
}
