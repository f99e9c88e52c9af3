package loopwire

import (
	"encoding/json"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer/loop"
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
// its certificate's, or one that begins with it. What is none, or of another zone,
// becomes nil.
func (a *Aggregator) signed(m *member, ack []byte) []byte {
	if m.peer == "" {
		return ack
	}
	var said rlc.Ack
	if json.Unmarshal(ack, &said) != nil {
		return nil
	}
	if said.Zone != "" && said.Zone != a.config.Zone {
		a.foreigners.note("an acknowledgement of another zone was refused", m.node)
		return nil
	}
	if said.Enforcer == m.peer || strings.HasPrefix(said.Enforcer, m.peer+"/") {
		return ack
	}
	said.Enforcer = m.peer + "/" + said.Enforcer
	out, err := json.Marshal(said)
	if err != nil {
		return nil
	}
	return out
}

// foreign refuses a node that runs somewhere else, as it says or as its certificate
// does: it would be held to the limits of this zone, and counted in it. One that
// does not say is taken in.
func (a *Aggregator) foreign(m *member, h *pb.NodeHello) error {
	switch here := a.config.Place; {
	case elsewhere(m.bound, here):
		a.foreigners.note("an enforcer was refused: its certificate is for another zone or region", m.node)
		return status.Errorf(codes.PermissionDenied, "the certificate of %q is for zone %q, region %q; this is the aggregator of zone %q, region %q: change its --aggregator, or its certificate",
			m.peer, m.bound.Zone, m.bound.Region, here.Zone, here.Region)
	case elsewhere(loop.Place{Zone: h.Zone, Region: h.Region}, here):
		a.foreigners.note("an enforcer was refused: it says it runs in another zone or region", m.node)
		return status.Errorf(codes.FailedPrecondition, "an enforcer of zone %q, region %q joins the aggregator of zone %q, region %q: change its --aggregator, or the --zone and --region of one of the two",
			h.Zone, h.Region, here.Zone, here.Region)
	}
	return nil
}

// elsewhere reports whether who is bound to a place, or to a part of one, is not
// here.
func elsewhere(bound, here loop.Place) bool {
	return bound.Zone != "" && bound.Zone != here.Zone || bound.Region != "" && bound.Region != here.Region
}

// foreign refuses a source that speaks for a place which its certificate does not
// name.
func (c *Controller) foreign(s loop.Source, bound loop.Place) error {
	if !elsewhere(bound, s.Place) {
		return nil
	}
	who, _ := identity(s)
	c.foreigners.note("a source was refused: its certificate is for another zone or region", who)
	return status.Errorf(codes.PermissionDenied, "the certificate of %q is for zone %q, region %q, and attends as %s: change its --zone and --region, or its certificate",
		s.Peer, bound.Zone, bound.Region, who)
}

// foreignAck reports whether an acknowledgement that a source passes on is of
// another zone than its certificate names.
func (c *Controller) foreignAck(s loop.Source, bound loop.Place, ack []byte) bool {
	var said rlc.Ack
	if bound.Zone == "" || json.Unmarshal(ack, &said) == nil && (said.Zone == "" || said.Zone == bound.Zone) {
		return false
	}
	who, _ := identity(s)
	c.foreigners.note("an acknowledgement of another zone was refused", who)
	return true
}
