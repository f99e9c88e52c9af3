package redis

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"github.com/openrlc/rlc/internal/redisconn"
)

// The kinds of failure, as Error.Reason gives them.
const (
	Timeout     = "timeout"      // no answer within the deadline
	Refused     = "refused"      // no connection, or it ended
	BreakerOpen = "breaker_open" // not asked: it failed too often a moment ago
	ReadOnly    = "readonly"     // the server is a replica
	OOM         = "oom"          // it has no memory left and evicts nothing
	Loading     = "loading"      // it is reading its data from disk
	Busy        = "busy"         // another's script runs
	NoReplicas  = "noreplicas"   // it has fewer replicas than it wants for writing
	MasterDown  = "masterdown"   // a replica without its master
	ClusterDown = "clusterdown"  // a Cluster without all its shards, or that moves without end
	NoScript    = "noscript"     // scripts are forbidden, by an ACL or a proxy
	Other       = "other"
)

// Error says that Redis did not decide, and why. The library's own error ends
// here: only its text goes on, without secrets.
type Error struct {
	kind string
	addr string
	text string
	ours bool // it is well and refused what it was sent
}

// Error names the server.
func (e *Error) Error() string { return "redis at " + e.addr + ": " + e.text }

// Reason is the kind of failure.
func (e *Error) Reason() string { return e.kind }

// kinds are by the first word of Redis's answer.
var kinds = []struct{ word, kind string }{
	{"READONLY", ReadOnly}, {"OOM", OOM}, {"LOADING", Loading}, {"BUSY", Busy}, {"NOREPLICAS", NoReplicas},
	{"MASTERDOWN", MasterDown}, {"CLUSTERDOWN", ClusterDown}, {"TRYAGAIN", ClusterDown}, {"MOVED", ClusterDown}, {"ASK", ClusterDown},
	{"NOPERM", NoScript}, {"NOSCRIPT", NoScript}, {"ERR unknown command", NoScript},
}

func (c *Counter) fail(kind, text string) *Error {
	return &Error{kind: kind, addr: c.conn.Addr(), text: text}
}

// bad reports whether an error says that Redis is not to be asked for a while.
func (e *Error) bad() bool { return e != nil && !e.ours }

// failure translates an error of the library.
func (c *Counter) failure(err error) *Error {
	e := &Error{kind: Other, addr: c.conn.Addr(), text: err.Error()}
	if r, ok := rueidis.IsRedisErr(err); ok {
		for _, k := range kinds {
			if strings.HasPrefix(r.Error(), k.word) {
				e.kind = k.kind
				break
			}
		}
		e.ours = strings.HasPrefix(r.Error(), "RLCINVALID") || strings.Contains(r.Error(), "user_script") && e.kind == Other
		return e
	}
	op, strange := (*net.OpError)(nil), (*tls.CertificateVerificationError)(nil)
	switch {
	case redisconn.Timeout(err):
		e.kind, e.text = Timeout, "no answer in time"
	case errors.As(err, &op), errors.As(err, &strange), errors.Is(err, net.ErrClosed), errors.Is(err, rueidis.ErrClosing), strings.HasSuffix(err.Error(), "EOF"):
		e.kind = Refused
	}
	return e
}
